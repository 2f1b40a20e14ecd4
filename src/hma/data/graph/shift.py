"""Graphs divided by size or degree: train on some, test on others that look different."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.data.graph.graph_source import GraphSource
from hma.data.labels import class_names, listed, whole
from hma.data.source import Source
from hma.data.splitting import ordered, stratified
from hma.errors import UserError
from hma.targets import Classes

Shift = Literal["size", "degree", "degree-reversed"]
"""Small graphs train and large ones test; sparse ones train and dense ones test; or the reverse."""
PERCENTILES: Mapping[Shift, tuple[int, int]] = {
    "size": (50, 90), "degree": (50, 80), "degree-reversed": (20, 50)
}  # fmt: skip
"""Over all graphs of a source; numpy's, so a cut may lie between two values."""
HELD_OUT = 0.1
"""Most that is validated on: of the graphs below the cut for size, of all graphs for degree."""
FEWEST_EDGES = 3
"""Graphs with fewer are left out of a division by degree; both directions of an edge count."""


@dataclass(frozen=True)
class ShiftedGraphs:
    """The graphs of a source as a shift divides them.

    Size is the number of nodes: graphs up to percentile 50 train, a tenth of them, drawn by class
    and seed, validates; those from percentile 90 on test. Degree is edges / nodes, with both
    directions of an edge counted where both are listed: graphs up to percentile 50 train, those
    above percentile 80 test; of those between validate as many as a tenth of all graphs, drawn by
    class and seed. Reversed, graphs above percentile 50 train and those up to percentile 20 test.

    Args:
        source: Graphs with labels.
        shift: What the parts differ in.
    """

    source: GraphSource
    shift: Shift

    @classmethod
    def of(cls, source: Source, shift: str) -> "ShiftedGraphs":
        """Return the graphs of a source, or say why they cannot be divided so."""
        if shift not in get_args(Shift):
            allowed = ", ".join(map(repr, get_args(Shift)))
            raise UserError(f"shift must be one of {allowed}, got {shift!r}")
        if source.kind != "graph":
            raise UserError(f"shift is for graphs, got {shift!r} with {source.name}; leave it out")
        return cls(cast("GraphSource", source), cast("Shift", shift))

    @property
    def values(self) -> NDArray[np.float64]:
        """Size or average degree of every graph, ``(G,)``; one without nodes has degree 0."""
        nodes, edges = self._counts()
        return nodes if self.shift == "size" else edges / np.maximum(nodes, 1)

    @property
    def cuts(self) -> tuple[float, float]:
        """The lower and the upper cut."""
        low, high = np.percentile(self.values, PERCENTILES[self.shift])
        return float(low), float(high)

    def places(self, strata: Tensor, rows: Sequence[int], seed: int) -> dict[str, list[int]]:
        """Return which of ``rows`` train, validate and test, as places among them.

        Args:
            strata: Class of each of ``rows``, ``(N,)``; validation gets its share of each.
            rows: Graphs to be divided.
            seed: Decides which graphs validate, and the order of those that train.
        """
        chosen = np.asarray(rows)
        values, (low, high) = self.values[chosen], self.cuts
        enough = self._counts()[1][chosen] >= FEWEST_EDGES
        if self.shift == "size":
            train, test = values <= low, values >= high
            self._expect_whole({"train": train, "test": test}, chosen)
            inside = np.flatnonzero(train)
            held = _drawn(strata, inside, max(int(HELD_OUT * len(inside)), 1), seed)
            train[held] = False
        else:
            above, below = enough & (values > high), enough & (values <= low)
            train, test = (below, above) if self.shift == "degree" else (above, below)
            between = np.flatnonzero(enough & (values > low) & (values <= high))
            held = _drawn(strata, between, int(HELD_OUT * len(self.source) + 0.5), seed)
        validation = np.zeros_like(train)
        validation[held] = True
        parts = {"train": train, "validation": validation, "test": test}
        self._expect_whole(parts, chosen)
        return ordered([torch.from_numpy(np.flatnonzero(part)) for part in parts.values()], seed)

    def facts(self, places: Mapping[str, Sequence[int]]) -> dict[str, Any]:
        """Say in JSON values where the cuts lie and how many graphs of each class a part has."""
        low, high = (f"{cut:.6g}" for cut in self.cuts)
        first, last = PERCENTILES[self.shift]
        if self.shift == "size":
            said = (
                f"by size, in nodes: at most {low} (percentile {first}) train, {HELD_OUT:.0%} of "
                f"them validation, by class and seed; at least {high} (percentile {last}) test"
            )
        else:
            sides = [f"at most {low} (percentile {first})", f"above {high} (percentile {last})"]
            train, test = sides if self.shift == "degree" else reversed(sides)
            said = (
                f"by degree, edges / nodes, an edge in both directions counted twice: {train} "
                f"train, {test} test, of those between at most {HELD_OUT:.0%} of all graphs "
                f"validation, by class and seed; graphs with less than {FEWEST_EDGES} edges left "
                "out"
            )
        counts = {name: self._classes(rows) for name, rows in places.items()}
        in_none = len(self.source) - sum(map(len, places.values()))
        about = {"by": self.shift, "percentiles": [first, last], "cuts": list(self.cuts)}
        return {"split": said, "shift": {**about, "graphs": counts, "in no split": in_none}}

    def _counts(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the number of nodes and of edges of every graph, ``(G,)`` each."""
        nodes, edges = self.source.nodes_before, self.source.edges_before
        return nodes.diff().numpy().astype(float), edges.diff().numpy().astype(float)

    def _classes(self, rows: Sequence[int]) -> dict[str, int]:
        """Return how many of some graphs there are of each class, or in all."""
        labels = self.source.labels
        if labels is None or self.source.label_kind != Classes.kind:
            return {"all": len(rows)}
        found = Counter(whole(labels[row]) for row in rows)
        return {name: found[name] for name in class_names(list(map(whole, labels)))}

    def _expect_whole(
        self, parts: Mapping[str, NDArray[np.bool_]], chosen: NDArray[np.int64]
    ) -> None:
        """Raise where a part is empty, or a class has no graph to train on; with all counts."""
        counts = {name: self._classes(chosen[part].tolist()) for name, part in parts.items()}
        empty = [name for name, part in parts.items() if not part.any()]
        absent = [name for name, count in counts["train"].items() if not count]
        if not empty and not absent:
            return
        lack = f"no graph for {empty[0]}" if empty else f"no training graph of {listed(absent)}"
        shown = "; ".join(
            f"{name} {', '.join(f'{label!r} {count}' for label, count in each.items())}"
            for name, each in counts.items()
        )
        raise UserError(
            f"shift {self.shift!r} leaves {lack} of {self.source.name}, graphs by class are: "
            f"{shown}; divide the graphs otherwise, or add some"
        )


def _drawn(strata: Tensor, places: NDArray[np.int64], wanted: int, seed: int) -> NDArray[np.int64]:
    """Return so many of ``places`` with their share of each class, all where there are not more."""
    if len(places) <= wanted:
        return places
    own = strata[torch.from_numpy(places)]
    drawn = stratified(own, seed, validation=wanted / len(places), test=0.0)["validation"]
    return places[drawn]

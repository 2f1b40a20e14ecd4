"""Divide the rows of a source into training, validation and test rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.data.graph.source import GraphSource
from hma.data.labels import listed
from hma.data.source import Source
from hma.data.table.columns import parse_times, texts
from hma.data.table.source import TableSource
from hma.errors import UserError

Places = dict[str, list[int]]
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


@dataclass(frozen=True, kw_only=True)
class Division:
    """How the rows of a source are divided.

    Args:
        shares: Share of the rows for "validation" and "test"; a split without one is not drawn.
        group: Column of a table whose equal values stay in one split.
        time: Column of a table that orders the rows: the earliest train, the latest test.
        shift: What training and test graphs differ in; it has shares of its own.
    """

    shares: Mapping[str, float]
    group: str | None = None
    time: str | None = None
    shift: str | None = None

    def __post_init__(self) -> None:
        ways = [name for name in ("group", "time", "shift") if getattr(self, name) is not None]
        if len(ways) > 1:
            raise UserError(
                f"rows are divided by {' or by '.join(ways)}, not by both; leave one out"
            )
        if ways and not self.shares:
            raise UserError(
                "all splits are given, so group, time and shift have no say; leave them out"
            )
        if self.shift is not None and len(self.shares) < 2:
            raise UserError(
                "shift decides validation and test together; leave the one that is given out"
            )

    def places(self, source: Source, strata: Tensor, rows: Sequence[int], seed: int) -> Places:
        """Return the rows of each split.

        Args:
            source: Where they are.
            strata: Class of each of ``rows``, ``(N,)``.
            rows: Places of the rows to be divided.
            seed: Decides what is left to chance.
        """
        if not self.shares:
            return {"train": list(rows)}
        share = self._as_validation()
        if self.group is not None:
            found = by_group(strata, _groups(source, self.group, rows), seed, **share)
        elif self.shift is not None:
            found = ShiftedGraphs.of(source, self.shift).places(strata, rows, seed)
        elif self.time is not None:
            found = by_time(_times(source, self.time, rows), seed, **share)
        else:
            found = by_class(strata, seed, **share)
        if "validation" not in self.shares:
            found["test"] = found.pop("validation")
        return {name: [rows[place] for place in places] for name, places in found.items()}

    def _as_validation(self) -> dict[str, float]:
        """Return the shares; a single one is passed as that of validation."""
        if "validation" in self.shares:
            return {"validation": self.shares["validation"], "test": self.shares.get("test", 0.0)}
        (share,) = self.shares.values()
        if not 0 < share < 1:
            raise UserError(f"test must be a share above 0 and below 1, or 0, got {share}")
        return {"validation": share, "test": 0.0}

    def facts(self, source: Source, places: Places) -> dict[str, Any]:
        """Return in JSON values how the rows were divided."""
        share = {"train": 1 - sum(self.shares.values()), **self.shares}
        shares = ", ".join(f"{100 * share[name]:g}% {name}" for name in places)
        if not self.shares:
            return {"split": "as given"}
        if self.shift is not None:
            return ShiftedGraphs.of(source, self.shift).facts(places)
        if self.group is not None:
            table = _table(source, "group", self.group)
            count = {n: table.frame[self.group].iloc[rows].nunique() for n, rows in places.items()}
            said = f"every value of {self.group!r} wholly in one split, about stratified, by seed"
            return {"split": f"{said}: {shares}", "groups": {"column": self.group, **count}}
        if self.time is not None:
            column = _table(source, "time", self.time).frame[self.time]
            when = parse_times(self.time, column, np.arange(len(column)))
            ends = {
                name: [str(column.iloc[rows[int(when[rows].argmin())]]),
                       str(column.iloc[rows[int(when[rows].argmax())]])]
                for name, rows in places.items()
            }  # fmt: skip
            said = f"by {self.time!r}, the earliest rows train and the latest test: {shares}"
            return {"split": said, "time": {"column": self.time, **ends}}
        return {"split": source.label_kind.how_divided.format(shares=shares)}


def _table(source: Source, option: str, name: str) -> TableSource:
    """Return the source as a table that has a column ``name`` besides its labels."""
    if source.kind != "table":
        raise UserError(
            f"{option} is for tables, got {name!r} with {source.name}; leave it out, or give the "
            "splits as files or folders"
        )
    table = cast("TableSource", source)
    table.expect_columns(option, (name,))
    return table


def _groups(source: Source, name: str, rows: Sequence[int]) -> Tensor:
    """Return the id of the group of each row."""
    table = _table(source, "group", name)
    column = table.frame[name].iloc[list(rows)]
    missing = column.isna().to_numpy().nonzero()[0]
    if len(missing):
        raise UserError(
            f"group column {name!r} of {table.name} has no value in {len(missing)} of {len(rows)} "
            f"rows, first in row {listed([rows[place] for place in missing])} (counted from 0); "
            "fill them in or remove these rows"
        )
    _, ids = np.unique(np.array(texts(column)), return_inverse=True)
    if ids.max() == 0:
        raise UserError(
            f"group column {name!r} of {table.name} has the same value in all rows, so they cannot "
            "be divided; name another column, or leave group out"
        )
    return torch.from_numpy(ids).long()


def _times(source: Source, name: str, rows: Sequence[int]) -> Any:
    """Return the time of each row as a number."""
    table = _table(source, "time", name)
    return parse_times(name, table.frame[name].iloc[list(rows)], np.asarray(rows))


def by_class(labels: Tensor, seed: int, *, validation: float, test: float) -> dict[str, list[int]]:
    """Divide rows by seed: every split gets its share of every class, and train has all classes.

    Training rows are shuffled, all others keep the order of the file.

    Example:
        >>> parts = by_class(torch.tensor([0, 1] * 10), seed=0, validation=0.2, test=0.2)
        >>> {name: len(rows) for name, rows in parts.items()}
        {'train': 12, 'validation': 4, 'test': 4}
    """
    _expect_shares(validation, test)
    counts = torch.bincount(labels)
    room = (counts - 1).clamp(min=0)
    in_test = quotas(counts, test, room=room)
    in_validation = quotas(counts, validation, room=room - in_test)
    generator = torch.Generator().manual_seed(seed)
    parts: dict[str, list[Tensor]] = {"train": [], "validation": [], "test": []}
    for label, (tested, validated) in enumerate(zip(in_test, in_validation, strict=True)):
        rows = (labels == label).nonzero().flatten()
        rows = rows[torch.randperm(len(rows), generator=generator)]
        sizes = [int(tested), int(validated), len(rows) - int(tested) - int(validated)]
        for name, part in zip(
            ("test", "validation", "train"), torch.split(rows, sizes), strict=True
        ):
            parts[name].append(part)
    if test == 0:
        del parts["test"]
    divided = {}
    for name, found in parts.items():
        rows = torch.cat(found)
        if len(rows) == 0:
            raise UserError(f"{len(labels)} rows are too few: none is left for {name}; add rows")
        drawn = rows[torch.randperm(len(rows), generator=generator)].tolist()
        divided[name] = drawn if name == "train" else sorted(drawn)
    return divided


def quotas(counts: Tensor, share: float, *, room: Tensor) -> Tensor:
    """Return how many rows of each class go into a split, by largest remainder.

    Args:
        counts: Rows of each class, ``(C,)``.
        share: Share of all rows wanted.
        room: Most that a class can give, ``(C,)``.

    Example:
        >>> quotas(torch.tensor([10, 5, 2]), 0.2, room=torch.tensor([9, 4, 1])).tolist()
        [2, 1, 0]
    """
    exact = counts.double() * share
    given = torch.minimum(exact.floor().long(), room)
    wanted = min(int(float(exact.sum()) + 0.5), int(room.sum()))
    while int(given.sum()) < wanted:
        lack = (exact - given).masked_fill(given >= room, -torch.inf)
        given[lack.argmax()] += 1
    return given


def by_group(
    labels: Tensor, groups: Tensor, seed: int, *, validation: float, test: float
) -> dict[str, list[int]]:
    """Divide rows so that every group is in one split, stratified as far as possible.

    The largest group goes first, each to where it brings the rows of each class nearest to their
    shares, in squares; the seed decides between groups of one size. Every class is in train.

    Args:
        labels: Class of each row, ``(N,)``.
        groups: Id of the group of each row, ``(N,)``, from 0 on.
        seed: Decides between groups of one size, and the order of the training rows.
        validation, test: Shares of the rows.

    Example:
        >>> labels, groups = torch.tensor([0, 1] * 20), torch.arange(40) // 4
        >>> parts = by_group(labels, groups, seed=0, validation=0.2, test=0.2)
        >>> {name: len(rows) for name, rows in parts.items()}
        {'train': 24, 'validation': 8, 'test': 8}
    """
    _expect_shares(validation, test)
    counts = np.zeros((int(groups.max()) + 1, int(labels.max()) + 1))
    np.add.at(counts, (groups.numpy(), labels.numpy()), 1.0)
    shares = [1 - validation - test, validation, *([test] if test else [])]
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(len(counts), generator=generator).numpy()
    order = drawn[np.argsort(-counts[drawn].sum(axis=1), kind="stable")]
    split_of = _nearest_to_shares(counts, order, np.array(shares))
    _complete_train(counts, split_of)
    for place, name in enumerate(("train", "validation", "test")[: len(shares)]):
        if not (split_of == place).any() and not _fill(counts, split_of, place):
            raise UserError(
                f"{len(counts)} groups are too few: none is left for {name} if every class is to "
                "be in train; add groups, or leave group out"
            )
    of_row = torch.from_numpy(split_of)[groups]
    return order_splits(
        [(of_row == place).nonzero().flatten() for place in range(len(shares))], seed
    )


def by_time(
    times: NDArray[np.float64], seed: int, *, validation: float, test: float
) -> dict[str, list[int]]:
    """Divide rows by time: the earliest train, the latest test; equal times stay together.

    Example:
        >>> by_time(np.array([5.0, 1.0, 2.0, 4.0, 3.0]), 0, validation=0.2, test=0.2)["test"]
        [0]
    """
    _expect_shares(validation, test)
    order = np.argsort(times, kind="stable")
    changes = np.flatnonzero(np.diff(times[order])) + 1
    wanted = [len(times) * (1 - validation - test), *([len(times) * (1 - test)] if test else [])]
    if len(changes) < len(wanted):
        raise UserError(
            f"{len(changes) + 1} different times are too few for {len(wanted) + 1} splits, since "
            "rows of one time stay together; give a finer time, or leave time out"
        )
    cuts: list[int] = []
    for place, cut in enumerate(wanted):  # leave a change for each cut that is still to come
        free = changes[changes > (cuts[-1] if cuts else 0)]
        free = free[: len(free) - (len(wanted) - 1 - place)]
        cuts.append(int(free[np.abs(free - cut).argmin()]))
    parts = np.split(order, cuts)
    return order_splits([torch.from_numpy(part).long() for part in parts], seed)


def _expect_shares(validation: float, test: float) -> None:
    if not (validation > 0 and test >= 0 and validation + test < 1):
        raise UserError(
            "validation must be above 0, test at least 0, and both together below 1, got "
            f"{validation} and {test}"
        )


def _nearest_to_shares(
    counts: NDArray[np.float64], order: NDArray[np.int64], shares: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the split of each group, ``(G,)``; ``counts`` are rows by group and class."""
    total = counts.sum(axis=0)  # (C,)
    lack = shares[:, None] * total  # (splits, C)
    split_of = np.zeros(len(counts), dtype=np.int64)
    for group in order:
        rows = counts[group]
        cost = (rows * (rows - 2 * lack) / np.maximum(total, 1)).sum(axis=1)
        split_of[group] = cost.argmin()
        lack[split_of[group]] -= rows
    return split_of


def _complete_train(counts: NDArray[np.float64], split_of: NDArray[np.int64]) -> None:
    """Move into train, for each class that it lacks, the smallest group that has rows of it."""
    sizes = counts.sum(axis=1)
    for label in range(counts.shape[1]):
        holds = np.flatnonzero(counts[:, label])
        if len(holds) and not (split_of[holds] == 0).any():
            split_of[holds[sizes[holds].argmin()]] = 0


def _fill(counts: NDArray[np.float64], split_of: NDArray[np.int64], place: int) -> bool:
    """Move into an empty split the smallest group that train can spare, if there is one."""
    in_train = np.flatnonzero(split_of == 0)
    held = counts[in_train].sum(axis=0)
    spared = [g for g in in_train if ((held - counts[g] > 0) | (counts[g] == 0)).all()]
    if not spared or len(in_train) == 1:
        return False
    split_of[min(spared, key=lambda group: counts[group].sum())] = place
    return True


def order_splits(parts: list[Tensor], seed: int) -> dict[str, list[int]]:
    """Return the training rows shuffled by seed, all others in the order of the file."""
    train, *others = parts
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    held_out = dict(zip(("validation", "test"), others, strict=False))
    return {
        "train": train[order].tolist(),
        **{name: rows.sort().values.tolist() for name, rows in held_out.items()},
    }


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
        """Return the graphs of a source; raise if they cannot be divided this way."""
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
            held = _draw(strata, inside, max(int(HELD_OUT * len(inside)), 1), seed)
            train[held] = False
        else:
            above, below = enough & (values > high), enough & (values <= low)
            train, test = (below, above) if self.shift == "degree" else (above, below)
            between = np.flatnonzero(enough & (values > low) & (values <= high))
            held = _draw(strata, between, int(HELD_OUT * len(self.source) + 0.5), seed)
        validation = np.zeros_like(train)
        validation[held] = True
        parts = {"train": train, "validation": validation, "test": test}
        self._expect_whole(parts, chosen)
        return order_splits(
            [torch.from_numpy(np.flatnonzero(part)) for part in parts.values()], seed
        )

    def facts(self, places: Mapping[str, Sequence[int]]) -> dict[str, Any]:
        """Return in JSON values where the cuts are and how many graphs of each class a part has."""
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
        """Count graphs by class, or in all if they have no classes."""
        labels = self.source.labels or ()
        return self.source.label_kind.count([labels[row] for row in rows], labels)

    def _expect_whole(
        self, parts: Mapping[str, NDArray[np.bool_]], chosen: NDArray[np.int64]
    ) -> None:
        """Raise with all counts if a part is empty or a class has no training graph."""
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


def _draw(strata: Tensor, places: NDArray[np.int64], wanted: int, seed: int) -> NDArray[np.int64]:
    """Draw ``wanted`` of ``places``, stratified by class; all of them if there are no more."""
    if len(places) <= wanted:
        return places
    own = strata[torch.from_numpy(places)]
    drawn = by_class(own, seed, validation=wanted / len(places), test=0.0)["validation"]
    return places[drawn]

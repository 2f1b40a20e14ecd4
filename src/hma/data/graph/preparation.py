"""Graphs as PyG batches: node labels or degrees as features, as the training graphs say."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from hma.data.graph.store import Graphs, GraphStore
from hma.data.graph.tu_folder import GraphFolder
from hma.data.preparation import FORMAT, PreparationOptions, label_ids
from hma.data.source import Source, expect_kind
from hma.data.table.columns import mean_and_std
from hma.data.task import Batch, Kind
from hma.errors import UserError

LARGEST_ONE_HOT_DEGREE = 2000


@dataclass(frozen=True)
class GraphPreparation:
    """Node features; the first of these that is not empty, then the attributes.

    Args:
        classes: Names of the classes.
        node_labels: Values of each kind of node label in training, one-hot; others are zeros.
        degrees: Width of the one-hot degree, one more than the largest in training, which
            stands for all larger ones; 0 for none.
        degree: Mean and deviation of the degree in training, where one-hot would be too wide.
        attributes: Mean and deviation of each node attribute in training.
    """

    classes: tuple[str, ...]
    node_labels: tuple[tuple[int, ...], ...] = ()
    degrees: int = 0
    degree: tuple[float, float] | None = None
    attributes: tuple[tuple[float, float], ...] = ()
    kind: Kind = "graph"

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values at a node."""
        labels = sum(len(values) for values in self.node_labels)
        return (labels + self.degrees + (self.degree is not None) + len(self.attributes),)

    def split(self, source: Source, places: Sequence[int] | None = None) -> Graphs:
        """Return graphs, collated in memory."""
        return self.splits(source, [places])[0]

    def splits(self, source: Source, parts: Sequence[Sequence[int] | None]) -> list[Graphs]:
        """Return several splits of a source over one store."""
        store = self.store(source)
        every = range(len(source))
        return [
            Graphs(
                store,
                torch.tensor(list(every if places is None else places), dtype=torch.long),
                label_ids(source, self.classes, places),
            )
            for places in parts
        ]

    def stream(self, source: Source, batch_size: int) -> Iterator[Batch]:
        """Yield the graphs in order; the source itself is in memory."""
        split = self.split(source)
        for places in torch.split(torch.arange(len(split)), batch_size):
            yield split.batch(places)

    def store(self, source: Source) -> GraphStore:
        """Return all graphs of a source with their features."""
        expect_kind(source, self.kind)
        graphs = cast("GraphFolder", source)
        nodes = int(graphs.nodes_before[-1])
        codes, table = torch.empty(nodes, 0, dtype=torch.long), torch.empty(0, 0)
        values = [torch.empty(nodes, 0)]
        if self.node_labels:
            codes, table = self._label_codes(graphs)
        elif self.degrees:
            codes = graphs.out_degrees().clamp(max=self.degrees - 1)[:, None]
            table = torch.eye(self.degrees)
        elif self.degree is not None:
            values.append(_standard(graphs.out_degrees()[:, None], [self.degree]))
        if self.attributes:
            values.append(_standard(self._attributes(graphs), self.attributes))
        return GraphStore(
            graphs.nodes_before,
            graphs.edges_before,
            graphs.edges,
            codes=codes,
            table=table,
            values=torch.cat(values, dim=1),
        )

    def _label_codes(self, graphs: GraphFolder) -> tuple[Tensor, Tensor]:
        given = 0 if graphs.node_labels is None else graphs.node_labels.shape[1]
        if graphs.node_labels is None or given != len(self.node_labels):
            raise UserError(
                f"{graphs.name} has {given} labels at a node, the training graphs had "
                f"{len(self.node_labels)}; give NAME_node_labels.txt with as many a line"
            )
        width = sum(len(values) for values in self.node_labels)
        codes, first = [], 0
        for column, values in zip(graphs.node_labels.T, self.node_labels, strict=True):
            known = torch.tensor(values)
            place = torch.searchsorted(known, column.contiguous()).clamp(max=len(known) - 1)
            codes.append(torch.where(known[place] == column, place + first, width))
            first += len(values)
        return torch.stack(codes, dim=1), torch.cat([torch.eye(width), torch.zeros(1, width)])

    def _attributes(self, graphs: GraphFolder) -> Tensor:
        given = 0 if graphs.node_attributes is None else graphs.node_attributes.shape[1]
        if graphs.node_attributes is None or given != len(self.attributes):
            raise UserError(
                f"{graphs.name} has {given} attributes at a node, the training graphs had "
                f"{len(self.attributes)}; give NAME_node_attributes.txt with as many a line"
            )
        return graphs.node_attributes

    def facts(self) -> dict[str, Any]:
        """Say what the node features are."""
        found = {
            "node features": [
                *(f"label, one-hot over {len(values)}" for values in self.node_labels),
                *([f"degree, one-hot over {self.degrees}"] if self.degrees else []),
                *(["degree, standardised"] if self.degree is not None else []),
                *([f"{len(self.attributes)} attributes, standardised"] if self.attributes else []),
            ],
            "edges": "as listed, each once, no self-loops; edge labels and attributes not used",
        }
        return dict(found)

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON values."""
        return {
            "format": FORMAT,
            **asdict(self),
            "classes": list(self.classes),
            "node_labels": [list(values) for values in self.node_labels],
            "degree": None if self.degree is None else list(self.degree),
            "attributes": [list(pair) for pair in self.attributes],
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "GraphPreparation":
        """Return what :meth:`to_json` wrote."""
        mean, std = values["degree"] or (0.0, 0.0)
        return cls(
            classes=tuple(values["classes"]),
            node_labels=tuple(tuple(kind) for kind in values["node_labels"]),
            degrees=values["degrees"],
            degree=None if values["degree"] is None else (mean, std),
            attributes=tuple((mean, std) for mean, std in values["attributes"]),
        )


def fit_graphs(
    source: Source, places: Sequence[int], classes: tuple[str, ...], options: PreparationOptions
) -> GraphPreparation:
    """Learn from the graphs at ``places`` what a node's features are."""
    graphs = cast("GraphFolder", source)
    chosen = torch.zeros(len(graphs), dtype=torch.bool)
    chosen[list(places)] = True
    nodes = torch.repeat_interleave(chosen, graphs.nodes_before.diff())  # (N,)
    if not nodes.any():
        raise UserError(f"the training graphs of {graphs.name} have no nodes")
    labels = graphs.node_labels
    wanted = options.node_attributes
    if wanted and graphs.node_attributes is None:
        raise UserError(f"{graphs.name} has no node attributes; leave node_attributes out")
    attributes = graphs.node_attributes if wanted or (wanted is None and labels is None) else None
    pairs = () if attributes is None else tuple(map(_moments, attributes[nodes].T))
    if labels is not None:
        kinds = tuple(tuple(np.unique(kind).tolist()) for kind in labels[nodes].T.numpy())
        return GraphPreparation(classes, node_labels=kinds, attributes=pairs)
    if attributes is not None:
        return GraphPreparation(classes, attributes=pairs)
    degrees = graphs.out_degrees()[nodes]
    largest = int(degrees.max())
    if largest < LARGEST_ONE_HOT_DEGREE:
        return GraphPreparation(classes, degrees=largest + 1)
    return GraphPreparation(classes, degree=_moments(degrees))


def _moments(values: Tensor) -> tuple[float, float]:
    return mean_and_std(values.double().numpy())


def _standard(values: Tensor, pairs: Sequence[tuple[float, float]]) -> Tensor:
    mean, std = torch.tensor(pairs, dtype=torch.double).T
    standard: Tensor = (values.double() - mean) / std
    return standard.float()

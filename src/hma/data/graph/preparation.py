"""Graphs as PyG batches: node labels or degrees as features, as the training graphs say."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from hma.data.graph.source import GraphSource, Sizes
from hma.data.graph.store import Cut, DegreeFeatures, Graphs, GraphStore, Packed
from hma.data.labels import mean_and_std
from hma.data.preparation import Preparation, Selection
from hma.data.source import Source
from hma.errors import UserError
from hma.options.preparation import PreparationOptions
from hma.targets import Target

Pairs = tuple[tuple[float, float], ...]
"""Mean and deviation of each of several values."""
LARGEST_ONE_HOT_DEGREE = 2000


def codes_of(labels: Tensor, kinds: tuple[tuple[int, ...], ...]) -> Tensor:
    """Return the place of each label among all known values, ``(N, K)``; the last for others."""
    width = sum(map(len, kinds))
    codes, first = [], 0
    for column, values in zip(labels.T, kinds, strict=True):
        known = torch.tensor(values)
        place = torch.searchsorted(known, column.contiguous()).clamp(max=len(known) - 1)
        codes.append(torch.where(known[place] == column, place + first, width))
        first += len(values)
    return torch.stack(codes, dim=1)


def with_features(table: Tensor, cut: Cut) -> Cut:
    """Return a cut with features ``x`` in place of codes, values and vectors."""
    parts = []
    if "codes" in cut:
        each = [table[column] for column in cut.pop("codes").unbind(dim=1)]
        parts.append(each[0] if len(each) == 1 else torch.stack(each).sum(dim=0))
    if "values" in cut:
        parts.append(cut.pop("values"))
    if "vectors" in cut:
        parts.append(cut.pop("vectors").float())  # whatever they are kept as
    return {**cut, "x": parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)}


def values_in_training(labels: Tensor | None, chosen: Tensor) -> tuple[tuple[int, ...], ...]:
    """Return the values of each kind of label among the chosen rows."""
    kinds = () if labels is None else labels[chosen].T.numpy()
    return tuple(tuple(np.unique(kind).tolist()) for kind in kinds)


def moments_in_training(numbers: Tensor | None, chosen: Tensor) -> Pairs:
    """Return mean and deviation of each number over the chosen rows."""
    return () if numbers is None else tuple(map(moments, numbers[chosen].T))


def expect_values(graphs: GraphSource, part: str, count: int) -> Tensor:
    """Return labels or attributes of a source; raise unless there are as many as in training."""
    values: Tensor | None = getattr(graphs, part)
    given = 0 if values is None else values.shape[1]
    if values is None or given != count:
        where, what = part.split("_")
        one = "a node" if where == "node" else "an edge"
        raise UserError(
            f"{graphs.name} has {given} {what} at {one}, the "
            f"training graphs had {count}; give NAME_{part}.txt with as many a line"
        )
    return values


def with_long_codes(cut: Cut) -> Cut:
    """Return a cut with codes as an embedding takes them; the store keeps 8 bits of each."""
    return {**cut, "x": cut["x"].long(), "edge_attr": cut["edge_attr"].long()}


def moments(values: Tensor) -> tuple[float, float]:
    """Return mean and deviation."""
    return mean_and_std(values.double().numpy())


def standardise(values: Tensor, pairs: Sequence[tuple[float, float]]) -> Tensor:
    """Subtract the mean of each column and divide by its deviation."""
    mean, std = torch.tensor(pairs, dtype=torch.double).T
    standard: Tensor = (values.double() - mean) / std
    return standard.float()


@dataclass(frozen=True)
class GraphPreparation(Preparation):
    """Node features; the first of these that is not empty, then the attributes. Edges likewise.

    Args:
        node_labels: Values of each kind of node label in training, one-hot; others are zeros.
        degrees: Width of the one-hot degree, one more than the largest in training, which
            stands for all larger ones; 0 for none.
        degree: Mean and deviation of the degree in training, where one-hot would be too wide.
        attributes: Mean and deviation of each node attribute in training.
        edge_labels, edge_attributes: The same for edges, where they are used.
        vectors: Width of features that come with the nodes and are taken as they are, alone.
        encoder: Hash of what made these, so that another is noticed.
        node_codes, edge_codes: Values that each code of a node and of an edge has, where their
            labels are codes from 0 on; nothing else is then used, and batches hold the codes.
    """

    node_labels: tuple[tuple[int, ...], ...] = ()
    degrees: int = 0
    degree: tuple[float, float] | None = None
    attributes: Pairs = ()
    edge_labels: tuple[tuple[int, ...], ...] = ()
    edge_attributes: Pairs = ()
    vectors: int = 0
    encoder: str = ""
    node_codes: Sizes = ()
    edge_codes: Sizes = ()

    kind = "graph"
    unlabelled = "add NAME_graph_labels.txt"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.degrees <= LARGEST_ONE_HOT_DEGREE:
            raise ValueError(f"degrees must be from 0 to {LARGEST_ONE_HOT_DEGREE}")
        if self.vectors < 0:
            raise ValueError(f"vectors must be at least 0, got {self.vectors}")
        for values in (*self.node_labels, *self.edge_labels):
            if not values or list(values) != sorted(set(values)):
                raise ValueError("labels of nodes and edges must be listed in order, each once")
        if any(size < 1 for size in (*self.node_codes, *self.edge_codes)):
            raise ValueError("codes of nodes and edges must have at least 1 value")
        one = () if self.degree is None else (self.degree,)
        for pair in (*one, *self.attributes, *self.edge_attributes):
            if len(pair) != 2 or not all(map(math.isfinite, pair)) or pair[1] <= 0:
                raise ValueError(f"{pair} is no mean and deviation")

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values at a node, then at an edge if edges have any.

        Of codes: how many values each code of a node has, 0, and how many each of an edge has.
        """
        if self.node_codes:
            return (*self.node_codes, 0, *self.edge_codes)
        nodes = sum(map(len, self.node_labels)) + self.degrees + (self.degree is not None)
        edges = sum(map(len, self.edge_labels)) + len(self.edge_attributes)
        return (nodes + len(self.attributes) + self.vectors, *([edges] if edges else []))

    def split(self, source: Source, places: Sequence[int] | None = None) -> Graphs:
        """Return graphs, collated in memory."""
        return self._split(self.store(source), source, places)

    def splits(
        self,
        source: Source,
        places: Mapping[str, Sequence[int]],
        options: PreparationOptions,
        seed: int,
    ) -> Mapping[str, Graphs]:
        """Return several splits of a source over one store."""
        store = self.store(source)
        return {name: self._split(store, source, rows) for name, rows in places.items()}

    def _split(self, store: GraphStore, source: Source, places: Sequence[int] | None) -> Graphs:
        rows = torch.tensor(list(range(len(source)) if places is None else places)).long()
        return Graphs(store, rows, self.labels_of(source, places))

    def store(self, source: Source) -> GraphStore:
        """Return all graphs of a source with their features."""
        graphs = GraphSource.expect(source)
        nodes, edges = graphs.nodes_before.diff(), graphs.edges_before.diff()
        if self.node_codes:
            return self._coded(graphs)
        codes, values = self._node_features(graphs)
        keys = {"edge_index": Packed(graphs.edges, edges, beside=True, step=nodes)}
        own = {"codes": codes, "values": values}
        if self.vectors:
            own["vectors"] = self._vectors(graphs)
        keys |= {name: Packed(each, nodes) for name, each in own.items() if each.shape[1]}
        if len(self.shape) > 1:
            keys["edge_attr"] = Packed(self._edge_features(graphs), edges)
        width = sum(map(len, self.node_labels))
        one_hot = torch.cat([torch.eye(width), torch.zeros(1, width)])
        table = one_hot if self.node_labels else torch.eye(self.degrees)
        finish = partial(with_features, table)
        return GraphStore(nodes, keys, finish=finish, degree_features=self._degree_features())

    def _coded(self, graphs: GraphSource) -> GraphStore:
        """Return all graphs with their codes as they are; ``x`` and ``edge_attr`` are whole."""
        if graphs.code_sizes != (self.node_codes, self.edge_codes):
            raise UserError(
                f"{graphs.name} has codes of nodes and edges with {graphs.code_sizes} values, the "
                f"training graphs had {(self.node_codes, self.edge_codes)}; give graphs as those"
            )
        nodes, edges = graphs.nodes_before.diff(), graphs.edges_before.diff()
        keys = {
            "edge_index": Packed(graphs.edges, edges, beside=True, step=nodes),
            "x": Packed(expect_values(graphs, "node_labels", len(self.node_codes)), nodes),
            "edge_attr": Packed(expect_values(graphs, "edge_labels", len(self.edge_codes)), edges),
        }
        return GraphStore(nodes, keys, finish=with_long_codes)

    def _degree_features(self) -> DegreeFeatures | None:
        if self.node_labels or not (self.degrees or self.degree):
            return None
        known = {} if self.degree is None else {"moments": self.degree}
        return DegreeFeatures(width=self.degrees, **known)

    def _node_features(self, graphs: GraphSource) -> tuple[Tensor, Tensor]:
        """Return rows of the table of one-hot features ``(N, K)``, and numbers ``(N, A)``."""
        nodes = int(graphs.nodes_before[-1])
        codes, values = torch.empty(nodes, 0, dtype=torch.long), [torch.empty(nodes, 0)]
        if self.node_labels:
            labels = expect_values(graphs, "node_labels", len(self.node_labels))
            codes = codes_of(labels, self.node_labels)
        elif (degree := self._degree_features()) is not None:
            if degree.width:
                codes = degree.codes(graphs.out_degrees())[:, None]
            else:
                values.append(degree.of(graphs.out_degrees()))
        if self.attributes:
            numbers = expect_values(graphs, "node_attributes", len(self.attributes))
            values.append(standardise(numbers, self.attributes))
        return codes, torch.cat(values, dim=1)

    def _vectors(self, graphs: GraphSource) -> Tensor:
        """Return the vectors of the nodes; raise unless the training encoder made them."""
        given = graphs.node_vectors
        if given is None or given.shape[1] != self.vectors or graphs.encoder_key != self.encoder:
            said = "none" if given is None else f"{given.shape[1]} numbers each"
            raise UserError(
                f"the nodes of {graphs.name} must have vectors of {self.vectors} numbers, from the "
                f"encoder of the training graphs, got {said}; open it with that encoder"
            )
        return given

    def _edge_features(self, graphs: GraphSource) -> Tensor:
        """Return the features of each edge, ``(E, A)``."""
        features = []
        if self.edge_labels:
            labels = expect_values(graphs, "edge_labels", len(self.edge_labels))
            features = [
                (column[:, None] == torch.tensor(values)).float()
                for column, values in zip(labels.T, self.edge_labels, strict=True)
            ]
        if self.edge_attributes:
            numbers = expect_values(graphs, "edge_attributes", len(self.edge_attributes))
            features.append(standardise(numbers, self.edge_attributes))
        return torch.cat(features, dim=1)

    def facts(self) -> dict[str, Any]:
        """Return what the features of nodes and edges are."""
        if self.node_codes:
            return {"node features": f"codes with {self.node_codes} values",
                    "edges": f"both directions; codes with {self.edge_codes} values"}  # fmt: skip
        nodes = [f"label, one-hot over {len(values)}" for values in self.node_labels]
        nodes += [f"degree, one-hot over {self.degrees}"] if self.degrees else []
        nodes += ["degree, standardised"] if self.degree is not None else []
        nodes += [f"{len(self.attributes)} attributes, standardised"] if self.attributes else []
        nodes += [f"vector of {self.vectors} numbers, as it is"] if self.vectors else []
        edges = [f"label, one-hot over {len(values)}" for values in self.edge_labels]
        numbers = len(self.edge_attributes)
        edges += [f"{numbers} attributes, standardised"] if numbers else []
        used = f"features {'; '.join(edges)}" if edges else "edge labels and attributes not used"
        return {
            "node features": nodes,
            "edges": f"as listed, each once, no self-loops; {used}",
        }

    @classmethod
    def fit(
        cls, rows: Selection, classes: tuple[str, ...], target: Target, options: PreparationOptions
    ) -> Self:
        """Learn from the training graphs what a node's features are."""
        graphs = GraphSource.expect(rows.source)
        if graphs.code_sizes is not None:
            node_codes, edge_codes = graphs.code_sizes
            return cls(classes, target=target, node_codes=node_codes, edge_codes=edge_codes)
        chosen = torch.zeros(len(graphs), dtype=torch.bool)
        chosen[list(rows.places)] = True
        nodes = torch.repeat_interleave(chosen, graphs.nodes_before.diff())  # (N,)
        if not nodes.any():
            raise UserError(f"the training graphs of {graphs.name} have no nodes")
        labels = graphs.node_labels
        wanted = options.node_attributes
        if wanted and graphs.node_attributes is None:
            raise UserError(f"{graphs.name} has no node attributes; leave node_attributes out")
        used = labels is None if wanted is None else wanted
        attributes = graphs.node_attributes if used else None
        make = partial(
            cls,
            classes,
            target=target,
            attributes=moments_in_training(attributes, nodes),
            **(_fit_edges(graphs, chosen) if options.edge_labels else {}),
        )
        if graphs.node_vectors is not None:
            return make(vectors=graphs.node_vectors.shape[1], encoder=graphs.encoder_key)
        if labels is not None:
            return make(node_labels=values_in_training(labels, nodes))
        if attributes is not None:
            return make()
        degrees = graphs.out_degrees()[nodes]
        largest = int(degrees.max())
        if largest < LARGEST_ONE_HOT_DEGREE:
            return make(degrees=largest + 1)
        return make(degree=moments(degrees))


def _fit_edges(graphs: GraphSource, chosen: Tensor) -> dict[str, Any]:
    if graphs.edge_labels is None and graphs.edge_attributes is None:
        raise UserError(
            f"{graphs.name} has neither edge labels nor edge attributes; leave edge_labels out"
        )
    edges = torch.repeat_interleave(chosen, graphs.edges_before.diff())  # (E,)
    if not edges.any():
        raise UserError(
            f"the training graphs of {graphs.name} have no edges; leave edge_labels out"
        )
    return {
        "edge_labels": values_in_training(graphs.edge_labels, edges),
        "edge_attributes": moments_in_training(graphs.edge_attributes, edges),
    }

"""What a graph network reads of a PyG batch, or says is missing."""

from typing import Any

import torch
from torch import Tensor

from hma.backbones.gnn.codes import Features, multi_hot
from hma.backbones.gnn.edges import Edges
from hma.checks import expect_shape


def node_features(batch: Any, features: Features, dtype: torch.dtype) -> Tensor:
    """Return the features of the nodes, ``(N, in_features)``.

    Args:
        batch: A PyG ``Batch`` or ``Data``.
        features: How wide they are to be, or how many values their codes have.
        dtype: Of features made of codes.
    """
    nodes = getattr(batch, "x", None)
    if not isinstance(nodes, Tensor):
        raise TypeError(
            f"batch must be a torch_geometric Batch with node features x, got "
            f"{type(batch).__name__} whose x is {type(nodes).__name__}; where the graphs have "
            "no features, set x to the one-hot degree"
        )
    if isinstance(features, int):
        expect_shape("batch.x", nodes, None, features)
        if not nodes.is_floating_point():
            raise TypeError(
                f"batch.x must be of a floating dtype, got {nodes.dtype}; convert it with "
                "batch.x.float(), or give in_features the number of values of each column of codes"
            )
        return nodes
    expect_shape("batch.x", nodes, None, len(features))
    if nodes.dtype != torch.long:
        raise TypeError(
            f"batch.x must hold codes of dtype torch.int64, got {nodes.dtype}; where they are no "
            "codes, give in_features the width of the features"
        )
    return multi_hot(nodes, features).to(dtype)


def edges_of(batch: Any, features: Features, dtype: torch.dtype) -> Edges:
    """Return the edges of a batch, with their features and weights where there are some.

    Args:
        batch: A PyG ``Batch`` or ``Data``.
        features: How wide features of edges are to be, or how many values their codes have; 0
            for none.
        dtype: Of features made of codes.
    """
    source, target = batch.edge_index
    weight = getattr(batch, "edge_weight", None)
    if weight is not None:
        expect_shape("batch.edge_weight", weight, len(source))
    said = _edge_features(batch, features, dtype) if features else None
    return Edges(source, target, len(batch.x), weight, said)


def _edge_features(batch: Any, features: Features, dtype: torch.dtype) -> Tensor:
    said = getattr(batch, "edge_attr", None)
    count = batch.edge_index.shape[1]
    if isinstance(features, int):
        if not isinstance(said, Tensor) or not said.is_floating_point():
            raise _wrong_edges("a tensor of a floating dtype", said)
        expect_shape("batch.edge_attr", said, count, features)
        return said
    if not isinstance(said, Tensor) or said.dtype != torch.long:
        raise _wrong_edges("codes of dtype torch.int64", said)
    expect_shape("batch.edge_attr", said, count, len(features))
    return multi_hot(said, features).to(dtype)


def _wrong_edges(wanted: str, said: object) -> TypeError:
    got = said.dtype if isinstance(said, Tensor) else type(said).__name__
    return TypeError(
        f"batch.edge_attr must be {wanted}, got {got}; leave edge_features out for edges without "
        "features"
    )


def graphs_of(batch: Any) -> tuple[Tensor, int]:
    """Return the graph of each node ``(N,)``, and how many graphs there are."""
    graph_of = getattr(batch, "batch", None)
    if graph_of is None:
        return torch.zeros(len(batch.x), dtype=torch.long, device=batch.x.device), 1
    return graph_of, int(batch.num_graphs)

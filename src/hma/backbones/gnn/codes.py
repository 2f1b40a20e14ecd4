"""Integer codes of nodes and edges, such as OGB's of atoms and bonds, as rows of zeros and ones."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

Features = int | Sequence[int]
"""How wide features are; or, of codes, how many values each column of them has."""
Sizes = tuple[int, ...]


def features_of(shape: tuple[int, ...]) -> tuple[Features, Features]:
    """Return what the shape of a graph says of its nodes and of its edges.

    Args:
        shape: ``(node features,)`` or ``(node features, edge features)``. Of codes: how many values
            each column of a node has, a 0, how many each column of an edge has.

    Example:
        >>> features_of((7,)), features_of((7, 2)), features_of((119, 5, 0, 5, 6))
        ((7, 0), (7, 2), ((119, 5), (5, 6)))
    """
    if 0 in shape:
        between = shape.index(0)
        return shape[:between], shape[between + 1 :]
    nodes, *edges = shape
    return nodes, sum(edges)


def width_of(features: Features) -> int:
    """Return how wide features are, with a column for each value of each code."""
    return features if isinstance(features, int) else sum(features)


def multi_hot(codes: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return ones at the codes ``(n, K)``, each in the stretch of its column, ``(n, sum(sizes))``.

    Example:
        >>> multi_hot(torch.tensor([[1, 0], [0, 2]]), sizes=(2, 3)).tolist()
        [[0.0, 1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 1.0]]
    """
    ends = torch.tensor(sizes, device=codes.device).cumsum(dim=0)  # (K,)
    places = codes + ends - torch.tensor(sizes, device=codes.device)
    places = torch.where((codes >= 0) & (places < ends), places, -1)  # which scatter refuses
    hot = torch.zeros(len(codes), sum(sizes), device=codes.device)
    return hot.scatter_(1, places, 1.0)


def input_layer(features: Features, width: int) -> nn.Linear:
    """Return a linear layer of features; of codes, one learned vector for each value, summed.

    Args:
        features: Of the input.
        width: Of the output.
    """
    if isinstance(features, int):
        return nn.Linear(features, width)
    layer = nn.Linear(sum(features), width, bias=False)
    for part in torch.split(layer.weight, list(features), dim=1):
        nn.init.xavier_uniform_(part)  # each column for itself, as OGB starts its encoders
    return layer

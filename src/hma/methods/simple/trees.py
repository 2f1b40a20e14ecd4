"""Decision trees as tensors: all rows go down all trees at once, a level at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from hma.memory.growing import Growing

PAIRS_AT_ONCE = 2**22
"""Rows times trees held at a time; more rows go down in turns."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of one tree, its root first, as arrays; the children of a leaf are negative."""

    feature: Any
    threshold: Any
    left: Any
    right: Any
    missing_left: Any
    value: Any


class Trees(Growing):
    """Trees whose nodes lie in one list; a leaf is its own child.

    Args:
        values: Numbers at a leaf.
    """

    growing: ClassVar[tuple[str, ...]] = (
        "feature", "threshold", "left", "right", "missing_left", "value", "roots"
    )  # fmt: skip
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    missing_left: Tensor
    value: Tensor
    roots: Tensor

    def __init__(self, values: int) -> None:
        super().__init__()
        whole = torch.long
        for name in ("feature", "left", "right", "roots"):
            self.register_buffer(name, torch.empty(0, dtype=whole))
        self.register_buffer("threshold", torch.empty(0))
        self.register_buffer("missing_left", torch.empty(0, dtype=torch.bool))
        self.register_buffer("value", torch.empty(0, values))

    def take(self, trees: Sequence[Nodes]) -> None:
        """Hold these trees and no others."""
        sizes = np.array([len(tree.feature) for tree in trees])
        roots = np.concatenate([[0], sizes.cumsum()[:-1]])
        joined = {
            f.name: np.concatenate([getattr(t, f.name) for t in trees]) for f in fields(Nodes)
        }
        own, first = np.arange(sizes.sum()), np.repeat(roots, sizes)
        leaf = joined["left"] < 0
        for side in ("left", "right"):
            joined[side] = np.where(leaf, own, joined[side] + first)
        joined["feature"] = np.where(leaf, 0, joined["feature"])
        joined["threshold"] = rounded_down(joined["threshold"])
        joined["value"] = joined["value"].reshape(len(own), -1)
        tensors = {name: torch.from_numpy(array) for name, array in joined.items()}
        self.fill(**tensors, roots=torch.from_numpy(roots))

    def answers(self, vectors: Tensor) -> Tensor:
        """Return what stands at the leaf of each tree, ``(B, F)`` to ``(B, trees, values)``."""
        rows = max(PAIRS_AT_ONCE // max(len(self.roots), 1), 1)
        return torch.cat([self.value[self._leaves(some)] for some in torch.split(vectors, rows)])

    def _leaves(self, vectors: Tensor) -> Tensor:
        """Return the place of the leaf that each row reaches in each tree, ``(B, trees)``."""
        rows, trees = len(vectors), len(self.roots)
        columns, missing = vectors.T.flatten(), bool(vectors.isnan().any())  # (F * B,)
        node = self.roots.repeat_interleave(rows)  # (trees * B,)
        row = torch.arange(rows, device=node.device).repeat(trees)
        found, going = node.clone(), torch.arange(len(node), device=node.device)
        inner = self.left != torch.arange(len(self.left), device=node.device)
        while len(going):  # pairs of a tree and a row that have not reached a leaf
            seen = _at(columns, _at(self.feature, node) * rows + row)
            lower = seen <= _at(self.threshold, node)
            if missing:
                lower = torch.where(seen.isnan(), _at(self.missing_left, node), lower)
            node = torch.where(lower, _at(self.left, node), _at(self.right, node))
            found[going] = node
            kept = _at(inner, node).nonzero()[:, 0]
            node, row, going = _at(node, kept), _at(row, kept), _at(going, kept)
        return found.view(trees, rows).T


def rounded_down(numbers: Any) -> Any:
    """Return the largest 32-bit numbers that are not above: they part 32-bit numbers alike."""
    with np.errstate(over="ignore"):
        near = numbers.astype(np.float32)
    return np.where(near > numbers, np.nextafter(near, np.float32(-np.inf)), near)


def _at(values: Tensor, places: Tensor) -> Tensor:
    """Return ``values[places]``, in half the time."""
    return values.index_select(0, places)

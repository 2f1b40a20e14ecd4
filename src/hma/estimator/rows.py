"""Training rows as a weighted set: no row of weight zero, no row twice, no order."""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import _check_sample_weight

from hma.errors import UserError, wrong_choice

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LEAST_TO_HOLD_OUT = 100
"""Distinct rows from which on some are held out without being asked to."""


class WeightedRows(NamedTuple):
    """Rows that differ from each other in input or label, and how much each of them counts.

    Shape:
        - ``x`` ``(N, features)``; ``labels`` ``(N,)``, of several labels ``(N, T)``; ``weight``,
          ``ids`` ``(N,)``.
    """

    x: Floats
    labels: NDArray[Any]
    weight: Floats
    ids: Integers

    def at(self, places: Any) -> "WeightedRows":
        """Return the rows at ``places``."""
        return WeightedRows(*(part[places] for part in self))

    def digests(self) -> Iterator[bytes]:
        """Yield what tells rows apart by their input and label."""
        for x, label in zip(self.x, self.labels, strict=True):
            yield blake2b(x.tobytes() + label.tobytes(), digest_size=16).digest()


def checked_weights(sample_weight: Any, x: Floats) -> Floats:
    """Return one weight of at least 0 per row of ``x``, not all of them 0; 1 for None."""
    weight: Floats = _check_sample_weight(sample_weight, x, dtype=np.float64)
    if (weight < 0).any():
        first = int(np.flatnonzero(weight < 0)[0])
        raise UserError(
            f"sample_weight must be at least 0, got {weight[first]} for row {first}; "
            "a weight of 0 leaves a row out"
        )
    if not (weight > 0).any():
        raise UserError("sample_weight is zero for every row; at least one weight must be above 0")
    return weight


def distinct(x: Floats, labels: NDArray[Any], weight: Floats) -> WeightedRows:
    """Leave out rows of weight 0 and merge equal rows into one that carries their weights' sum.

    What comes back depends on neither the order of the rows nor on whether a row is there
    twice or has weight 2, so neither does anything learned from it. The id of a row is the
    first place it has in ``x``.

    Example:
        >>> x = np.array([[3.0], [1.0], [3.0], [5.0]])
        >>> rows = distinct(x, np.array([0, 1, 0, 1]), np.array([1.0, 1.0, 2.0, 0.0]))
        >>> sorted(zip(rows.x[:, 0].tolist(), rows.weight.tolist(), rows.ids.tolist()))
        [(1.0, 1.0, 1), (3.0, 3.0, 0)]
    """
    places = np.flatnonzero(weight > 0)
    keys = np.column_stack([x[places], labels[places]]) + 0.0  # -0.0 becomes 0.0
    whole_rows = np.dtype((np.void, keys.itemsize * keys.shape[1]))
    _, first, member = np.unique(
        keys.view(whole_rows)[:, 0], return_index=True, return_inverse=True
    )
    total: Floats = np.bincount(member, weights=weight[places], minlength=len(first)).astype(
        np.float64
    )
    kept = places[first]
    return WeightedRows(x[kept], labels[kept], total, kept.astype(np.int64))


def with_class_weight(rows: WeightedRows, class_weight: Any, classes: NDArray[Any]) -> WeightedRows:
    """Return the rows with weights multiplied by those of their classes, and without zeros.

    Args:
        rows: The rows, each with its sample weight.
        class_weight: None, a mapping from class to weight (1 for a class it does not name), or
            'balanced' to give every class the same total weight.
        classes: The classes, in the order of their ids.
    """
    if class_weight is None:
        return rows
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            choice = wrong_choice("class_weight", class_weight, ("balanced",))
            raise UserError(f"{choice}; or pass a dict from class to weight, or None")
        mass = np.bincount(rows.labels, weights=rows.weight, minlength=len(classes))
        of_class = mass.sum() / (len(classes) * np.where(mass > 0, mass, 1.0))
    else:
        of_class = _given_weights(class_weight, classes)
    weight = rows.weight * of_class[rows.labels]
    if not (weight > 0).any():
        raise UserError("class_weight is zero for every class that has rows")
    return rows._replace(weight=weight).at(weight > 0)


def _given_weights(class_weight: Any, classes: NDArray[Any]) -> Floats:
    if not isinstance(class_weight, Mapping):
        raise UserError(
            "class_weight must be a dict from class to weight, 'balanced' or None, "
            f"got {class_weight!r}"
        )
    names = classes.tolist()
    unknown = [name for name in class_weight if name not in names]
    if unknown and any(name not in class_weight for name in names):  # else rows of them are absent
        raise UserError(
            f"class_weight names {unknown}, which are not among the classes {names} of y"
        )
    weights = np.array([float(class_weight.get(name, 1.0)) for name in names])
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise UserError(f"class_weight must hold finite weights of at least 0, got {class_weight}")
    return weights


def can_hold_out(rows: WeightedRows, fraction: float | None) -> bool:
    """Tell whether rows are many enough to do without some, those of every class too."""
    if fraction is None or len(rows.labels) < LEAST_TO_HOLD_OUT:
        return False
    if rows.labels.dtype.kind != "i":
        return True
    counts = np.bincount(rows.labels)
    smallest = int(counts[counts > 0].min())
    return smallest >= 2 and int(fraction * len(rows.labels)) >= int((counts > 0).sum())


def hold_out(
    rows: WeightedRows, fraction: float | None, seed: int
) -> tuple[WeightedRows, WeightedRows | None]:
    """Return the rows to learn from and, unless ``fraction`` is None, a rest to stop by.

    Of classes it is stratified.
    """
    if fraction is None:
        return rows, None
    places = np.arange(len(rows.labels))
    try:
        train, held_out = train_test_split(
            places,
            test_size=fraction,
            stratify=rows.labels if rows.labels.dtype.kind == "i" else None,
            random_state=seed,
        )
    except ValueError as error:
        raise UserError(
            f"early_stopping cannot hold out {fraction:.0%} of {len(places)} distinct rows: "
            f"{error}; set early_stopping=False or another validation_fraction"
        ) from error
    return rows.at(train), rows.at(held_out)

"""Rows that a memory was taught after training: what is stored of them, and their files."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from hma.io.files import FileError
from hma.io.json_files import read_json, write_json
from hma.io.tensor_files import read_tensors, write_tensors
from hma.targets import Target

TENSORS, TEXTS = "rows.safetensors", "rows.json"
FILES = {TENSORS: str, TEXTS: str}
"""The hash of each file."""
NAMES = ("features", "labels", "ids", "hashes", "forgotten", "judged")
LATER = {"judged"}
"""What versions of before there was such a thing do not have."""
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
PNG = b"\x89PNG\r\n\x1a\n"
Cells = Mapping[str, tuple[str | None, ...]]
"""Column of a table -> its cell in each row, as text; None where it is empty."""


def no_ids() -> Tensor:
    """Return no sample ids."""
    return torch.empty(0, dtype=torch.long)


@dataclass(frozen=True, kw_only=True, eq=False)
class TaughtRows:
    """Rows as a memory keeps them, and what a person is told of each.

    Args:
        features: What the backbone made of them, ``(N, F)``.
        labels: As the target stores them, ``(N, ...)``.
        ids: Sample ids, ``(N,)``, from those of training rows on.
        hashes: Of what each row holds besides its label, see :mod:`hma.runs.held_out`, ``(N,)``.
        judged: What the backbone made of them before it learned from validation rows, ``(N, F)``;
            ``(N, 0)`` where it is the same.
        what: What each is, in words.
        where: Where each came from.
        pictures: PNG of each as text in base64; None where it is no picture.
        cells: Of tables, what each column holds.
    """

    features: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    labels: Tensor = field(default_factory=no_ids)
    ids: Tensor = field(default_factory=no_ids)
    hashes: Tensor = field(default_factory=no_ids)
    judged: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    what: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    pictures: tuple[str | None, ...] = ()
    cells: Cells = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def __post_init__(self) -> None:
        """Have a row of nothing for each where nothing else is given."""
        if not self.judged.numel():
            object.__setattr__(self, "judged", self.features.new_empty(len(self.ids), 0))

    def as_judged(self) -> "TaughtRows":
        """Return the rows with the features that the backbone of before made of them."""
        return replace(self, features=self.judged) if self.judged.shape[1] else self

    def at(self, places: Tensor) -> "TaughtRows":
        """Return the rows at ``places``, in that order."""
        chosen: list[int] = places.tolist()
        return TaughtRows(
            features=self.features[places],
            labels=self.labels[places],
            ids=self.ids[places],
            hashes=self.hashes[places],
            judged=self.judged[places],
            what=tuple(self.what[i] for i in chosen),
            where=tuple(self.where[i] for i in chosen),
            pictures=tuple(self.pictures[i] for i in chosen),
            cells={name: tuple(column[i] for i in chosen) for name, column in self.cells.items()},
        )

    def without(self, ids: Tensor) -> "TaughtRows":
        """Return all but the rows of these samples."""
        return self.at(torch.nonzero(~torch.isin(self.ids, ids))[:, 0]) if len(ids) else self

    def followed_by(self, others: "TaughtRows") -> "TaughtRows":
        """Return these rows, then others; labels may name classes that these did not know."""
        if not len(others):
            return self
        if not len(self):
            return others
        labels = self.labels
        if labels.dim() == 2:  # shares of classes, more of them by now
            more = others.labels.shape[1] - labels.shape[1]
            labels = torch.nn.functional.pad(labels, (0, more))
        names = dict.fromkeys((*self.cells, *others.cells))
        return TaughtRows(
            features=torch.cat([self.features, others.features]),
            labels=torch.cat([labels, others.labels]),
            ids=torch.cat([self.ids, others.ids]),
            hashes=torch.cat([self.hashes, others.hashes]),
            judged=torch.cat([self.judged, others.judged]),
            what=self.what + others.what,
            where=self.where + others.where,
            pictures=self.pictures + others.pictures,
            cells={
                name: (
                    *self.cells.get(name, (None,) * len(self)),
                    *others.cells.get(name, (None,) * len(others)),
                )
                for name in names
            },
        )


def write_change(folder: Path, rows: TaughtRows, forgotten: Tensor) -> dict[str, str]:
    """Write rows that come and ids that go; return the hash of each file."""
    tensors = (rows.features, rows.labels, rows.ids, rows.hashes, forgotten, rows.judged)
    texts = {
        "what": rows.what,
        "where": rows.where,
        "pictures": rows.pictures,
        "cells": dict(rows.cells),
    }
    return {
        TENSORS: write_tensors(folder / TENSORS, dict(zip(NAMES, tensors, strict=True))),
        TEXTS: write_json(folder / TEXTS, texts, indent=None),
    }


def read_change(folder: Path, hashes: Mapping[str, str], remedy: str) -> tuple[TaughtRows, Tensor]:
    """Read what :func:`write_change` wrote, or raise :class:`hma.io.files.FileError`."""
    held = read_tensors(folder / TENSORS, sha256=hashes[TENSORS], remedy=remedy)
    shape = {
        "what": list[str],
        "where": list[str],
        "pictures": list[str | None],
        "cells": dict[str, list[str | None]],
    }
    texts = read_json(folder / TEXTS, shape, sha256=hashes[TEXTS], remedy=remedy)
    columns = [texts["what"], texts["where"], texts["pictures"], *texts["cells"].values()]
    lengths = {tuple(held[name].shape[:1]) for name in held if name != "forgotten"}
    lengths |= {(len(column),) for column in columns}
    if (
        set(held) | LATER != set(NAMES)
        or len(lengths) != 1
        or () in lengths
        or held["ids"].dim() != 1
    ):
        raise FileError(f"{folder} is damaged: its files do not fit each other; {remedy}")
    for place, kept in enumerate(texts["pictures"]):
        if kept is not None and not _is_png(kept):
            raise FileError(
                f"{folder / TEXTS} is damaged: pictures[{place}] is no PNG in base64; {remedy}"
            )
    rows = TaughtRows(
        features=held["features"],
        labels=held["labels"],
        ids=held["ids"],
        hashes=held["hashes"],
        judged=held.get("judged", torch.empty(0, 0)),
        what=tuple(texts["what"]),
        where=tuple(texts["where"]),
        pictures=tuple(texts["pictures"]),
        cells={name: tuple(column) for name, column in texts["cells"].items()},
    )
    return rows, held["forgotten"]


def expect_ids(name: str, ids: Tensor, least: int, end: int) -> None:
    """Raise ``ValueError`` unless sample ids are whole numbers from ``least``, each there once."""
    if ids.dtype != torch.long or ids.dim() != 1:
        raise ValueError(f"{name} must be one int64 for each row, got {_kind(ids)}")
    outside = (ids < least) | (ids >= end)
    if bool(outside.any()):
        raise ValueError(f"{name} must be from {least} to {end - 1}, got {ids[outside][0]}")
    ordered = ids.sort().values
    twice = ordered[1:] == ordered[:-1]
    if bool(twice.any()):
        raise ValueError(f"{name} must be there once each, got {ordered[1:][twice][0]} twice")


def expect_rows(rows: TaughtRows, width: int, target: Target) -> None:
    """Raise ``ValueError`` unless features and labels are what a memory stores.

    Args:
        rows: What is read, or to be written.
        width: Of the features that the memory stores, ``F``.
        target: What a label is, with the classes that there are then.
    """
    if not len(rows):
        return
    features, labels = rows.features, rows.labels
    if features.dtype not in FLOATS or features.shape != (len(rows), width):
        raise ValueError(f"features must be ({len(rows)}, {width}) floats, got {_kind(features)}")
    if rows.judged.dtype not in FLOATS or rows.judged.shape not in (
        (len(rows), 0),
        (len(rows), width),
    ):
        raise ValueError(f"judged must be like features or empty, got {_kind(rows.judged)}")
    if not bool(features.isfinite().all()) or not bool(rows.judged.isfinite().all()):
        raise ValueError("features must be finite, got NaN or infinity")
    if rows.hashes.dtype != torch.long or rows.hashes.shape != (len(rows),):
        raise ValueError(f"hashes must be one int64 for each row, got {_kind(rows.hashes)}")
    expected = target.unknown(0)
    kinds = FLOATS if expected.is_floating_point() else (torch.long,)
    if labels.dtype not in kinds or labels.shape[1:] != expected.shape[1:]:
        raise ValueError(f"labels must be like {_kind(expected)}, got {_kind(labels)}")
    try:
        target.check(target.given(labels), len(rows))
    except ValueError as error:
        raise ValueError(f"labels do not fit: {str(error).split(';')[0]}") from error


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def _is_png(text: str) -> bool:
    try:
        return base64.b64decode(text, validate=True).startswith(PNG)
    except ValueError:
        return False

"""Rows that a memory was taught after training: what is stored of them, and their files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from hma.files import FileError
from hma.json_files import read_json, write_json
from hma.tensor_files import read_tensors, write_tensors

TENSORS, TEXTS = "rows.safetensors", "rows.json"
NAMES = ("features", "labels", "ids", "forgotten")
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
        what: What each is, in words.
        where: Where each came from.
        pictures: PNG of each as text in base64; None where it is no picture.
        cells: Of tables, what each column holds.
    """

    features: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    labels: Tensor = field(default_factory=no_ids)
    ids: Tensor = field(default_factory=no_ids)
    what: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    pictures: tuple[str | None, ...] = ()
    cells: Cells = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def at(self, places: Tensor) -> "TaughtRows":
        """Return the rows at ``places``, in that order."""
        chosen: list[int] = places.tolist()
        return TaughtRows(
            features=self.features[places],
            labels=self.labels[places],
            ids=self.ids[places],
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
    tensors = (rows.features, rows.labels, rows.ids, forgotten)
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
    """Read what :func:`write_change` wrote, or raise :class:`hma.files.FileError`."""
    held = read_tensors(folder / TENSORS, sha256=hashes.get(TENSORS), remedy=remedy)
    shape = {
        "what": list[str],
        "where": list[str],
        "pictures": list[str | None],
        "cells": dict[str, list[str | None]],
    }
    texts = read_json(folder / TEXTS, shape, sha256=hashes.get(TEXTS), remedy=remedy)
    columns = [texts["what"], texts["where"], texts["pictures"], *texts["cells"].values()]
    if set(held) != set(NAMES) or any(len(column) != len(held["ids"]) for column in columns):
        raise FileError(f"{folder} is damaged: its files do not fit each other; {remedy}")
    rows = TaughtRows(
        features=held["features"],
        labels=held["labels"],
        ids=held["ids"],
        what=tuple(texts["what"]),
        where=tuple(texts["where"]),
        pictures=tuple(texts["pictures"]),
        cells={name: tuple(column) for name, column in texts["cells"].items()},
    )
    return rows, held["forgotten"]

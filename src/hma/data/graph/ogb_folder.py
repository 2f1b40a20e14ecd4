"""Molecules in the files of OGB: graphs as tables, or SMILES that graphs are made of."""

import csv
import gzip
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.data.graph.molecules import (
    ATOM_SIZES,
    BOND_SIZES,
    MoleculeGraphs,
    Tensors,
    graphs_of_smiles,
)
from hma.data.kept_tensors import read_or_kept
from hma.data.source import files_fingerprint
from hma.errors import UserError, reason
from hma.extras import needed
from hma.io.files import MissingFileError, expect_regular
from hma.targets import Number, YesNo

SPLITS = {"train": "train", "validation": "valid", "test": "test"}
KEPT_FROM = 1_000_000
"""Bytes of packed tables from which on what was read is kept in the cache folder."""
RAW = ("num-node-list", "num-edge-list", "node-feat", "edge", "edge-feat")
Told = Callable[[int, int], None]


class OgbMolecules(MoleculeGraphs):
    """A folder of OGB's, ``ogbg_molbace`` for one: all molecules, with labels.

    Graphs come from the tables in ``raw``, or are made of the SMILES in ``mapping`` where there are
    no tables, once: they are kept in the cache folder. Labels that are missing stay missing.

    Args:
        folder: Holds ``raw`` or ``mapping``, and ``split/scaffold``.
        numbers: Whether the labels are numbers, not yes or no.
        told: Called with the molecules that are made of SMILES and with all of them.
    """

    def __init__(self, folder: Path, *, numbers: bool = False, told: Told | None = None) -> None:
        self.folder = folder
        tables = {part: folder / "raw" / f"{part}.csv.gz" for part in RAW}
        self._written = next(
            (file for file in _written_in(folder) if file.exists()), folder / "mapping"
        )
        columns = _columns(self._written) if self._written.is_file() else {}
        self.smiles = columns.pop("smiles", ())
        if tables["edge"].exists():
            read = partial(_graphs_in, tables)
            self._files = {file.name: file for file in tables.values()}
            graphs = read_or_kept("molecules", "OGB 1", self._files, read, least=KEPT_FROM)
        elif self.smiles:
            read = partial(graphs_of_smiles, self.smiles, str(self._written), told)
            self._files = {self._written.name: self._written}
            rdkit = needed("rdkit", "making graphs of SMILES", extra="chem").__version__
            graphs = read_or_kept("molecules", f"SMILES 1 {rdkit}", self._files, read)
        else:
            raise MissingFileError(f"{folder} holds neither raw/edge.csv.gz nor SMILES in mapping")
        super().__init__(folder.name, graphs)
        self._set_labels(columns, numbers)
        if self.smiles and len(self.smiles) != len(self):
            raise UserError(
                f"{self._written} must have a row for each of {len(self)} molecules, got "
                f"{len(self.smiles)}"
            )

    def _set_labels(self, columns: dict[str, list[str]], numbers: bool) -> None:
        """Take the labels from ``raw``, or from beside the SMILES."""
        file = self.folder / "raw" / "graph-label.csv.gz"
        names = tuple(columns)
        if file.exists():
            rows = _lines(file)
            self._files[file.name] = file
        else:
            file, rows = self._written, list(map(list, zip(*columns.values(), strict=True)))
        width = len(rows[0]) if rows else 0
        if len(rows) != len(self) or not width or any(len(row) != width for row in rows):
            raise UserError(
                f"{file} must have a row for each of {len(self)} molecules, all with as many "
                f"labels, got {len(rows)}"
            )
        labels = [tuple(None if _missing(label) else label for label in row) for row in rows]
        if numbers:
            self.labels, self.label_kind = [row[0] for row in labels], Number.kind
        else:
            self.labels, self.label_kind = labels, YesNo.kind
        numbered = tuple(f"label {place}" for place in range(width))
        self.label_names = names if len(names) == width else numbered

    def scaffolds(self) -> dict[str, list[int]]:
        """Return the molecules of each split as OGB gives them, in its order."""
        places, split = {}, self.folder / "split" / "scaffold"
        for name, written in SPLITS.items():
            file = split / f"{written}.csv.gz"
            rows = _numbers(file, 1)[:, 0]
            if not len(rows) or rows.min() < 0 or rows.max() >= len(self):
                raise UserError(
                    f"{file} must name molecules from 0 to {len(self) - 1}, got "
                    f"{f'{rows.min()} to {rows.max()}' if len(rows) else 'none'}"
                )
            places[name] = rows.tolist()
        if len(set().union(*places.values())) < sum(map(len, places.values())):
            raise UserError(f"{split} has a molecule in two splits; fetch the data again")
        return places

    def fingerprint(self) -> str:
        """Return the SHA-256 of the files."""
        return files_fingerprint(self._files)


def _written_in(folder: Path) -> list[Path]:
    return [folder / "mapping" / name for name in ("mol.csv.gz", "smiles.csv.gz")]


def _graphs_in(tables: dict[str, Path]) -> Tensors:
    """Return the graphs of OGB's tables, where a bond is listed once."""
    nodes, edges = (_numbers(tables[part], 1)[:, 0] for part in RAW[:2])
    atoms = _numbers(tables["node-feat"], len(ATOM_SIZES))
    ends, bonds = _numbers(tables["edge"], 2), _numbers(tables["edge-feat"], len(BOND_SIZES))
    for part, rows, wanted in (
        ("node-feat", atoms, nodes), ("edge", ends, edges), ("edge-feat", bonds, edges)
    ):  # fmt: skip
        if len(rows) != wanted.sum() or (wanted < 0).any() or len(nodes) != len(edges):
            raise UserError(
                f"{tables[part]} must have {wanted.sum()} lines, as the lists of counts say, got "
                f"{len(rows)}; fetch the data again"
            )
    if (ends < 0).any() or (ends >= np.repeat(nodes, edges)[:, None]).any():
        raise UserError(f"{tables['edge']} names an atom beyond its molecule; fetch it again")
    return {
        "nodes": torch.from_numpy(nodes),
        "edges": torch.from_numpy(2 * edges),
        "ends": _both_ways(ends, ends[:, ::-1]).T.int().contiguous(),
        "atoms": _codes(atoms, tables["node-feat"]),
        "bonds": _both_ways(*[_codes(bonds, tables["edge-feat"]).numpy()] * 2),
    }


def _both_ways(there: NDArray[Any], back: NDArray[Any]) -> Tensor:
    """Return each row of ``there`` followed by that of ``back``, ``(2n, K)``."""
    return torch.from_numpy(np.stack([there, back], axis=1).reshape(-1, there.shape[1]))


def _codes(read: NDArray[np.int64], file: Path) -> Tensor:
    if (read < 0).any() or (read > 255).any():
        raise UserError(f"{file} must hold codes from 0 to 255; fetch the data again")
    return torch.from_numpy(read.astype(np.uint8))


def _numbers(file: Path, width: int) -> NDArray[np.int64]:
    """Return the whole numbers of a packed table, ``(n, width)``."""
    with _opened(file) as text, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an empty table holds no numbers, as it may
        read: NDArray[np.int64] = np.loadtxt(text, dtype=np.int64, delimiter=",", ndmin=2)
    if read.size and read.shape[1] != width:
        raise UserError(f"{file} must hold {width} numbers a line, got {read.shape[1]}")
    return read.reshape(-1, width)


def _lines(file: Path) -> list[list[str]]:
    """Return the rows of a packed table as they are written."""
    with _opened(file) as text:
        return list(csv.reader(text))


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    """Open a packed table, and say in one line what is wrong with it."""
    expect_regular(file)
    try:
        with gzip.open(file, "rt", encoding="utf-8", newline="") as text:
            yield text
    except (OSError, EOFError, zlib.error, ValueError, OverflowError, csv.Error) as error:
        raise UserError(f"{file} is damaged: {reason(error)}; fetch the data again") from error


def _columns(file: Path) -> dict[str, list[str]]:
    """Return the columns of a table with a header, without ids; SMILES under ``smiles``."""
    header, *rows = _lines(file) or [[]]
    if any(len(row) != len(header) for row in rows):
        raise UserError(f"{file} must have {len(header)} columns in every row; fetch it again")
    named = ["smiles" if name.lower() == "smiles" else name for name in header]
    return {
        name: [row[place] for row in rows]
        for place, name in enumerate(named)
        if name.lower() != "mol_id"
    }


def _missing(label: str) -> bool:
    return label.strip().lower() in ("", "nan")

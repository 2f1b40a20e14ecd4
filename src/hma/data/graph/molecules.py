"""Molecules as graphs: OGB's integer codes of atoms and bonds, from its files or from SMILES."""

import csv
import gzip
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.data.graph.source import GraphSource
from hma.data.graph.store import starts_of
from hma.data.labels import NUMBER, YES_NO
from hma.data.source import files_fingerprint
from hma.data.storage import read_cached
from hma.errors import UserError, reason
from hma.extras import needed
from hma.io.files import MissingFileError, expect_regular

ATOM_SIZES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
"""Values of each code of an atom: element, chirality, degree, charge, hydrogens, radical electrons,
hybridisation, aromatic, in a ring."""
BOND_SIZES = (5, 6, 2)
"""Values of each code of a bond: type, stereo, conjugated."""
Tensors = dict[str, Tensor]
TOLD_EVERY = 100
SPLITS = {"train": "train", "validation": "valid", "test": "test"}
KEPT_FROM = 1_000_000
"""Bytes of packed tables from which on what was read is kept in the cache folder."""
RAW = ("num-node-list", "num-edge-list", "node-feat", "edge", "edge-feat")
Told = Callable[[int, int], None]


class MoleculeGraphs(GraphSource):
    """Molecules whose atoms and bonds have codes; every bond is listed in both directions.

    Args:
        name: As printed in tables.
        graphs: What :func:`graphs_of_smiles` returns.

    Shape:
        - ``node_labels``: ``(N, 9)``, ``edge_labels``: ``(E, 3)``, whole numbers of 8 bits.
    """

    code_sizes = (ATOM_SIZES, BOND_SIZES)
    smiles: Sequence[str] = ()
    """The molecules as they are written, where that is known."""

    def __init__(self, name: str, graphs: Tensors) -> None:
        self.name = name
        self.nodes_before = starts_of(graphs["nodes"])
        self.edges_before = starts_of(graphs["edges"])
        self.edges = graphs["ends"].long()
        self.node_labels = graphs["atoms"]
        self._bonds = graphs["bonds"]
        for what, codes, sizes in (
            ("atoms", self.node_labels, ATOM_SIZES), ("bonds", self._bonds, BOND_SIZES)
        ):  # fmt: skip
            if (codes >= torch.tensor(sizes)).any():
                raise UserError(f"{name} has codes of {what} beyond OGB's {sizes}; fetch it again")

    @property
    def edge_labels(self) -> Tensor | None:
        """Codes of each bond."""
        return self._bonds

    def describe(self, place: int) -> str:
        """Return the number of the molecule and its SMILES, or its size."""
        if not self.smiles:
            return super().describe(place).replace("graph", "molecule", 1)
        return f"molecule {place} ({self.smiles[place]})"


def graphs_of_smiles(
    smiles: Sequence[str], where: str, told: Callable[[int, int], None] | None = None
) -> Tensors:
    """Return molecules as graphs with the codes that ogb's ``smiles2graph`` gives them.

    A molecule that RDKit does not accept as chemically sound, such as one with an atom of too many
    bonds, is read without that check.

    Args:
        smiles: A molecule each.
        where: What holds them, for messages.
        told: Called with the molecules that are made and with all of them.

    Shape:
        - ``nodes``, ``edges``: ``(G,)``, how many atoms, and how many directed bonds.
        - ``ends``: ``(2, E)``; ``atoms``: ``(N, 9)``; ``bonds``: ``(E, 3)``.
    """
    chemistry = needed("rdkit.Chem", "making graphs of SMILES", extra="chem")
    silence = needed("rdkit.rdBase", "making graphs of SMILES", extra="chem").BlockLogs
    codes = needed("ogb.utils.features", "making graphs of SMILES", extra="chem")
    atoms, bonds, nodes, edges = [], [], [], []
    for place, text in enumerate(smiles):
        try:
            with silence():
                molecule = _molecule(chemistry, text)
            atoms += [codes.atom_to_feature_vector(atom) for atom in molecule.GetAtoms()]
            for bond in molecule.GetBonds():
                ends = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
                bonds.append((*ends, *codes.bond_to_feature_vector(bond)))
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"{where} has a SMILES that cannot be read, {text[:80]!r} in row {place} (counted "
                f"from 0): {reason(error)}; correct it or remove the row"
            ) from error
        nodes.append(molecule.GetNumAtoms())
        edges.append(2 * molecule.GetNumBonds())
        if told is not None and ((place + 1) % TOLD_EVERY == 0 or place + 1 == len(smiles)):
            told(place + 1, len(smiles))
    once = torch.tensor(bonds).long().view(-1, 2 + len(BOND_SIZES))
    back = once[:, [1, 0, *range(2, once.shape[1])]]
    both = torch.stack([once, back], dim=1).flatten(0, 1)  # there and back in turn
    return {
        "nodes": torch.tensor(nodes).long(),
        "edges": torch.tensor(edges).long(),
        "ends": both[:, :2].T.int().contiguous(),
        "atoms": torch.tensor(atoms).long().view(-1, len(ATOM_SIZES)).byte(),
        "bonds": both[:, 2:].byte(),
    }


def _molecule(chemistry: Any, text: str) -> Any:
    """Return RDKit's molecule, without the check of valences where that fails."""
    molecule = chemistry.MolFromSmiles(text)
    if molecule is not None:
        return molecule
    molecule = chemistry.MolFromSmiles(text, sanitize=False)
    if molecule is None:
        raise ValueError("RDKit finds no molecule in it")
    molecule.UpdatePropertyCache(strict=False)
    but_valences = chemistry.SANITIZE_ALL ^ chemistry.SANITIZE_PROPERTIES
    chemistry.SanitizeMol(molecule, but_valences)
    return molecule


class OgbMolecules(MoleculeGraphs):
    """All molecules of a folder of OGB, such as ``ogbg_molbace``, with labels.

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
            (file for file in _smiles_files(folder) if file.exists()), folder / "mapping"
        )
        columns = _columns(self._written) if self._written.is_file() else {}
        self.smiles = columns.pop("smiles", ())
        if tables["edge"].exists():
            read = partial(_graphs_in, tables)
            self._files = {file.name: file for file in tables.values()}
            graphs = read_cached("molecules", "OGB 1", self._files, read, least=KEPT_FROM)
        elif self.smiles:
            read = partial(graphs_of_smiles, self.smiles, str(self._written), told)
            self._files = {self._written.name: self._written}
            rdkit = needed("rdkit", "making graphs of SMILES", extra="chem").__version__
            graphs = read_cached("molecules", f"SMILES 1 {rdkit}", self._files, read)
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
            self.labels, self.label_kind = [row[0] for row in labels], NUMBER
        else:
            self.labels, self.label_kind = labels, YES_NO
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


def _smiles_files(folder: Path) -> list[Path]:
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
    with _open_table(file) as text, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an empty table holds no numbers, as it may
        read: NDArray[np.int64] = np.loadtxt(text, dtype=np.int64, delimiter=",", ndmin=2)
    if read.size and read.shape[1] != width:
        raise UserError(f"{file} must hold {width} numbers a line, got {read.shape[1]}")
    return read.reshape(-1, width)


def _lines(file: Path) -> list[list[str]]:
    """Return the rows of a packed table as they are written."""
    with _open_table(file) as text:
        return list(csv.reader(text))


@contextmanager
def _open_table(file: Path) -> Iterator[TextIO]:
    """Open a packed table; errors say in one line what is wrong with it."""
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

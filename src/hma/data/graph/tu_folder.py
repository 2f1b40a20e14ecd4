"""Graphs in the format of the TU collection: a few text files for a whole data set."""

import warnings
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.data.graph.graph_source import GraphSource
from hma.data.graph.store import starts_of
from hma.data.labels import expect_present, listed
from hma.data.source import files_fingerprint
from hma.errors import UserError
from hma.files import expect_regular

Integers = NDArray[np.int64]


class GraphFolder(GraphSource):
    """Graphs of a TU folder, whole in memory, laid end to end.

    Edges are read as they are listed, directed; self-loops are dropped and an edge that is
    listed twice counts once, as in PyG.

    Args:
        path: ``NAME`` with ``raw/NAME_A.txt`` inside, or the raw folder itself.
    """

    def __init__(self, path: Path) -> None:
        adjacency = find_adjacency(path)
        if adjacency is None:
            raise UserError(f"{path} holds no graphs: neither raw/NAME_A.txt nor NAME_A.txt")
        self.folder = adjacency.parent
        self.name = adjacency.name.removesuffix("_A.txt")
        self.labels = self._graph_labels()
        graph_of, count = self._graph_of_nodes()
        order = np.argsort(graph_of, kind="stable")  # nodes of a graph need not stand together
        sizes = np.bincount(graph_of, minlength=count)
        self.nodes_before = starts_of(torch.from_numpy(sizes))
        self._read_edges(graph_of, order)
        self.node_labels = self._values("node_labels", np.int64, len(order), order)
        self.node_attributes = self._values("node_attributes", np.float64, len(order), order)

    def _graph_of_nodes(self) -> tuple[Integers, int]:
        """Return the graph of each node, from 0, and the number of graphs."""
        read = self._rows("graph_indicator", np.int64, None)
        if read is None or len(read) == 0:
            raise UserError(
                f"{self._file('graph_indicator')} is missing or empty; it must name "
                "the graph of each node"
            )
        graph_of = read[:, 0] - 1
        if graph_of.min() < 0:
            raise UserError(
                f"{self._file('graph_indicator')} must count graphs from 1, got "
                f"{graph_of.min() + 1}"
            )
        count = int(graph_of.max()) + 1
        if self.labels is not None and len(self.labels) != count:
            raise UserError(
                f"{self._file('graph_labels')} must have a line for each of {count} graphs, got "
                f"{len(self.labels)}"
            )
        if self.labels is None and count > len(graph_of):
            raise UserError(
                f"{self._file('graph_indicator')} names graph {count}, but there are only "
                f"{len(graph_of)} nodes; number the graphs from 1 without gaps"
            )
        return graph_of, count

    def _graph_labels(self) -> list[str] | None:
        file = self._file("graph_labels")
        if not file.exists():
            return None
        expect_regular(file)
        try:
            labels = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{file} cannot be read as text: {error}") from error
        missing = [place for place, label in enumerate(labels) if label.lower() in ("", "nan")]
        expect_present(missing, len(labels), str(file))
        return labels

    @cached_property
    def edge_labels(self) -> Tensor | None:
        """Labels of each edge."""
        return self._values("edge_labels", np.int64, self._lines, self._edge_lines)

    @cached_property
    def edge_attributes(self) -> Tensor | None:
        """Numbers of each edge."""
        return self._values("edge_attributes", np.float64, self._lines, self._edge_lines)

    def _values(self, part: str, dtype: type, rows: int, order: Integers) -> Tensor | None:
        """Return what a file says of each node or edge, in their order here."""
        read = self._rows(part, dtype, rows)
        if read is not None and not np.isfinite(read).all():
            raise UserError(f"{self._file(part)} holds NaN or infinity; replace them")
        return None if read is None else torch.from_numpy(read[order])

    def _read_edges(self, graph_of: Integers, order: Integers) -> None:
        read = self._rows("A", np.int64, None)
        ends = (np.empty((0, 2), np.int64) if read is None else read) - 1
        nodes, file = len(order), self._file("A")
        if ends.shape[1] != 2:
            raise UserError(f"{file} must hold two node numbers a line, got {ends.shape[1]}")
        if len(ends) and (ends.min() < 0 or ends.max() >= nodes):
            wrong = int(((ends < 0) | (ends >= nodes)).any(axis=1).argmax())
            raise UserError(
                f"{file} must name nodes from 1 to {nodes}, got "
                f"{(ends[wrong] + 1).tolist()} in line {wrong + 1}"
            )
        crossing = graph_of[ends[:, 0]] != graph_of[ends[:, 1]]
        if crossing.any():
            wrong = int(crossing.argmax())
            raise UserError(
                f"{file} joins nodes of two graphs, {(ends[wrong] + 1).tolist()} in "
                f"line {wrong + 1}; an edge stays inside its graph"
            )
        place = np.empty_like(order)
        place[order] = np.arange(nodes)
        lines = np.flatnonzero(ends[:, 0] != ends[:, 1])
        self._lines = len(ends)
        ends = place[ends[lines]]
        keys = ends[:, 0] * nodes + ends[:, 1]
        by_ends = np.argsort(keys, kind="stable")  # by source, then by target
        first = np.diff(keys[by_ends], prepend=-1) != 0
        self._edge_lines = lines[by_ends[first]]
        once = keys[by_ends[first]]
        source, target = once // nodes, once % nodes
        graph = graph_of[order][source]
        starts = self.nodes_before.numpy()[graph]
        self.edges = torch.from_numpy(np.stack([source - starts, target - starts]))
        counts = np.bincount(graph, minlength=len(self))
        self.edges_before = starts_of(torch.from_numpy(counts))

    def _file(self, part: str) -> Path:
        return self.folder / f"{self.name}_{part}.txt"

    def _rows(self, part: str, dtype: type, rows: int | None) -> NDArray[Any] | None:
        """Read one of the files, ``(rows, values a line)``; None where there is none."""
        file = self._file(part)
        if not file.exists():
            return None
        expect_regular(file)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a file of blank lines holds no data, as it may
                read: NDArray[Any] = np.loadtxt(file, dtype=dtype, delimiter=",", ndmin=2)
        except (ValueError, OSError, OverflowError) as error:
            raise UserError(f"{file} cannot be read as numbers: {error}") from error
        if read.size == 0:
            read = np.empty((0, 2 if part == "A" else 1), dtype)
        if rows is not None and len(read) != rows:
            raise UserError(
                f"{file} must have {rows} lines, as the other files say, got {len(read)}"
            )
        return read

    def fingerprint(self) -> str:
        """Return the SHA-256 of the files."""
        files = sorted(filter(Path.is_file, self.folder.glob(f"{self.name}_*.txt")))
        return files_fingerprint({file.name: file for file in files})


def find_adjacency(path: Path) -> Path | None:
    """Return the file of edges in a TU folder or its raw folder; None where there is none."""
    for folder in (path / "raw", path):
        files = sorted(folder.glob("*_A.txt")) if folder.is_dir() else []
        if len(files) > 1:
            names = listed([file.name for file in files])
            raise UserError(f"{folder} holds several data sets ({names}); give each its own folder")
        if files:
            return files[0]
    return None

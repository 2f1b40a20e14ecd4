"""Graphs laid end to end, and those in files of the TU collection."""

import warnings
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.data.graph.store import starts_of
from hma.data.labels import expect_present, listed
from hma.data.source import Source, files_fingerprint
from hma.data.storage import read_cached
from hma.errors import UserError, reason
from hma.io.files import expect_regular

Sizes = tuple[int, ...]
Integers = NDArray[np.int64]
KEPT_FROM = 8_000_000
"""Bytes of text from which on what was read is kept in the cache folder."""


class GraphSource(Source):
    """Graphs, whole in memory, laid end to end; a subclass sets what is listed here.

    Shape:
        - ``nodes_before``, ``edges_before``: ``(G + 1,)``, where each graph begins.
        - ``edges``: ``(2, E)``, node numbers inside their own graph; an undirected edge is listed
          in both directions.
        - ``node_labels``, ``node_attributes``: ``(N, K)`` or None.
        - ``node_vectors``: floats of any width ``(N, K)``, or None; where there are some they are
          the features, as they are.
        - ``edge_labels``, ``edge_attributes``: ``(E, K)`` or None.
    """

    kind = "graph"
    nodes_before: Tensor
    edges_before: Tensor
    edges: Tensor
    node_labels: Tensor | None = None
    node_attributes: Tensor | None = None
    code_sizes: tuple[Sizes, Sizes] | None = None
    """Where labels of nodes and of edges are codes from 0 on: how many values each kind has."""
    encoder_key: str = ""
    """Hash or name of what made ``node_vectors``."""

    @property
    def node_vectors(self) -> Tensor | None:
        """Features of each node that need no preparation; never copied as a whole."""
        return None

    @property
    def edge_labels(self) -> Tensor | None:
        """Labels of each edge."""
        return None

    @property
    def edge_attributes(self) -> Tensor | None:
        """Numbers of each edge."""
        return None

    def __len__(self) -> int:
        return len(self.nodes_before) - 1

    def out_degrees(self) -> Tensor:
        """Return the number of edges that leave each node, ``(N,)``."""
        starts = torch.repeat_interleave(self.nodes_before[:-1], self.edges_before.diff())
        return torch.bincount(self.edges[0] + starts, minlength=int(self.nodes_before[-1]))

    def describe(self, place: int) -> str:
        """Return the number of the graph and its size."""
        both = (self.nodes_before, self.edges_before)
        nodes, edges = (int(before[place + 1] - before[place]) for before in both)
        return f"graph {place} ({nodes} nodes, {edges} edges)"


class GraphFolder(GraphSource):
    """Graphs of a TU folder, whole in memory, laid end to end.

    Edges are read as they are listed, directed; self-loops are dropped and an edge that is
    listed twice counts once, as in PyG. What large files say is kept in the cache folder, until
    one of them changes.

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
        read = self._kept()
        self.nodes_before, self.edges_before = read["nodes_before"], read["edges_before"]
        self.edges, self._edge_lines = read["edges"], read["edge_lines"]
        self._lines = int(read["lines"])
        self.node_labels = read.get("node_labels")
        self.node_attributes = read.get("node_attributes")
        self._expect_labels()

    def _kept(self) -> dict[str, Tensor]:
        """Return what the files say of nodes and edges, read or from the cache."""
        return read_cached("graphs", "TU 1", self._files(), self._read, least=KEPT_FROM)

    def _read(self) -> dict[str, Tensor]:
        graph_of, count = self._graph_of_nodes()
        order = np.argsort(graph_of, kind="stable")  # nodes of a graph need not stand together
        sizes = np.bincount(graph_of, minlength=count)
        nodes_before = starts_of(torch.from_numpy(sizes))
        read = {"nodes_before": nodes_before, **self._read_edges(graph_of, order, nodes_before)}
        for part, dtype in (("node_labels", np.int64), ("node_attributes", np.float64)):
            values = self._values(part, dtype, len(order), order)
            if values is not None:
                read[part] = values
        return read

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
        labels = self.labels
        if count > (len(graph_of) if labels is None else max(len(graph_of), len(labels))):
            raise UserError(
                f"{self._file('graph_indicator')} names graph {count}, but there are only "
                f"{len(graph_of)} nodes; number the graphs from 1 without gaps"
            )
        return graph_of, count

    def _expect_labels(self) -> None:
        """Raise unless every graph has a label, or none has."""
        if self.labels is not None and len(self.labels) != len(self):
            raise UserError(
                f"{self._file('graph_labels')} must have a line for each of {len(self)} graphs, "
                f"got {len(self.labels)}"
            )

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
        return self._values("edge_labels", np.int64, self._lines, self._edge_lines.numpy())

    @cached_property
    def edge_attributes(self) -> Tensor | None:
        """Numbers of each edge."""
        return self._values("edge_attributes", np.float64, self._lines, self._edge_lines.numpy())

    def _values(self, part: str, dtype: type, rows: int, order: Integers) -> Tensor | None:
        """Return what a file says of each node or edge, in their order here."""
        read = self._rows(part, dtype, rows)
        if read is not None and not np.isfinite(read).all():
            raise UserError(f"{self._file(part)} holds NaN or infinity; replace them")
        return None if read is None else torch.from_numpy(read[order])

    def _read_edges(
        self, graph_of: Integers, order: Integers, nodes_before: Tensor
    ) -> dict[str, Tensor]:
        """Return the edges, where each graph's begin, and the lines that they stand in."""
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
        placed = place[ends[lines]]
        keys = placed[:, 0] * nodes + placed[:, 1]
        by_ends = np.argsort(keys, kind="stable")  # by source, then by target
        first = np.diff(keys[by_ends], prepend=-1) != 0
        once = keys[by_ends[first]]
        source, target = once // nodes, once % nodes
        graph = graph_of[order][source]
        starts = nodes_before.numpy()[graph]
        counts = np.bincount(graph, minlength=len(nodes_before) - 1)
        return {
            "edges": torch.from_numpy(np.stack([source - starts, target - starts])),
            "edges_before": starts_of(torch.from_numpy(counts)),
            "edge_lines": torch.from_numpy(lines[by_ends[first]]),
            "lines": torch.tensor(len(ends)),
        }

    def _file(self, part: str) -> Path:
        return self.folder / f"{self.name}_{part}.txt"

    def _rows(self, part: str, dtype: type, rows: int | None) -> NDArray[Any] | None:
        """Read one of the files, ``(rows, values a line)``; None where there is none."""
        file = self._file(part)
        if not file.exists():
            return None
        read = read_numbers(file, dtype, delimiter=",")
        if read.size == 0:
            read = np.empty((0, 2 if part == "A" else 1), dtype)
        if rows is not None and len(read) != rows:
            raise UserError(
                f"{file} must have {rows} lines, as the other files say, got {len(read)}"
            )
        return read

    def fingerprint(self) -> str:
        """Return the SHA-256 of the files."""
        return files_fingerprint(self._files())

    def _files(self) -> dict[str, Path]:
        """Return all files of the data set by name."""
        files = sorted(filter(Path.is_file, self.folder.glob(f"{self.name}_*.txt")))
        return {file.name: file for file in files}


def read_numbers(file: Path, dtype: type, *, delimiter: str | None = None) -> NDArray[Any]:
    """Read the numbers of a text file, ``(lines, numbers per line)``; it may be empty."""
    expect_regular(file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a file without numbers is no mistake
            read: NDArray[Any] = np.loadtxt(file, dtype=dtype, delimiter=delimiter, ndmin=2)
    except (ValueError, OSError, OverflowError) as error:
        raise UserError(f"{file} cannot be read as numbers: {reason(error)}") from error
    return read


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

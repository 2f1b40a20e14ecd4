"""Texts that are given one by one."""

import hashlib
import json
from collections.abc import Iterator, Sequence

from hma.data.text.files import Line, TextRows, shortened


class GivenTexts(TextRows):
    """Texts without labels.

    Args:
        name: Short name.
        texts: The texts.
    """

    has_labels = False

    def __init__(self, name: str, texts: Sequence[str]) -> None:
        self.name = name
        self.labels = None
        self._texts = list(texts)

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def texts(self) -> list[str]:
        """Every text."""
        return self._texts

    def lines(self) -> Iterator[Line]:
        """Yield the texts in order."""
        for text in self._texts:
            yield Line(text, None, labelled=False)

    def describe(self, place: int) -> str:
        """Return the text itself, cut short."""
        return shortened(self._texts[place])

    def fingerprint(self) -> str:
        """Return the SHA-256 of the texts."""
        return hashlib.sha256(json.dumps(self._texts).encode()).hexdigest()

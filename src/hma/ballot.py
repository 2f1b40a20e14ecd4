"""What rows that vote by distance say."""

from typing import NamedTuple

import torch
from torch import Tensor

from hma.attention import Weights


class Votes(NamedTuple):
    """What groups of rows say.

    Shape:
        - ``logits``: ``(B, outputs)``, to be joined with those of the head.
        - ``shares``: what each row counts, ``(1, B, N)`` for each group.
        - ``mixed``: what the head is to read, ``(B, F)``; None for the features as they are.
    """

    logits: Tensor
    shares: list[Tensor]
    mixed: Tensor | None


class Ballot(NamedTuple):
    """What a read by distance found.

    Shape:
        - ``logits``, ``mixed``: as :class:`Votes` has them.
        - ``heard``: ``(B,)``, 1 where rows voted and 0 where there is none.
        - ``stored``, ``learned``: the share of each row that voted; None where there is none, or
          where nobody asked.
    """

    logits: Tensor
    heard: Tensor
    stored: Weights | None
    learned: Weights | None
    mixed: Tensor | None

    def without_shares(self) -> "Ballot":
        """Return it without the share of each row."""
        return self._replace(stored=None, learned=None)


def joined_ballots(parts: list[Ballot]) -> Ballot:
    """Return what was found for the queries of all parts, in their order."""
    logits, heard, stored, learned, mixed = zip(*parts, strict=True)
    return Ballot(
        torch.cat(logits),
        torch.cat(heard),
        _joined_shares(stored),
        _joined_shares(learned),
        torch.cat(mixed) if mixed[0] is not None else None,
    )


def _joined_shares(parts: tuple[Weights | None, ...]) -> Weights | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    own = torch.cat([part.own for part in known], dim=1)
    memory = [part.memory for part in known if part.memory is not None]
    places = [part.places for part in known if part.places is not None]
    return Weights(
        own,
        torch.cat(memory, dim=1) if memory else None,
        torch.cat(places, dim=1) if places else None,
    )

"""Rows of a table from a plain backbone up to a memory: what of the gain is what."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Rows that have one thing more each; the last of them is answered alone and in its batch.

    Args:
        plain: The backbone and a linear head.
        layer_norm: With a LayerNorm before the head; None where the table has no such row.
        param: The blocks of the memory, without memory and without neighbours.
        memory: With the paper's memories.
    """

    plain: str = "ERM"
    layer_norm: str | None = "LayerNorm"
    param: str = "PARAM"
    memory: str = "HMA"

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of its rows, from below."""
        found = (self.plain, self.layer_norm, self.param, self.memory)
        return tuple(name for name in found if name is not None)

"""What the paper says that a row costs."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PublishedCost:
    """Figures of the paper for a row; None where it has none.

    Args:
        parameters: All weights.
        trainable: Those that train.
        mebibytes: Peak of memory.
        seconds: Of a training step.
        times_plain: Time of a whole run over that of the plain backbone.
        note: What a reader must know of them.
    """

    parameters: float | None = None
    trainable: float | None = None
    mebibytes: float | None = None
    seconds: float | None = None
    times_plain: float | None = None
    note: str = ""

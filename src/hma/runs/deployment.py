"""Which of the two trained learners answers: the one that the validation rows prefer."""

from dataclasses import dataclass
from typing import Literal

from hma.training import Record

Which = Literal["memory", "plain"]
MEMORY: Which = "memory"
PLAIN: Which = "plain"
NAMES: dict[Which, str] = {PLAIN: "the plain backbone", MEMORY: "the memory"}


@dataclass(frozen=True)
class Deployment:
    """What ``hma predict`` asks.

    Args:
        which: The learner that answers.
        why: In one line.
    """

    which: Which
    why: str


def deployment(memory: Record, plain: Record | None) -> Deployment:
    """Return which learner has the smaller validation loss; of equals the plain backbone.

    Validation losses are those of the kept weights in the context that answers. Records that do
    not hold them leave the memory, which was asked for.
    """
    if plain is None:
        return Deployment(MEMORY, "deployed: the memory, nothing was trained beside it")
    losses = {PLAIN: validation_loss(plain), MEMORY: validation_loss(memory)}
    ours, theirs = losses[MEMORY], losses[PLAIN]
    if ours is None or theirs is None:
        return Deployment(MEMORY, "deployed: the memory, the validation losses are not known")
    which = MEMORY if ours < theirs else PLAIN
    other = PLAIN if which == MEMORY else MEMORY
    return Deployment(
        which,
        f"deployed: {NAMES[which]}, with validation loss {losses[which]:.4f} against "
        f"{losses[other]:.4f} for {NAMES[other]}",
    )


def validation_loss(record: Record) -> float | None:
    """Return the loss of the kept weights on the validation rows; None if it is not known."""
    measured = record.measures.get("validation_loss")
    if isinstance(measured, int | float):
        return float(measured)
    scores = record.epochs[record.selected_epoch]["validation"] if record.epochs else {}
    first = next(iter(scores.values()), {})
    return next((first[name] for name in ("loss", "nll") if name in first), None)

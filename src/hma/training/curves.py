"""What the curve of a run says of its length and its learning rate, in a line."""

from hma.training.record import Record

DIVERGED = 2.0
"""How many times the best training loss the last one may be."""


def curve_note(record: Record) -> str | None:
    """Return a line where a run ended too early or went astray; None for a run that is fine."""
    losses = [epoch["train_loss"] for epoch in record.epochs]
    if len(losses) < 2:
        return None
    recipe = record.setup["recipe"]
    lr = recipe.get("lr")
    if losses[-1] > DIVERGED * min(losses) and losses[-1] > losses[0] / 2:
        return (
            f"the training loss rose again, from {min(losses):.3g} to {losses[-1]:.3g}: lower --lr "
            f"(now {lr:g}) or --clip-norm"
        )
    planned = recipe.get("steps") is None and recipe.get("epochs") in (None, len(losses))
    if planned and record.selected_epoch == len(losses) - 1 and losses[-1] < 0.98 * losses[-2]:
        return (
            f"still improving in the last of {len(losses)} epochs: more --epochs or a higher --lr "
            f"(now {lr:g}) may help"
        )
    return None

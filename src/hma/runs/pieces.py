"""What a prediction is made of, where the memory votes beside the head, for a person to look at."""

from collections.abc import Iterator

from torch import Tensor

from hma.data import Source
from hma.memory.attribution import ExactParts
from hma.questions.explain import Explanation
from hma.report.numbers import counted, percent, plain
from hma.report.run.groups import group_names, label_text
from hma.runs.effects import Effect, strongest
from hma.runs.folder import Run
from hma.runs.remembered import RememberedRows
from hma.targets import Number


def pieces_of(
    run: Run, training: Source, shares: Explanation, exact: ExactParts, output: int, top: int
) -> Iterator[Effect]:
    """Yield what head, training rows and slots put into one output, then their sum.

    Args:
        run: A finished run.
        training: Where its training rows are.
        shares: The explanation of one row.
        exact: What its prediction is made of.
        output: Which output.
        top: How many training rows and slots to name; the others are summed up.
    """
    number = isinstance(run.preparation.target, Number)

    def amount(value: float) -> str:
        return plain(value) if number else percent(value, 2)

    def of(part: Tensor) -> float:
        return float(part[0] if number else part[0, output])

    share = float(shares.itself[0])
    alone = f", {amount(of(exact.head) / share)} by itself" if share > 0 else ""
    said = f"backbone and head: {percent(share)} of the answer{alone}"
    yield Effect("plain part", amount(of(exact.head)), "", said)
    rows, slots = (part if number else part[:, output] for part in (exact.queue(0), exact.slots(0)))
    named = [place for place in strongest(rows, len(rows)) if int(shares.queue_ids[place]) >= 0]
    named = named[:top]
    yield from _training_rows(run, training, shares, named, [amount(float(v)) for v in rows[named]])
    if len(rows) > len(named):
        rest = of(exact.from_queue) - float(rows[named].sum())
        others = counted(len(rows) - len(named), "training row")
        yield Effect("other training rows", amount(rest), "", f"{others} together")
    chosen = strongest(slots, top)
    groups = group_names(run.preparation.target, run.preparation.classes)
    for place in chosen:
        what = f"learned row {place % run.options.config.slots_per_class} of its class"
        label = groups[int(shares.slot_classes[place])]
        yield Effect("slot", amount(float(slots[place])), label, what)
    if len(slots) > len(chosen):
        rest = of(exact.from_slots) - float(slots[chosen].sum())
        others = counted(len(slots) - len(chosen), "slot")
        yield Effect("other slots", amount(rest), "", f"{others} together")
    yield Effect("even vote", amount(of(exact.even)), "", "a little for every answer")
    yield Effect("together", amount(of(exact.whole)), "", "the prediction")


def _training_rows(
    run: Run, training: Source, shares: Explanation, named: list[int], amounts: list[str]
) -> Iterator[Effect]:
    """Yield stored rows by the place they have in the source."""
    target, names = run.preparation.target, run.preparation.classes
    remembered = RememberedRows(run, training)
    samples = [int(shares.queue_ids[place]) for place in named]
    seen = remembered.seen(samples)
    for row, sample, said, amount in zip(named, samples, seen, amounts, strict=True):
        label = label_text(target, names, shares.queue_classes[row].tolist())
        kind = remembered.kind(sample)
        yield Effect(kind, amount, label, said.what, remembered.picture(sample))

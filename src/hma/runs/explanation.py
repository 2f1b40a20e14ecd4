"""One prediction of a run, traced to training rows that a person can look at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from hma.backbones import Frozen
from hma.data import Batch, Source
from hma.errors import UserError
from hma.methods.memory import WithMemory
from hma.questions.contributions import contributions, explained_output
from hma.questions.explain import Explanation, explain
from hma.questions.explain import Source as Seen
from hma.report import numbers
from hma.report.html import inline_picture, template
from hma.report.run.groups import group_names, label_text
from hma.runs.effects import Effect, NearRow, effects_of, explained_in, nearest_rows
from hma.runs.folder import MEMORY, Run
from hma.runs.pieces import pieces_of
from hma.runs.remembered import RememberedRows
from hma.runs.training_data import training_source
from hma.targets import Number, Target, YesNo

NEIGHBOURS = 256


@dataclass(frozen=True)
class SeenRow:
    """One thing the prediction looked at, in words and, for images, as a picture."""

    kind: str
    share: float
    label: str
    description: str
    picture: str | None = None
    id: int | None = None
    """Sample id of a stored row."""


@dataclass(frozen=True)
class RowExplanation:
    """A prediction, what moved it, which training rows are like the row, and what it looked at.

    Args:
        description: The row.
        answer: The prediction.
        picture: The row as a picture.
        explained: What the effects are about, such as 'probability of cat'.
        effects: Of the memories, their classes, rows and slots, the strongest of each first; or,
            where the parts of a prediction add up, those parts and their sum.
        near: The training rows with the nearest features.
        near_of: How many training rows were compared.
        seen: Shares of the answer; or of attention, which says what was read, not what decided.
        by_group: The same by class, the most first.
        adds_up: Whether the prediction is the sum of ``effects``, and shares are of the answer.
        note: What ``hma predict`` answers, where that is not the memory alone.
    """

    description: str
    answer: str
    picture: str | None
    explained: str
    effects: tuple[Effect, ...]
    near: tuple[NearRow, ...]
    near_of: int
    seen: tuple[SeenRow, ...]
    by_group: tuple[tuple[str, float], ...]
    adds_up: bool = False
    note: str = ""


def explain_row(run: Run, rows: Source, index: int, *, top: int, context: str) -> RowExplanation:
    """Explain the prediction of one row of a source.

    Args:
        run: A finished run.
        rows: The source of the row.
        index: Its place, counted from 0.
        top: How many sources of each kind to name, the most attended first.
        context: Inference context; in 'batch' the rows that follow are its neighbours.
    """
    end = index + (NEIGHBOURS if context == "batch" else 1)
    rows = rows.up_to(end)
    if not 0 <= index < len(rows):
        raise UserError(f"index must be from 0 to {len(rows) - 1} for {rows.name}, got {index}")
    learner = run.learner(MEMORY)
    assert isinstance(learner, WithMemory)
    if context not in learner.contexts:
        raise UserError(f"context must be one of {', '.join(learner.contexts)}, got {context!r}")
    learner.use(context)
    last = min(end, len(rows))
    split = run.preparation.split(rows, range(index, last))
    learner.model.eval()
    batch = split.batch(torch.arange(last - index))
    with torch.no_grad():
        features = learner.model.backbone(batch.x)
    shares = explain(learner.model, features=features)
    target, names = run.preparation.target, run.preparation.classes
    training = training_source(run)
    exact, output = shares.exact, explained_output(target, shares.probabilities[0])
    if exact is not None:
        effects = pieces_of(run, training, shares, exact, output, top)
    else:
        moved = contributions(learner.model, features=features)
        effects = effects_of(run, training, shares, moved, top)
    most = most_seen(shares, top)
    groups = zip(group_names(target, names), shares.by_class[0].tolist(), strict=True)
    near, near_of = nearest_rows(run, learner, training, features[0], top)
    return RowExplanation(
        description=rows.describe(index),
        answer=answer_text(target, names, shares.probabilities[0].tolist()),
        picture=inline_picture(rows.thumbnail(index)),
        explained=explained_in(target, names, output),
        effects=tuple(effects),
        adds_up=exact is not None,
        near=near,
        near_of=near_of,
        seen=tuple(seen_in_words(most, RememberedRows(run, training), rows, index)),
        by_group=tuple(sorted(groups, key=lambda group: -group[1])[:top]),
        note=_deployed_note(run, batch, features, context),
    )


@torch.no_grad()
def _deployed_note(run: Run, batch: Batch, features: Tensor, context: str) -> str:
    """Say what ``hma predict`` answers, and what the memory counts in it; empty if all."""
    deployed, target = run.deployed, run.preparation.target
    share = deployed.counted.get(MEMORY, 0.0)
    if share == 1:
        return ""
    learner = run.learner(deployed.which)
    learner.use(context if context in learner.contexts else learner.contexts[0])
    if isinstance(getattr(learner.module, "backbone", None), Frozen):
        batch = batch._replace(x=None, features=features)
    expected = target.expected(learner.predict(batch))[0].tolist()
    said = answer_text(target, run.preparation.classes, expected)
    counts = f"in which the memory counts {share:.0%}" if share else "without the memory"
    return (
        f"This is about the memory. hma predict answers {said}, by {deployed.title()} of this run, "
        f"{counts}."
    )


def answer_text(target: Target, names: Sequence[str], expected: Any) -> str:
    """Return a prediction in words.

    Args:
        target: What a label is.
        names: Of the classes, the labels, or the number.
        expected: What :meth:`hma.targets.Target.expected` gives for the row.

    Example:
        >>> answer_text(Number(), ["price"], 12.5)
        'price 12.5'
        >>> answer_text(YesNo(2), ["toxic", "soluble"], [0.9, 0.25])
        'toxic yes (90.0%), soluble no (75.0%)'
    """
    if isinstance(target, Number):
        return f"{names[0]} {expected:.6g}"
    if isinstance(target, YesNo):
        said = [
            f"{name} {'yes' if share > 0.5 else 'no'} ({100 * max(share, 1 - share):.1f}%)"
            for name, share in zip(names, expected, strict=True)
        ]
        return ", ".join(said)
    best = max(range(len(expected)), key=expected.__getitem__)
    return f"{names[best]} ({100 * expected[best]:.1f}%)"


def most_seen(shares: Explanation, top: int) -> list[Seen]:
    """Return the row itself, then the ``top`` sources of each kind: training rows first.

    A training row that the queue holds more than once counts once, with all its shares; what the
    context hides from the row, neighbours without any share, is left out.
    """
    kinds = {"itself": 0, "queue": 1, "slot": 2, "batch": 3, "anchor": 4}
    found: dict[str, list[Seen]] = {kind: [] for kind in kinds}
    for seen in _once(shares.top(0, k=shares.sources)):
        if seen.kind != "batch" or seen.share > 0:
            found[seen.kind].append(seen)
    return [seen for kind in kinds for seen in found[kind][:top]]


def _once(sources: list[Seen]) -> list[Seen]:
    """Return the sources with those of one training row added up, the most attended first."""
    together: dict[tuple[str, int], Seen] = {}
    for seen in sources:
        of_row = seen.kind == "queue" and seen.sample >= 0
        key = ("row", seen.sample) if of_row else (seen.kind, seen.index)
        before = together.get(key)
        share = seen.share + (0.0 if before is None else before.share)
        together[key] = replace(before or seen, share=share)
    return sorted(together.values(), key=lambda seen: -seen.share)


def seen_in_words(
    most: Sequence[Seen], shown: RememberedRows, rows: Source, index: int
) -> Iterator[SeenRow]:
    """Yield what was looked at; each source of rows is read once for all of them.

    Args:
        most: What was looked at.
        shown: What is behind sample ids.
        rows: The source of the row that looked.
        index: Its place there.
    """
    run = shown.run
    target, names = run.preparation.target, run.preparation.classes
    remembered = [seen.sample for seen in most if seen.kind == "queue" and seen.sample >= 0]
    beside = [index + seen.index for seen in most if seen.kind == "batch"]
    texts = dict(zip(remembered, shown.seen(remembered), strict=True))
    neighbours = dict(zip(beside, rows.describe_all(beside), strict=True))
    for seen in most:
        if seen.kind == "queue" and seen.sample >= 0:
            label = label_text(target, names, seen.label)
            said, picture = texts[seen.sample].what, shown.picture(seen.sample)
            kind = shown.kind(seen.sample)
            yield SeenRow(kind, seen.share, label, said, picture, seen.sample)
        elif seen.kind == "batch":
            yield SeenRow("neighbour", seen.share, "", neighbours[index + seen.index])
        elif seen.kind == "slot":
            number = seen.index % run.options.config.slots_per_class
            group = group_names(target, names)[cast("int", seen.label)]
            yield SeenRow("slot", seen.share, group, f"learned row {number} of its class")
        elif run.options.memory == "vote":
            yield SeenRow("plain part", seen.share, "", "backbone and head")
        else:
            yield SeenRow(seen.kind, seen.share, "", "the row itself")


def as_page(found: RowExplanation) -> str:
    """Return the explanation as one self-contained HTML page."""
    page: str = template("templates/explanation.html.j2").render(found=found, numbers=numbers)
    return page

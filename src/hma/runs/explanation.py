"""One prediction of a run, traced to training rows that a person can look at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from hma.backbones import Frozen
from hma.data import Batch, Source
from hma.errors import UserError
from hma.memory.attribution import ExactParts
from hma.methods.memory import WithMemory
from hma.questions.contributions import Contributions, contributions, explained_output
from hma.questions.explain import Explanation, explain
from hma.questions.explain import Source as Seen
from hma.report import numbers
from hma.report.html import inline_picture, template
from hma.report.numbers import counted, decimals, percent, plain, signed
from hma.runs.deployment import MEMORY
from hma.runs.folder import Run
from hma.runs.remembered import RememberedRows
from hma.runs.source import (
    by_source,
    learned_sources,
    place_of,
    training_features,
    training_source,
)
from hma.targets import Target

AT_ONCE = 256
COMPARED = 4096
"""Most training rows that are encoded to find the nearest."""


@dataclass(frozen=True)
class Effect:
    """How much a part of the memories moves the prediction: with it, less without it.

    Where parts add up, what it puts into the prediction, see :mod:`hma.runs.explanation`.
    """

    part: str
    change: str
    label: str = ""
    description: str = ""
    picture: str | None = None


@dataclass(frozen=True)
class NearRow:
    """A training row whose features are near."""

    distance: float
    label: str
    description: str
    picture: str | None = None


def explained_in(target: Target, names: Sequence[str], output: int) -> str:
    """Return what the effects are about, in words.

    Example:
        >>> from hma.targets import YesNo
        >>> explained_in(YesNo(2), ["toxic", "soluble"], 1)
        'the probability of soluble: yes'
    """
    if not target.gives_probabilities:
        return names[0]
    return f"the probability of {names[output]}{'' if target.picks_one else ': yes'}"


def effects_of(
    run: Run, training: Source, shares: Explanation, moved: Contributions, top: int
) -> Iterator[Effect]:
    """Yield the effect of the memories as a whole, then of classes, training rows and slots."""
    target, names = run.preparation.target, run.preparation.classes
    groups, scale = target.group_names(names), target.gives_probabilities

    def change(value: float) -> str:
        return f"{signed(100 * value, 2)} points" if scale else signed(value, decimals(value))

    for part, value in (
        ("both memories", moved.memory),
        ("all queue rows", moved.whole_queue),
        ("all slots", moved.whole_slots),
    ):
        yield Effect(part, change(value))
    for place in strongest(moved.by_class, top):
        value = float(moved.by_class[place])
        yield Effect("class", change(value), groups[place], "its queue rows and slots")
    named: set[int] = set()
    remembered = RememberedRows(run, training)
    for place in strongest(moved.queue, len(moved.queue)):
        sample = int(shares.queue_ids[place])
        if len(named) == top or sample < 0 or sample in named:
            continue
        named.add(sample)
        label = target.label_text(names, shares.queue_classes[place].tolist())
        shown = remembered.describe(sample), remembered.picture(sample)
        yield Effect(remembered.kind(sample), change(float(moved.queue[place])), label, *shown)
    for place in strongest(moved.slots, top):
        number = place % run.options.config.slots_per_class
        label = groups[int(shares.slot_classes[place])]
        value = float(moved.slots[place])
        yield Effect("slot", change(value), label, f"learned row {number} of its class")


def strongest(effects: torch.Tensor, top: int) -> list[int]:
    """Return the places of the ``top`` numbers that are furthest from 0."""
    order: list[int] = effects.abs().argsort(descending=True, stable=True)[:top].tolist()
    return order


@torch.no_grad()
def nearest_rows(
    run: Run, learner: WithMemory, training: Source, features: torch.Tensor, top: int
) -> tuple[tuple[NearRow, ...], int]:
    """Return the training rows whose features are nearest, and how many were compared.

    Of more than ``COMPARED`` training rows those in the queue are compared, and of a memory that
    was changed since those that it holds.
    """
    if run.living.chain:
        return _nearest_held(run, learner, training, features, top)
    samples = list(range(max(run.learned_rows, 1)))
    if len(samples) > COMPARED:
        held = learner.model.memory_state().ids
        samples = sorted({sample for sample in held.tolist() if sample >= 0})
    sources = learned_sources(run, training)
    behind = [place_of(run, sources, sample) for sample in samples]
    splits = [run.preparation.split(source, places) for source, places in by_source(behind)]
    labels = torch.cat([split.labels for split in splits])
    made = training_features(run, learner, samples)
    if made is None:
        parts = [
            learner.model.backbone(split.batch(rows).x)
            for split in splits
            for rows in torch.split(torch.arange(len(split)), AT_ONCE)
        ]
        made = torch.cat(parts)
    distances = (made - features).norm(dim=1)
    target, names = run.preparation.target, run.preparation.classes
    order = distances.argsort(stable=True)[:top].tolist()
    remembered = RememberedRows(run, training)
    texts = remembered.seen([samples[i] for i in order])
    found = [
        NearRow(
            float(distances[i]),
            target.label_text(names, labels[i].tolist()),
            text.what,
            remembered.picture(samples[i]),
        )
        for i, text in zip(order, texts, strict=True)
    ]
    return tuple(found), len(samples)


def _nearest_held(
    run: Run, learner: WithMemory, training: Source, features: torch.Tensor, top: int
) -> tuple[tuple[NearRow, ...], int]:
    """Return the rows of a memory with a row for each sample whose features are nearest."""
    held = learner.model.memory_state()
    distances = (held.features - features).norm(dim=1)
    target, names = run.preparation.target, run.preparation.classes
    remembered = RememberedRows(run, training)
    found = []
    for place in distances.argsort(stable=True)[:top].tolist():
        sample = int(held.ids[place])
        label = target.label_text(names, held.labels[place].tolist())
        shown = remembered.describe(sample), remembered.picture(sample)
        found.append(NearRow(float(distances[place]), label, *shown))
    return tuple(found), len(distances)


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
    number = not run.preparation.target.gives_probabilities

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
    groups = run.preparation.target.group_names(run.preparation.classes)
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
        label = target.label_text(names, shares.queue_classes[row].tolist())
        kind = remembered.kind(sample)
        yield Effect(kind, amount, label, said.what, remembered.picture(sample))


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
    groups = zip(target.group_names(names), shares.by_class[0].tolist(), strict=True)
    near, near_of = nearest_rows(run, learner, training, features[0], top)
    return RowExplanation(
        description=rows.describe(index),
        answer=target.answer_text(names, shares.probabilities[0].tolist()),
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
    said = target.answer_text(run.preparation.classes, expected)
    counts = f"in which the memory counts {share:.0%}" if share else "without the memory"
    return (
        f"This is about the memory. hma predict answers {said}, by {deployed.title()} of this run, "
        f"{counts}."
    )


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
            label = target.label_text(names, seen.label)
            said, picture = texts[seen.sample].what, shown.picture(seen.sample)
            kind = shown.kind(seen.sample)
            yield SeenRow(kind, seen.share, label, said, picture, seen.sample)
        elif seen.kind == "batch":
            yield SeenRow("neighbour", seen.share, "", neighbours[index + seen.index])
        elif seen.kind == "slot":
            number = seen.index % run.options.config.slots_per_class
            group = target.group_names(names)[cast("int", seen.label)]
            yield SeenRow("slot", seen.share, group, f"learned row {number} of its class")
        elif run.options.memory == "vote":
            yield SeenRow("plain part", seen.share, "", "backbone and head")
        else:
            yield SeenRow(seen.kind, seen.share, "", "the row itself")


def as_page(found: RowExplanation) -> str:
    """Return the explanation as one self-contained HTML page."""
    page: str = template("templates/explanation.html.j2").render(found=found, numbers=numbers)
    return page

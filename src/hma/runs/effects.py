"""What moved a prediction, and which training rows are like its row, for a person to look at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from hma.data import Source
from hma.methods.memory import WithMemory
from hma.questions.contributions import Contributions
from hma.questions.explain import Explanation
from hma.report.html import inline_picture
from hma.report.numbers import decimals, signed
from hma.report.run.groups import group_names, label_text
from hma.runs.folder import Run
from hma.runs.remembered import RememberedRows
from hma.runs.training_data import place_of, training_features
from hma.targets import Number, Target, YesNo

AT_ONCE = 256
COMPARED = 4096
"""Most training rows that are encoded to find the nearest."""


@dataclass(frozen=True)
class Effect:
    """How much a part of the memories moves the prediction: with it, less without it.

    Where parts add up, what it puts into the prediction, see :mod:`hma.runs.pieces`.
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
        >>> explained_in(YesNo(2), ["toxic", "soluble"], 1)
        'the probability of soluble: yes'
    """
    if isinstance(target, Number):
        return names[0]
    return f"the probability of {names[output]}{': yes' if isinstance(target, YesNo) else ''}"


def effects_of(
    run: Run, training: Source, shares: Explanation, moved: Contributions, top: int
) -> Iterator[Effect]:
    """Yield the effect of the memories as a whole, then of classes, training rows and slots."""
    target, names = run.preparation.target, run.preparation.classes
    groups, scale = group_names(target, names), not isinstance(target, Number)

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
        label = label_text(target, names, shares.queue_classes[place].tolist())
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
    samples = list(range(max(len(run.places.get("train", [])), 1)))
    if len(samples) > COMPARED:
        held = learner.model.memory_state().ids
        samples = sorted({sample for sample in held.tolist() if sample >= 0})
    places = [place_of(run, training, sample) for sample in samples]
    split = run.preparation.split(training, places)
    known = training_features(run, learner, samples)
    parts = [
        learner.model.backbone(split.batch(rows).x) if known is None else known[rows]
        for rows in torch.split(torch.arange(len(places)), AT_ONCE)
    ]
    distances = (torch.cat(parts) - features).norm(dim=1)
    target, names = run.preparation.target, run.preparation.classes
    order = distances.argsort(stable=True)[:top].tolist()
    texts = training.describe_all([places[i] for i in order])
    found = [
        NearRow(
            float(distances[i]),
            label_text(target, names, split.labels[i].tolist()),
            text,
            inline_picture(training.thumbnail(places[i])),
        )
        for i, text in zip(order, texts, strict=True)
    ]
    return tuple(found), len(places)


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
        label = label_text(target, names, held.labels[place].tolist())
        shown = remembered.describe(sample), remembered.picture(sample)
        found.append(NearRow(float(distances[place]), label, *shown))
    return tuple(found), len(distances)

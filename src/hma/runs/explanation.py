"""One prediction of a run, traced to training rows that a person can look at."""

import base64
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING

import torch

from hma.data import Source
from hma.errors import UserError
from hma.explain import Explanation, explain
from hma.explain import Source as Seen
from hma.methods.memory import WithMemory
from hma.report.html import template
from hma.runs.folder import MEMORY, Run
from hma.runs.training_data import training_source

if TYPE_CHECKING:
    from PIL.Image import Image

NEIGHBOURS = 256


@dataclass(frozen=True)
class SeenRow:
    """One thing the prediction looked at, in words and, for images, as a picture."""

    kind: str
    share: float
    label: str
    description: str
    picture: str | None = None


@dataclass(frozen=True)
class RowExplanation:
    """A prediction and what it looked at."""

    description: str
    label: str
    probability: float
    picture: str | None
    seen: tuple[SeenRow, ...]
    by_class: tuple[tuple[str, float], ...]


def explain_row(run: Run, rows: Source, index: int, *, top: int, context: str) -> RowExplanation:
    """Explain the prediction of one row of a source.

    Args:
        run: A finished run.
        rows: The source of the row.
        index: Its place, counted from 0.
        top: How many sources of each kind to name, the most attended first.
        context: Inference context; in 'batch' the rows that follow are its neighbours.
    """
    if not 0 <= index < len(rows):
        raise UserError(f"index must be from 0 to {len(rows) - 1} for {rows.name}, got {index}")
    learner = run.learner(MEMORY)
    assert isinstance(learner, WithMemory)
    if context not in learner.contexts:
        raise UserError(f"context must be one of {', '.join(learner.contexts)}, got {context!r}")
    learner.use(context)
    last = min(index + (NEIGHBOURS if context == "batch" else 1), len(rows))
    split = run.preparation.split(rows, range(index, last))
    shares = explain(learner.model, split.batch(torch.arange(last - index)).x)
    classes = run.preparation.classes
    training = training_source(run)
    best = int(shares.prediction[0])
    return RowExplanation(
        description=rows.describe(index),
        label=classes[best],
        probability=float(shares.probabilities[0, best]),
        picture=_picture(rows.thumbnail(index)),
        seen=tuple(_in_words(seen, run, training, rows, index) for seen in _most(shares, top)),
        by_class=tuple(zip(classes, shares.by_class[0].tolist(), strict=True)),
    )


def _most(shares: Explanation, top: int) -> list[Seen]:
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


def _in_words(seen: Seen, run: Run, training: Source, rows: Source, index: int) -> SeenRow:
    known = isinstance(seen.label, int) and seen.label >= 0
    label = run.preparation.classes[seen.label] if known else ""  # type: ignore[index]
    if seen.kind == "queue" and seen.sample >= 0:
        place = run.places["train"][seen.sample]
        picture = _picture(training.thumbnail(place))
        return SeenRow("training row", seen.share, label, training.describe(place), picture)
    if seen.kind == "batch":
        return SeenRow("neighbour", seen.share, "", rows.describe(index + seen.index))
    if seen.kind == "slot":
        number = seen.index % run.options.config.slots_per_class
        return SeenRow("slot", seen.share, label, f"learned row {number} of its class")
    return SeenRow(seen.kind, seen.share, label, "the row itself")


def _picture(image: "Image | None") -> str | None:
    if image is None:
        return None
    file = BytesIO()
    image.save(file, format="PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def as_page(found: RowExplanation) -> str:
    """Return the explanation as one self-contained HTML page."""
    page: str = template("templates/explanation.html.j2").render(found=found)
    return page

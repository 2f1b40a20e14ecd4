"""One prediction of a run, traced to training rows that a person can look at."""

import base64
from dataclasses import dataclass, replace
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING

import torch

from hma.data import Source
from hma.errors import UserError
from hma.explain import Explanation, explain
from hma.explain import Source as Seen
from hma.methods.memory import WithMemory
from hma.runs.folder import MEMORY, Run, source_from

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
    training = source_from(run.options)
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
    label = run.preparation.classes[seen.label] if seen.label >= 0 else ""
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


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem }
img { width: 64px; image-rendering: pixelated; vertical-align: middle; border-radius: 4px }
td, th { padding: .3rem .8rem; text-align: left; border-bottom: 1px solid #8884 }
td.share { text-align: right; font-variant-numeric: tabular-nums }
:root { color-scheme: light dark }
"""


def as_page(found: RowExplanation) -> str:
    """Return the explanation as one self-contained HTML page."""
    lines = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        f"<title>{escape(found.description)}</title><style>{STYLE}</style>",
        f"<h1>{_image(found.picture)} {escape(found.description)}</h1>",
        f"<p>Predicted <b>{escape(found.label)}</b> with {100 * found.probability:.1f}%.</p>",
        "<h2>Looked at most</h2>",
        "<table><tr><th></th><th>what</th><th>class</th><th>share</th></tr>",
        *(
            f"<tr><td>{_image(seen.picture)}</td><td>{escape(f'{seen.kind}: {seen.description}')}"
            f"</td><td>{escape(seen.label)}</td><td class='share'>{100 * seen.share:.1f}%</td></tr>"
            for seen in found.seen
        ),
        "</table><h2>Queue rows and slots by class</h2><table>",
        *(
            f"<tr><td>{escape(name)}</td><td class='share'>{100 * share:.1f}%</td></tr>"
            for name, share in found.by_class
        ),
        "</table></html>",
    ]
    return "\n".join(lines)


def _image(picture: str | None) -> str:
    return "" if picture is None else f"<img src='{picture}' alt=''>"

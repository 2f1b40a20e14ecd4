"""Step 6: labels that were changed on purpose, found by what the other rows vote."""

from pathlib import Path

import torch
from torch import Tensor

from hma.quickstart.digit_files import digit_file, digits_as_bytes, opened
from hma.quickstart.step import Picture, Step, auroc
from hma.report.html import inline_picture
from hma.report.numbers import percent, plain
from hma.runs import RunOptions, train
from hma.runs.suspects import suspects_of
from hma.training import Progress, UserRecipe

FOLDER = "wrong-labels"
FILE = f"{FOLDER}.npz"
CHANGED = 0.05
SHOWN = 12


def wrong_labels(folder: Path, progress: Progress | None) -> Step:
    """Train on digits of which a part has wrong labels; rank them by the vote of the others.

    Args:
        folder: Of the tour; the file with the rows is written there.
        progress: Shows how far it is.
    """
    images, labels = digits_as_bytes()
    given = _partly_wrong(labels)
    source = opened(digit_file(folder / FILE, images, given))
    options = RunOptions(source=str(folder / FILE), recipe=UserRecipe().fixed())
    run = train(options, folder / FOLDER, compare=False, progress=progress)
    rows = suspects_of(run, progress=progress).rows  # the most suspicious first
    places = [run.places["train"][row.id] for row in rows]
    wrong = [bool(given[place] != labels[place]) for place in places]
    count = sum(wrong)
    precision = sum(wrong[:count]) / count
    scores = torch.tensor([row.score for row in rows]).nan_to_num(nan=-1.0)
    chosen = torch.tensor(wrong)
    apart = auroc(scores[chosen], scores[~chosen])
    return Step(
        name="wrong labels",
        title=f"Wrong labels: {percent(CHANGED, 0)} changed on purpose",
        result=(
            f"{count} of {len(rows)} training labels are wrong; of the {count} most suspicious "
            f"{percent(precision)} are (by chance it would be {percent(count / len(rows))}), "
            f"AUROC {plain(apart)}"
        ),
        command=f"hma suspects {run.folder}",
        numbers={
            "wrong training labels": count,
            "training rows": len(rows),
            "precision": precision,
            "precision by chance": count / len(rows),
            "AUROC": apart,
        },
        pictures=tuple(
            Picture(
                picture=inline_picture(source.thumbnail(place)),
                head=f"given {row.label}, voted {row.suggested}",
                text=f"changed, was {labels[place]}" if changed else "not changed",
                marked=not changed,
            )
            for row, place, changed in list(zip(rows, places, wrong, strict=True))[:SHOWN]
        ),
        caption=f"The {SHOWN} most suspicious rows: label given, what the others vote, the truth.",
    )


def _partly_wrong(labels: Tensor) -> Tensor:
    """Return labels of which a part is another digit, drawn with a fixed seed."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.randperm(len(labels), generator=draw)[: round(CHANGED * len(labels))]
    moved = torch.randint(1, 10, (len(rows),), generator=draw)
    wrong = labels.clone()
    wrong[rows] = (wrong[rows] + moved) % 10
    return wrong

"""Steps 4 to 6: a digit that training never saw, unknown and then taught; wrong labels found."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from hma.data import Source, open_source
from hma.data.sets.digits import digit_images
from hma.io.files import atomic_write
from hma.methods.memory import WithMemory
from hma.questions.unfamiliar import unfamiliarity
from hma.quickstart.step import Picture, Step, auroc
from hma.report.html import inline_picture
from hma.report.numbers import percent, plain
from hma.runs import MEMORY, Run, RunOptions, train
from hma.runs.coverage import Covered
from hma.runs.living import LivingMemory
from hma.runs.suspects import suspects_of
from hma.training import Progress, UserRecipe, all_logits

BYTES = 255


def digits_as_bytes() -> tuple[Tensor, Tensor]:
    """Return the images ``(1797, 8, 8)`` as bytes, and their digits."""
    images, labels = digit_images()
    return (images[:, 0] * BYTES).round().to(torch.uint8), labels


def write_digits(path: Path, images: Tensor, labels: Tensor) -> Source:
    """Write images and labels as ``.npz``, such as a user has, and open them.

    The file is whole or not there; one that is there stays as it is.
    """
    if not path.exists():
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.savez(file, x=images.numpy(), y=labels.numpy())
    return open_source(str(path))


DIGIT, TAUGHT, COVERAGE = 7, 5, 0.95
FOLDER = f"without-{DIGIT}"
KNOWN, LESSON, LATER = f"{FOLDER}.npz", f"five-{DIGIT}s.npz", f"other-{DIGIT}s.npz"


class UnseenDigit:
    """A run that never saw one digit, and rows of that digit.

    Args:
        folder: Of the tour; the files with the rows are written there.
        progress: Shows how far it is.
    """

    def __init__(self, folder: Path, progress: Progress | None) -> None:
        images, labels = digits_as_bytes()
        own = (labels == DIGIT).nonzero().flatten()
        own = own[torch.randperm(len(own), generator=torch.Generator().manual_seed(0))]
        known = labels != DIGIT
        lesson, later = own[:TAUGHT], own[TAUGHT:]
        self.lesson = folder / LESSON
        write_digits(self.lesson, images[lesson], labels[lesson])
        self.later = write_digits(folder / LATER, images[later], labels[later])
        self.known = write_digits(folder / KNOWN, images[known], labels[known])
        self.progress = progress
        options = RunOptions(source=str(folder / KNOWN), recipe=UserRecipe().fixed())
        self.run = train(options, folder / FOLDER, progress=progress)
        self.tests = self.run.places["test"]
        if self.run.living.chain:  # an earlier tour stopped before it had undone its lesson
            self.run = self._restored()

    def unknown(self) -> Step:
        """Ask how unfamiliar rows of the digit are, beside test rows of the others."""
        promise = Covered(self.run, COVERAGE, progress=self.progress).promise
        new = _far(self.run, self.later, range(len(self.later)))
        old = _far(self.run, self.known, self.tests)
        told, wrongly = (fmean(map(promise.is_unknown, far.tolist())) for far in (new, old))
        apart = auroc(new, old)
        return Step(
            name="unknown",
            title=f"What it does not know: trained without the digit {DIGIT}",
            result=(
                f"{percent(told)} of {len(new)} rows of the digit {DIGIT} are called unknown, and "
                f"{percent(wrongly)} of {len(old)} test rows of the other digits; AUROC of "
                f"unfamiliarity {plain(apart)}"
            ),
            command=(
                f"hma predict {self.run.folder} {self.run.folder.parent / LATER} "
                f"-o {self.run.folder.parent / 'answers.csv'} --coverage {COVERAGE}"
            ),
            numbers={
                f"{DIGIT}s called unknown": told,
                "other digits called unknown": wrongly,
                "AUROC": apart,
            },
        )

    def taught(self) -> Step:
        """Teach five rows of the digit, score old and new ones before and after, and undo it."""
        before = self._right()
        version = LivingMemory.open(self.run, progress=self.progress).remember(
            str(self.lesson), new_classes=True
        )
        self.run = Run.open(self.run.folder)
        after = self._right()
        lesson = open_source(str(self.lesson))
        self.run = self._restored()
        undone = self._right()
        return Step(
            name="taught",
            title=f"Teach it: {version.added} rows of the digit {DIGIT}, without training",
            result=(
                f"accuracy on {len(self.later)} other rows of that digit {percent(before[0])} "
                f"before, {percent(after[0])} after; on {len(self.tests)} test rows of the other "
                f"digits {percent(before[1])} before, {percent(after[1])} after; undone again: "
                f"{percent(undone[0])} and {percent(undone[1])}"
            ),
            command=(
                f"hma remember {self.run.folder} {self.run.folder.parent / LESSON} --new-classes; "
                f"hma memory {self.run.folder} --restore 0"
            ),
            numbers={
                "rows taught": version.added,
                "new digit before": before[0],
                "new digit after": after[0],
                "other digits before": before[1],
                "other digits after": after[1],
                "new digit undone": undone[0],
                "other digits undone": undone[1],
            },
            pictures=tuple(
                Picture(
                    picture=inline_picture(lesson.thumbnail(place)),
                    head=f"a {DIGIT}",
                    text=lesson.describe(place),
                )
                for place in range(len(lesson))
            ),
            caption="The rows it was taught.",
        )

    def _right(self) -> tuple[float, float]:
        """Return the accuracy on rows of the digit and on test rows of the others."""
        return (
            _accuracy(self.run, self.later, range(len(self.later))),
            _accuracy(self.run, self.known, self.tests),
        )

    def _restored(self) -> Run:
        LivingMemory.open(self.run, progress=self.progress).restore(0)
        return Run.open(self.run.folder)


def _accuracy(run: Run, source: Source, places: Sequence[int]) -> float:
    """Return how many rows the run answers with their label, as ``hma predict`` does."""
    assert source.labels is not None
    split = run.preparation.split(source.without_labels(), places)
    learner = run.learner(run.deployed.which)
    said = run.preparation.target.decide(all_logits(learner, split, batch_size=len(split)))
    names = run.preparation.classes
    pairs = zip(said.tolist(), places, strict=True)
    right = sum(bool(names[int(answer)] == source.labels[place]) for answer, place in pairs)
    return right / len(places)


def _far(run: Run, source: Source, places: Sequence[int]) -> Tensor:
    split = run.preparation.split(source.without_labels(), places)
    memory = run.learner(MEMORY)
    assert isinstance(memory, WithMemory)
    return unfamiliarity(memory.model, split.batch(torch.arange(len(split))).x)


WRONG_FOLDER = "wrong-labels"
WRONG_FILE = f"{WRONG_FOLDER}.npz"
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
    source = write_digits(folder / WRONG_FILE, images, given)
    options = RunOptions(source=str(folder / WRONG_FILE), recipe=UserRecipe().fixed())
    run = train(options, folder / WRONG_FOLDER, compare=False, progress=progress)
    rows = suspects_of(run, progress=progress).rows  # the most suspicious first
    behind = [place for split in run.learned.values() for place in split]
    places = [behind[row.id] for row in rows]
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

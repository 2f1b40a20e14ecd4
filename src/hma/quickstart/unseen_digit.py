"""Steps 4 and 5: a digit that training never saw is told as unknown, then taught, then undone."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from hma.data import Source
from hma.methods.memory import WithMemory
from hma.questions.unfamiliar import unfamiliarity
from hma.quickstart.digit_files import digit_file, digits_as_bytes, opened
from hma.quickstart.step import Picture, Step, auroc
from hma.report.html import inline_picture
from hma.report.numbers import percent, plain
from hma.runs import MEMORY, Run, RunOptions, train
from hma.runs.coverage import Covered
from hma.runs.living import LivingMemory
from hma.training import Progress, UserRecipe, all_logits

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
        known = digit_file(folder / KNOWN, images[labels != DIGIT], labels[labels != DIGIT])
        lesson, later = own[:TAUGHT], own[TAUGHT:]
        self.lesson = digit_file(folder / LESSON, images[lesson], labels[lesson])
        self.later = opened(digit_file(folder / LATER, images[later], labels[later]))
        self.known, self.progress = opened(known), progress
        options = RunOptions(source=str(known), recipe=UserRecipe().fixed())
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
        lesson = opened(self.lesson)
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

"""The tour: its steps one after the other, and the record and the page that they leave."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hma.errors import UserError
from hma.io.files import explain_write_errors
from hma.io.json_files import write_json
from hma.questions.audit import Audit
from hma.quickstart import few_labels as few
from hma.quickstart import motifs as graphs
from hma.quickstart import unseen_digit as unseen
from hma.quickstart import wrong_labels as wrong
from hma.quickstart.explained_row import explained_row
from hma.quickstart.few_labels import few_labels
from hma.quickstart.motifs import motifs
from hma.quickstart.read_or_not import read_or_not
from hma.quickstart.step import Line, Step
from hma.quickstart.tour_page import write_tour_page
from hma.quickstart.unseen_digit import UnseenDigit
from hma.quickstart.wrong_labels import wrong_labels
from hma.training import Progress
from hma.training.threads import one_thread

RECORD, PAGE = "tour.json", "tour.html"
SCHEMA = 1
OWN = {
    *(RECORD, PAGE, "answers.csv", few.FOLDER, few.PARAM_FOLDER, graphs.FOLDER),
    *(unseen.FOLDER, unseen.KNOWN, unseen.LESSON, unseen.LATER, wrong.FOLDER, wrong.FILE),
}
"""What a folder of the tour may hold."""


@dataclass(frozen=True, kw_only=True)
class Tour:
    """What the tour found.

    Args:
        seeds: Of the first step.
        steps: In order.
        lines: Of the table.
        audit: Of the memory that few labels trained.
    """

    seeds: int
    steps: tuple[Step, ...]
    lines: tuple[Line, ...]
    audit: Audit

    def to_json(self) -> dict[str, Any]:
        """Return the record: every number that is printed or on the page."""
        return {
            "schema": SCHEMA,
            "seeds": self.seeds,
            "table": [asdict(line) for line in self.lines],
            "steps": [step.to_json() for step in self.steps],
            "audit": self.audit.to_json(),
        }


def take_tour(
    folder: Path,
    seeds: int,
    *,
    progress: Progress | None = None,
    tell: Callable[[Step], None] = lambda step: None,
) -> Tour:
    """Walk through all steps; the same call again goes on where it stopped.

    Args:
        folder: For runs, files, record and page; made if needed. One that holds anything else is
            refused untouched.
        seeds: Of the first step.
        progress: Shows how far a training is.
        tell: Called with each step when it is done.
    """
    expect_own_folder(folder)
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    steps: list[Step] = []

    def done(step: Step) -> None:
        steps.append(step)
        tell(step)

    with one_thread():  # a second one only waits at networks this small
        few_found, runs = few_labels(folder, seeds, progress)
        done(few_found.step)
        done(explained_row(runs.run()))
        step, audit = read_or_not(runs.run())
        done(step)
        digit = UnseenDigit(folder, progress)
        done(digit.unknown())
        done(digit.taught())
        done(wrong_labels(folder, progress))
        graphs_found = motifs(folder, progress)
        done(graphs_found.step)
    lines = tuple(
        replace(line, graphs=graphs_found.graphs.get(line.method)) for line in few_found.lines
    )
    found = Tour(seeds=seeds, steps=tuple(steps), lines=lines, audit=audit)
    write_json(folder / RECORD, found.to_json())
    write_tour_page(folder / PAGE, found.steps, found.lines, audit, seeds)
    return found


def expect_own_folder(folder: Path) -> None:
    """Raise unless ``folder`` is empty, not there, or left by an earlier tour."""
    if folder.is_dir():
        strange = sorted(
            path.name
            for path in folder.iterdir()
            if path.name not in OWN and not path.name.startswith(".")
        )
        if strange:
            raise UserError(
                f"{folder} holds {strange[0]}, which is not of the tour; give another --folder"
            )

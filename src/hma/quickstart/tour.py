"""The tour: every step in turn, the record of what they found, and its page."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hma.errors import UserError
from hma.io.files import atomic_write, explain_write_errors
from hma.io.json_files import write_json
from hma.questions.audit import Audit
from hma.quickstart import digits
from hma.quickstart import few_labels as few
from hma.quickstart import motifs as graphs
from hma.quickstart.digits import UnseenDigit, wrong_labels
from hma.quickstart.few_labels import explained_row, few_labels, read_or_not
from hma.quickstart.motifs import motifs
from hma.quickstart.step import Line, Step, figure
from hma.report import numbers
from hma.report.html import template
from hma.training import Progress
from hma.training.cost import using_threads

RECORD, PAGE = "tour.json", "tour.html"
SCHEMA = 1
OWN = {
    *(RECORD, PAGE, "answers.csv", few.FOLDER, few.PARAM_FOLDER, graphs.FOLDER),
    *(
        digits.FOLDER,
        digits.KNOWN,
        digits.LESSON,
        digits.LATER,
        digits.WRONG_FOLDER,
        digits.WRONG_FILE,
    ),
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

    with using_threads(1):  # a second one only waits at networks this small
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


def write_tour_page(
    path: Path, steps: Sequence[Step], lines: Sequence[Line], audit: Audit, seeds: int
) -> None:
    """Write the page whole or not at all.

    Args:
        path: Where to.
        steps: What the steps found.
        lines: Of the table.
        audit: Shown with the step of its name.
        seeds: Behind the table.
    """
    page = render_tour(steps, lines, audit, seeds)
    with atomic_write(path) as temporary:
        temporary.write_bytes(page.encode())


def render_tour(steps: Sequence[Step], lines: Sequence[Line], audit: Audit, seeds: int) -> str:
    """Return the page; the same findings give the same bytes, and every text is escaped."""
    found = template("templates/tour.html.j2")
    from hma.report.sections.memory import audit_rows  # it draws with markupsafe, which is jinja2's

    page: str = found.render(
        steps=steps,
        lines=lines,
        audits={"test": audit},
        seeds=numbers.counted(seeds, "seed"),
        graphs=any(line.graphs is not None for line in lines),
        figure=figure,
        audit_rows=audit_rows,
    )
    return page

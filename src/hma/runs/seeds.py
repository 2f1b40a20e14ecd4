"""The same training with several seeds: a folder with a whole run for each, compared."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hma.errors import UserError
from hma.io.checkpoint import MANIFEST
from hma.io.files import remove_abandoned
from hma.io.json_files import read_json
from hma.metrics import METRICS
from hma.report.page import write_page as write_report
from hma.report.seeds import SeedAnswers, SeedsReport, compare_seeds
from hma.report.verdict import amount
from hma.runs.deployment import MEMORY, Which
from hma.runs.folder import MODEL, VALIDATION, Run
from hma.runs.held_out import LEAST_ROWS, counts_in_words, taught_held_out
from hma.runs.kept_answers import answers_of, has_answers
from hma.runs.options import OPTIONS, REMEDY, SEVERAL, RunOptions, claim
from hma.runs.page import write_page
from hma.runs.source import training_task
from hma.runs.train import Says, train
from hma.training import Progress
from hma.training.identity import differences

PAGE = "report.html"


@dataclass(frozen=True)
class SeveralRuns:
    """What ``hma train --seeds`` left behind in ``folder``.

    Args:
        folder: Holds ``seed-0``, ``seed-1``, ...
        options: What was asked for, with the first seed.
        runs: The finished runs, by seed.
        unfinished: Seeds whose run did not finish.
    """

    folder: Path
    options: RunOptions
    runs: dict[int, Run]
    unfinished: tuple[int, ...]

    @classmethod
    def open(cls, folder: Path) -> "SeveralRuns":
        """Open a folder of several seeds, at least one of them finished."""
        options = RunOptions.read(folder / OPTIONS, several=True)
        remove_abandoned(folder)
        found = {seed: _finished(folder / _name(seed)) for seed in _seeds(folder)}
        runs = {seed: run for seed, run in found.items() if run is not None}
        if not runs:
            raise UserError(f"no run in {folder} has finished; run its hma train command again")
        _expect_alike([*runs.values()])
        return cls(folder, options, runs, tuple(seed for seed in found if seed not in runs))

    def run(self, seed: int | None = None) -> Run:
        """Return the run of a seed; of the first one if none is given."""
        if seed is None:
            return next(iter(self.runs.values()))
        if seed not in self.runs:
            known = ", ".join(map(str, self.runs))
            raise UserError(f"--seed must be one of {known} for {self.folder}, got {seed}")
        return self.runs[seed]

    def report(self, progress: Progress | None = None) -> SeedsReport:
        """Compare the candidates over all finished seeds.

        The training data is opened only for runs whose answers are not kept.
        """
        first, notes, answers = self.run(), [], {}
        for seed, run in self.runs.items():
            found, taught = answers_of(run, progress), _taught_in_words(run)
            if taught and _too_few(run, found):
                notes.append(f"Not counted here: seed {seed}, whose memory was taught {taught}.")
                continue
            answers[seed] = found
            if taught:
                notes.append(f"Seed {seed}: its memory was taught {taught}, left out here.")
        if not answers:
            raise UserError(
                f"nothing can be compared: the memory of every seed in {self.folder} was taught "
                "its test rows; hma memory RUN --restore 0 brings back what training left"
            )
        task = first.record(MEMORY).setup["task"]
        if self.unfinished:
            named = ", ".join(map(str, self.unfinished))
            notes.append(f"Not finished, and not counted here: seed {named}.")
        if "validation" in next(iter(answers.values())):
            notes.append(
                "No rows were set aside to test on: these are the validation rows that epochs were "
                "selected by, so the scores are too good. Train with --test 0.2."
            )
        return replace(
            compare_seeds(task["name"], answers, task["metric"], first.preparation.target),
            deployed={seed: run.deployed.why for seed, run in self.runs.items()},
            notes=tuple(notes),
        )

    def write_page(self, report: SeedsReport, path: Path | None = None) -> Path:
        """Write the page of the comparison and return where it is."""
        target = path or self.folder / PAGE
        pages = {seed: run.folder / PAGE for seed, run in self.runs.items()}
        there = {
            seed: quote(os.path.relpath(page, target.parent))
            for seed, page in pages.items()
            if page.is_file()
        }
        write_report(replace(report, pages=there), target)
        return target


def is_several(folder: Path) -> bool:
    """Tell whether a folder holds runs of several seeds."""
    path = folder / OPTIONS
    return path.is_file() and bool(read_json(path, dict, sealed=True, remedy=REMEDY).get(SEVERAL))


def train_seeds(
    options: RunOptions,
    folder: Path,
    seeds: int,
    *,
    pages: bool = True,
    progress: Progress | None = None,
    say: Says = lambda line: None,
    **how: Any,
) -> SeveralRuns:
    """Train with ``seeds`` seeds, each into a run folder of its own; the same call goes on.

    Seeds that are finished are left as they are, so a larger number adds the missing ones.

    Args:
        options: As for one run, with the first seed.
        folder: Holds a folder for each seed. One with other options is refused untouched.
        seeds: How many.
        pages: Write the page of each run.
        progress: Shows how far a training is.
        say: Called with a line for each thing that is done; what was said before is not repeated.
        how: What else :func:`hma.runs.train` takes.
    """
    if seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}")
    if max(how.get("devices") or 1, int(os.environ.get("WORLD_SIZE", 1))) > 1:
        raise UserError(
            "--seeds trains on one device; leave --devices out, or train each --seed by itself"
        )
    claim(folder, options, several=True)
    wanted = [options.seed + place for place in range(seeds)]
    deploy = how.get("deploy")
    done = {seed: run for seed in wanted if (run := _answered(folder / _name(seed), deploy))}
    if done and len(done) < seeds:
        training_task(next(iter(done.values())))  # the rows must still be the same
    said: set[str] = set()
    for seed in wanted:
        run, fresh = done.get(seed), seed not in done
        if run is None:
            run = done[seed] = train(
                replace(options, seed=seed),
                folder / _name(seed),
                before=next(iter(done.values()), None),
                progress=progress,
                say=partial(_say_once, said, f"seed {seed}: ", say),
                **how,
            )
        answers = answers_of(run, progress)
        if pages and (fresh or not (run.folder / PAGE).is_file()):
            _write_own_page(run, progress, say)
        say(f"seed {seed} is done: {_scores(run, answers)}")
    return SeveralRuns.open(folder)


def _say_once(said: set[str], before: str, say: Says, line: str) -> None:
    if line not in said:
        said.add(line)
        say(f"{before}{line}")


def _write_own_page(run: Run, progress: Progress | None, say: Says) -> None:
    try:
        write_page(run, progress=progress)
    except UserError as error:  # training diverged: the other seeds may not have
        say(f"seed {run.options.seed} has no page: {error}")


def _scores(run: Run, answers: SeedAnswers) -> str:
    """Return what each candidate came to on the first test set, in a line."""
    metric = METRICS[run.record(MEMORY).setup["task"]["metric"]]
    if not answers:
        return f"not scored, as the memory was taught {_taught_in_words(run)}"
    asked, target = next(iter(answers.values())), run.preparation.target
    scores = [
        f"{name} {amount(metric.name, metric.score(logits, asked.labels, target))}"
        for name, logits in asked.own.items()
    ]
    return f"{metric.title} {', '.join(scores)}"


def _taught_in_words(run: Run) -> str:
    """Say how many validation and test rows of a run its memory was taught; empty for none."""
    gone = {name: int(rows.sum()) for name, rows in taught_held_out(run).items()}
    return counts_in_words(gone) if any(gone.values()) else ""


def _too_few(run: Run, answers: SeedAnswers) -> bool:
    """Tell whether a test set has too few rows left that the memory was not taught."""
    gone = taught_held_out(run)
    tests = [name for name in gone if name != VALIDATION] or [VALIDATION]
    return any(
        bool(gone[test].any())
        and (len(answers[test].labels) if test in answers else 0) < LEAST_ROWS
        for test in tests
    )


def _name(seed: int) -> str:
    return f"seed-{seed}"


def _seeds(folder: Path) -> list[int]:
    """Return the seeds that a folder has runs of, finished or not, in order."""
    names = (path.name.removeprefix("seed-") for path in folder.glob("seed-*") if path.is_dir())
    return sorted(int(name) for name in names if name.isdecimal())


def _finished(folder: Path) -> Run | None:
    """Return the run in a folder; None if it did not finish."""
    return Run.open(folder) if (folder / MODEL / MANIFEST).is_file() else None


def _answered(folder: Path, deploy: Which | None) -> Run | None:
    """Return a run of which nothing has to be computed any more; None for any other."""
    run = _finished(folder)
    if run is None or deploy not in (None, run.deployed.which):
        return None
    return run if has_answers(run) else None


def _expect_alike(runs: Sequence[Run]) -> None:
    """Raise if a run differs from the first in more than its seed."""
    first = runs[0].options
    for run in runs[1:]:
        same = replace(run.options, seed=first.seed)
        if differing := differences(first.to_json(), same.to_json()):
            raise UserError(
                f"{run.folder} holds a run with other options than {runs[0].folder}: "
                f"{'; '.join(differing)}; move it away, and train its seed again"
            )

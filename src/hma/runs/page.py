"""The page of a run: everything the report shows, gathered from the folder and the data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hma.data import Prepared, Split, Task
from hma.methods import Learner
from hma.methods.memory import WithMemory
from hma.report.run import About, Answers, RunReport, TrainingRows, summarise
from hma.report.run import write_page as write_report
from hma.report.run.advice import advice
from hma.report.run.verdict import verdict
from hma.runs.folder import MEMORY, PLAIN, Run
from hma.runs.training_data import training_task, with_features
from hma.training import Progress, counted, evaluation_order, predictions


def write_page(
    run: Run,
    path: Path | None = None,
    *,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Path:
    """Write the report of a run and return where it is.

    Args:
        run: A finished run.
        path: Where to; ``report.html`` in its folder if not given.
        progress: Shows how far it is.
        say: Called with the verdict, and with each thing to try next.
    """
    target = path or run.folder / "report.html"
    report = report_of(run, progress)
    write_report(report, target)
    say(f"verdict: {verdict(report, report.tests[0]).headline}")
    for line in advice(report):
        say(f"next: {line}")
    return target


def report_of(run: Run, progress: Progress | None = None) -> RunReport:
    """Gather what the page shows; the data is opened once more and must be what it was.

    A frozen backbone does not run again: the features of training are there.
    """
    prepared = training_task(run)
    rows = run.options.recipe.eval_batch_size
    memory = run.learner(MEMORY)
    plain = run.learner(PLAIN) if PLAIN in run.candidates else None
    assert isinstance(memory, WithMemory)
    task = with_features(run, prepared.task, memory, progress)
    tested = {MEMORY: _tested(task)}
    if plain is not None:
        tested[PLAIN] = _tested(with_features(run, prepared.task, plain, progress))
    passes = len(memory.contexts) + (0 if plain is None else len(plain.contexts))
    with counted(progress, "report") as tick:
        tally = _Tally(tick, passes * sum(map(len, tested[MEMORY].values())))
        tests = {
            name: Answers(
                labels=split.labels,
                memory=_answers(memory, split, rows, tally),
                plain={} if plain is None else _answers(plain, tested[PLAIN][name], rows, tally),
                features=features_of(memory, split, rows),
                orders={c: evaluation_order(c, len(split)) for c in memory.contexts},
            )
            for name, split in tested[MEMORY].items()
        }
    memory.use(memory.contexts[0])
    splits = {"train": task.train, "validation": task.validation, **task.tests}
    about = About(
        title=task.name,
        kind=task.kind,
        classes=task.classes,
        target=task.target,
        metric=task.metric,
        splits={name: split.labels for name, split in splits.items()},
        facts=task.facts,
    )
    return summarise(
        memory.model,
        about,
        tests,
        memory_record=run.record(MEMORY).to_json(),
        plain_record=run.record(PLAIN).to_json() if PLAIN in run.candidates else None,
        plain=None if plain is None else plain.module,
        training_rows=_training_rows(prepared, memory, task.train),
        simple=run.simple_rows,
        batch_size=rows,
        seed=run.options.seed,
        deployed=run.deployed.why,
        notes=_notes(prepared),
    )


@dataclass
class _Tally:
    """How many rows have been answered, over all passes."""

    tick: Callable[[int, int], None]
    total: int
    done: int = 0

    def add(self, rows: int) -> None:
        self.done += rows
        self.tick(self.done, self.total)


def _tested(task: Task) -> Mapping[str, Split]:
    return task.tests or {"validation": task.validation}


def _answers(learner: Learner, split: Split, batch_size: int, tally: _Tally) -> dict[str, Tensor]:
    found = {}
    for context in learner.contexts:
        said = []
        for answered in predictions(learner, split, batch_size=batch_size, context=context):
            said.append(answered)
            tally.add(len(answered[0]))
        ids, logits = (torch.cat(parts) for parts in zip(*said, strict=True))
        found[context] = logits[ids.argsort()]
    return found


@torch.no_grad()
def features_of(
    learner: WithMemory, split: Split, batch_size: int, places: Tensor | None = None
) -> Tensor:
    """Return the features of rows ``(N, F)``: those that are known, or what the backbone makes."""
    backbone = learner.model.backbone.eval()
    wanted = torch.arange(len(split)) if places is None else places
    batches = [split.batch(rows) for rows in torch.split(wanted, batch_size)]
    return torch.cat([backbone(b.x) if b.features is None else b.features for b in batches])


def _training_rows(prepared: Prepared, memory: WithMemory, train: Split) -> TrainingRows:
    source = prepared.source
    return TrainingRows(
        describe=source.describe,
        thumbnail=source.thumbnail,
        places=prepared.places["train"],
        features=lambda ids: features_of(memory, train, len(ids), ids),
    )


def _notes(prepared: Prepared) -> list[str]:
    notes = []
    skipped = prepared.source.skipped
    if skipped:
        named = ", ".join(skipped[:5])
        notes.append(f"{len(skipped)} files could not be read and were left out: {named}")
    if not prepared.task.tests:
        notes.append(
            "No rows were set aside to test on: these are the validation rows that the epoch was "
            "selected by, so the scores are too good. Train with --test 0.2."
        )
    return notes

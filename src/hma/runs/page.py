"""The page of a run: everything the report shows, gathered from the folder and the data."""

from pathlib import Path

import torch
from torch import Tensor

from hma.data import Prepared, Split
from hma.methods import Learner
from hma.methods.memory import WithMemory
from hma.report.run import About, Answers, RunReport, TrainingRows, summarise
from hma.report.run import write_page as write_report
from hma.runs.folder import MEMORY, PLAIN, Run
from hma.runs.training_data import training_task
from hma.training import evaluation_order, predictions


def write_page(run: Run, path: Path | None = None) -> Path:
    """Write the report of a run and return where it is."""
    target = path or run.folder / "report.html"
    write_report(report_of(run), target)
    return target


def report_of(run: Run) -> RunReport:
    """Gather what the page shows; the data is opened once more and must be what it was."""
    prepared = training_task(run)
    task, rows = prepared.task, run.options.recipe.eval_batch_size
    memory = run.learner(MEMORY)
    plain = run.learner(PLAIN) if run.has_plain else None
    assert isinstance(memory, WithMemory)
    tests = {
        name: Answers(
            labels=split.labels,
            memory=_answers(memory, split, rows),
            plain={} if plain is None else _answers(plain, split, rows),
            features=_features(memory, split, rows),
            orders={c: evaluation_order(c, len(split)) for c in memory.contexts},
        )
        for name, split in (task.tests or {"validation": task.validation}).items()
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
        plain_record=run.record(PLAIN).to_json() if run.has_plain else None,
        plain=None if plain is None else plain.module,
        training_rows=_training_rows(prepared),
        simple=run.simple_rows,
        batch_size=rows,
        seed=run.options.seed,
        notes=_notes(prepared),
    )


def _answers(learner: Learner, split: Split, batch_size: int) -> dict[str, Tensor]:
    found = {}
    for context in learner.contexts:
        said = predictions(learner, split, batch_size=batch_size, context=context)
        ids, logits = (torch.cat(parts) for parts in zip(*said, strict=True))
        found[context] = logits[ids.argsort()]
    return found


@torch.no_grad()
def _features(learner: WithMemory, split: Split, batch_size: int) -> Tensor:
    backbone = learner.model.backbone.eval()
    places = torch.split(torch.arange(len(split)), batch_size)
    return torch.cat([backbone(split.batch(rows).x) for rows in places])


def _training_rows(prepared: Prepared) -> TrainingRows:
    source, train = prepared.source, prepared.task.train
    return TrainingRows(
        describe=source.describe,
        thumbnail=source.thumbnail,
        places=prepared.places["train"],
        inputs=lambda ids: train.batch(ids).x,
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

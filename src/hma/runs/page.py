"""The page of a run: everything the report shows, gathered from the folder and the data."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from hma.data import Prepared, Split, Task
from hma.errors import UserError
from hma.methods import Learner
from hma.methods.memory import WithMemory
from hma.metrics import scores
from hma.questions.conformal import class_sets, coverage_interval, least_rows, threshold
from hma.report.page import write_page as write_report
from hma.report.run_facts import RunFacts, SimpleRows, TrainingRows
from hma.report.run_report import Candidate, RunReport
from hma.report.scoring import Answers
from hma.report.sections.coverage import Promise, Promises
from hma.report.summary import summarise
from hma.report.verdict import advice, verdict
from hma.runs.audits import read_audits
from hma.runs.card import changes_of, version_line
from hma.runs.coverage import (
    Calibration,
    answer_scores,
    calibration,
    how_unfamiliar,
    rejecting_memory,
)
from hma.runs.deployment import MEMORY, MIXTURE, PARAM, PLAIN, SIMPLE, Which, title, validation_loss
from hma.runs.folder import VALIDATION, Run
from hma.runs.held_out import (
    LEAST_ROWS,
    BySplit,
    counts_in_words,
    judging_run,
    judging_splits,
    taught_held_out,
    without_rows,
)
from hma.runs.kept_answers import CandidateAnswers, candidate_answers, candidate_name, first
from hma.runs.remembered import RememberedRows
from hma.runs.source import features_of, training_task, with_features
from hma.runs.suspects import suspects_if_cheap
from hma.targets import Target
from hma.training import Progress, evaluation_order, progress_ticker

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def promises_kept(
    name: str,
    found: Calibration,
    target: Target,
    said: Tensor,
    labels: Tensor,
    far: Tensor | None,
) -> Promises | None:
    """Return what each of ``LEVELS`` comes to; None where the validation rows are too few for any.

    Args:
        name: Of the test set.
        found: Scores of the validation rows.
        target: What a label is.
        said: Answers to the test rows, as :meth:`hma.targets.Target.expected` gives them.
        labels: What is true of them.
        far: How unfamiliar they are, ``(N,)``; None where the memory does not tell.
    """
    levels = tuple(_levels(found, target, said, labels, far))
    if not levels or (found.answers is None and far is None):
        return None
    size = "labels in a set" if target.gives_probabilities else "width of the interval"
    return Promises(
        test=name,
        validation_rows=found.rows,
        test_rows=len(labels),
        size_is=size,
        levels=levels,
    )


def _levels(
    found: Calibration, target: Target, said: Tensor, labels: Tensor, far: Tensor | None
) -> Iterator[Promise]:
    wrong = answer_scores(target, said, labels)
    for asked in LEVELS:
        if found.rows < least_rows(asked):
            return
        covered = size = unknown = None
        if found.answers is not None and wrong is not None:
            most = threshold(found.answers, asked)
            if not target.gives_probabilities:
                covered, size = float((wrong <= most).double().mean()), 2 * most
            else:
                sets = class_sets(said, most)
                inside = sets[torch.arange(len(labels)), labels]
                covered = float(inside.double().mean())
                size = float(sets.sum(dim=1).double().mean())
        if found.unfamiliar is not None and far is not None:
            furthest = threshold(found.unfamiliar, asked)
            unknown = float((far.double() > furthest).double().mean())
        yield Promise(
            asked=asked,
            interval=coverage_interval(found.rows, asked, len(labels)),
            covered=covered,
            size=size,
            unknown=unknown,
        )


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

    A frozen backbone does not run again: the features of training are there. Rows that the memory
    was taught judge nothing: test rows are left out, and with too few others nothing is claimed.
    """
    prepared = training_task(run)
    audits, answering = read_audits(run), run
    gone = taught_held_out(run, task=prepared.task)
    run = judging_run(run, without_rows(prepared.task, gone))
    rows = run.options.recipe.eval_batch_size
    learners, target = run.learners(), run.preparation.target
    memory = learners[MEMORY]
    assert isinstance(memory, WithMemory)
    now = memory if run is answering else answering.learner(MEMORY)
    assert isinstance(now, WithMemory)
    task = with_features(run, prepared.task, memory, progress)
    rest = without_rows(task, gone)
    tested = judging_splits(rest)
    if not tested:
        raise UserError(
            f"nothing can be reported of {run.folder}: its memory was taught all of its test and "
            f"validation rows; hma memory {run.folder} --restore 0 brings back what training left"
        )
    kept = candidate_answers(run, learners=learners, task=prepared.task, progress=progress)
    asked = kept.without(gone)
    if not set(tested) <= set(asked.said):  # the memory was taught all test rows
        candidates = {which: one for which, one in learners.items() if which != MIXTURE}
        validation = replace(rest, tests={})
        asked = CandidateAnswers.ask(candidates, lambda _: validation, rows, progress)
    tests = {name: _answers(run, memory, split, asked, name) for name, split in tested.items()}
    splits = {"train": task.train, "validation": task.validation, **task.tests}
    records = {
        candidate_name(which, target): run.record(which).to_json() for which in run.candidates
    }
    promises, more_notes = (
        _promises(run, learners, tests, next(iter(tested.values())))
        if set(tests) <= set(task.tests)
        else (None, [])
    )
    facts = RunFacts(
        title=task.name,
        kind=task.kind,
        classes=run.preparation.classes,
        model=memory.model,
        tests=tests,
        records=records,
        target=target,
        metric=task.metric,
        splits={name: split.labels for name, split in splits.items()},
        facts=task.facts,
        training_rows=_training_rows(run, prepared, memory, task),
        simple=_simple_rows(run, tests, gone),
        batch_size=rows,
        seed=run.options.seed,
        deployed=candidate_name(run.deployed.which, target),
        why=run.deployed.why,
        candidates=tuple(_candidates(run)),
        notes=[
            *_notes(prepared),
            *_refit_notes(answering, shown=run),
            *_taught_notes(gone),
            *more_notes,
        ],
        unclaimed=_unclaimed(prepared.task, gone, tests),
        version=version_line(run),
        more={
            "audits": audits,
            "suspects": suspects_if_cheap(answering, now.model, prepared.source),
            "changes": changes_of(run),
            "coverage": promises,
        },
    )
    with progress_ticker(progress, "page") as tick:
        return summarise(facts, tick)


def _answers(
    run: Run, memory: WithMemory, split: Split, asked: CandidateAnswers, test: str
) -> Answers:
    """Return what all say of a test set, each in its contexts."""
    said, target = asked.said[test], run.preparation.target
    others = {which: first(s) for which, s in said.items() if which not in (MEMORY, PLAIN)}
    if MIXTURE in run.answering:
        others[MIXTURE] = asked.mixed(target, run.deployed.mixed, test)
    return Answers(
        labels=split.labels,
        memory=said[MEMORY],
        plain=said.get(PLAIN, {}),
        others={candidate_name(which, target): logits for which, logits in others.items()},
        features=features_of(memory, split, run.options.recipe.eval_batch_size),
        orders={c: evaluation_order(c, len(split)) for c in memory.contexts},
    )


def _promises(
    run: Run, learners: Mapping[Which, Learner], tests: Mapping[str, Answers], split: Split
) -> tuple[Promises | None, list[str]]:
    """Return what coverages of the deployed answer come to on the first test set, and notes."""
    which, target, memory = run.deployed.which, run.preparation.target, learners[MEMORY]
    assert isinstance(memory, WithMemory)
    name, asked = next(iter(tests.items()))
    own = learners[which].contexts[0]
    said = asked.others.get(candidate_name(which, target))
    if which in (MEMORY, PLAIN):
        said = (asked.memory if which == MEMORY else asked.plain)[own]
    assert said is not None
    found = calibration(run, learners[which], memory.model, context=own)
    far = None
    if found.unfamiliar is not None:
        rejecting = rejecting_memory(run, memory.model)
        far = how_unfamiliar(rejecting, split, run.options.recipe.eval_batch_size)
    made = promises_kept(name, found, target, target.expected(said), asked.labels, far)
    if not found.taught:
        return made, []
    by = f"Coverages are promised by {found.rows} validation rows"
    promise = "No coverage is promised" if made is None else by
    return made, [
        f"{promise}: the memory was taught {found.taught} of {found.rows + found.taught} "
        "validation rows, and rows that vote say nothing of others."
    ]


def _simple_rows(run: Run, tests: Mapping[str, Answers], gone: BySplit) -> SimpleRows:
    """Return the scores of simple baselines, without rows that the memory was taught."""
    found, target = run.simple_rows, run.preparation.target
    for test, asked in tests.items():
        if test in found and test in gone and bool(gone[test].any()):
            found[test] = {
                title(which, target): scores(
                    asked.others[candidate_name(which, target)], asked.labels, target=target
                )
                for which in (*SIMPLE, PARAM)
                if which in run.candidates
            }
    return found


def _refit_notes(run: Run, shown: Run) -> list[str]:
    """Say what of a page is of models that learned from all rows, and what of those before."""
    if not run.refitted:
        return []
    rows, held = run.learned_rows, len(run.places[VALIDATION])
    how = (
        f"Every candidate that answers was fitted again on all {rows} training and validation "
        f"rows, with what {held} validation rows chose for its first fit"
    )
    if shown is run:
        return [
            f"{how}: test scores are of the second fit; learning curves, validation losses, shares "
            "and thresholds of coverage are of the first, which had not seen these rows."
        ]
    return [f"{how}. Validation rows can judge the first fit alone, so this page is of that."]


def _taught_notes(gone: BySplit) -> list[str]:
    counts = {name: int(rows.sum()) for name, rows in gone.items()}
    if not any(counts.values()):
        return []
    return [f"The memory was taught {counts_in_words(counts)}, which are left out here."]


def _unclaimed(task: Task, gone: BySplit, tests: Mapping[str, Answers]) -> dict[str, str]:
    """Say of each test set of which nothing can be claimed why not."""
    if VALIDATION in tests and task.tests:
        return {
            VALIDATION: "The memory was taught all test rows, so nothing is claimed of it: these "
            "are validation rows, which epochs and shares were chosen on."
        }
    return {
        name: f"The memory was taught {int(gone[name].sum())} of {len(gone[name])} {name} rows, "
        "and the others are too few to claim anything."
        for name, asked in tests.items()
        if name in gone and bool(gone[name].any()) and len(asked.labels) < LEAST_ROWS
    }


def _measured_loss(run: Run, which: Which) -> float | None:
    """Return the validation loss of a candidate that had no part in the deployment."""
    return None if which == MIXTURE else validation_loss(run.record(which))


def _candidates(run: Run) -> list[Candidate]:
    """Return everything that was trained, the mixture last; nothing where there is no choice."""
    deployed, target = run.deployed, run.preparation.target
    if MIXTURE not in run.answering:
        return []
    return [
        Candidate(
            method=candidate_name(which, target),
            share=deployed.shares.get(which),
            validation_loss=deployed.losses.get(which) or _measured_loss(run, which),
        )
        for which in run.answering
    ]


def _training_rows(run: Run, prepared: Prepared, memory: WithMemory, task: Task) -> TrainingRows:
    remembered, taught = RememberedRows(run, prepared.source), run.living.rows
    taught = taught.as_judged() if run.judged else taught
    train = task.with_validation_trained().train if run.refitted else task.train

    def features(ids: Tensor) -> Tensor:
        made = torch.empty(len(ids), memory.model.feature_dim)
        known = ids < len(train)
        if bool(known.any()):
            made[known] = features_of(memory, train, len(ids), ids[known]).to(made)
        if places := [remembered.taught[sample] for sample in ids[~known].tolist()]:
            made[~known] = taught.features[places].to(made)
        return made

    return TrainingRows(
        describe=remembered.describe,
        thumbnail=remembered.thumbnail,
        where=remembered.where,
        features=features,
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

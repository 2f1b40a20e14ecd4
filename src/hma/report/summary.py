"""Gather a run into a report: what is known of it in, plain values out."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from hma.metrics import METRICS
from hma.report import sections
from hma.report.run_facts import RunFacts, Values, flat
from hma.report.run_report import MEMORY, PLAIN, RunReport, Trial
from hma.report.scoring import compare, shown_metrics
from hma.report.verdict import weak_baselines

SHORTER = {"git_commit": "commit", "data_fingerprint": "data fingerprint"}


def summarise(
    run: RunFacts, tick: Callable[[int, int], None] = lambda done, total: None
) -> RunReport:
    """Return the report of a run.

    Args:
        run: What is known of it.
        tick: Called with how many test sets and sections are done, and of how many.
    """
    total, trials, parts = len(run.tests) + len(sections.SECTIONS), [], {}
    metrics = shown_metrics(run.target, run.metric)
    for done, (name, said) in enumerate(run.tests.items(), start=1):
        trial = compare(
            name, [said], metrics, target=run.target, resamples=run.resamples, seed=run.seed
        )
        simple, unclaimed = run.simple.get(name, {}), run.unclaimed.get(name, "")
        trials.append(replace(trial, simple=simple, deployed=run.deployed, unclaimed=unclaimed))
        tick(done, total)
    for done, section in enumerate(sections.SECTIONS, start=1 + len(trials)):
        if found := section.gather(run):
            parts[section.key] = found
        tick(done, total)
    counts = {name: run.target.belongs(y).sum(dim=0).numpy() for name, y in run.splits.items()}
    return RunReport(
        title=run.title,
        kind=run.kind,
        target=run.target,
        classes=tuple(run.classes),
        groups=run.groups,
        metric=run.metric,
        tests=tuple(trials),
        parts=parts,
        version=run.version,
        rows={name: len(y) for name, y in run.splits.items()},
        splits=counts,
        options={method: options(record) for method, record in run.networks.items()},
        provenance=provenance(run.records[MEMORY]),
        resamples=run.resamples,
        deployed=run.why,
        candidates=run.candidates,
        notes=(*run.notes, *_notes(run, trials)),
    )


def _notes(run: RunFacts, trials: list[Trial]) -> Iterator[str]:
    """Say where records and answers disagree, and which baselines are weak."""
    if PLAIN in run.records:
        yield from disagreements(run.records[MEMORY], run.records[PLAIN])
    whole = [t for t in trials if t.name not in run.splits or len(run.splits[t.name]) == t.rows]
    for method, record in run.networks.items():
        if not (run.version and method == MEMORY):  # the record is of version 0
            yield from _stale(method, record, whole)
    for trial in trials:
        yield from weak_baselines(trial)


def _stale(method: str, record: Values, trials: list[Trial]) -> Iterator[str]:
    """Say where the record and the predictions tell different scores."""
    for trial in trials:
        contexts = (record.get("tests") or {}).get(trial.name) or {}
        for result in trial.results:
            metric, score = next(iter(result.scores.items()))
            written = (contexts.get(result.context) or {}).get(metric)
            if result.method != method or not isinstance(written, int | float):
                continue
            if not math.isclose(written, score.value, rel_tol=1e-4, abs_tol=1e-4):
                title = METRICS[metric].title
                yield (
                    f"The record of the {method} says {written:.4f} {title} on {trial.name} in "
                    f"context {result.context}, its predictions come to {score.value:.4f}. They "
                    "are not of the same weights."
                )


def options(record: Values) -> dict[str, str]:
    """Return what was asked for and what came of it: options, then method and recipe."""
    setup = record.get("setup") or {}
    asked = flat(record.get("resolved") or {})
    parts = {name: setup[name] for name in ("method", "recipe") if setup.get(name)}
    return asked | {name: value for name, value in flat(parts).items() if name not in asked}


def provenance(record: Values) -> dict[str, str]:
    """Return versions, commit, data fingerprint and seed as flat names and values.

    Example:
        >>> provenance({"seed": 3, "versions": {"torch": "2.13.0"}})
        {'seed': '3', 'torch version': '2.13.0'}
    """
    names = ("name", "seed", "data_fingerprint", "git_commit")
    kept = {SHORTER.get(name, name): record[name] for name in names if record.get(name) is not None}
    versions = flat(record.get("versions") or {})
    return flat(kept) | {f"{name} version": version for name, version in versions.items()}


def disagreements(memory: Values, plain: Values) -> list[str]:
    """Say where two records differ in what must be the same for a fair comparison."""
    return [
        f"The two methods differ in {SHORTER.get(name, name)}: {plain[name]} for the plain "
        f"backbone, {memory[name]} for the memory. The comparison is not of like with like."
        for name in ("data_fingerprint", "seed")
        if name in plain and name in memory and plain[name] != memory[name]
    ]

"""Gather a run into a report: the model, its records and its answers in, plain values out."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from hma.metrics import METRICS
from hma.model import MemoryModel
from hma.report.groups import belongs, group_names
from hma.report.memory_summary import (
    TrainingRows,
    attended_by_answer,
    attended_of_class,
    attention_in,
    maps,
    most_looked_at,
    queue_health,
    slot_health,
)
from hma.report.run_report import (
    MEMORY,
    PLAIN,
    Cost,
    Curve,
    RunReport,
    Trial,
)
from hma.report.scoring import RESAMPLES, Answers, compare
from hma.report.verdict import weak_baselines
from hma.targets import Classes, Target

Values = Mapping[str, Any]
"""JSON values of a record."""
SimpleRows = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Test set -> row -> metric -> value."""
LISTED = 20
"""Items of a list that are written out."""
SHORTER = {"git_commit": "commit", "data_fingerprint": "data fingerprint"}


@dataclass(frozen=True, kw_only=True)
class About:
    """What was learned, and from what.

    Args:
        title: Name of the run or the task.
        kind: What a row is: 'table', 'image', 'graph' or 'text'.
        classes: Names of the classes in the order of their ids, of several labels, or of the
            number.
        target: What a label is; one of ``classes`` if not given.
        metric: What the epoch was selected by.
        splits: Labels of the rows of each split, such as 'train'; -1 or NaN where unknown.
        facts: How the splits came about, in JSON values.
    """

    title: str
    kind: str
    classes: tuple[str, ...]
    target: Target | None = None
    metric: str = "accuracy"
    splits: Mapping[str, Tensor] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def summarise(
    model: MemoryModel,
    about: About,
    tests: Mapping[str, Answers],
    *,
    memory_record: Values,
    plain_record: Values | None = None,
    plain: nn.Module | None = None,
    training_rows: TrainingRows | None = None,
    simple: SimpleRows = MappingProxyType({}),
    batch_size: int = 256,
    resamples: int = RESAMPLES,
    seed: int = 0,
    deployed_method: str = MEMORY,
    other_records: Mapping[str, Values] = MappingProxyType({}),
    notes: Sequence[str] = (),
    unclaimed: Mapping[str, str] = MappingProxyType({}),
    version: str = "",
    tick: Callable[[int, int], None] = lambda done, total: None,
) -> RunReport:
    """Return the report of a run, as far as it comes from the model, its records and its answers.

    What else is known of it, such as an audit, is set by :func:`dataclasses.replace`.

    Attention, examples and maps are of the first test set, and the latter two of the model's
    own context: the first in its ``Answers.memory``.

    Args:
        model: The trained model, as it was when it answered.
        about: The task.
        tests: Labels, logits and features of each test set, the one of the headline first.
        memory_record, plain_record: Records of the two runs, as JSON values.
        plain: The plain classifier, to count its parameters where its record does not.
        training_rows: How to show what the model remembers; None leaves examples out.
        simple: What simple methods come to on the same rows: test set -> row -> metric -> value.
        batch_size: Rows that see each other in context 'batch', as in evaluation.
        resamples: Draws of the bootstrap.
        seed: Decides the bootstrap's draws and the start of the maps.
        deployed_method: The method that answers new rows, among those of ``tests``.
        other_records: Records of candidates other than the two, by their names.
        notes: What a reader must know, such as files that were left out.
        unclaimed: Test set -> why nothing is claimed of it, where that is so.
        version: Which version of the memory answers; empty where it is as trained.
        tick: Called with how many parts are done, and of how many.
    """
    target = about.target or Classes(len(about.classes))
    groups = group_names(target, about.classes)
    if len(groups) != model.num_labels:
        raise ValueError(f"classes must name {model.num_labels} classes, got {len(groups)}")
    if not tests:
        raise ValueError("tests must hold at least one test set, got none")
    part = _Parts(tick, len(tests) + len(next(iter(tests.values())).memory) + 2)
    draws = {"resamples": resamples, "seed": seed}
    trials = tuple(
        replace(
            part(compare(name, said, about.metric, target=target, **draws)),
            simple=simple.get(name, {}),
            deployed=deployed_method,
            unclaimed=unclaimed.get(name, ""),
        )
        for name, said in tests.items()
    )
    records = {PLAIN: plain_record, MEMORY: memory_record}
    modules = {PLAIN: plain, MEMORY: model}
    held = {method: record for method, record in records.items() if record is not None}
    return RunReport(
        title=about.title,
        kind=about.kind,
        target=target,
        classes=tuple(about.classes),
        groups=groups,
        metric=about.metric,
        tests=trials,
        curves=tuple(curve(method, record, about.metric) for method, record in held.items()),
        **_memory_parts(model, about, tests, training_rows, batch_size, seed, part),
        rows={name: len(y) for name, y in about.splits.items()},
        splits={name: _per_group(target, y) for name, y in about.splits.items()},
        facts=flat(about.facts),
        options={method: options(record) for method, record in held.items()},
        provenance=provenance(memory_record),
        costs=tuple(
            cost(method, record, _trained(modules.get(method)))
            for method, record in {**held, **other_records}.items()
        ),
        resamples=resamples,
        version=version,
        notes=(
            *notes,
            *(disagreements(memory_record, plain_record) if plain_record else ()),
            *(
                note
                for method, record in held.items()
                if not (version and method == MEMORY)  # the record is of version 0
                for note in _stale(method, record, _whole(trials, about.splits))
            ),
            *(note for trial in trials for note in weak_baselines(trial)),
        ),
    )


class _Parts:
    """Count the parts of a report that are done, and hand them on."""

    def __init__(self, tick: Callable[[int, int], None], total: int) -> None:
        self.tick, self.total, self.done = tick, total, 0

    def __call__(self, part: Any) -> Any:
        self.done = min(self.done + 1, self.total)
        self.tick(self.done, self.total)
        return part


def _memory_parts(
    model: MemoryModel,
    about: About,
    tests: Mapping[str, Answers],
    training_rows: TrainingRows | None,
    batch_size: int,
    seed: int,
    part: "_Parts",
) -> dict[str, Any]:
    """Return the fields of a report that are about the memories."""
    answers = next(iter(tests.values()))
    looked = []
    if answers.features is not None:
        ordered = {c: answers.features[answers.orders.get(c, slice(None))] for c in answers.memory}
        looked = [part(attention_in(c, model, rows, batch_size)) for c, rows in ordered.items()]
    own = looked[0] if looked else None
    parts: dict[str, Any] = {
        "queue": part(queue_health(model, training_rows)),
        "slots": slot_health(model, own),
        "attention": tuple(found.attention for found in looked),
    }
    if own is not None and training_rows is not None:
        parts["by_class"] = attended_of_class(own, model, about.classes, training_rows)
        parts["by_answer"] = attended_by_answer(own, model, about.classes, training_rows)
        parts["held"] = most_looked_at(own, model, about.classes, training_rows)
        part(None)
    if answers.features is not None:
        parts["maps"] = maps(
            model.memory_state(), answers.features, answers.labels, target=model.target, seed=seed
        )
    return parts


def _per_group(target: Target, labels: Tensor) -> Any:
    return belongs(target, labels).sum(dim=0).numpy()


def _trained(module: nn.Module | None) -> int | None:
    if module is None:
        return None
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def _whole(trials: tuple[Trial, ...], splits: Mapping[str, Tensor]) -> tuple[Trial, ...]:
    """Return the test sets of which no row was left out, as records have them."""
    return tuple(t for t in trials if t.name not in splits or len(splits[t.name]) == t.rows)


def _stale(method: str, record: Values, trials: tuple[Trial, ...]) -> list[str]:
    """Say where the record and the predictions tell different scores."""
    found = []
    for trial in trials:
        for result in trial.results:
            contexts = (record.get("tests") or {}).get(trial.name) or {}
            metric, score = next(iter(result.scores.items()))
            written = (contexts.get(result.context) or {}).get(metric)
            if result.method != method or not isinstance(written, int | float):
                continue
            if not math.isclose(written, score.value, rel_tol=1e-4, abs_tol=1e-4):
                title = METRICS[metric].title
                found.append(
                    f"The record of the {method} says {written:.4f} {title} on {trial.name} in "
                    f"context {result.context}, its predictions come to {score.value:.4f}. They "
                    "are not of the same weights."
                )
    return found


def curve(method: str, record: Values, metric: str) -> Curve:
    """Return how training went; what the record lacks is NaN, not left out.

    Example:
        >>> epochs = [{"epoch": 0, "train_loss": 1.5, "validation": {"alone": {"accuracy": 0.5}}}]
        >>> curve("memory", {"epochs": epochs, "selected_epoch": 0}, "accuracy").validation
        {'alone': (0.5,)}
    """
    epochs = list(record.get("epochs") or [])
    contexts = list(dict.fromkeys(c for epoch in epochs for c in epoch.get("validation") or {}))
    return Curve(
        method=method,
        epochs=tuple(int(epoch.get("epoch", i)) for i, epoch in enumerate(epochs)),
        train_loss=tuple(_number(epoch.get("train_loss")) for epoch in epochs),
        validation={
            context: tuple(
                _number(((epoch.get("validation") or {}).get(context) or {}).get(metric))
                for epoch in epochs
            )
            for context in contexts
        },
        selected=record.get("selected_epoch"),
        rule=str(record.get("selection_rule") or ""),
    )


def cost(method: str, record: Values, counted: int | None) -> Cost:
    """Return what a run took; parameters are ``counted`` where the record does not tell."""
    times = record.get("epoch_seconds") or []
    known = (record.get("setup") or {}).get("method") or {}
    return Cost(
        method=method,
        seconds=record.get("seconds"),
        epochs=len(record.get("epochs") or []),
        epoch_seconds=sum(times) / len(times) if times else None,
        peak_memory_bytes=record.get("peak_memory_bytes"),
        parameters=known.get("trained_weights", counted),
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


def flat(values: Values, prefix: str = "") -> dict[str, str]:
    """Return nested JSON values as dotted names and short texts.

    Example:
        >>> flat({"recipe": {"lr": 0.001, "schedule": None}, "contexts": ["batch", "alone"]})
        {'recipe.lr': '0.001', 'recipe.schedule': 'none', 'contexts': 'batch, alone'}
    """
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = _text(value)
    return found


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None or value == {} or value == []:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        shown = ", ".join(_text(item) for item in value[:LISTED])
        return shown + (f" and {len(value) - LISTED} more" if len(value) > LISTED else "")
    return json.dumps(value, default=str)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan

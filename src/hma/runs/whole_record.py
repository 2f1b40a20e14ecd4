"""A finished run as one record: the scores of what is deployed, and every candidate beside it."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hma.data import Task
from hma.metrics import scores
from hma.runs.deployment import MIXTURE, SIMPLE, Which, title
from hma.runs.folder import Run
from hma.runs.kept_answers import candidate_answers, first
from hma.runs.source import prepared_from
from hma.targets import Classes, Target
from hma.training import Record

Said = dict[str, Tensor]
"""Test split -> logits of its rows."""


def whole_record(run: Run) -> Record:
    """Return what a run came to, as tables keep it.

    The scores of the record are those of the deployed model, each row alone. Its ``measures``
    hold ``test_rows``, ``scores`` and standard ``errors`` of the deployed model over all test
    rows, and of each of the ``candidates`` the same, its ``title``, whether it is ``simple`` (no
    network), its ``share``, ``validation_loss`` and ``seconds``, and the standard error of the
    difference to the deployed model, row by row (``difference_errors``).

    Args:
        run: A finished run, with test rows.
    """
    task, deployed = prepared_from(run.options).task, run.deployed
    records = {name: run.record(name) for name in run.candidates}
    asked = candidate_answers(run, task=task)
    said: dict[Which, Said] = {
        name: {test: first(asked.said[test][name]) for test in task.tests} for name in records
    }
    if deployed.which == MIXTURE:
        said[MIXTURE] = {
            test: asked.mixed(task.target, deployed.mixed, test) for test in task.tests
        }
    each = {name: _each_row(logits, task) for name, logits in said.items()}
    own = each[deployed.which]
    candidates = {
        name: {
            "title": title(name, task.target).removeprefix("the "),
            "simple": name in SIMPLE,
            "share": deployed.counted.get(name, 0.0),
            "validation_loss": deployed.losses.get(name),
            "seconds": record.seconds,
            **_measured(each[name]),
            "difference_errors": _errors({m: own[m] - each[name][m] for m in own}),
        }
        for name, record in records.items()
    }
    return _record(
        run,
        records,
        selection_rule=deployed.why,
        tests={
            name: {"alone": scores(logits, task.tests[name].labels, target=task.target)}
            for name, logits in said[deployed.which].items()
        },
        measures={**_measured(own), "candidates": candidates},
    )


def _record(run: Run, records: Mapping[Which, Record], **measured: Any) -> Record:
    first = records[run.candidates[0]]
    return Record(
        name=first.name,
        seed=run.options.seed,
        setup={
            "task": first.setup["task"],
            "method": {"contexts": ["alone"], "deployed": run.deployed.which},
            "recipe": run.options.recipe.to_json(),
        },
        resolved=run.options.to_json(),
        git_commit=first.git_commit,
        versions={k: v for record in records.values() for k, v in record.versions.items()},
        data_fingerprint=first.data_fingerprint,
        epochs=[],
        selected_epoch=0,
        weights_sha256=None,
        seconds=math.fsum(record.seconds for record in records.values()),
        epoch_seconds=[],
        peak_memory_bytes=max(record.peak_memory_bytes for record in records.values()),
        **measured,
    )


def _each_row(said: Said, task: Task) -> dict[str, Tensor]:
    """Return metrics that are means over rows: metric -> its value for each test row ``(N,)``."""
    logits = torch.cat([said[name] for name in task.tests]).double()
    labels = torch.cat([split.labels for split in task.tests.values()])
    return _of_rows(logits, labels, task.target)


def _of_rows(logits: Tensor, labels: Tensor, target: Target) -> dict[str, Tensor]:
    losses = target.loss(logits, labels).detach()
    if not isinstance(target, Classes):
        return {"loss": losses}
    return {"accuracy": (logits.argmax(dim=1) == labels).double(), "nll": losses}


def _measured(each: Mapping[str, Tensor]) -> dict[str, Any]:
    return {
        "test_rows": len(next(iter(each.values()))),
        "scores": {metric: float(values.mean()) for metric, values in each.items()},
        "errors": _errors(each),
    }


def _errors(each: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the standard error of each mean."""
    return {m: float(v.std() / math.sqrt(len(v))) if len(v) > 1 else 0.0 for m, v in each.items()}

"""What a change of a memory does to its answers: rows scored before and after."""

import math

import torch
from torch import Tensor

from hma.ballot import Ballot
from hma.errors import UserError
from hma.labelled_rows import Group
from hma.methods import Learner
from hma.methods.memory import WithMemory
from hma.methods.mixture import Mixture
from hma.metrics import METRICS
from hma.model import HMA
from hma.momentum import evaluating
from hma.runs.folder import MEMORY, Run
from hma.runs.taught_rows import TaughtRows
from hma.runs.training_data import training_task, with_features
from hma.runs.version import Score
from hma.runs.version_in_use import keyed_rows
from hma.targets import Classes, Target
from hma.training import Progress, all_logits

PAIRS = 20_000_000
"""Pairs of a row that is left out and a stored row that are looked at at once."""


def change_scores(
    before: Run, after: Run, taught: TaughtRows, progress: Progress | None = None
) -> tuple[Score, ...]:
    """Return what a change did to the validation rows, and how taught rows are answered for.

    Args:
        before, after: The run with its memory before and after.
        taught: Rows that the change added.
        progress: Shows how far a frozen backbone is.
    """
    answering = [run.learner(run.deployed.which) for run in (before, after)]
    found = [_of_validation(before, after, answering, progress)]
    if len(taught):
        runs = zip((before, after), answering, strict=True)
        memories = [memory_of(run, learner) for run, learner in runs]
        metric = before.record(MEMORY).setup["task"].get("metric", "")
        found += _of_taught(memories[0], memories[1], taught, metric)
    return tuple(found)


def _of_validation(
    before: Run, after: Run, answering: list[Learner], progress: Progress | None
) -> Score:
    who = before.deployed.title()
    try:
        task = with_features(before, training_task(before).task, answering[0], progress)
    except UserError as error:
        return Score(
            rows="validation rows", count=0, metric="", before=None, after=None,
            how=f"not scored: {error}",
        )  # fmt: skip
    name, split = "validation rows", task.validation
    if not len(split) and task.tests:
        name, split = "test rows", next(iter(task.tests.values()))
    values: list[float | None] = [None, None]
    if len(split):
        size = before.options.recipe.eval_batch_size
        values = [
            _score(task.metric, all_logits(one, split, batch_size=size), split.labels, one.target)
            for one in answering
        ]
    return Score(
        rows=name,
        count=len(split),
        metric=task.metric,
        before=values[0],
        after=values[1],
        how=f"answered by {who}",
    )


def _of_taught(before: HMA, after: HMA, taught: TaughtRows, metric: str) -> list[Score]:
    """Return scores of taught rows: asked before they were taught, and then by all the others."""
    target = after.target
    known = before.target.outputs
    of_old = torch.ones(len(taught), dtype=torch.bool)
    if isinstance(target, Classes):
        metric = "accuracy"
        of_old = taught.labels < max(known, 2)
    left_out = left_out_logits(after, taught.ids)
    found = []
    for rows, name in ((of_old, "known classes"), (~of_old, "new classes")):
        if not bool(rows.any()):
            continue
        y = target.given(taught.labels[rows])
        earlier = None
        if name == "known classes":
            with torch.no_grad(), evaluating(before):
                said = before.classify(taught.features[rows])
            y_before = before.target.given(taught.labels[rows])
            earlier = _score(metric, said, y_before, before.target)
        found.append(
            Score(
                rows=f"taught rows of {name}" if isinstance(target, Classes) else "taught rows",
                count=int(rows.sum()),
                metric=metric,
                before=earlier,
                after=_score(metric, left_out[rows], y, target),
                how="answered by the memory; after: each by all rows but itself (leave-one-out)",
            )
        )
    return found


@torch.no_grad()
def left_out_logits(model: HMA, ids: Tensor) -> Tensor:
    """Return what a memory says of rows that it holds, each without its own, ``(N, outputs)``.

    Args:
        model: Its rows vote.
        ids: Sample ids of stored rows.
    """
    vote, store = model.vote, keyed_rows(model)
    assert vote is not None
    parts = []
    with evaluating(model):
        memories = vote.memories(model.real, model.synthetic)
        assert memories.real is not None
        for places in torch.split(store.find(ids), max(1, PAIRS // max(store.size, 1))):
            features = store.features[places]
            hidden = places[:, None] == torch.arange(store.size)  # (B, M)
            groups: list[Group] = [memories.real.hiding(hidden)]
            if memories.synthetic is not None:
                groups.append(memories.synthetic)
            votes = vote(features, groups)
            heard = sum(share[0].sum(dim=-1) for share in votes.shares)
            ballot = Ballot(votes.logits, torch.as_tensor(heard), None, None, votes.mixed)
            parts.append(vote.joined(model.headed(features, votes.mixed), ballot))
    return torch.cat(parts)


def memory_of(run: Run, learner: Learner) -> HMA:
    """Return the memory of a run, where it is loaded already."""
    if isinstance(learner, Mixture):
        learner = learner.learners.get(MEMORY, learner)
    if not isinstance(learner, WithMemory):
        learner = run.learner(MEMORY)
    assert isinstance(learner, WithMemory)
    return learner.model


def _score(metric: str, logits: Tensor, labels: Tensor, target: Target) -> float | None:
    value = METRICS[metric].score(logits, labels, target) if metric in METRICS else math.nan
    return float(value) if math.isfinite(value) else None

"""From what was said of test rows to means, deviations and paired differences over seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hma.metrics import METRICS
from hma.metrics.resampling import Interval, percentile_interval
from hma.report.run.scoring import RESAMPLES
from hma.report.run.verdict import ahead
from hma.report.seeds.seeds_report import Kind, SeedsReport, SeedsTrial, Standing
from hma.report.statistics import Floats, bootstrap_over_seeds, paired_t_test
from hma.targets import Target

LOSSES = ("nll", "mae")
"""What is compared besides the metric of the task, where it serves."""


@dataclass(frozen=True)
class Candidate:
    """A method that was trained with every seed."""

    name: str
    kind: Kind


@dataclass(frozen=True, kw_only=True)
class SeedAnswers:
    """What was said of the test rows of one seed.

    Args:
        seed: The seed.
        target: What a label is; the scale of a number may differ from seed to seed.
        labels: Test set -> true labels.
        places: Test set -> which rows of the data these are.
        said: Candidate -> test set -> logits ``(N, outputs)``, as it answers new rows.
    """

    seed: int
    target: Target
    labels: Mapping[str, Tensor]
    places: Mapping[str, Sequence[int]]
    said: Mapping[Candidate, Mapping[str, Tensor]]


def compare_seeds(
    title: str,
    answers: Sequence[SeedAnswers],
    metric: str,
    *,
    resamples: int = RESAMPLES,
    draws: int = 0,
) -> SeedsReport:
    """Compare the candidates that all seeds have, paired by seed and by row.

    Args:
        title: Name of the task.
        answers: Of each seed.
        metric: What the verdict is about.
        resamples: Draws of the bootstrap; the same seeds and rows for every number.
        draws: Decides them.
    """
    if not answers:
        raise ValueError("answers must hold at least one seed, got none")
    losses = (name for name in LOSSES if METRICS[name].serves(answers[0].target))
    metrics = tuple(dict.fromkeys([metric, *losses]))
    return SeedsReport(
        title=title,
        metrics=metrics,
        seeds=tuple(found.seed for found in answers),
        tests=tuple(_trial(name, answers, metrics, resamples, draws) for name in answers[0].labels),
        resamples=resamples,
    )


def _trial(
    name: str, answers: Sequence[SeedAnswers], metrics: Sequence[str], resamples: int, draws: int
) -> SeedsTrial:
    shared = [c for c in answers[0].said if all(c in found.said for found in answers)]
    rows = [len(found.labels[name]) for found in answers]
    asked = [  # for each seed: every metric of every candidate
        [
            METRICS[m].weighted(found.said[c][name].double(), found.labels[name], found.target)
            for c in shared
            for m in metrics
        ]
        for found in answers
    ]
    first = answers[0]
    same_rows = all(
        found.places[name] == first.places[name]
        and torch.equal(found.labels[name], first.labels[name])
        for found in answers
    )
    drawn = bootstrap_over_seeds(
        asked, rows=rows, resamples=resamples, seed=draws, same_rows=same_rows
    )
    scores = np.array(
        [[f(np.ones((count, 1)))[0] for f in own] for own, count in zip(asked, rows, strict=True)]
    )
    replicates = drawn.reshape(len(shared), len(metrics), resamples)
    by_seed = scores.T.reshape(len(shared), len(metrics), len(answers))
    standings = [
        Standing(
            name=candidate.name,
            kind=candidate.kind,
            scores={m: tuple(by_seed[c, i].tolist()) for i, m in enumerate(metrics)},
        )
        for c, candidate in enumerate(shared)
    ]
    simple = _best(standings, metrics[0])
    against = _Against(metrics, by_seed, replicates)
    plain = next((c for c, one in enumerate(standings) if one.kind == "plain"), None)
    return SeedsTrial(
        name=name,
        rows=tuple(rows),
        same_rows=same_rows,
        standings=tuple(
            replace(
                one,
                to_plain=against(c, plain),
                to_simple=against(c, simple),
                tested=against.tested(c, plain),
            )
            for c, one in enumerate(standings)
        ),
        simple=None if simple is None else standings[simple].name,
    )


def _best(standings: Sequence[Standing], metric: str) -> int | None:
    """Return the place of the simple row with the best mean; None without any."""
    simple = [c for c, one in enumerate(standings) if one.kind == "simple"]
    defined = [c for c in simple if not np.isnan(standings[c].mean(metric))]
    best: Callable[[int], float] = lambda c: ahead(metric, standings[c].mean(metric))  # noqa: E731
    return max(defined, key=best, default=None)


@dataclass(frozen=True)
class _Against:
    """Differences of candidates: scores ``(C, metrics, seeds)``, drawn ``(C, metrics, R)``."""

    metrics: Sequence[str]
    scores: Floats
    drawn: Floats

    def __call__(self, one: int, other: int | None) -> dict[str, Interval]:
        if other is None or one == other:
            return {}
        return {
            metric: percentile_interval(
                float((self.scores[one, i] - self.scores[other, i]).mean()),
                self.drawn[one, i] - self.drawn[other, i],
            )
            for i, metric in enumerate(self.metrics)
        }

    def tested(self, one: int, other: int | None) -> dict[str, float | None]:
        if other is None or one == other:
            return {}
        apart = self.scores[one] - self.scores[other]
        return {m: paired_t_test(apart[i].tolist()) for i, m in enumerate(self.metrics)}

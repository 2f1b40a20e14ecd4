"""What to try next, in a line each: only what this run shows."""

from collections.abc import Iterator, Mapping

import numpy as np

from hma.report.run.run_report import RunReport
from hma.report.run.trial import MEMORY, ClassResult, Result
from hma.report.run.verdict import verdict

STALE = 0.5
"""Mean staleness from which stored features say little of today's."""
UNEVEN = 2
"""How many times as many rows the largest class has where classes are called uneven."""
NAMED = 5
PRETRAINED = ("timm:", "vit:", "resnet18")
"""How names of backbones for images begin that there are pretrained weights for."""


def advice(report: RunReport) -> tuple[str, ...]:
    """Return what a user may do next, the most urgent first; empty where nothing stands out."""
    memory = [result for result in report.tests[0].results if result.method == MEMORY]
    options = report.options.get(MEMORY, {})
    return (
        *_not_remembered(report),
        *_never_found(report, memory[0], options.get("recipe.balance", "none")),
        *_random_start(report, options),
        *_stale(report, options.get("config.momentum", "")),
        *_unused_slots(report),
        *_no_help(report),
    )


def _not_remembered(report: RunReport) -> Iterator[str]:
    if report.queue is not None and report.queue.rows == 0:
        yield (
            "The queue is empty, so nothing was read from it: call model.remember(x, y) after "
            "every optimizer step."
        )


def _never_found(report: RunReport, result: Result, balance: str) -> Iterator[str]:
    if not isinstance(result, ClassResult):
        return
    rows, right = result.confusion.sum(axis=1), np.diag(result.confusion)
    lost = [report.classes[c] for c in np.flatnonzero((rows > 0) & (right == 0))]
    if not lost:
        return
    named = ", ".join(lost[:NAMED]) + (f" and {len(lost) - NAMED} more" * (len(lost) > NAMED))
    counts = report.splits.get("train")
    uneven = counts is not None and counts.max() >= UNEVEN * max(int(counts.min()), 1)
    remedy = "look at their rows, add more of them, or train longer"
    if uneven and balance == "none":
        remedy = "--balance sampler lets rare classes count as much as frequent ones"
    what = "1 class is" if len(lost) == 1 else f"{len(lost)} classes are"
    yield f"{what} never found in the test rows (recall 0%): {named}. Try: {remedy}."


def _random_start(report: RunReport, options: Mapping[str, str]) -> Iterator[str]:
    named = options.get("backbone", "").startswith(PRETRAINED)
    if report.kind == "image" and named and options.get("weights", "none") == "none":
        yield (
            f"{options['backbone']} learned from these images alone: start it from pretrained "
            "weights with --weights FILE, and train head and memory only with --freeze-backbone."
        )


def _stale(report: RunReport, momentum: str) -> Iterator[str]:
    queue = report.queue
    if queue is None or queue.staleness is None or len(queue.staleness) == 0:
        return
    mean = float(queue.staleness.mean())
    if mean >= STALE:
        now = f" (now {momentum})" if momentum else ""
        yield (
            f"The queue is stale: its rows are {mean:.2f} of their length away from today's. A "
            f"lower --momentum{now} lets them follow sooner; 0 stores today's own."
        )


def _unused_slots(report: RunReport) -> Iterator[str]:
    slots = report.slots
    if slots is None or slots.used is None:
        return
    used, count = int(slots.used.sum()), len(slots.classes)
    fewer = max(int(slots.used.max()), 1)
    if 2 * used <= count and fewer < slots.per_class:
        yield (
            f"{count - used} of {count} slots draw next to no attention: --slots-per-class "
            f"{fewer} would do."
        )


def _no_help(report: RunReport) -> Iterator[str]:
    first = report.tests[0]
    what = None
    if verdict(report, first).outcome == "simple":
        what = "A simple row was not beaten"
    elif verdict(report, first, method=MEMORY).outcome == "worse":
        what = "The memory lost"
    if what is not None:
        yield f"{what} on these rows: see 'When the memory does not help' in docs/command-line.md."

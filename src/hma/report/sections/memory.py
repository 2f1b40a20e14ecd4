"""State of the memories: what the queue holds, what became of the slots, and whether it is used."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from markupsafe import Markup

from hma.metrics import METRICS
from hma.model import MemoryModel
from hma.questions.audit import Audit, change_text, score_text
from hma.questions.diagnostics import USED, queue_diagnostics, slot_diagnostics
from hma.report.html import fill
from hma.report.numbers import percent
from hma.report.run_facts import RunFacts, Trace, TrainingRows
from hma.report.run_report import RunReport, Section
from hma.report.statistics import Floats, Integers, evenly_spaced

AT_ONCE = 256
"""Training rows encoded at a time."""
BARRED = 24
"""Classes shown as bars; the rest is summed up in a sentence."""
BINS = 24
USES = 120
"""Bars in the drawing of the use of slots."""


@dataclass(frozen=True, kw_only=True)
class Queue:
    """What the real memory holds.

    Args:
        size: Rows it can hold.
        rows: Rows it holds.
        per_class: Rows of each group, ``(C,)``.
        balance: Evenness of the groups, 1 is even and 0 one group only.
        staleness: Relative distance of stored features from today's, one number for each row
            that was compared; None where no row was.
    """

    size: int
    rows: int
    per_class: Integers
    balance: float
    staleness: Floats | None


@dataclass(frozen=True, kw_only=True)
class Slots:
    """What became of the synthetic memory.

    Args:
        per_class: Slots of each class.
        distinct: Different ones among them, ``(C,)``.
        used: Ones that draw at least a tenth of an even share, ``(C,)``; None if unknown.
        usage: Share of the attention on slots that each draws, ``(S,)``; None if unknown.
        classes: Class of each slot, ``(S,)``.
    """

    per_class: int
    distinct: Integers
    used: Integers | None
    usage: Floats | None
    classes: Integers


class Memory(NamedTuple):
    """What is shown of the memories; None where the model has none of them.

    Args:
        queue, slots: Their states.
        audits: Whether the memory is read, by test set.
    """

    queue: Queue | None
    slots: Slots | None
    audits: Mapping[str, Audit]


def gather(facts: RunFacts) -> Memory | None:
    """Return the state of both memories, and what the audits of the run say."""
    queue = queue_health(facts.model, facts.training_rows)
    slots = slot_health(facts.model, facts.traces[0] if facts.traces else None)
    if queue is None and slots is None:
        return None
    return Memory(queue, slots, facts.more.get("audits", {}))


def queue_health(model: MemoryModel, rows: TrainingRows | None) -> Queue | None:
    """Return the state of the real memory; staleness is measured on every row it can be."""
    if model.real is None or not model.config.has_real_memory:
        return None
    found = queue_diagnostics(model)
    staleness = None
    ids = torch.from_numpy(np.unique(model.memory_state().ids.cpu().numpy()))
    ids = ids[ids >= 0]
    if rows is not None and rows.features is not None and len(ids):
        parts = []
        for start in range(0, len(ids), AT_ONCE):
            chunk = ids[start : start + AT_ONCE]
            measured = queue_diagnostics(model, ids=chunk, features=rows.features(chunk)).staleness
            if measured is not None:
                parts.append(measured.cpu().double().numpy())
        staleness = np.sort(np.concatenate(parts))
    return Queue(
        size=found.size,
        rows=found.rows,
        per_class=model.target.belongs(model.memory_state().labels).sum(dim=0).numpy(),
        balance=found.balance,
        staleness=staleness,
    )


def slot_health(model: MemoryModel, looked: Trace | None) -> Slots | None:
    """Return the state of the slots; their use is that by the test rows, or by the queue."""
    memory = model.memory_state()
    if len(memory.slots) == 0:
        return None
    found = slot_diagnostics(model)
    classes = memory.slot_classes.cpu().numpy()
    usage = None if found.usage is None else found.usage.cpu().double().numpy()
    if looked is not None and looked.on_slots.sum() > 0:
        usage = looked.on_slots / looked.on_slots.sum()
    used = None
    if usage is not None:
        used = np.bincount(classes[usage >= USED / len(usage)], minlength=model.num_labels)
    return Slots(
        per_class=model.config.slots_per_class,
        distinct=found.distinct.cpu().numpy(),
        used=used,
        usage=usage,
        classes=classes,
    )


def audit_rows(audit: Audit) -> list[dict[str, Any]]:
    """Return the score as it is and after each change, a cell for each metric."""
    metrics = [METRICS[name] for name in audit.scores]
    as_it_is = [(score_text(m, audit.scores[m.name]), "") for m in metrics]
    rows: list[dict[str, Any]] = [{"label": "as it is", "cells": as_it_is}]
    for done, changes in audit.changes.items():
        cells = [(score_text(m, changes[m.name].score), change_text(m, changes[m.name]))
                 for m in metrics]  # fmt: skip
        rows.append({"label": done, "cells": cells})
    return rows


def queue_bars(queue: Queue, classes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the rows of each class in the queue as bars."""
    most = max(int(queue.per_class.max()), 1)
    return [
        {
            "label": classes[c],
            "text": str(int(queue.per_class[c])),
            "width": f"{100 * queue.per_class[c] / most:.1f}",
        }
        for c in range(min(len(classes), BARRED))
    ]


def staleness(queue: Queue) -> dict[str, Any] | None:
    """Return mean, range and histogram of the staleness; None where it is unknown."""
    if queue.staleness is None or len(queue.staleness) == 0:
        return None
    values = queue.staleness
    high = float(values.max()) or 1.0
    counts, _ = np.histogram(values, bins=BINS, range=(0.0, high))
    low, most = np.quantile(values, [0.05, 0.95])
    return {
        "mean": f"{values.mean():.2f}",
        "range": f"{low:.2f} to {most:.2f}",
        "rows": len(values),
        "end": f"{high:.2f}",
        "bars": [f"{100 * count / counts.max():.0f}" for count in counts],
    }


def slot_bars(slots: Slots, classes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return distinct and used slots of each class, and the attention it draws, as bars."""
    whole = max(slots.per_class, 1)
    drawn = None
    if slots.usage is not None:
        drawn = np.bincount(slots.classes, slots.usage, minlength=len(classes))
    rows: list[dict[str, Any]] = []
    for c in range(min(len(classes), BARRED)):
        distinct = int(slots.distinct[c])
        used = None if slots.used is None else int(slots.used[c])
        rows.append(
            {
                "label": classes[c],
                "distinct": distinct,
                "distinct_width": f"{100 * distinct / whole:.1f}",
                "used": used,
                "used_width": "0" if used is None else f"{100 * used / whole:.1f}",
                "drawn": None if drawn is None else percent(float(drawn[c])),
                "drawn_width": "0" if drawn is None else f"{100 * drawn[c] / drawn.max():.1f}",
            }
        )
    return rows


def slot_use(slots: Slots) -> list[str] | None:
    """Return the attention each slot draws, largest first, in percent of the largest."""
    if slots.usage is None:
        return None
    ordered = np.sort(slots.usage)[::-1]
    shown = ordered[evenly_spaced(len(ordered), USES)]
    return [f"{100 * value / ordered[0]:.1f}" for value in shown]


def even_use(slots: Slots) -> str:
    """Return what an even look would give each slot, in percent of the largest."""
    return "0" if slots.usage is None else f"{100 / len(slots.usage) / slots.usage.max():.1f}"


def draw(report: RunReport, found: Memory) -> Markup:
    """Draw the audits, then queue and slots beside each other."""
    return fill(
        "memory",
        report=report,
        held=found,
        audit_rows=audit_rows,
        old=staleness(found.queue) if found.queue else None,
        queue_bars=queue_bars,
        slot_bars=slot_bars,
        slot_use=slot_use,
        even_use=even_use,
        barred=BARRED,
    )


SECTION = Section("memory", "Memory", "State of the memories", gather, draw)

"""The health of the memories: what the queue holds, which slots are alike or unused."""

import numpy as np
import torch

from hma.model import MemoryModel
from hma.questions.diagnostics import USED, queue_diagnostics, slot_diagnostics
from hma.report.run.attention import Looked
from hma.report.run.examples import TrainingRows
from hma.report.run.groups import belongs
from hma.report.run.run_report import Queue, Slots

AT_ONCE = 256
"""Training rows encoded at a time."""


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
        per_class=belongs(model.target, model.memory_state().labels).sum(dim=0).numpy(),
        balance=found.balance,
        staleness=staleness,
    )


def slot_health(model: MemoryModel, looked: Looked | None) -> Slots | None:
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

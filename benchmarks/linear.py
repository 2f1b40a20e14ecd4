"""What the exact and the linear read cost as the memory grows, in training and in eval mode."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.report import Row, Section
from benchmarks.scaling import BASE
from benchmarks.shapes import Head, build_head
from benchmarks.steps import training_step
from hma.training.cost import interleave

MEMORIES = tuple(512 * 4**step for step in range(5))  # 512 .. 131,072
QUICK_MEMORIES = (128, 512)
FEATURES = 256
KINDS = ("exact", "linear")


def linear(quick: bool) -> Section:
    """Measure a training step and a prediction of both reads for growing ``M``."""
    sizes, repeats = (QUICK_MEMORIES, 2) if quick else (MEMORIES, 7)
    return Section(
        name="linear",
        title="Exact and linear attention in one read, as the memory grows",
        method=(
            f"{BASE} with M varied, stages='one', {FEATURES} random features; a training step, and "
            "a prediction of the same batch in eval mode with the memory frozen and kept "
            "projected, both reads in turn; medians. A step projects the memory anew: the linear "
            "read costs it the random features for each row, the exact one the batch. A "
            "prediction costs the linear read the same whatever M. Apart is the mean difference "
            "of their probabilities, of weights that were never trained."
        ),
        rows=tuple(_row(size, repeats) for size in sizes),
    )


def _row(size: int, repeats: int) -> Row:
    shape = replace(BASE, queue=size)
    changes: dict[str, Any] = {"stages": "one", "linear_features": FEATURES}
    heads = {kind: build_head(shape, dropout=0.0, attention=kind, **changes) for kind in KINDS}
    weights = heads["exact"].model.state_dict()
    heads["linear"].model.load_state_dict(heads["linear"].model.state_dict() | weights)
    steps = interleave({kind: partial(training_step, heads[kind]) for kind in KINDS}, repeats)
    for head in heads.values():
        head.model.eval().freeze_memory()
    asked = interleave({kind: partial(probabilities, heads[kind]) for kind in KINDS}, repeats)
    apart = probabilities(heads["exact"]) - probabilities(heads["linear"])
    return {
        "rows": size,
        "exact_step_ms": steps["exact"].milliseconds,
        "linear_step_ms": steps["linear"].milliseconds,
        "exact_eval_ms": asked["exact"].milliseconds,
        "linear_eval_ms": asked["linear"].milliseconds,
        "times_faster_eval": asked["exact"].median / asked["linear"].median,
        "apart": float(apart.abs().mean()),
        "repeats": repeats,
    }


@torch.no_grad()
def probabilities(head: Head) -> torch.Tensor:
    """Return what a head answers to its batch, ``(B, C)``."""
    return head.model.classify(head.features).softmax(dim=-1)

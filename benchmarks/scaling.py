"""What a training step costs as one of its sizes grows, and the rest stays."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.counts import step_multiply_adds
from benchmarks.report import Row, Section
from benchmarks.shapes import Shape, build_head
from benchmarks.steps import training_step
from hma.training.cost import interleave, peak_extra_bytes

BASE = Shape(batch=128, features=128, label=32, classes=10, queue=512, slots_per_class=16)
QUEUES = tuple(128 * 2**step for step in range(10))  # 128 .. 65,536
BATCHES = tuple(32 * 2**step for step in range(7))  # 32 .. 2,048
SLOTS = tuple(2**step for step in range(9))  # 1 .. 256
CLASSES = tuple(2 * 2**step for step in range(9))  # 2 .. 512
FEATURES = tuple(32 * 2**step for step in range(6))  # 32 .. 1,024
QUICK_QUEUES = (128, 512, 2048)
QUICK_BATCHES = (32, 64, 128)
QUICK_OTHERS = 3


def scaling(quick: bool) -> Section:
    """Measure a step for growing ``M``, ``B``, ``m2``, ``C`` and ``F``."""
    queues, batches = (QUICK_QUEUES, QUICK_BATCHES) if quick else (QUEUES, BATCHES)
    few = QUICK_OTHERS if quick else None
    apart = replace(BASE, batch_attention=False)
    curves = {
        "M": {size: replace(BASE, queue=size) for size in queues},
        "B": {size: replace(BASE, batch=size) for size in batches},
        "B, no batch attention": {size: replace(apart, batch=size) for size in batches},
        "m2": {size: replace(BASE, slots_per_class=size) for size in SLOTS[:few]},
        "C": {size: replace(BASE, classes=size) for size in CLASSES[:few]},
        "F": {size: replace(BASE, features=size) for size in FEATURES[:few]},
    }
    repeats = 2 if quick else 7
    return Section(
        name="scaling",
        title="Cost of a training step in M (queue), B (batch), m2 (slots of a class), C and F",
        method=(
            f"{BASE} with one size varied, all sizes of a curve timed in turn; medians. The slope "
            "is that of log time over log size through the upper half of a curve: 1 is linear, "
            "below 1 the fixed part still shows. Attention between datapoints is quadratic in B "
            "by definition, so B is also shown without it. Multiply-adds are benchmarks.counts; "
            "the peak is the most memory that tensors of a step take."
        ),
        rows=tuple(row for name, curve in curves.items() for row in _curve(name, curve, repeats)),
    )


def loglog_slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Fit the exponent ``p`` of ``seconds = c * sizes ** p``.

    Example:
        >>> round(loglog_slope([1, 10, 100], [3, 300, 30000]), 6)
        2.0
    """
    if len(sizes) < 2:
        raise ValueError(f"sizes must hold at least 2 values, got {len(sizes)}")
    return float(np.polyfit(np.log(sizes), np.log(seconds), deg=1)[0])


def _curve(name: str, curve: Mapping[int, Shape], repeats: int) -> list[Row]:
    steps = {str(size): partial(training_step, build_head(shape)) for size, shape in curve.items()}
    taken = interleave(steps, repeats)
    peaks = {size: peak_extra_bytes(steps[str(size)]) for size in curve}
    sizes = list(curve)
    upper = sizes[len(sizes) // 2 :]
    slope = loglog_slope(upper, [taken[str(size)].median for size in upper])
    return [
        {
            "grows": name,
            "rows": size,
            "step_ms": taken[str(size)].milliseconds,
            "row_ms": taken[str(size)].milliseconds / size,
            "million_multiply_adds": step_multiply_adds(curve[size]) / 1e6,
            "peak_MiB": peaks[size] / 2**20,
            "slope": slope if size in upper else None,
            "repeats": repeats,
        }
        for size in sizes
    ]

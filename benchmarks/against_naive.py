"""A training step of the head against the same step with the queue repeated per sample."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from torch import Tensor

from benchmarks.counts import naive_step_multiply_adds, step_multiply_adds
from benchmarks.reference import read_real
from benchmarks.report import Row, Section
from benchmarks.shapes import GRAPH_SHAPE, RESNET_SHAPE, VIT_SHAPE, Head, Shape, build_head
from benchmarks.steps import forget_gradients, training_step
from hma.attention.hma import HMA
from hma.attention.reads import SyntheticMemory
from hma.training.cost import interleave, peak_extra_bytes

AIMS = ((VIT_SHAPE, 15.0), (RESNET_SHAPE, 15.0), (GRAPH_SHAPE, 5.0))
MEMORY_AIM = 10.0
QUICK_BATCH = 4
MEGABYTE = 1e6


def against_naive(quick: bool) -> Section:
    """Measure how many times faster and smaller a step is; ``quick`` takes smaller batches."""
    if quick:
        small = [replace(shape, batch=QUICK_BATCH) for shape, _ in AIMS]
        rows = tuple(_row(shape, None, repeats=2) for shape in small)
    else:
        rows = tuple(_row(shape, aim, repeats=5 if shape.batch > 32 else 15) for shape, aim in AIMS)
    return Section(
        name="naive",
        title="Training step of the head against the naive per-sample read",
        method=(
            "Forward, backward and write with features given, in turn on one model, float32, "
            "dropout 0.1; medians. The naive read projects (B, 1 + M, D) tokens. Memory is the "
            "peak of torch's allocator above its level before the step, gradients included. "
            "Aims hold for the full batch, so the quick run states none."
        ),
        rows=rows,
    )


def classify_naively(model: HMA, features: Tensor) -> Tensor:
    """Return the logits, each sample projecting a queue of its own; the rest is the model's.

    Args:
        model: In training mode, with both memories and the default readout.
        features: ``(B, F)``.
    """
    assert isinstance(model.synthetic, SyntheticMemory)
    tokens = read_real(model, features)  # (B, F) -> (B, D)
    slots = model.synthetic.project(model.tokens)
    neighbours = model.config.batch_attention
    tokens, _ = model.synthetic(tokens, slots, neighbours=neighbours)
    logits: Tensor = model.head(tokens)
    return logits


def _row(shape: Shape, aim: float | None, repeats: int) -> Row:
    head = build_head(shape)
    ours = partial(training_step, head)
    naive = partial(training_step, head, partial(classify_naively, head.model))
    taken = interleave({"hma": ours, "naive": naive}, repeats)
    faster = taken["naive"].median / taken["hma"].median
    ours_peak, naive_peak = (_peak(head, step) for step in (ours, naive))
    smaller = naive_peak / ours_peak
    met = None if aim is None else faster >= aim and smaller >= MEMORY_AIM
    return {
        "shape": str(shape),
        "hma_ms": taken["hma"].milliseconds,
        "naive_ms": taken["naive"].milliseconds,
        "times_faster": faster,
        "aim_faster": aim,
        "times_fewer_multiply_adds": naive_step_multiply_adds(shape) / step_multiply_adds(shape),
        "hma_peak_MB": ours_peak / MEGABYTE,
        "naive_peak_MB": naive_peak / MEGABYTE,
        "times_smaller": smaller,
        "aim_smaller": None if aim is None else MEMORY_AIM,
        "meets_aims": met,
        "repeats": repeats,
    }


def _peak(head: Head, step: Callable[[], None]) -> int:
    forget_gradients(head)  # so that those of this step count
    return peak_extra_bytes(step)

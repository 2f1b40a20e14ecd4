"""A training step of the head as a share of what the machine's matrix product reaches."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from benchmarks.counts import step_multiply_adds
from benchmarks.report import Row, Section
from benchmarks.shapes import GRAPH_SHAPE, RESNET_SHAPE, VIT_SHAPE, Shape, build_head
from benchmarks.steps import training_step
from hma.training.cost import Timing, interleave

AIM_PERCENT = 70.0
SIZES = (1024, 2048)
QUICK_SIZES = (1024,)


def against_gemm(quick: bool) -> Section:
    """Measure the share of the GEMM rate that the necessary multiply-adds of a step reach."""
    shapes = (VIT_SHAPE, RESNET_SHAPE, GRAPH_SHAPE)
    sizes, repeats = (QUICK_SIZES, 2) if quick else (SIZES, 15)
    counted = " or ".join(map(str, sizes))
    return Section(
        name="gemm",
        title="Training step of the head as a share of the machine's GEMM rate",
        method=(
            "Necessary multiply-adds (benchmarks.counts) over the step's time, divided by the "
            f"rate of the best float32 product of two square matrices of {counted} rows timed in "
            "turn with the step. The percentage is from the median step, best_percent from the "
            "fastest."
        ),
        rows=tuple(_row(shape, sizes, repeats) for shape in shapes),
    )


def square_products(sizes: Sequence[int]) -> dict[str, Callable[[], object]]:
    """Return float32 products of square matrices to time, named by their number of rows."""
    squares = {str(size): torch.randn(size, size) for size in sizes}
    return {name: partial(torch.mm, square, square) for name, square in squares.items()}


def gemm_rate(timings: Mapping[str, Timing], sizes: Sequence[int]) -> float:
    """Return multiply-adds per second of the best repeat of the best of the square products.

    Example:
        >>> timings = {"1024": Timing((0.5, 0.25)), "2048": Timing((8.0,))}
        >>> gemm_rate(timings, sizes=(1024, 2048)) == 1024**3 / 0.25
        True
    """
    return max(size**3 / timings[str(size)].best for size in sizes)


def _row(shape: Shape, sizes: Sequence[int], repeats: int) -> Row:
    step = partial(training_step, build_head(shape))
    taken = interleave({"step": step, **square_products(sizes)}, repeats)
    rate = gemm_rate(taken, sizes)
    work = step_multiply_adds(shape)
    percent = 100 * work / taken["step"].median / rate
    return {
        "shape": str(shape),
        "step_ms": taken["step"].milliseconds,
        "million_multiply_adds": work / 1e6,
        "gemm_GFLOPS": 2 * rate / 1e9,
        "percent": percent,
        "best_percent": 100 * work / taken["step"].best / rate,
        "aim_percent": AIM_PERCENT,
        "meets_aim": percent >= AIM_PERCENT,
        "repeats": repeats,
    }

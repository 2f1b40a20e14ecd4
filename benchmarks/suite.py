"""The benchmarks in order, and the one function that runs them."""

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch

from benchmarks.against_gemm import against_gemm
from benchmarks.against_naive import against_naive
from benchmarks.augmentation import augmentation
from benchmarks.frozen_backbone import frozen_backbone
from benchmarks.graph_steps import graph_steps
from benchmarks.learned_memory import frozen_images, trained_tables
from benchmarks.linear import linear
from benchmarks.machine import this_machine
from benchmarks.processes import processes
from benchmarks.report import Report, Section
from benchmarks.scaling import scaling
from benchmarks.serving import serving
from benchmarks.solved_votes import solved_votes, trained_with_solved_votes
from hma.errors import UserError, wrong_choice
from hma.training.cost import using_threads

BENCHMARKS: Mapping[str, Callable[[bool], Section]] = MappingProxyType(
    {
        "naive": against_naive,
        "gemm": against_gemm,
        "scaling": scaling,
        "processes": processes,
        "serving": serving,
        "frozen": frozen_backbone,
        "linear": linear,
        "tables": trained_tables,
        "images": frozen_images,
        "solved": solved_votes,
        "solved-training": trained_with_solved_votes,
        "graphs": graph_steps,
        "augmentation": augmentation,
    }
)
"""Every benchmark by the name that ``only`` takes."""


def run(
    *,
    quick: bool = False,
    threads: int | None = None,
    only: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Measure the core on this machine; both sides of every ratio come from this one run.

    Args:
        quick: Few repeats and small sizes: seconds instead of minutes, a check and no record.
        threads: Threads torch may use; None leaves torch's own number.
        only: Names of the benchmarks to run; None runs all.
        progress: Called with one line before each benchmark starts.
    """
    names = list(BENCHMARKS) if only is None else _checked(only)
    machine, start = this_machine(), time.perf_counter()
    sections = []
    with using_threads(threads) as used, torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for place, name in enumerate(names, start=1):
            if progress is not None:
                progress(f"{place}/{len(names)} {name}")
            sections.append(BENCHMARKS[name](quick))
    seconds = round(time.perf_counter() - start, 1)
    return Report(
        machine=machine, threads=used, quick=quick, seconds=seconds, sections=tuple(sections)
    )


def _checked(only: Sequence[str]) -> list[str]:
    known = tuple(BENCHMARKS)
    if isinstance(only, str) or not only:
        raise UserError(f"only must be a list of names out of {', '.join(known)}, got {only!r}")
    wrong = [wrong_choice("only", name, known) for name in only if name not in known]
    if wrong:
        raise UserError("\n".join(wrong))
    return [name for name in known if name in only]

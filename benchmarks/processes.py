"""What a training step costs where several processes train together, each on its own batch."""

import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.messages import messages
from benchmarks.report import Row, Section
from benchmarks.scaling import BASE
from benchmarks.shapes import Shape, build_head
from benchmarks.steps import training_step
from hma.attention.hma import HMA
from hma.training.cost import usable_cores, using_threads
from hma.training.devices import buffer_option

MOST = 8
SECONDS = "seconds"


def processes(quick: bool) -> Section:
    """Measure a step in 1, 2, 4, ... processes of this machine, one thread each, over gloo."""
    repeats = 2 if quick else 15
    counts = [count for count in (1, 2, 4, MOST) if count <= usable_cores() or count == 2]
    return Section(
        name="processes",
        title="Cost of a training step in the number of processes",
        method=(
            f"{BASE} in every process, one thread each, gloo on this machine; the median step of "
            "the first process. Handed over: bytes that a process gives to the others in a step, "
            "by benchmarks.messages; gradients: those of the weights, which any model averages. "
            "More processes than cores share them, and say nothing of the speed of a step."
        ),
        rows=tuple(_row(BASE, count, repeats) for count in counts[: 2 if quick else None]),
    )


def _row(shape: Shape, count: int, repeats: int) -> Row:
    weights = sum(one.numel() for one in build_head(shape).model.parameters())
    return {
        "processes": count,
        "rows": count * shape.batch,
        "step_ms": 1000 * seconds_of_a_step(shape, count, repeats),
        "handed_over_KiB": _handed_over(shape, count) / 2**10,
        "gradients_KiB": 4 * weights / 2**10 if count > 1 else 0.0,
        "cores": usable_cores(),
        "repeats": repeats,
    }


def _handed_over(shape: Shape, count: int) -> int:
    """Return the bytes of a step, without the gradients of the weights."""
    return sum(one.size for one in messages("paper", shape, count, trained=0))


def seconds_of_a_step(shape: Shape, count: int, repeats: int) -> float:
    """Return the median seconds of a step in ``count`` processes."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(_work, (count, shape, repeats, Path(folder)), count)  # type: ignore[no-untyped-call]
        return float((Path(folder) / SECONDS).read_text())


class _Classify(nn.Module):
    """A model that begins with features, as a module of its own."""

    def __init__(self, model: HMA) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits."""
        return self.model.classify(features)


def _work(rank: int, count: int, shape: Shape, repeats: int, folder: Path) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    meeting = (folder / "store").as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=count)
    head = build_head(shape)
    apart: dict[str, Any] = {buffer_option(): False}
    trained = DistributedDataParallel(_Classify(head.model), **apart)
    taken = []
    with using_threads(1):
        for _ in range(repeats + 1):
            dist.barrier()
            began = time.perf_counter()
            training_step(head, trained)
            taken.append(time.perf_counter() - began)
    if rank == 0:
        (folder / SECONDS).write_text(str(median(taken[1:])))
    dist.barrier()
    dist.destroy_process_group()

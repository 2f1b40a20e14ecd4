"""What the rows of a table cost: weights, memory, and seconds, all rows in turn in one process.

The step that is timed is that of the training loop, from cutting the batch to what follows the
optimizer's step. A ratio of two rows is of steps that ran after one another, so that whatever else
the machine does meets both alike.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from hma.data import Task
from hma.data.task import Part
from hma.methods import Method
from hma.paper.table import Job
from hma.training import Recipe, Record, all_logits, fabric_for
from hma.training.cost import (
    Timing,
    interleave,
    load,
    peak_extra_bytes,
    peak_memory_bytes,
    processor_name,
    usable_cores,
    using_threads,
)
from hma.training.identity import git_commit, identity, versions
from hma.training.loop import Training
from hma.training.order import LEAST_ROWS
from hma.training.randomness import preserve_random_state

STEP_COSTS = "step costs"
"""Where they are among a record's ``measures``."""
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Side:
    """A row that is compared: what is trained, and how.

    Args:
        method: Builds the learner.
        recipe: Its batch size, optimizer and clipping; how long it trains does not matter here.
        what: In a few words.
    """

    method: Method
    recipe: Recipe
    what: str = ""


class _Row:
    """A row in training, one step at a time."""

    def __init__(self, side: Side, task: Task, seed: int) -> None:
        recipe = replace(side.recipe, drop_last=True)  # all batches are of one size
        learner = side.method(task, seed)
        fabric = fabric_for(recipe, accelerator="cpu")
        self.what, self.learner, self.task = side.what, learner, task
        self.training = Training(learner, task, recipe, seed, fabric)
        self.training.begin()
        self.module = learner.module.train()
        self._batches = self._endless()
        split = next(iter(task.tests.values()))
        self.asked = Part(split, torch.arange(min(len(split), recipe.eval_batch_size)))

    def _endless(self) -> Iterator[tuple[int, Tensor]]:
        order, done = self.training.order, 0
        while True:
            yield from order.steps(done, done + order.steps_per_epoch)
            done += order.steps_per_epoch

    def step(self, rows: int | None = None) -> None:
        """Make the next step, on so many rows of its batch."""
        passes, places = next(self._batches)
        self.training.train_on(places[:rows], passes)

    def finish(self) -> float:
        """Do what follows training, as before a test; return the seconds it takes."""
        began = time.perf_counter()
        self.learner.before_evaluation(self.task.train, lambda: None)
        self.training.learn_the_rest()
        return time.perf_counter() - began

    def answer(self, rows: int | None = None) -> None:
        """Predict a batch of test rows, or so many of them."""
        places = torch.arange(len(self.asked))[:rows]
        all_logits(self.learner, Part(self.asked, places), batch_size=len(self.asked))

    def weights(self) -> dict[str, int]:
        """Return how many weights there are, and how many of them train."""
        held = list(self.module.parameters())
        trained = sum(one.numel() for one in held if one.requires_grad)
        return {"parameters": sum(one.numel() for one in held), "trainable": trained}

    def state_bytes(self) -> int:
        """Return the bytes held between two steps: weights, buffers and the optimizer's own."""
        own = self.training.optimizer.state.values()
        of_optimizer = (value for state in own for value in state.values())
        held = chain(self.module.parameters(), self.module.buffers(), of_optimizer)
        storages = {t.untyped_storage().data_ptr(): t for t in held if isinstance(t, Tensor)}
        return sum(tensor.untyped_storage().nbytes() for tensor in storages.values())


def step_costs(
    sides: Mapping[str, Side],
    task: Task,
    *,
    seed: int,
    rounds: int,
    threads: int = 1,
    tick: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Measure every row of a comparison, in JSON values, for a record's ``measures``.

    Of each row: ``parameters``, ``trainable``; ``state_bytes`` held between steps and
    ``peak_bytes``, with what a step takes besides; seconds of each timed ``step`` and of each
    answer to a batch of test rows, for one row of it (``answer``); and seconds of what follows
    training, ``once``. Beside the rows: sizes of the batches, threads, the machine, and
    ``processor_share``, what of the clock the processor computed: 1 for one thread that nothing
    else kept waiting.

    Args:
        sides: What is compared.
        task: What the rows train on and answer; at least a batch of each.
        seed: Of weights and batches.
        rounds: Timed steps of each row, and timed answers.
        threads: Of torch; no more than there are cores.
        tick: Called after each part.
    """
    quiet = load()
    with preserve_random_state(CPU), using_threads(min(threads, usable_cores())) as used:
        rows = {name: _Row(side, task, seed) for name, side in sides.items()}
        peaks = {}
        for name, row in rows.items():
            row.step(2 * LEAST_ROWS)  # what is made once is not in the peak
            state = row.state_bytes()
            peaks[name] = state, state + peak_extra_bytes(row.step)
            tick()
        steps = interleave({n: row.step for n, row in rows.items()}, rounds, warm=True)
        tick()
        once = {}
        for name, row in rows.items():
            once[name] = row.finish()
            row.answer(2 * LEAST_ROWS)
            tick()
        answers = interleave({n: row.answer for n, row in rows.items()}, rounds, warm=True)
        tick()
    return {
        "rows": {
            name: {
                "what": row.what,
                **row.weights(),
                "state_bytes": peaks[name][0],
                "peak_bytes": peaks[name][1],
                "step": _rounded(steps[name].seconds),
                "answer": _rounded(s / len(row.asked) for s in answers[name].seconds),
                "once": _rounded([once[name]])[0],
            }
            for name, row in rows.items()
        },
        "batch": next(iter(rows.values())).training.recipe.batch_size,
        "answered": len(next(iter(rows.values())).asked),
        "training_rows": len(task.train),
        "threads": used,
        "processor": processor_name(),
        "cores": usable_cores(),
        "load": quiet,
        "processor_share": round(_processor_share([*steps.values(), *answers.values()]), 3),
    }


def cost_record(job: Job, sides: Mapping[str, Side], task: Task, *, threads: int) -> Record:
    """Return the record of a cell that compares rows; the recipe's steps are its rounds.

    Args:
        job: Which cell.
        sides: What is compared.
        task: Its data.
        threads: Of torch.
    """
    rounds, done, began = job.recipe.steps or 1, iter(range(10**9)), time.perf_counter()
    job.progress.begin(str(job.cell), 2 * len(sides) + 2)
    try:
        measured = step_costs(
            sides,
            task,
            seed=job.cell.seed,
            rounds=rounds,
            threads=threads,
            tick=lambda: job.progress.update(next(done) + 1),
        )
        with preserve_random_state(CPU):
            first = next(iter(sides.values())).method(task, job.cell.seed)
            about = identity(first, task, job.recipe, job.cell.seed, None)["task"]
    finally:
        job.progress.end()
    return Record(
        name=f"{job.cell.task}/{job.cell.method}",
        seed=job.cell.seed,
        setup={
            "task": about,
            "method": {"contexts": ["alone"], "rows": list(sides)},
            "recipe": job.recipe.to_json(),
        },
        resolved={},
        git_commit=git_commit(),
        versions=dict(versions()),
        data_fingerprint=about["data_fingerprint"],
        epochs=[],
        selected_epoch=0,
        selection_rule="",
        tests={},
        weights_sha256=None,
        seconds=time.perf_counter() - began,
        epoch_seconds=[],
        peak_memory_bytes=peak_memory_bytes(CPU),
        measures={STEP_COSTS: measured},
    )


def _rounded(seconds: Any) -> list[float]:
    """Return times with four figures that count."""
    return [float(f"{one:.4g}") for one in seconds]


def _processor_share(timings: list[Timing]) -> float:
    computed = sum(sum(one.processor_seconds) for one in timings)
    return computed / sum(sum(one.seconds) for one in timings)

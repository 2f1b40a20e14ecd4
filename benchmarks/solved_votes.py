"""What solved votes cost: to teach, forget and answer at any size, and to train with."""

import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn

from benchmarks.learned_memory import real_tables, synthetic_table, trained
from benchmarks.report import Row, Section
from hma.backbones import backbone_for
from hma.backbones.by_name import default_backbone
from hma.data import Task
from hma.methods import with_memory
from hma.training import UserRecipe
from hma.training.cost import interleave
from hma.vote.config import VoteConfig
from hma.vote.solved import MOST_SOLVED
from hma.vote.voting_memory import VotingMemory

ROWS, QUICK_ROWS = (1000, 2000, 4000, 20_000, 100_000), (200,)
WIDTH, CLASSES, REPEATS = 32, 10, 3
TABLES = ("Glass", "Ionosphere", "PimaIndiansDiabetes2", "Vowel", "DNA")
QUICK_SIZE = 40
TIMES_TRAINED = 1
AIM_TRAINED = 2.0


def solved_votes(quick: bool) -> Section:
    """Measure a row that is taught or forgotten, then a query, against solving for all rows."""
    return Section(
        name="solved",
        title="Solved votes: one row is taught or forgotten, then one query is answered",
        method=(
            f"{WIDTH} features, {CLASSES} classes, solved by keys and by the view; medians of "
            f"{REPEATS}, in turn. Anew: what was solved for is dropped, then the query answered. "
            f"Up to {MOST_SOLVED:,} rows all are solved for together, of more those near a query."
        ),
        rows=tuple(_edited(count) for count in (QUICK_ROWS if quick else ROWS)),
    )


def _edited(count: int) -> Row:
    model = _memory(count)
    query, new = torch.randn(1, WIDTH), torch.randn(REPEATS + 1, WIDTH)
    taken: dict[str, list[float]] = {name: [] for name in ("anew", "teach", "forget", "answer")}
    for step in range(REPEATS + 1):
        ids, label = torch.tensor([count + step]), torch.tensor([step % CLASSES])
        edits: dict[str, Callable[[], object]] = {
            "anew": lambda: _drop(model),
            "teach": lambda: model.remember(new[step : step + 1], label, ids=ids),  # noqa: B023
            "forget": lambda: model.forget(torch.tensor([7 * step])),  # noqa: B023
            "answer": lambda: None,
        }
        for name, edit in edits.items():
            taken[name].append(_seconds(model, edit, query))
    found = {name: 1000 * median(each[1:]) for name, each in taken.items()}  # the first warms up
    return {
        "rows": count,
        "together": count <= MOST_SOLVED,
        **{f"{name}_ms": value for name, value in found.items()},
        "teach_times_faster": found["anew"] / found["teach"],
        "forget_times_faster": found["anew"] / found["forget"],
        "repeats": REPEATS,
    }


def _memory(count: int) -> VotingMemory:
    """Return a memory that holds so many rows once one more is taught."""
    model = VotingMemory(nn.Identity(), CLASSES, VoteConfig(), feature_dim=WIDTH).eval()
    held = torch.arange(count - 1)
    model.remember(torch.randn(len(held), WIDTH), held % CLASSES, ids=held)
    for vote in model.solved:
        vote.gamma.fill_(1 / WIDTH)
        vote.penalty.fill_(0.1)
        vote.share.fill_(0.4)
    return model


def _drop(model: VotingMemory) -> None:
    for vote in model.solved:
        vote.drop_solution()
    model.reproject()


@torch.no_grad()
def _seconds(model: VotingMemory, edit: Callable[[], object], query: Tensor) -> float:
    began = time.perf_counter()
    edit()
    model(query)
    return time.perf_counter() - began


def trained_with_solved_votes(quick: bool) -> Section:
    """Compare whole trainings with votes that are solved and with plain ones alone."""
    small = synthetic_table(QUICK_SIZE)
    _trained(small, True)  # so that no side of the first table waits for what is loaded once
    tasks = [small] if quick else real_tables(TABLES)
    return Section(
        name="solved-training",
        title="Training with solved votes",
        method=(
            "The whole of hma.training.fit by the recipe of hma train, with VoteConfig() and with "
            f"VoteConfig(solved='none'), in turn; medians of {TIMES_TRAINED}, processor time."
        ),
        rows=tuple(_trained(task, quick) for task in tasks),
    )


def _trained(task: Task, quick: bool) -> Row:
    build, recipe = backbone_for(default_backbone(task.kind, task.shape)), UserRecipe().fixed()
    configs = {"plain": VoteConfig(solved="none"), "solved": VoteConfig()}
    sides = {
        name: lambda config=config: trained(with_memory(build, config, alone=True), task, recipe)
        for name, config in configs.items()
    }
    taken = interleave(sides, repeats=1 if quick else TIMES_TRAINED, warm=True)
    times = taken["solved"].processor_median / taken["plain"].processor_median
    return {
        "data": task.name,
        "training_rows": len(task.train),
        "plain_processor_s": taken["plain"].processor_median,
        "solved_processor_s": taken["solved"].processor_median,
        "processor_times": times,
        "aim_times": None if quick else AIM_TRAINED,
        "meets_aim": None if quick else times <= AIM_TRAINED,
    }

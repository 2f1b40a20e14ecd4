"""The first thing to run: HMA beside what else one would take, on digits and on small graphs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import mean, stdev

from torch import nn

from hma.backbones import GIN, mlp
from hma.config import HMAConfig
from hma.data import Task
from hma.data.sets.colored_digits import colored_digits
from hma.data.sets.digits import digits
from hma.data.sets.spurious_motif import spurious_motif
from hma.methods import Method, erm, with_hma
from hma.methods.simple import logistic, neighbours
from hma.training import Recipe, SilentProgress, fit
from hma.training.threads import one_thread

PAPER = HMAConfig.paper(queue_size=128, slots_per_class=4, label_dim=32)
RECIPE = Recipe(steps=200, batch_size=64)


def _backbone(task: Task) -> nn.Module:
    if task.kind == "graph":
        return GIN(task.shape[0], width=32, num_layers=3, order="norm-relu")
    channels, height, width = task.shape
    return mlp(channels * height * width, hidden=(128, 128))


def _few_labels(seed: int) -> Task:
    return digits(seed, per_class=10)


def _motifs(seed: int) -> Task:
    return spurious_motif(seed, bias=0.9, train=600, validation=300, test=300).task


GRAPHS = "spurious motifs"
TASKS: dict[str, Callable[[int], Task]] = {
    "digits, 10 labels per class": _few_labels,
    "coloured digits": colored_digits,
    GRAPHS: _motifs,
}
METHODS: dict[str, Method] = {
    "nearest neighbours": neighbours(),
    "logistic regression": logistic(),
    "backbone": erm(_backbone),
    "PARAM": with_hma(_backbone, HMAConfig.ablation("param")),
    "HMA of the paper": with_hma(_backbone, PAPER),
    "HMA": with_hma(_backbone, HMAConfig()),
}


@dataclass(frozen=True)
class QuickstartLine:
    """One line of the table: a method on a test split in a context, over seeds."""

    task: str
    test: str
    method: str
    context: str
    scores: tuple[float, ...]
    seconds: float

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return mean(self.scores)

    @property
    def std(self) -> float:
        """Standard deviation over seeds."""
        return stdev(self.scores) if len(self.scores) > 1 else 0.0


def has_graphs() -> bool:
    """Return whether PyG is installed, which graphs need."""
    return find_spec("torch_geometric") is not None


def cells(seeds: int) -> list[tuple[str, str, int]]:
    """Return every run of the table: task, method, seed."""
    tasks = [name for name in TASKS if name != GRAPHS or has_graphs()]
    return [(task, method, seed) for task in tasks for method in METHODS for seed in range(seeds)]


def run(seeds: int = 5) -> Iterator[list[QuickstartLine]]:
    """Train cell by cell; after each, yield the lines of the table as they stand."""
    scores: dict[tuple[str, str, str, str], list[float]] = {}
    seconds: dict[tuple[str, str], float] = {}
    for name, method, seed in cells(seeds):
        task = TASKS[name](seed)
        with one_thread():  # a second one only waits at networks this small
            record = fit(
                METHODS[method](task, seed), task, RECIPE, seed=seed, progress=SilentProgress()
            )
        seconds[name, method] = seconds.get((name, method), 0.0) + record.seconds
        for test, contexts in record.tests.items():
            for context, values in contexts.items():
                scores.setdefault((name, test, method, context), []).append(values[task.metric])
        yield [
            QuickstartLine(*key, tuple(over_seeds), seconds[key[0], key[2]])
            for key, over_seeds in scores.items()
        ]

"""Colored MNIST: its data, its backbones, and how every row is trained."""

from collections.abc import Callable

from hma.backbones import cnn, mlp
from hma.data import Task
from hma.data.sets.mnist import colored_mnist
from hma.methods import Method, erm
from hma.methods.learner import BackboneFactory
from hma.training import Recipe

FLIPS = ((0.2, 0.1), (0.15, 0.08), (0.1, 0.06), (0.05, 0.04), (0.0, 0.02))
"""Share of images whose colour is not their label, in the two training environments."""
BACKBONES = {
    "mlp": lambda task: mlp(2 * task.shape[1] * task.shape[2]),
    "cnn": lambda task: cnn(in_channels=2),
}
BATCH = 256


def data(seed: int, *, flips: tuple[float, float], size: int) -> Task:
    """Return Colored MNIST, its colours and its noise drawn by seed."""
    return colored_mnist(seed, flips=flips, size=size).task


def name(backbone: str, size: int, flips: tuple[float, float]) -> str:
    """Return the name of a column."""
    return f"{backbone}-{size}-{flips[0]:g}-{flips[1]:g}"


def on_plain(penalty: Callable[..., Method]) -> Callable[..., Method]:
    """Return how to build a row that changes how the plain backbone is trained or read."""

    def build(backbone: BackboneFactory, **settings: float) -> Method:
        return penalty(erm(backbone), **settings)

    return build


RECIPE = Recipe(
    steps=501,
    batch_size=BATCH,
    eval_batch_size=BATCH,
    lr=1e-3,
    weight_decay=2e-3,  # IRM's penalty of 0.001 on the squared weights
    selection="last",
    evaluate_every=100,  # the last one only: it decides nothing
)

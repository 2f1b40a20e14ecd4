"""The optimizer of a recipe, and its state as tensors that can be saved by name."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from hma.errors import UserError
from hma.training.recipe import Recipe


def make_optimizer(module: nn.Module, recipe: Recipe) -> Optimizer:
    """Return the recipe's optimizer over the weights of ``module`` that train."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not trained:
        raise UserError(
            f"nothing to train: no parameter of {type(module).__name__} requires a gradient; "
            "unfreeze some of it"
        )
    decay = recipe.weight_decay
    if recipe.optimizer == "sgd":
        return SGD(trained, lr=recipe.lr, momentum=recipe.sgd_momentum, weight_decay=decay)
    kind = Adam if recipe.optimizer == "adam" else AdamW
    return kind(trained, lr=recipe.lr, weight_decay=decay, fused=_can_fuse(trained, recipe))


def _can_fuse(trained: list[nn.Parameter], recipe: Recipe) -> bool | None:
    """Return whether all weights can move in one kernel; many small ones are then much faster."""
    usual = all(weight.is_floating_point() for weight in trained)
    # Fabric cannot clip gradients that a fused optimizer unscales by itself
    scaled = recipe.precision == "16-mixed"
    return True if usual and not scaled and not torch.backends.mps.is_available() else None


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the state of each weight, named ``<number of the weight>.<what it is>``.

    Learning rate and the like are not in it: they are functions of the recipe and the step.
    """
    tensors = {}
    for number, values in optimizer.state_dict()["state"].items():
        for name, value in values.items():
            if value is not None:
                tensors[f"{number}.{name}"] = value if isinstance(value, Tensor) else _scalar(value)
    return tensors


def load_optimizer_tensors(optimizer: Optimizer, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Put back what :func:`optimizer_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors:
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )


def _scalar(value: float) -> Tensor:
    return torch.tensor(value)

"""The optimizer of a recipe, its learning rate, and its state as tensors to save by name."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from hma.attention.block import MemoryRead
from hma.errors import UserError
from hma.options.recipe import Recipe


def make_optimizer(module: nn.Module, recipe: Recipe) -> Optimizer:
    """Return the recipe's optimizer over the weights of ``module`` that train.

    Weights whose learning rate is the same are a group; ``factor`` in it is what the rate of the
    recipe is multiplied with.
    """
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not trained:
        raise UserError(
            f"nothing to train: no parameter of {type(module).__name__} requires a gradient; "
            "unfreeze some of it"
        )
    decay, groups = recipe.weight_decay, _groups(module, recipe)
    if recipe.optimizer == "sgd":
        return SGD(groups, lr=recipe.lr, momentum=recipe.sgd_momentum, weight_decay=decay)
    kind = Adam if recipe.optimizer == "adam" else AdamW
    return kind(groups, lr=recipe.lr, weight_decay=decay, fused=_can_fuse(trained, recipe))


def _groups(module: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """Return the weights that train by what their learning rate is multiplied with."""
    factors: dict[nn.Parameter, float] = {}
    for name, part in module.named_modules():
        last = name.rpartition(".")[2]
        if last == "backbone" and recipe.backbone_lr != 1:
            factors |= dict.fromkeys(part.parameters(), recipe.backbone_lr)
        elif last == "head" and "backbone" not in name and recipe.head_lr != 1:
            factors |= dict.fromkeys(part.parameters(), recipe.head_lr)
        elif isinstance(part, MemoryRead) and recipe.reads_width is not None:
            factor = min(1.0, recipe.reads_width / part.dim)
            factors |= dict.fromkeys(part.parameters(), factor)
    groups: dict[float, list[nn.Parameter]] = {}
    for weight in module.parameters():
        if weight.requires_grad:
            groups.setdefault(factors.get(weight, 1.0), []).append(weight)
    return [{"params": weights, "factor": factor} for factor, weights in groups.items()]


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


def learning_rate(recipe: Recipe, steps_per_epoch: int, steps: int) -> Callable[[int], float]:
    """Return the learning rate of each step, counted from 0, of a run of ``steps`` in all.

    It is a function of the step alone, so there is nothing to save or resume.

    Warm-up rises linearly, ``lr * (t + 1) / W`` over ``W`` steps, the longer of ``warmup_steps``
    and ``warmup_share`` of all; 'cosine' then falls from ``lr`` to 0
    over what is left, ``lr * (1 + cos(pi * t / T)) / 2``; 'step' multiplies by ``decay_factor``
    every ``decay_every`` epochs.

    Example:
        >>> rate = learning_rate(Recipe(lr=1.0, schedule="cosine", warmup_steps=2), 4, steps=6)
        >>> [round(rate(step), 3) for step in range(6)]
        [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    warmup = max(recipe.warmup_steps, round(recipe.warmup_share * steps))
    period = recipe.decay_every * steps_per_epoch
    falling = max(steps - warmup, 1)

    def rate(step: int) -> float:
        if step < warmup:
            return recipe.lr * (step + 1) / warmup
        if recipe.schedule == "cosine":
            return recipe.lr * (1 + math.cos(math.pi * (step - warmup) / falling)) / 2
        if recipe.schedule == "step":
            return recipe.lr * recipe.decay_factor ** (step // period)
        return recipe.lr

    return rate

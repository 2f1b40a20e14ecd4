"""The learning rate as a function of the step alone, so that there is nothing to save or resume."""

import math
from collections.abc import Callable

from hma.training.recipe import Recipe


def learning_rate(recipe: Recipe, steps_per_epoch: int, steps: int) -> Callable[[int], float]:
    """Return the learning rate of each step, counted from 0, of a run of ``steps`` in all.

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

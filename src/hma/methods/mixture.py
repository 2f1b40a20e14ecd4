"""Several trained learners that answer together, each as far as held-out rows trust it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from hma.backbones.frozen import Frozen
from hma.errors import UserError
from hma.methods.learner import Learner, OutputModule
from hma.model import Output
from hma.targets import Target


@final
class MixedModule(OutputModule):
    """Modules side by side, their answers mixed; a frozen backbone that they share runs once.

    Args:
        modules: What answers, by name.
        shares: What each counts, summing to 1.
        target: What a label is.
    """

    shares: Tensor

    def __init__(
        self, modules: Mapping[str, nn.Module], shares: Sequence[float], target: Target
    ) -> None:
        super().__init__()
        self.each = nn.ModuleDict(modules)
        self.target = target
        self.register_buffer("shares", torch.tensor(shares))
        backbones = [getattr(module, "backbone", None) for module in modules.values()]
        first = backbones[0]
        shared = isinstance(first, Frozen) and all(one is first for one in backbones)
        self.backbone = first if shared else None

    def output(self, x: Any, features: Tensor | None = None) -> Output:
        """Return the mixed logits, and the features of the first module."""
        if features is None and self.backbone is not None:
            features = self.backbone(x)
        said = [cast("OutputModule", module).output(x, features) for module in self.each.values()]
        return Output(
            self.target.mixed([one.logits for one in said], self.shares), said[0].features
        )


@final
class Mixture(Learner):
    """Answer with the weighted mean probability of several trained learners.

    Args:
        learners: What answers, by name.
        shares: What each counts, summing to 1; learners without a share are not asked.
    """

    def __init__(self, learners: Mapping[str, Learner], shares: Mapping[str, float]) -> None:
        self.learners = {name: one for name, one in learners.items() if shares.get(name, 0.0) > 0}
        self.shares = {name: shares[name] for name in self.learners}
        own = [*self.shares.values()]
        if not math.isclose(math.fsum(own), 1.0, abs_tol=1e-6):
            raise UserError(f"shares of the learners must sum to 1, got {math.fsum(own):g}")
        target = next(iter(self.learners.values())).target
        modules = {name: learner.module for name, learner in self.learners.items()}
        super().__init__(MixedModule(modules, own, target).eval(), target)
        known = [context for one in self.learners.values() for context in one.contexts]
        self.contexts = tuple(dict.fromkeys(known))

    def use(self, context: str) -> None:
        """Switch every learner to ``context``, or to its own first one if it has no such."""
        for learner in self.learners.values():
            learner.use(context if context in learner.contexts else learner.contexts[0])

    def mixed(self, said: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return the logits of the mixture in each context, from those of its learners.

        Args:
            said: Learner -> context -> logits of the same rows, ``(N, outputs)``.
        """
        found = {}
        for context in self.contexts:
            each = [
                said[name].get(context, said[name][learner.contexts[0]])
                for name, learner in self.learners.items()
            ]
            found[context] = self.target.mixed(each, list(self.shares.values()))
        return found

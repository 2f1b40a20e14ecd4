"""Trained learners that answer together: mixed by shares, or one completing another."""

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
from hma.vote.added_classes import complete_head, pad_unseen_classes


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
            self.target.mix_logits([one.logits for one in said], self.shares), said[0].features
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
            found[context] = self.target.mix_logits(each, list(self.shares.values()))
        return found


@final
class CompletedModule(OutputModule):
    """What a module answers, with a memory's answer for the classes that it does not know.

    Args:
        module: Knows the first classes.
        memory: Knows all of them.
        target: All classes.
    """

    def __init__(self, module: nn.Module, memory: nn.Module, target: Target) -> None:
        super().__init__()
        self.module, self.memory, self.target = module, memory, target
        own, other = (getattr(one, "backbone", None) for one in (module, memory))
        self.backbone = own if isinstance(own, Frozen) and own is other else None

    def output(self, x: Any, features: Tensor | None = None) -> Output:
        """Return the completed logits, and the features of the module."""
        if features is None and self.backbone is not None:
            features = self.backbone(x)
        own = cast("OutputModule", self.module).output(x, features)
        said = cast("OutputModule", self.memory).output(x, features).logits.log_softmax(dim=1)
        padded = pad_unseen_classes(own.logits, self.target)
        return Output(complete_head(padded, said.to(padded.dtype), self.target), own.features)


@final
class Completed(Learner):
    """Answer as a trained learner does, and as the memory for classes added after training.

    With ``u`` what the memory gives to these classes, ``p_c = (1 - u) p_learner,c`` of a class that
    the learner knows and ``p_c = p_memory,c`` of one it does not: however learners are mixed, an
    added class has the probability of the vote.

    Args:
        learner: Knows the classes of training.
        memory: Was taught the others.
    """

    def __init__(self, learner: Learner, memory: Learner) -> None:
        module = CompletedModule(learner.module, memory.module, memory.target)
        super().__init__(module.eval(), memory.target)
        self.learner, self.memory = learner, memory
        self.contexts = learner.contexts

    def use(self, context: str) -> None:
        """Switch the learner; the memory of added classes answers alone."""
        self.learner.use(context)

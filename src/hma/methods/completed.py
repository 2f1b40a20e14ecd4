"""A learner that does not know classes which a memory was taught: the memory answers for them."""

from typing import Any, cast, final

from torch import Tensor, nn
from torch.nn.functional import pad

from hma.backbones.frozen import Frozen
from hma.methods.learner import Learner, OutputModule
from hma.model import Output
from hma.targets import Target
from hma.vote.added_classes import SILENT, complete_head


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
        padded = pad(own.logits, (0, self.target.beyond_head), value=SILENT)
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

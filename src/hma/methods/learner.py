"""What the training loop knows of a method."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, cast, final

from torch import Tensor, nn

from hma.data import Batch, Split, Task
from hma.errors import UserError
from hma.model import Output
from hma.targets import Target

BackboneFactory = Callable[[Task], nn.Module]
"""Makes the encoder for a task: a fresh module that maps a batch's ``x`` to ``(B, F)``."""
Forward = Callable[..., Output]
"""A forward pass: ``(x, features)``, where features that are known stand in for ``x``; of a method
whose rows know each other ``(x, features, ids)``."""
Tick = Callable[[int, int], None]
"""Told how many rows, or choices, are done, and of how many."""


class OutputModule(nn.Module, ABC):
    """A module that a learner trains; a subclass has a ``backbone`` and says what follows it."""

    @abstractmethod
    def output(self, x: Any, features: Tensor | None = None) -> Output:
        """Return logits and features of a batch; the backbone need not run if they are given."""

    def forward(self, x: Any) -> Tensor:
        """Return the logits of a batch."""
        return self.output(x).logits


class Learner(ABC):  # noqa: B024 - records name the class, so each method has its own
    """A module and what to do with it, step by step; a subclass says what it does differently.

    Args:
        module: What is trained: an :class:`OutputModule`, an :class:`hma.HMA`, or another module
            with such a method ``output``.
        target: What a label is.
    """

    contexts: tuple[str, ...] = ("alone",)
    """Inference contexts to evaluate in, the default first.

    'batch' and 'batch-sorted' differ in the order of rows alone, and the loop sees to that.
    """
    contexts_share_features: bool = False
    """Whether contexts differ only in what is done with the features of an output, so that these
    can stand in for the rows in all of them."""

    def __init__(self, module: nn.Module, target: Target) -> None:
        if not callable(getattr(module, "output", None)):
            raise UserError(
                "method must build a module with a method output(x, features), which gives "
                f"hma.methods.Output, got {type(module).__name__}"
            )
        self.module = module
        self.target = target
        self.run: Forward = cast("Any", module).output
        """The module's forward pass; the loop leads it through its devices and number formats."""

    def forward(self, batch: Batch) -> Output:
        """Return logits and features of a batch, in training or in the context in use."""
        return self.run(batch.x, batch.features)

    def loss_of(self, output: Output, batch: Batch) -> Tensor:
        """Return the training loss of a forward pass, a scalar: that of each row, weighted."""
        each = self.losses(output, batch)
        if batch.weight is None:
            return each.mean()
        return (each * batch.weight).sum() / batch.weight.sum()

    def losses(self, output: Output, batch: Batch) -> Tensor:
        """Return the training loss of each row, ``(B,)``: the target's."""
        return self.target.loss(output.logits, batch.y)

    def training_split(self, train: Split, seed: int) -> Split:
        """Return the rows that the steps of a run go through; by default the training rows.

        A method may change rows from epoch to epoch or put rows of its own after the others, which
        keep their places. Memories, and whatever else asks for the training rows, get ``train``.
        Every process of a run calls it once, a resumed run again, and must come to the same.

        Args:
            train: The training rows.
            seed: Decides every random draw.
        """
        return train

    def before_training(self, train: Split, tick: Callable[[], None]) -> None:  # noqa: B027
        """Start from the training rows, before the first step of a run; by default from nothing.

        Every process of a run does so, with random numbers of its own; they must come to the same.

        Args:
            train: The training rows.
            tick: To be called now and then where it takes long.
        """

    def after_step(self, batch: Batch) -> None:  # noqa: B027
        """Do what follows ``optimizer.step()``, such as writing a memory; by default nothing."""

    def before_evaluation(self, train: Split, tick: Callable[[], None]) -> None:  # noqa: B027
        """Make ready for an evaluation, such as a memory whose rows went stale; else nothing.

        Args:
            train: The training rows.
            tick: To be called now and then where it takes long.
        """

    def after_training(
        self,
        task: Task,
        *,
        seed: int,
        weight: Tensor | None,
        tick: Callable[[], None],
        like: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Do what follows the last epoch, with the weights that are kept; by default nothing.

        Return what the record says of it, in JSON values. Every process calls it with the same
        rows and must come to the same.

        Args:
            task: Training and validation rows; its tests are not to be looked at.
            seed: Decides every random draw.
            weight: What each training row counts, ``(N,)``, beside weights of its own; None for 1.
            tick: To be called now and then where it takes long.
            like: What the record of an earlier fit says, whose validation rows decided and are
                among the training rows now.
        """
        return {}

    def use(self, context: str) -> None:  # noqa: B027
        """Switch to one of ``contexts``; by default nothing depends on it."""

    @final
    def loss(self, batch: Batch) -> Tensor:
        """Return the training loss of a batch, a scalar."""
        return self.loss_of(self.forward(batch), batch)

    @final
    def answer(self, batch: Batch) -> Output:
        """Return logits and features of a batch in the context in use; the loop evaluates by it."""
        return self.forward(batch)

    @final
    def predict(self, batch: Batch) -> Tensor:
        """Return the logits of a batch, ``(B, C)``."""
        return self.answer(batch).logits


class FittedAtOnce(Learner):
    """A learner without steps: ``hma.training.fit`` calls :meth:`fit_at_once` once, then tests it.

    What is fitted lies in parameters and buffers of the module, so that its weights are saved and
    loaded as those of any learner; buffers whose length the rows decide belong into a
    :class:`hma.memory.growing.Growing`.
    """

    packages: tuple[str, ...] = ()
    """Packages that it is fitted with; the record holds their versions."""

    @abstractmethod
    def fit_at_once(
        self, task: Task, seed: int, tick: Tick, like: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Fit the module to the training rows, its settings chosen by the validation rows.

        Return what the record says of it, in JSON values, among it ``validation_loss`` where
        there are validation rows.

        Args:
            task: Rows, or their features as ``cache_features`` gives them.
            seed: Decides every random draw.
            tick: Called with how many settings were tried, and of how many.
            like: What an earlier fit returned, whose settings are taken.
        """


Method = Callable[[Task, int], Learner]
"""A row of a table: ``method(task, seed)`` builds a fresh learner."""

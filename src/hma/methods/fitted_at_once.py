"""Learners that are fitted to all training rows at once instead of step by step."""

from abc import abstractmethod
from typing import Any

from hma.data import Task
from hma.methods.cached_features import Tick
from hma.methods.learner import Learner


class FittedAtOnce(Learner):
    """A learner without steps: ``hma.training.fit`` calls :meth:`fit_at_once` once, then tests it.

    What is fitted lies in parameters and buffers of the module, so that its weights are saved and
    loaded as those of any learner; buffers whose length the rows decide belong into a
    :class:`hma.memory.growing.Growing`.
    """

    packages: tuple[str, ...] = ()
    """Packages that it is fitted with; the record holds their versions."""

    @abstractmethod
    def fit_at_once(self, task: Task, seed: int, tick: Tick) -> dict[str, Any]:
        """Fit the module to the training rows, its settings chosen by the validation rows.

        Return what the record says of it, in JSON values, among it ``validation_loss`` where
        there are validation rows.

        Args:
            task: Rows, or their features as :func:`hma.methods.cached_features` gives them.
            seed: Decides every random draw.
            tick: Called with how many settings were tried, and of how many.
        """

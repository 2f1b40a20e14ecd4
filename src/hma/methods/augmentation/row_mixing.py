"""What methods share that train on rows between two labels."""

from torch import Tensor

from hma.data import Batch
from hma.errors import UserError
from hma.methods.learner import Learner
from hma.methods.wrapping import WrappedLearner, WrappedModule
from hma.model import Output


class RowMixing(WrappedLearner):
    """The mean loss of rows that may have two labels each; a subclass makes such rows.

    A row's loss is ``share * loss(own label) + (1 - share) * loss(other label)``: of class ids the
    cross entropy of the soft label, and defined for every kind of label.

    Args:
        inner: Learner whose loss is the mean of its rows' losses.
        module: Wraps ``inner.module``.
    """

    def __init__(self, inner: Learner, module: WrappedModule) -> None:
        self._inner_mixes = isinstance(_with_loss_of_rows(inner), RowMixing)
        super().__init__(inner, module)

    def loss_of(self, output: Output, batch: Batch) -> Tensor:
        """Return the weighted mean of the rows' losses."""
        return Learner.loss_of(self, output, batch)

    def losses(self, output: Output, batch: Batch) -> Tensor:
        """Return the loss of each row, of one with two labels between both."""
        mixed = batch.mixed
        if mixed is None or self._inner_mixes:
            return self.inner.losses(output, batch)
        own = batch._replace(mixed=None)
        first = self.inner.losses(output, own)
        second = self.inner.losses(output, own._replace(y=mixed.y))
        return between(first, second, mixed.share)


def between(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """Return ``share * first + (1 - share) * second`` in the format of ``first``."""
    share = share.to(first.dtype)
    return share * first + (1 - share) * second


def _with_loss_of_rows(learner: Learner) -> Learner:
    """Return what says the loss of a learner, or say that it is not the mean of its rows'."""
    while isinstance(learner, WrappedLearner) and type(learner).loss_of is WrappedLearner.loss_of:
        learner = learner.inner
    if type(learner).loss_of not in (Learner.loss_of, RowMixing.loss_of):
        raise UserError(
            "method must have the mean of its rows' losses as loss where rows are mixed, got "
            f"{type(learner).__name__}, which has a loss of its own; put the mixing inside it"
        )
    return learner

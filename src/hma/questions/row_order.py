"""Do rows come in an order? Asked of predictions, since rows to predict have no labels."""

import math
import warnings

import torch
from torch import Tensor

LEAST = 0.1
"""Serial correlation that is worth a word, however many rows say so."""
DEVIATIONS = 4.0
"""How far above chance it must be."""


class OrderedRowsWarning(UserWarning):
    """Rows that see each other come in an order, such as a file sorted by class."""


class SerialCorrelation:
    r"""How much alike the predictions of rows are that follow each other, in one pass.

    .. math:: r = 1 - \frac{\sum_i |p_{i+1} - p_i|^2}{2 \sum_i |p_i - \bar p|^2}

    (von Neumann's ratio). Over all orders of the same rows its mean is 0 and its deviation about
    :math:`1 / \sqrt{n}` at most; of rows that are sorted it is near 1.

    Example:
        >>> shares = SerialCorrelation()
        >>> for half in torch.tensor([0.0] * 50 + [1.0] * 50).split(60):
        ...     shares.add(half)
        >>> round(shares.value, 2), shares.by_order
        (0.98, True)
    """

    def __init__(self) -> None:
        self.count = 0
        self._mean = torch.zeros(())
        self._spread = self._steps = 0.0
        self._last: Tensor | None = None

    def add(self, predictions: Tensor) -> None:
        """Go on with the rows that follow, ``(B, ...)``."""
        if len(predictions) == 0:
            return
        rows = predictions.detach().cpu().double().reshape(len(predictions), -1)
        following = rows if self._last is None else torch.cat([self._last[None], rows])
        self._steps += float(following.diff(dim=0).square().sum())
        mean, total = rows.mean(dim=0), self.count + len(rows)
        apart = (mean - self._mean) if self.count else torch.zeros_like(mean)
        self._spread += float((rows - mean).square().sum())
        self._spread += float(apart.square().sum()) * self.count * len(rows) / total
        self._mean = mean if not self.count else self._mean + apart * (len(rows) / total)
        self._last, self.count = rows[-1], total

    @property
    def value(self) -> float:
        """The correlation; 0 where all predictions are the same."""
        return 1 - self._steps / (2 * self._spread) if self._spread > 0 else 0.0

    @property
    def by_chance(self) -> float:
        """What rows in no order stay below."""
        return max(LEAST, DEVIATIONS / math.sqrt(max(self.count, 1)))

    @property
    def by_order(self) -> bool:
        """Whether chance does not explain it."""
        return self.value > self.by_chance

    def warn(self, stacklevel: int = 2) -> None:
        """Warn once if the rows, which saw each other, come in an order."""
        if self.by_order:
            warnings.warn(
                "context 'batch' lets rows see those beside them, and these rows come in an order: "
                f"predictions that follow each other correlate by {self.value:.2f} over "
                f"{self.count} rows, by chance by less than {self.by_chance:.2f}; use context "
                "'alone', or shuffle the rows",
                OrderedRowsWarning,
                stacklevel=stacklevel + 1,
            )

"""A memory as a scikit-learn regressor of tables."""

from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from hma.errors import UserError
from hma.estimator.rows import Floats, WeightedRows, checked_weights
from hma.estimator.table_estimator import TableEstimator
from hma.targets import Number, Target


@final
class MemoryRegressor(RegressorMixin, TableEstimator):  # type: ignore[misc]
    """Predict a number from rows of numbers, with a memory of the rows it was trained on.

    Options, weights of rows and ``random_state`` are those of :class:`hma.MemoryClassifier`; there
    are no classes to weigh. The loss is the squared error in units of the standard deviation.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = MemoryRegressor(max_epochs=20, random_state=0).fit(X[::2], y[::2])
        >>> bool(model.score(X[1::2], y[1::2]) > 0.3)
        True
    """

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Take one pass over some more rows, going on from what was learned before.

        The first call decides the unit of the loss: its ``y`` must vary.

        Args:
            X: Numbers, ``(rows, features)``.
            y: Number of each row.
            sample_weight: How much each row counts beside the others of this call.
        """
        first = not hasattr(self, "model_")
        x, y = self._checked(X, y, reset=first)
        weight = checked_weights(sample_weight, x)
        if first:
            self._start(y[weight > 0])
        return self._take_one_pass(x, y, weight)

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[Floats, NDArray[Any]]:  # noqa: N803
        x, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, reset=reset)
        return x, y

    def _start(self, y: NDArray[Any]) -> None:
        if (y == y[0]).all():
            raise UserError(
                f"y must vary to be learned, got {y[0]} in all of {len(y)} sample(s); rows of "
                "weight zero do not count"
            )
        super()._start(y)

    def _encoded(self, y: NDArray[Any], weight: Floats) -> NDArray[Any]:
        return y.astype(np.float64)

    def _target(self, rows: WeightedRows) -> Target:
        mean = np.average(rows.labels, weights=rows.weight)
        variance = np.average((rows.labels - mean) ** 2, weights=rows.weight)
        return Number(float(mean), float(np.sqrt(variance)))

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """Return the number of each row."""
        logits = self._logits(X)
        predicted: Floats = self.model_.target.expected(logits).numpy()
        return predicted

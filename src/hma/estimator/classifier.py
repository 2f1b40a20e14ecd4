"""A memory as a scikit-learn classifier of tables, with one label per row or several."""

from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, validate_data

from hma.errors import UserError
from hma.estimator.rows import Floats, WeightedRows, checked_weights, with_class_weight
from hma.estimator.table_estimator import TableEstimator
from hma.model import MemoryModel
from hma.targets import Classes, Target, YesNo


@final
class MemoryClassifier(ClassifierMixin, TableEstimator):  # type: ignore[misc]
    """Classify rows of numbers by a small network with a memory of the rows it was trained on.

    A row of weight 0 counts as absent and a row of weight 2 as there twice; the order of rows
    does not matter. The same ``random_state`` gives the same model bit by bit, and torch's own
    random state is left as it was.

    Several yes/no labels are a ``y`` of two or more columns of 0 and 1, NaN where a label is
    missing; ``classes_`` then numbers the labels.

    Args:
        backbone: A torch module that maps ``(B, features)`` to ``(B, F)``, copied before it is
            trained; a function from the number of input features to one; or None for an MLP
            of numbers in bins, :func:`hma.backbones.binned_mlp`.
        hidden: Widths of the MLP's hidden layers, where ``backbone`` is None.
        memory: 'vote' lets the training rows nearest to a row vote for their labels
            (:class:`hma.VotingMemory`); 'hma' is the paper's attention over a queue, slots and the
            batch (:class:`hma.HMA`).
        memory_size: Training rows kept; None for all, for 'hma' 256.
        slots_per_class: Learned rows of each class; None for none, for 'hma' 4.
        slot_init: Where they start: 'normal', 'zeros', or at the training rows of each class:
            'samples', 'class_means', 'kmeans', 'distilled'.
        contrastive: For 'hma': weight of a supervised contrastive loss over rows and slots; 0 for
            none.
        label_dim: For 'hma': width of the label part of a token; rounded up until ``num_heads``
            divides the whole token.
        num_heads: For 'hma': attention heads in both reads.
        dropout: For 'hma': dropout in both reads.
        momentum: For 'hma': share of itself the encoder that writes the memory keeps per step.
        ablation: For 'hma': which parts to use: 'hma' (all), 'rma', 'abd', 'abd+syn', 'abd+rma',
            'param'.
        context: For 'hma': what a row sees of others in a prediction: 'alone' (nobody) or 'batch'
            (the ``batch_size`` rows around it).
        max_epochs: Passes over the training rows; None for 50, or as many as make 1,500 steps.
        batch_size: Rows per step.
        learning_rate: Largest step size of AdamW; it rises in the first steps, then falls to 0.
        early_stopping: Hold rows out, stop when their loss falls no more, keep the best epoch and
            calibrate its probabilities on them; 'auto' does so from 100 distinct rows on.
        validation_fraction: Share of rows held out by ``early_stopping``.
        patience: Epochs without a better validation loss before ``early_stopping`` stops; at
            least 150 steps.
        linear: Fit logistic regression (of numbers ridge regression) too, and mix it in as far as
            the rows held out trust it; half and half without such rows.
        class_weight: Weight of each class: a dict, 'balanced', or None for 1.
        standardize: Bring every column to mean 0 and variance 1 first.
        random_state: Seed, ``numpy.random.RandomState`` or None.
        verbose: Print a line after each epoch.
        device: Where to compute, such as 'cpu' or 'cuda'.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = MemoryClassifier(random_state=0).fit(X[::2], y[::2])
        >>> bool(model.score(X[1::2], y[1::2]) > 0.9)
        True
    """

    classes_: NDArray[Any]
    _several: bool

    def __init__(
        self,
        backbone: Any = None,
        *,
        hidden: Any = (128, 128),
        memory: str = "vote",
        memory_size: int | None = None,
        slots_per_class: int | None = None,
        slot_init: str = "normal",
        contrastive: float = 0.0,
        label_dim: int = 16,
        num_heads: int = 4,
        dropout: float = 0.1,
        momentum: float = 0.99,
        ablation: str = "hma",
        context: str = "alone",
        max_epochs: int | None = None,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.2,
        patience: int = 20,
        linear: bool = True,
        class_weight: Any = None,
        standardize: bool = True,
        random_state: Any = None,
        verbose: bool = False,
        device: Any = "cpu",
    ) -> None:
        # scikit-learn reads the options off this signature, so they are listed here once more
        options = {name: value for name, value in locals().items() if name in OPTIONS}
        super().__init__(**options)
        self.class_weight = class_weight

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that several labels are fine."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    # ------------------------------------------------------------------ learning

    def partial_fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Take one pass over some more rows, going on from what was learned before.

        Args:
            X: Numbers, ``(rows, features)``.
            y: Class of each row, or its labels.
            classes: All classes there will ever be; needed in the first call, and left out where
                ``y`` has several labels.
            sample_weight: How much each row counts beside the others of this call.
        """
        if isinstance(self.class_weight, str):
            raise UserError(
                "partial_fit sees some rows at a time, so class_weight='balanced' is not known; "
                "pass a dict from class to weight"
            )
        first = not hasattr(self, "model_")
        several = _has_several_labels(y)
        if first and classes is None and not several:
            raise UserError("classes must be given in the first call of partial_fit")
        x, y = self._checked(X, y, reset=first)
        weight = checked_weights(sample_weight, x)
        if first:
            self._start(y if several else np.unique(classes))
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise UserError(
                f"classes must stay those of the first call, {self.classes_.tolist()}, "
                f"got {np.unique(classes).tolist()}"
            )
        return self._take_one_pass(x, y, weight)

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[Floats, NDArray[Any]]:  # noqa: N803
        if not _has_several_labels(y):
            x, y = validate_data(self, X, y, dtype=np.float64, reset=reset)
            check_classification_targets(y)
            return x, y
        x = validate_data(self, X, dtype=np.float64, reset=reset)
        y = check_array(y, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y")
        check_consistent_length(x, y)
        outside = ~(np.isnan(y) | (y == 0) | (y == 1))
        if outside.any():
            raise UserError(
                "y of several columns must hold 0, 1, and NaN where a label is missing, got "
                f"{y[outside][0]}"
            )
        return x, y

    def _start(self, y: NDArray[Any]) -> None:
        several = y.ndim == 2
        classes = np.arange(y.shape[1]) if several else np.unique(y)
        if several and np.isnan(y).all(axis=0).any():
            empty = int(np.isnan(y).all(axis=0).argmax())
            raise UserError(
                f"y must hold a 0 or 1 in every column, column {empty} has none; leave it out"
            )
        if len(classes) < 2:
            raise UserError(
                f"y must hold at least 2 classes, got only one class: {classes.tolist()}; "
                "rows of weight zero do not count"
            )
        if several and self.class_weight is not None:
            raise UserError(
                f"class_weight must be None where y has several labels, got {self.class_weight!r}"
            )
        super()._start(y)
        self.classes_, self._several = classes, several

    def _encoded(self, y: NDArray[Any], weight: Floats) -> NDArray[Any]:
        wanted = len(self.classes_) if self._several else 1
        columns = y.shape[1] if y.ndim == 2 else 1
        if columns != wanted:
            raise UserError(
                f"y must have as many columns as in the first call, {wanted}, got {columns}"
            )
        if self._several:
            return y
        unknown = ~np.isin(y, self.classes_)
        if unknown[weight > 0].any():
            raise UserError(
                f"y holds {np.unique(y[unknown]).tolist()}, which are not among the classes "
                f"{self.classes_.tolist()}"
            )
        return np.searchsorted(self.classes_, y)

    def _target(self, rows: WeightedRows) -> Target:
        return (YesNo if self._several else Classes)(len(self.classes_))

    def _serve(self, model: MemoryModel) -> None:
        super()._serve(model)
        self._several = isinstance(model.target, YesNo)

    def _weighted(self, rows: WeightedRows) -> WeightedRows:
        return with_class_weight(rows, self.class_weight, self.classes_)

    # ------------------------------------------------------------------ predicting

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each class of ``classes_``, ``(rows, classes)``.

        Of several labels it is the probability of each yes, ``(rows, labels)``.
        """
        logits = self._logits(X)
        chances = logits.sigmoid() if self._several else logits.softmax(dim=1)
        probabilities: Floats = chances.numpy()
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the class of each row, or 0 and 1 for each of several labels."""
        probabilities = self.predict_proba(X)
        if self._several:
            return (probabilities > 0.5).astype(np.int64)
        predicted: NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return predicted


OPTIONS = frozenset(TableEstimator._get_param_names())
"""What the classifier and the regressor have in common."""


def _has_several_labels(y: Any) -> bool:
    shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    return len(shape) == 2 and shape[1] > 1

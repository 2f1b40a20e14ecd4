"""HMA as a scikit-learn classifier of tables."""

import math
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from torch.optim import Optimizer

from hma.errors import UserError
from hma.estimator.learning import (
    logits_of,
    on_device,
    optimizer_of,
    own_randomness,
    seed_of_epoch,
    train_epoch,
    train_epochs,
)
from hma.estimator.options import backbone_of, config_of, device_of, training_of, width_of
from hma.estimator.rows import (
    Floats,
    WeightedRows,
    checked_weights,
    distinct,
    hold_out,
    with_class_weight,
)
from hma.explain import Explanation, explain
from hma.model import HMA


class HMAClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify rows of numbers by a small network with a memory of the rows it was trained on.

    A row of weight 0 counts as absent and a row of weight 2 as there twice; the order of rows
    does not matter. The same ``random_state`` gives the same model bit by bit, and torch's own
    random state is left as it was.

    Args:
        backbone: A torch module that maps ``(B, features)`` to ``(B, F)``, copied before it is
            trained; a function from the number of input features to one; or None for an MLP.
        hidden: Widths of the MLP's hidden layers, where ``backbone`` is None.
        queue_size: Training rows kept in the real memory.
        slots_per_class: Learned tokens of each class in the synthetic memory.
        label_dim: Width of the label part of a token; rounded up until ``num_heads`` divides
            the whole token.
        num_heads: Attention heads in both reads.
        dropout: Dropout in both reads.
        momentum: Share of itself the encoder that writes the memory keeps per step.
        ablation: Which parts to use: 'hma' (all), 'rma', 'abd', 'abd+syn', 'abd+rma', 'param'.
        context: What a row sees of others in a prediction: 'alone' (nobody) or 'batch' (the
            ``batch_size`` rows around it).
        max_epochs: Passes over the training rows.
        batch_size: Rows per step.
        learning_rate: Step size of Adam in the first half of the epochs; it then falls to 0.
        early_stopping: Hold rows out, stop when their loss falls no more, keep the best epoch.
        validation_fraction: Share of rows held out by ``early_stopping``.
        patience: Epochs without a better validation loss before ``early_stopping`` stops.
        class_weight: Weight of each class: a dict, 'balanced', or None for 1.
        standardize: Bring every column to mean 0 and variance 1 first.
        random_state: Seed, ``numpy.random.RandomState`` or None.
        verbose: Print a line after each epoch.
        device: Where to compute, such as 'cpu' or 'cuda'.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = HMAClassifier(random_state=0).fit(X[::2], y[::2])
        >>> bool(model.score(X[1::2], y[1::2]) > 0.9)
        True
    """

    classes_: NDArray[Any]
    n_features_in_: int
    model_: HMA
    scaler_: StandardScaler | None
    n_iter_: int
    loss_curve_: list[float]
    validation_curve_: list[float]
    rows_seen_: int
    _optimizer: Optimizer | None
    _device: torch.device
    _seed: int

    def __init__(
        self,
        backbone: Any = None,
        *,
        hidden: Any = (64, 32),
        queue_size: int = 256,
        slots_per_class: int = 4,
        label_dim: int = 16,
        num_heads: int = 4,
        dropout: float = 0.1,
        momentum: float = 0.99,
        ablation: str = "hma",
        context: str = "alone",
        max_epochs: int = 30,
        batch_size: int = 64,
        learning_rate: float = 5e-3,
        early_stopping: bool = False,
        validation_fraction: float = 0.15,
        patience: int = 10,
        class_weight: Any = None,
        standardize: bool = True,
        random_state: Any = None,
        verbose: bool = False,
        device: Any = "cpu",
    ) -> None:
        self.backbone = backbone
        self.hidden = hidden
        self.queue_size = queue_size
        self.slots_per_class = slots_per_class
        self.label_dim = label_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.momentum = momentum
        self.ablation = ablation
        self.context = context
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.class_weight = class_weight
        self.standardize = standardize
        self.random_state = random_state
        self.verbose = verbose
        self.device = device

    # ------------------------------------------------------------------ learning

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Learn from rows, forgetting what was learned before.

        Args:
            X: Numbers, ``(rows, features)``; an array, a list or a table of pandas.
            y: Class of each row: numbers or text.
            sample_weight: How much each row counts; None for 1.
        """
        training = training_of(self.get_params(deep=False))
        x, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        weight = checked_weights(sample_weight, x)
        self._start(np.unique(y[weight > 0]))
        rows = self._rows(x, y, weight)
        train, held_out = hold_out(rows, training.validation_fraction, self._seed)
        with own_randomness(self._device):
            model = self._build()
            train_epochs(
                model,
                on_device(train, self._device),
                None if held_out is None else on_device(held_out, self._device),
                training,
                seed=self._seed,
                after_epoch=self._note,
            )
        self._serve(model)
        return self

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
            y: Class of each row.
            classes: All classes there will ever be; needed in the first call.
            sample_weight: How much each row counts beside the others of this call.
        """
        training = training_of(self.get_params(deep=False))
        self._refuse_what_needs_all_rows()
        first = not hasattr(self, "model_")
        if first and classes is None:
            raise UserError("classes must be given in the first call of partial_fit")
        x, y = validate_data(self, X, y, dtype=np.float64, reset=first)
        check_classification_targets(y)
        weight = checked_weights(sample_weight, x)
        if first:
            self._start(np.unique(classes))
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise UserError(
                f"classes must stay those of the first call, {self.classes_.tolist()}, "
                f"got {np.unique(classes).tolist()}"
            )
        rows = self._rows(x, y, weight)
        with own_randomness(self._device):
            model = self._build() if first else self.model_.float()
            if self._optimizer is None:
                self._optimizer = optimizer_of(model, training.learning_rate)
            seed = seed_of_epoch(self._seed, self.n_iter_)
            given = on_device(rows, self._device)
            self._note(train_epoch(model, self._optimizer, given, training.batch_size, seed))
        self._serve(model)
        return self

    def _refuse_what_needs_all_rows(self) -> None:
        if self.early_stopping:
            raise UserError("partial_fit sees some rows at a time; set early_stopping=False")
        if isinstance(self.class_weight, str):
            raise UserError(
                "partial_fit sees some rows at a time, so class_weight='balanced' is not known; "
                "pass a dict from class to weight"
            )

    def _start(self, classes: NDArray[Any]) -> None:
        """Forget what was learned and take note of the classes."""
        if len(classes) < 2:
            raise UserError(
                f"y must hold at least 2 classes, got only one class: {classes.tolist()}; "
                "rows of weight zero do not count"
            )
        self._device = device_of(self.device)
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._optimizer = None
        self.__dict__.pop("model_", None)
        self.classes_ = classes
        self.scaler_ = StandardScaler() if self.standardize else None
        self.n_iter_ = 0
        self.rows_seen_ = 0
        self.loss_curve_ = []
        self.validation_curve_ = []

    def _rows(self, x: Floats, y: NDArray[Any], weight: Floats) -> WeightedRows:
        """Return the distinct rows, standardised, with ids that count on from earlier calls."""
        unknown = ~np.isin(y, self.classes_)
        if unknown[weight > 0].any():
            raise UserError(
                f"y holds {np.unique(y[unknown]).tolist()}, which are not among the classes "
                f"{self.classes_.tolist()}"
            )
        labels = np.searchsorted(self.classes_, y)
        rows = distinct(x, labels, weight)
        if self.scaler_ is not None:
            self.scaler_.partial_fit(rows.x, sample_weight=rows.weight)
            rows = rows._replace(x=self.scaler_.transform(rows.x))
        rows = rows._replace(ids=rows.ids + self.rows_seen_)
        self.rows_seen_ += len(x)
        return with_class_weight(rows, self.class_weight, self.classes_)

    def _build(self) -> HMA:
        torch.manual_seed(self._seed)
        backbone = backbone_of(self.backbone, self.hidden, self.n_features_in_).to(self._device)
        width = width_of(backbone, self.n_features_in_, self._device)
        config = config_of(self.get_params(deep=False), width)
        return HMA(backbone, len(self.classes_), config, feature_dim=width).to(self._device)

    def _note(self, loss: float, validation: float | None = None) -> None:
        """Write down what an epoch came to."""
        self.n_iter_ += 1
        if not math.isfinite(loss):
            raise UserError(
                f"training diverged: the loss is {loss} in epoch {self.n_iter_}; "
                "lower learning_rate, or set standardize=True"
            )
        self.loss_curve_.append(loss)
        line = f"epoch {self.n_iter_}: loss {loss:.4f}"
        if validation is not None:
            self.validation_curve_.append(validation)
            line += f", validation {validation:.4f}"
        if self.verbose:
            print(line, flush=True)

    def _serve(self, model: HMA) -> None:
        """Take ``model`` for predictions, in float64 where that is cheap.

        In float32 the last digits of a row depend on the rows computed beside it.
        """
        self.model_ = model.eval()
        if self.backbone is None and self._device.type == "cpu":
            self.model_.double()

    # ------------------------------------------------------------------ predicting

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the probability of each class of ``classes_``, ``(rows, classes)``."""
        x = self._inputs(X)
        logits = logits_of(self.model_, x, int(self.batch_size))
        probabilities: Floats = logits.double().softmax(dim=1).cpu().numpy()
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the class of each row."""
        places = self.predict_proba(X).argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[places]
        return predicted

    def explain(self, X: Any) -> Explanation:  # noqa: N803
        """Say which training rows and slots each prediction looked at.

        ``queue_ids`` are row numbers of the training data; after ``partial_fit`` they count on
        over all calls. Class ids are places in ``classes_``. In context 'batch' the rows of
        ``X`` are one batch.
        """
        return explain(self.model_, self._inputs(X))

    def _inputs(self, X: Any) -> Tensor:  # noqa: N803
        check_is_fitted(self, "model_")
        x = validate_data(self, X, dtype=np.float64, reset=False)
        if self.scaler_ is not None:
            x = self.scaler_.transform(x)
        weight = self.model_.head.weight
        return torch.tensor(x, dtype=weight.dtype, device=weight.device)

    # ------------------------------------------------------------------ files

    def save(self, directory: str | Path, *, overwrite: bool = False) -> None:
        """Write the fitted classifier into ``directory``: safetensors and JSON, never pickle.

        Args:
            directory: Where to; made if needed.
            overwrite: Replace a classifier that is already there.
        """
        from hma.estimator.storage import save

        check_is_fitted(self, "model_")
        save(self, Path(directory), overwrite=overwrite)

    @classmethod
    def load(cls, directory: str | Path, *, device: Any = None) -> Self:
        """Return the classifier saved in ``directory``.

        Args:
            directory: What :meth:`save` wrote.
            device: Where to compute; None for the device it was trained on.
        """
        from hma.estimator.storage import load

        loaded: Self = load(cls, Path(directory), device)
        return loaded

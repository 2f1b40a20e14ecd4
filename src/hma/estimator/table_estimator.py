"""What the classifier and the regressor share: learning, prediction, files."""

import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from torch.optim import Optimizer

from hma.backbones.mlp import BinnedMLP
from hma.errors import UserError
from hma.estimator.learning import (
    TensorRows,
    answers_of,
    encode_rows,
    logits_of,
    on_device,
    own_randomness,
    seed_of_epoch,
    train_epoch,
    train_epochs,
)
from hma.estimator.linear_part import LinearPart, fit_linear_part
from hma.estimator.options import backbone_of, config_of, device_of, training_of, width_of
from hma.estimator.rows import (
    Floats,
    WeightedRows,
    can_hold_out,
    checked_weights,
    distinct,
    hold_out,
)
from hma.estimator.table_options import TableOptions
from hma.methods.memory import memory_model
from hma.model import MemoryModel
from hma.questions.explain import Explanation, explain
from hma.targets import Target
from hma.training.optimizer import make_optimizer


class TableEstimator(TableOptions, ABC):
    """Learn from rows of numbers by a network with a memory; a subclass says what a label is.

    Args:
        backbone, hidden, ...: As those of :class:`hma.MemoryClassifier` and
            :class:`hma.MemoryRegressor`.
    """

    n_features_in_: int
    model_: MemoryModel
    scaler_: StandardScaler | None
    linear_: LinearPart | None
    n_iter_: int
    loss_curve_: list[float]
    validation_curve_: list[float]
    rows_seen_: int
    _optimizer: Optimizer | None
    _device: torch.device
    _seed: int
    _first_ids: dict[bytes, int]

    # ------------------------------------------------------------------ what a label is

    @abstractmethod
    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[Floats, NDArray[Any]]:  # noqa: N803
        """Return rows and labels as arrays, or say what does not fit."""

    @abstractmethod
    def _encoded(self, y: NDArray[Any], weight: Floats) -> NDArray[Any]:
        """Return labels as the model takes them."""

    @abstractmethod
    def _target(self, rows: WeightedRows) -> Target:
        """Return what a label is, given the rows of the first call."""

    def _weighted(self, rows: WeightedRows) -> WeightedRows:
        """Return the rows, each with what it counts in the loss."""
        return rows

    # ------------------------------------------------------------------ learning

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Learn from rows, forgetting what was learned before.

        Args:
            X: Numbers, ``(rows, features)``; an array, a list or a table of pandas.
            y: Label of each row.
            sample_weight: How much each row counts; None for 1.
        """
        training = training_of(type(self).__name__, self.get_params(deep=False))
        x, y = self._checked(X, y, reset=True)
        weight = checked_weights(sample_weight, x)
        self._start(y[weight > 0])
        rows = self._rows(x, y, weight)
        fraction, recipe = training.validation_fraction, training.recipe
        if self.early_stopping == "auto" and not can_hold_out(rows, fraction):
            fraction = None
        train, held_out = hold_out(rows, fraction, self._seed)
        stopping = None if held_out is None else on_device(held_out, self._device)
        with own_randomness(self._device):
            model = self._build(rows)
            given = on_device(train, self._device)
            train_epochs(model, given, stopping, recipe, seed=self._seed, after_epoch=self._note)
        if self.linear:
            said = None if stopping is None else logits_of(model, stopping.x, recipe.batch_size)
            self.linear_ = fit_linear_part(rows, train, held_out, said, model.target)
        self._serve(model)
        return self

    def _take_one_pass(self, x: Floats, y: NDArray[Any], weight: Floats) -> Self:
        """Go on from what was learned before, or begin."""
        training = training_of(type(self).__name__, self.get_params(deep=False))
        if self.early_stopping is True:
            raise UserError("partial_fit sees some rows at a time; set early_stopping=False")
        rows, recipe = self._rows(x, y, weight), training.recipe
        with own_randomness(self._device):
            begun = hasattr(self, "model_")
            model = self.model_.float() if begun else self._build(rows)
            if self._optimizer is None:
                self._optimizer = make_optimizer(model, recipe)
            rates = [recipe.lr] * -(-len(rows.labels) // recipe.batch_size)
            seed = seed_of_epoch(self._seed, self.n_iter_)
            given = on_device(rows, self._device)
            self._note(train_epoch(model, self._optimizer, given, recipe, rates, seed))
            self._add_to_memory(model, given, begun=begun)
        self.linear_ = None
        self._serve(model)
        return self

    def _start(self, y: NDArray[Any]) -> None:
        """Forget what was learned; ``y`` are the labels that count."""
        self._device = device_of(self.device)
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._optimizer = None
        self.linear_ = None
        self.__dict__.pop("model_", None)
        self.scaler_ = StandardScaler() if self.standardize else None
        self.n_iter_ = 0
        self.rows_seen_ = 0
        self._first_ids = {}
        self.loss_curve_ = []
        self.validation_curve_ = []

    def _rows(self, x: Floats, y: NDArray[Any], weight: Floats) -> WeightedRows:
        """Return the distinct rows, standardised, with ids that count on from earlier calls.

        A row that was there in an earlier call keeps its id, so that a memory holds it once.
        """
        rows = distinct(x, self._encoded(y, weight), weight)
        new = (rows.ids + self.rows_seen_).tolist()
        ids = [self._first_ids.setdefault(*one) for one in zip(rows.digests(), new, strict=True)]
        rows = rows._replace(ids=np.array(ids))
        if self.scaler_ is not None:
            self.scaler_.partial_fit(rows.x, sample_weight=rows.weight)
            rows = rows._replace(x=self.scaler_.transform(rows.x))
        self.rows_seen_ += len(x)
        return self._weighted(rows)

    def _add_to_memory(self, model: MemoryModel, rows: TensorRows, *, begun: bool) -> None:
        """Let a memory that is learned apart learn its keys from the first rows, then keep more."""
        encoded = encode_rows(model, rows)
        if not begun:
            model.after_training(lambda: encoded, lambda: None, seed=self._seed)
        elif not model.keeps_rows_of_steps:
            model.remember(None, rows.y, features=encoded.features, ids=rows.ids)

    def _build(self, rows: WeightedRows) -> MemoryModel:
        """Return a new model."""
        torch.manual_seed(self._seed)
        backbone = backbone_of(self.backbone, self.hidden, self.n_features_in_).to(self._device)
        if self.backbone is None and isinstance(backbone, BinnedMLP):
            backbone.fit(torch.from_numpy(rows.x))
        width = width_of(backbone, self.n_features_in_, self._device)
        config = config_of(self.get_params(deep=False), width)
        model = memory_model(backbone, config, self._target(rows), width)
        return model.to(self._device)

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

    def _serve(self, model: MemoryModel) -> None:
        """Take ``model`` for predictions, in float64 where that is cheap.

        In float32 the last digits of a row depend on the rows computed beside it.
        """
        self.model_ = model.eval()
        if self.backbone is None and self._device.type == "cpu":
            self.model_.double()

    # ------------------------------------------------------------------ predicting

    def _logits(self, X: Any) -> Tensor:  # noqa: N803
        inputs = self._inputs(X)
        logits = answers_of(self.model_, inputs, int(self.batch_size)).double().cpu()
        linear, target = self.linear_, self.model_.target
        return logits if linear is None else linear.mixed(logits, inputs, target)

    def explain(self, X: Any) -> Explanation:  # noqa: N803
        """Say what each prediction came from: training rows, slots, the network's own head.

        The linear part has its share in the answer, ``linear``, and all others share the rest; what
        they put into each probability (``exact``) sums to that of ``predict_proba``, of a number
        to ``predict``. ``queue_ids`` are row numbers of the training data; after ``partial_fit``
        they count on over all calls. Class ids are places in ``classes_``. In context 'batch' the
        rows of ``X`` are one batch.
        """
        inputs, linear, target = self._inputs(X), self.linear_, self.model_.target
        found = explain(self.model_, inputs)
        return found if linear is None else linear.explained(found, inputs, target)

    def _inputs(self, X: Any) -> Tensor:  # noqa: N803
        check_is_fitted(self, "model_")
        x = validate_data(self, X, dtype=np.float64, reset=False)
        if self.scaler_ is not None:
            x = self.scaler_.transform(x)
        weight = self.model_.head.weight
        return torch.tensor(x, dtype=weight.dtype, device=weight.device)

    # ------------------------------------------------------------------ files

    def save(self, directory: str | Path, *, overwrite: bool = False) -> None:
        """Write the fitted estimator into ``directory``: safetensors and JSON, never pickle.

        Args:
            directory: Where to; made if needed.
            overwrite: Replace an estimator that is already there.
        """
        from hma.estimator.storage import save

        check_is_fitted(self, "model_")
        save(self, Path(directory), overwrite=overwrite)

    @classmethod
    def load(cls, directory: str | Path, *, device: Any = None) -> Self:
        """Return the estimator saved in ``directory``.

        Args:
            directory: What :meth:`save` wrote.
            device: Where to compute; None for the device it was trained on.
        """
        from hma.estimator.storage import load

        loaded: Self = load(cls, Path(directory), device)
        return loaded

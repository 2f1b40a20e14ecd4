"""The classifier and the regressor for rows of a table, as scikit-learn wants them."""

import math
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted
from torch import Tensor
from torch.optim import Optimizer

from hma.backbones.mlp import BinnedMLP
from hma.errors import UserError
from hma.estimator.inputs import (
    GivenRows,
    PreparedColumns,
    fit_inputs,
    read_labelled_rows,
    read_rows,
)
from hma.estimator.learning import (
    Floats,
    TensorRows,
    WeightedRows,
    answers_of,
    can_hold_out,
    check_weights,
    encode_rows,
    hold_out,
    isolate_randomness,
    join_copies,
    logits_of,
    seed_of_epoch,
    to_device,
    train_epoch,
    train_epochs,
    with_class_weight,
)
from hma.estimator.linear_part import LinearPart, fit_linear_part
from hma.estimator.options import (
    TableOptions,
    backbone_of,
    config_of,
    device_of,
    training_of,
    width_of,
)
from hma.methods.memory import memory_model
from hma.model import MemoryModel
from hma.questions.explain import Explanation, explain
from hma.targets import Classes, Number, Target, YesNo
from hma.training.optimizer import make_optimizer


class TableEstimator(TableOptions, ABC):
    """Learn from rows of a table by a network with a memory; a subclass says what a label is.

    Args:
        backbone, hidden, ...: As those of :class:`hma.MemoryClassifier` and
            :class:`hma.MemoryRegressor`.
    """

    n_features_in_: int
    model_: MemoryModel
    inputs_: PreparedColumns | None
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
    def _check_rows(self, X: Any, y: Any, reset: bool) -> tuple[GivenRows, NDArray[Any]]:  # noqa: N803
        """Return rows as columns and labels as an array, or say what does not fit."""

    @abstractmethod
    def _encode_labels(self, y: NDArray[Any], weight: Floats) -> NDArray[Any]:
        """Return labels as the model takes them."""

    @abstractmethod
    def _target(self, rows: WeightedRows) -> Target:
        """Return what a label is, given the rows of the first call."""

    def _weigh(self, rows: WeightedRows) -> WeightedRows:
        """Return the rows, each with what it counts in the loss."""
        return rows

    # ------------------------------------------------------------------ learning

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Learn from rows, forgetting what was learned before.

        Args:
            X: Rows: an array or a list of numbers or words, or a data frame of pandas, polars or
                pyarrow with words, dates, booleans and gaps.
            y: Label of each row.
            sample_weight: How much each row counts; None for 1.
        """
        training = training_of(type(self).__name__, self.get_params(deep=False))
        x, y = self._check_rows(X, y, reset=True)
        weight = check_weights(sample_weight, y)
        self._start(y[weight > 0])
        rows = self._rows(x, y, weight)
        fraction, recipe = training.validation_fraction, training.recipe
        if self.early_stopping == "auto" and not can_hold_out(rows, fraction):
            fraction = None
        train, held_out = hold_out(rows, fraction, self._seed)
        stopping = None if held_out is None else to_device(held_out, self._device)
        with isolate_randomness(self._device):
            model, learn = self._build(rows), partial(train_epochs, recipe=recipe, seed=self._seed)
            given = to_device(train, self._device)
            chosen = learn(model, given, stopping, after_epoch=self._note)
            if self.linear:
                said = None if stopping is None else logits_of(model, stopping.x, recipe.batch_size)
                self.linear_ = fit_linear_part(rows, train, held_out, said, model.target)
            if stopping is not None and self.refit:
                model, given = self._build(rows), to_device(rows, self._device)
                learn(model, given, None, after_epoch=self._note_refit, chosen=chosen)
        self._serve(model)
        return self

    def _take_one_pass(self, x: GivenRows, y: NDArray[Any], weight: Floats) -> Self:
        """Go on from what was learned before, or begin."""
        training = training_of(type(self).__name__, self.get_params(deep=False))
        if self.early_stopping is True:
            raise UserError("partial_fit sees some rows at a time; set early_stopping=False")
        rows, recipe = self._rows(x, y, weight), training.recipe
        with isolate_randomness(self._device):
            begun = hasattr(self, "model_")
            model = self.model_.float() if begun else self._build(rows)
            if self._optimizer is None:
                self._optimizer = make_optimizer(model, recipe)
            rates = [recipe.lr] * -(-len(rows.labels) // recipe.batch_size)
            seed = seed_of_epoch(self._seed, self.n_iter_)
            given = to_device(rows, self._device)
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
        self.inputs_ = None
        self.n_iter_ = 0
        self.rows_seen_ = 0
        self._first_ids = {}
        self.loss_curve_ = []
        self.validation_curve_ = []

    def _rows(self, x: GivenRows, y: NDArray[Any], weight: Floats) -> WeightedRows:
        """Return the distinct rows, prepared, with ids that count on from earlier calls.

        A row that was there in an earlier call keeps its id, so that a memory holds it once.
        """
        rows = join_copies(x.keys(), self._encode_labels(y, weight), weight)
        given, places = x.at(rows.ids), rows.ids
        new = (places + self.rows_seen_).tolist()
        ids = [self._first_ids.setdefault(*one) for one in zip(rows.digests(), new, strict=True)]
        before = self.inputs_ or fit_inputs(given, places, standardize=self.standardize)
        self.inputs_ = before.learn(given, places, rows.weight)
        rows = rows._replace(ids=np.array(ids), x=self.inputs_.values(given, places))
        self.rows_seen_ += len(x)
        return self._weigh(rows)

    def _add_to_memory(self, model: MemoryModel, rows: TensorRows, *, begun: bool) -> None:
        """Let a memory that is learned apart learn its keys from the first rows, then keep more."""
        encoded = encode_rows(model.eval(), rows)
        if not begun:
            model.after_training(lambda: encoded, lambda: None, seed=self._seed)
        elif not model.keeps_rows_of_steps:
            model.remember(None, rows.y, features=encoded.features, ids=rows.ids)

    def _build(self, rows: WeightedRows) -> MemoryModel:
        """Return a new model."""
        torch.manual_seed(self._seed)
        inputs = rows.x.shape[1]
        backbone = backbone_of(self.backbone, self.hidden, inputs).to(self._device)
        if self.backbone is None and isinstance(backbone, BinnedMLP):
            backbone.fit(torch.from_numpy(rows.x))
        width = width_of(backbone, inputs, self._device)
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

    def _note_refit(self, loss: float, _: float | None) -> None:
        """Say what an epoch on all rows came to."""
        if self.verbose:
            print(f"all rows: loss {loss:.4f}", flush=True)

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
        return logits if linear is None else linear.mix(logits, inputs, target)

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
        assert self.inputs_ is not None
        x = self.inputs_.values(read_rows(self, X, reset=False))
        weight = self.model_.head.weight
        return torch.tensor(x, dtype=weight.dtype, device=weight.device)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that gaps and words are fine.

        Not ``string``: scikit-learn then wants a cell of any type accepted.
        """
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags

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


@final
class MemoryClassifier(ClassifierMixin, TableEstimator):  # type: ignore[misc]
    """Classify rows of a table by a small network with a memory of the rows it was trained on.

    A row of weight 0 counts as absent and a row of weight 2 as there twice; the order of rows
    does not matter. The same ``random_state`` gives the same model bit by bit, and torch's own
    random state is left as it was.

    Several yes/no labels are a ``y`` of two or more columns of 0 and 1, NaN where a label is
    missing; ``classes_`` then numbers the labels.

    Args:
        backbone: A torch module that maps prepared rows ``(B, inputs)`` to ``(B, F)``, copied
            before it is trained; a function from the number of inputs to one; or None for an MLP of
            numbers in bins, :func:`hma.backbones.binned_mlp`. A column of numbers is one input, and
            so are its gaps and each word of a column.
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
        refit: Where rows were held out, train again on all rows for as many epochs, with the
            temperature and the shares that the held-out rows chose.
        linear: Fit logistic regression (of numbers ridge regression) too, and mix it in as far as
            the rows held out trust it; half and half without such rows.
        class_weight: Weight of each class: a dict, 'balanced', or None for 1.
        standardize: Bring every column of numbers to mean 0 and variance 1; where not, numbers stay
            as they are and a missing one is 0. Words are one-hot and dates standardised either way.
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
        refit: bool = True,
        linear: bool = False,
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
            X: Rows, as for ``fit``; what a column is and which words it has, the first call says.
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
        x, y = self._check_rows(X, y, reset=first)
        weight = check_weights(sample_weight, y)
        if first:
            self._start(y if several else np.unique(classes))
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise UserError(
                f"classes must stay those of the first call, {self.classes_.tolist()}, "
                f"got {np.unique(classes).tolist()}"
            )
        return self._take_one_pass(x, y, weight)

    def _check_rows(self, X: Any, y: Any, reset: bool) -> tuple[GivenRows, NDArray[Any]]:  # noqa: N803
        if not _has_several_labels(y):
            x, y = read_labelled_rows(self, X, y, reset=reset)
            check_classification_targets(y)
            return x, y
        x = read_rows(self, X, reset=reset)
        y = check_array(y, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y")
        check_consistent_length(np.empty(len(x)), y)
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

    def _encode_labels(self, y: NDArray[Any], weight: Floats) -> NDArray[Any]:
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

    def _weigh(self, rows: WeightedRows) -> WeightedRows:
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


@final
class MemoryRegressor(RegressorMixin, TableEstimator):  # type: ignore[misc]
    """Predict a number from rows of a table, with a memory of the rows it was trained on.

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
            X: Rows, as for ``fit``; what a column is and which words it has, the first call says.
            y: Number of each row.
            sample_weight: How much each row counts beside the others of this call.
        """
        first = not hasattr(self, "model_")
        x, y = self._check_rows(X, y, reset=first)
        weight = check_weights(sample_weight, y)
        if first:
            self._start(y[weight > 0])
        return self._take_one_pass(x, y, weight)

    def _check_rows(self, X: Any, y: Any, reset: bool) -> tuple[GivenRows, NDArray[Any]]:  # noqa: N803
        return read_labelled_rows(self, X, y, reset=reset, y_numeric=True)

    def _start(self, y: NDArray[Any]) -> None:
        if (y == y[0]).all():
            raise UserError(
                f"y must vary to be learned, got {y[0]} in all of {len(y)} sample(s); rows of "
                "weight zero do not count"
            )
        super()._start(y)

    def _encode_labels(self, y: NDArray[Any], weight: Floats) -> NDArray[Any]:
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

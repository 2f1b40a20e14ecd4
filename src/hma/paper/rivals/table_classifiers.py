"""Classifiers of tables that people use today, each with the defaults of its authors."""

import logging
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.backbones.frozen import Frozen
from hma.data import Task
from hma.errors import UserError
from hma.extras import needed, needed_beside_torchvision
from hma.methods.learner import BackboneFactory, Method
from hma.methods.simple.simple_row import (
    NoSimpleRowError,
    SimpleModule,
    logits_of,
    simple_method,
)
from hma.targets import Classes, Target

EXTRA = "rivals"
DEFAULTS = ("defaults",)
"""The only choice: nothing is searched for."""
Fitted = tuple[Any, dict[str, Any]]
"""What has ``predict_proba``, and what the validation rows chose, in JSON values."""


class Rows(NamedTuple):
    """Rows as libraries take them.

    Args:
        x: Vectors, ``(N, F)``.
        y: Labels, ``(N,)``: places among the classes that training rows have.
    """

    x: NDArray[np.float32]
    y: NDArray[np.int64]


class TableClassifier(SimpleModule):
    """Leave the fit and the answers to a library; a subclass says how it is called.

    What the library has fitted is no tensor: it answers in the process that fitted it, and a
    weights file does not hold it.
    """

    serves: ClassVar[tuple[type[Target], ...]] = (Classes,)
    takes_missing: ClassVar[bool] = True
    """Whether vectors may have missing values; else each becomes the mean of its column."""
    known: Tensor
    mean: Tensor

    def __init__(self, task: Task, backbone: Frozen | None, choices: tuple[str, ...]) -> None:
        super().__init__(task, backbone, choices)
        self.register_buffer("known", torch.zeros(task.target.table_rows, dtype=torch.bool))
        self.register_buffer("mean", torch.zeros(self.width))
        self._fitted: Any = None
        self._validation: tuple[Tensor, Tensor] | None = None

    @abstractmethod
    def fit_library(self, train: Rows, validation: Rows | None, seed: int) -> Fitted:
        """Fit the library's classifier.

        Args:
            train: The training rows, of at least two classes.
            validation: Rows that may end the fit; None where there are none.
            seed: Decides every random draw.
        """

    def take_validation(self, vectors: Tensor, labels: Tensor) -> None:
        """Keep the validation rows for the fit."""
        self._validation = vectors, labels

    def candidates(self, vectors: Tensor, labels: Tensor, seed: int) -> Iterator[dict[str, Any]]:
        """Fit once, with the defaults."""
        self.known.fill_(False)
        self.known[labels] = True
        self.mean.copy_(vectors.nanmean(dim=0).nan_to_num())
        validation = None if self._validation is None else self._rows(*self._validation)
        if validation is not None and not len(validation.y):
            validation = None
        self._fitted, chosen = self.fit_library(self._rows(vectors, labels), validation, seed)
        yield chosen

    def answer(self, vectors: Tensor) -> Tensor:
        """Return the logits of vectors; a class that no training row has gets the least chance."""
        if self._fitted is None:
            raise UserError(
                f"{type(self).__name__} must be fitted in the process that asks it: a weights file "
                "does not hold what its library fitted"
            )
        chances = vectors.new_zeros(len(vectors), len(self.known))
        answers = np.asarray(self._fitted.predict_proba(self._inputs(vectors)))
        chances[:, self.known] = torch.from_numpy(answers).to(chances)
        return logits_of(chances, self.target)

    def _inputs(self, vectors: Tensor) -> NDArray[np.float32]:
        if not self.takes_missing:
            vectors = torch.where(vectors.isnan(), self.mean, vectors)
        return vectors.cpu().numpy()

    def _rows(self, vectors: Tensor, labels: Tensor) -> Rows:
        """Return the rows whose classes training rows have."""
        known = self.known.cpu()
        places, kept = known.cumsum(dim=0) - 1, known[labels]
        return Rows(self._inputs(vectors[kept]), places[labels[kept]].numpy())


# ------------------------------------------------------------------------------------ boosted trees


TURNS = 100
"""Trees of XGBoost and LightGBM for each class, by default."""


@final
class CatBoost(TableClassifier):
    """CatBoost: at most 1,000 symmetric trees."""

    packages: ClassVar[tuple[str, ...]] = ("catboost",)

    def fit_library(self, train: Rows, validation: Rows | None, seed: int) -> Fitted:
        """Grow all trees; up to which they answer, the validation rows say."""
        model = needed("catboost", "CatBoost", extra=EXTRA).CatBoostClassifier(
            random_seed=seed,
            thread_count=torch.get_num_threads(),
            allow_writing_files=False,
            verbose=False,
        )
        model.fit(*train, eval_set=validation)
        return model, {"turns": model.tree_count_}


@final
class XGBoost(TableClassifier):
    """XGBoost: at most 100 turns."""

    packages: ClassVar[tuple[str, ...]] = ("xgboost", "xgboost-cpu")  # one of them

    def fit_library(self, train: Rows, validation: Rows | None, seed: int) -> Fitted:
        """Grow all trees; up to which they answer, the validation rows say."""
        xgboost = needed("xgboost", "XGBoost", extra=EXTRA)
        threads = torch.get_num_threads()
        if validation is None:
            model = xgboost.XGBClassifier(random_state=seed, n_jobs=threads)
            return model.fit(*train), {"turns": TURNS}
        model = xgboost.XGBClassifier(
            random_state=seed, n_jobs=threads, early_stopping_rounds=TURNS
        )
        model.fit(*train, eval_set=[validation], verbose=False)
        return model, {"turns": model.best_iteration + 1}


@final
class LightGBM(TableClassifier):
    """LightGBM: at most 100 turns."""

    packages: ClassVar[tuple[str, ...]] = ("lightgbm",)

    def fit_library(self, train: Rows, validation: Rows | None, seed: int) -> Fitted:
        """Grow all trees; up to which they answer, the validation rows say."""
        lightgbm = needed("lightgbm", "LightGBM", extra=EXTRA)
        model = lightgbm.LGBMClassifier(
            random_state=seed, n_jobs=torch.get_num_threads(), verbose=-1
        )
        if validation is None:
            return model.fit(*train), {"turns": TURNS}
        best = lightgbm.early_stopping(TURNS, verbose=False)
        model.fit(*train, eval_X=validation.x, eval_y=validation.y, callbacks=[best])
        return model, {"turns": model.best_iteration_}


# --------------------------------------------------------------------------- networks and kernels


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Within the block, keep Lightning from telling which devices there are, and of its Python."""
    logger = logging.getLogger("lightning.pytorch")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)
            yield
    finally:
        logger.setLevel(before)


class PytabkitNetwork(TableClassifier):
    """A network of pytabkit; a subclass names it."""

    takes_missing: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ("pytabkit",)
    name: ClassVar[str]

    def fit_library(self, train: Rows, validation: Rows | None, seed: int) -> Fitted:
        """Train it; which epoch is kept, the validation rows say."""
        purpose = type(self).__name__
        library = needed_beside_torchvision("pytabkit", purpose, extra=EXTRA)
        model = getattr(library, self.name)(
            device="cpu", random_state=seed, n_threads=torch.get_num_threads()
        )
        with quiet_lightning():
            return model.fit(*train, *(validation or (None, None))), {}

    def answer(self, vectors: Tensor) -> Tensor:
        """Return the logits of vectors."""
        with quiet_lightning():
            return super().answer(vectors)


@final
class RealMLP(PytabkitNetwork):
    """RealMLP-TD: a perceptron whose defaults were tuned on many tables."""

    name: ClassVar[str] = "RealMLP_TD_Classifier"


@final
class TabM(PytabkitNetwork):
    """TabM: 32 perceptrons that share most of their weights."""

    name: ClassVar[str] = "TabM_D_Classifier"


@final
class XRFM(TableClassifier):
    """xRFM: kernel regression in a metric that it learns."""

    takes_missing: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ("xrfm",)

    def fit_library(self, train: Rows, validation: Rows | None, seed: int) -> Fitted:
        """Learn the metric; which iteration is kept, the validation rows say."""
        if validation is None:
            raise NoSimpleRowError("xRFM must have validation rows, got none")
        model = needed("xrfm", "xRFM", extra=EXTRA).xRFM(
            device=torch.device("cpu"),
            random_state=seed,
            n_threads=torch.get_num_threads(),
            verbose=False,
        )
        return model.fit(*train, *validation), {}


# ------------------------------------------------------------------------------------------ methods


def catboost(backbone: BackboneFactory | None = None) -> Method:
    """Return CatBoost; ``backbone`` makes the encoder, a frozen one stands in front."""
    return simple_method(CatBoost, backbone, DEFAULTS)


def xgboost(backbone: BackboneFactory | None = None) -> Method:
    """Return XGBoost; ``backbone`` makes the encoder, a frozen one stands in front."""
    return simple_method(XGBoost, backbone, DEFAULTS)


def lightgbm(backbone: BackboneFactory | None = None) -> Method:
    """Return LightGBM; ``backbone`` makes the encoder, a frozen one stands in front."""
    return simple_method(LightGBM, backbone, DEFAULTS)


def real_mlp(backbone: BackboneFactory | None = None) -> Method:
    """Return RealMLP; ``backbone`` makes the encoder, a frozen one stands in front."""
    return simple_method(RealMLP, backbone, DEFAULTS)


def tabm(backbone: BackboneFactory | None = None) -> Method:
    """Return TabM; ``backbone`` makes the encoder, a frozen one stands in front."""
    return simple_method(TabM, backbone, DEFAULTS)


def xrfm(backbone: BackboneFactory | None = None) -> Method:
    """Return xRFM; ``backbone`` makes the encoder, a frozen one stands in front."""
    return simple_method(XRFM, backbone, DEFAULTS)

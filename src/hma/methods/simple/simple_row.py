"""What simple methods share: vectors in, logits out, fitted at once, settings by validation."""

import math
from abc import abstractmethod
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from hma.backbones.frozen import Frozen
from hma.data import Split, Task
from hma.errors import UserError
from hma.methods.cached_features import Tick
from hma.methods.fitted_at_once import FittedAtOnce
from hma.methods.frozen_state import changing_state, load_changing_state
from hma.methods.learner import BackboneFactory, Method, OutputModule
from hma.methods.simple.vectors import NoSimpleRowError, codes_of, vector_width, vectors_of
from hma.methods.voting import mixed_classes
from hma.metrics import METRICS
from hma.model import Output
from hma.targets import Classes, Target

MOST_ROWS = 20_000
"""Training rows that a simple method is fitted to."""
AT_ONCE = 256
"""Rows that are read at a time."""
LEAST_CHANCE = 1e-4
"""What a class that a row thinks impossible still gets."""


class SimpleModule(OutputModule):
    """Answer from one vector for each row; a subclass says how, and how it is fitted.

    The vector is what a frozen backbone makes of the row, else the prepared row itself.

    Args:
        task: What a row and a label is; its rows are not looked at.
        backbone: The frozen encoder in front, if there is one.
        choices: Values of the method's setting that the validation rows choose from.
    """

    serves: ClassVar[tuple[type[Target], ...]]
    """Kinds of labels that it can be fitted to."""
    packages: ClassVar[tuple[str, ...]] = ("scikit-learn",)
    """What it is fitted with."""

    def __init__(self, task: Task, backbone: Frozen | None, choices: tuple[Any, ...]) -> None:
        super().__init__()
        if not isinstance(task.target, self.serves):
            raise NoSimpleRowError(
                f"{type(self).__name__} has no answer for labels of the kind {task.target.kind!r}; "
                "leave it out"
            )
        self.backbone = backbone
        self.target = task.target
        self.width = vector_width(task, backbone)
        self.codes = codes_of(task)
        self.choices = choices

    @abstractmethod
    def answer(self, vectors: Tensor) -> Tensor:
        """Return the logits of vectors ``(B, F)``."""

    @abstractmethod
    def candidates(self, vectors: Tensor, labels: Tensor, seed: int) -> Iterator[dict[str, Any]]:
        """Fit the module with one choice after the other; yield each of them in JSON values.

        Args:
            vectors: Of the training rows, ``(N, F)``, on the CPU.
            labels: As the target stores them, ``(N, ...)``.
            seed: Decides every random draw.
        """

    def vectors(self, x: Any, features: Tensor | None = None) -> Tensor:
        """Return the vectors of a batch; known features of the backbone stand in for ``x``."""
        if features is None:
            if self.backbone is not None:
                encoded: Tensor = self.backbone(x)
                return encoded
            return vectors_of(x, self.width, self.codes)
        if self.backbone is None:
            raise UserError(
                "a simple method must be built with the frozen backbone whose features it is "
                "given, got none"
            )
        return features

    def output(self, x: Any, features: Tensor | None = None) -> Output:
        """Return logits of a batch, and its vectors as features."""
        vectors = self.vectors(x, features)
        return Output(self.answer(vectors), vectors)

    def extra_repr(self) -> str:  # noqa: D102
        return f"width={self.width}, target={self.target}, choices={self.choices}"


@final
class SimpleRow(FittedAtOnce):
    """Fit a simple module with every choice of its setting, and keep the best on validation.

    Without validation rows the choice in the middle is taken.
    """

    def __init__(self, module: SimpleModule) -> None:
        super().__init__(module, module.target)
        self._simple = module
        self.packages = module.packages

    def fit_at_once(self, task: Task, seed: int, tick: Tick) -> dict[str, Any]:
        """Fit the module; of more than 20,000 training rows to some."""
        module, choices = self._simple, self._simple.choices
        places = _some_rows(len(task.train), seed)
        labels = self.target.checked(task.train.labels[places], len(places))
        if isinstance(self.target, Classes) and (labels == labels[0]).all():
            raise NoSimpleRowError(
                f"the training rows of {task.name!r} must be of at least two classes, got one"
            )
        module.eval()
        ways = module.candidates(_vectors(module, task.train, places), labels, seed)
        measures: dict[str, Any] = {"fitted_rows": len(places)}
        if not len(task.validation):
            middle = len(choices) // 2
            return measures | {"chosen": next(islice(ways, middle, None))}
        held = _vectors(module, task.validation, torch.arange(len(task.validation)))
        best, best_loss = changing_state(module), math.inf
        for number, way in enumerate(ways, 1):
            loss = METRICS["loss"].score(self._logits(held), task.validation.labels, self.target)
            if loss < best_loss:
                best = {name: value.clone() for name, value in changing_state(module).items()}
                best_loss, measures["chosen"] = loss, way
            tick(number, len(choices))
        load_changing_state(module, best)
        return measures | {"validation_loss": best_loss}

    @torch.no_grad()
    def _logits(self, vectors: Tensor) -> Tensor:
        parts = torch.split(vectors.to(_device(self._simple)), AT_ONCE)
        return torch.cat([self._simple.answer(part) for part in parts]).cpu()


def simple_method(
    kind: type[SimpleModule], backbone: BackboneFactory | None, choices: tuple[Any, ...]
) -> Method:
    """Return the method that fits a module of this kind.

    Args:
        kind: What is fitted.
        backbone: Makes the encoder; only one that is frozen stands in front of the module.
        choices: Values of its setting that the validation rows choose from.
    """
    if not choices:
        raise UserError(f"{kind.__name__} must have at least one choice of its setting, got none")

    def build(task: Task, seed: int) -> SimpleRow:
        torch.manual_seed(seed)
        encoder = None if backbone is None else backbone(task)
        frozen = encoder if isinstance(encoder, Frozen) else None
        return SimpleRow(kind(task, frozen, choices))

    return build


def logits_of(chances: Tensor, target: Target) -> Tensor:
    """Return logits of the chances of classes ``(B, C)``; each gets ``LEAST_CHANCE`` at least."""
    nothing = chances.new_zeros(len(chances), target.outputs)
    share = min(LEAST_CHANCE * chances.shape[1], 0.5)
    return mixed_classes(nothing, chances, 1 - share)


def _some_rows(count: int, seed: int) -> Tensor:
    if count <= MOST_ROWS:
        return torch.arange(count)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order[:MOST_ROWS].sort().values


@torch.no_grad()
def _vectors(module: SimpleModule, split: Split, places: Tensor) -> Tensor:
    """Return the vectors of some rows of a split, ``(N, F)``, on the CPU."""
    device, parts = _device(module), []
    for some in torch.split(places, AT_ONCE):
        batch = split.batch(some).to(device)
        parts.append(module.vectors(batch.x, batch.features).float().cpu())
    return torch.cat(parts)


def _device(module: SimpleModule) -> torch.device:
    return next(chain(module.parameters(), module.buffers())).device

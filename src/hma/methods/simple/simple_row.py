"""Simple methods: vectors in, logits out, fitted at once, settings chosen on validation rows."""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from hma.backbones.frozen import Frozen
from hma.backbones.gnn.convolutions import features_of, multi_hot, width_of
from hma.checks import expect_shape
from hma.data import Split, Task
from hma.errors import UserError
from hma.methods.frozen_state import changing_state, load_changing_state
from hma.methods.learner import BackboneFactory, FittedAtOnce, Method, OutputModule, Tick
from hma.metrics import METRICS
from hma.model import Output
from hma.targets import Classes, Target

# ------------------------------------------------------------------------------------------ vectors


MOST_COLUMNS = 4096
CONSTANT = 1e-9
"""Deviation, as a share of the mean, up to which a column counts as constant."""


class NoSimpleRowError(UserError):
    """A simple method does not fit these labels or rows; others go on without it."""


def vector_width(task: Task, backbone: Frozen | None) -> int:
    """Return the length of the vectors of a task, or say that its rows are no vectors.

    Args:
        task: What the rows are; they themselves are not looked at.
        backbone: The frozen encoder in front, if there is one.
    """
    if backbone is not None:
        width = backbone.feature_dim
    elif task.kind == "text":
        raise NoSimpleRowError("simple baselines need a frozen backbone to read text, got none")
    elif task.kind == "graph":
        width = 2 * width_of(features_of(task.shape)[0]) + 1
    else:
        width = int(torch.Size(task.shape).numel())
    if width > MOST_COLUMNS:
        raise NoSimpleRowError(
            f"simple baselines take vectors of at most {MOST_COLUMNS} values, got {width} of "
            f"{task.name!r}; put a frozen backbone in front"
        )
    return width


def codes_of(task: Task) -> tuple[int, ...]:
    """Return how many values each code of a node has; none where nodes have no codes."""
    nodes = features_of(task.shape)[0] if task.kind == "graph" else 0
    return () if isinstance(nodes, int) else tuple(nodes)


def vectors_of(x: Any, width: int, codes: tuple[int, ...] = ()) -> Tensor:
    """Return the prepared inputs of a batch as vectors: of graphs, sums and means over the nodes.

    Codes of nodes are counted: how many nodes of the graph have each value.

    Args:
        x: A tensor, or a batch of graphs as PyTorch Geometric makes it.
        width: As :func:`vector_width` returned it.
        codes: As :func:`codes_of` returned it.
    """
    nodes, graph = getattr(x, "x", None), getattr(x, "batch", None)
    if isinstance(x, Tensor):
        vectors = x.flatten(1).float()
    elif isinstance(nodes, Tensor) and isinstance(graph, Tensor):
        count = int(x.num_graphs)
        nodes = multi_hot(nodes, codes) if codes else nodes
        sums = nodes.new_zeros(count, nodes.shape[1], dtype=torch.float32)
        sums = sums.index_add(0, graph, nodes.float())
        sizes = torch.bincount(graph, minlength=count)[:, None].float()
        vectors = torch.cat([sums, sums / sizes.clamp(min=1), sizes.log1p()], dim=1)  # (B, 2F + 1)
    else:
        raise NoSimpleRowError(
            f"simple baselines need rows that are tensors or graphs, got {type(x).__name__}; put a "
            "frozen backbone in front"
        )
    expect_shape("rows", vectors, None, width)
    return vectors


class Standardised(nn.Module):
    """Bring every column to mean 0 and deviation 1; what is missing becomes the mean.

    Args:
        width: Length of a vector.
        active: Whether to; the features of a network are of one kind, and their scales say what
            matters.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int, *, active: bool) -> None:
        super().__init__()
        self.active = active
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))

    def take_statistics(self, vectors: Tensor) -> None:
        """Take means and deviations of vectors ``(N, F)``; a constant column is only centred."""
        if not self.active:
            return
        wide = vectors.double()
        mean = wide.nanmean(dim=0).nan_to_num()
        deviation = (wide - mean).square().nanmean(dim=0).sqrt().nan_to_num()
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > CONSTANT * mean.abs(), deviation, 1.0))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return vectors ``(B, F)`` standardised."""
        return ((vectors - self.mean) / self.deviation).nan_to_num(0.0)

    def extra_repr(self) -> str:  # noqa: D102
        return f"active={self.active}"


# ----------------------------------------------------------------------------- modules and learners


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

    def take_validation(self, vectors: Tensor, labels: Tensor) -> None:
        """Take the validation rows, for a fit that they end; by default none does.

        Args:
            vectors: Of the validation rows, ``(N, F)``, on the CPU.
            labels: As the target stores them, ``(N, ...)``.
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

    def fit_at_once(
        self, task: Task, seed: int, tick: Tick, like: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Fit the module; of more than 20,000 training rows to some."""
        if like is not None:
            with self._only(like["choice"]):
                return self.fit_at_once(task, seed, tick)
        module, choices = self._simple, self._simple.choices
        places = _draw_rows(len(task.train), seed)
        labels = self.target.check(task.train.labels[places], len(places))
        if isinstance(self.target, Classes) and (labels == labels[0]).all():
            raise NoSimpleRowError(
                f"the training rows of {task.name!r} must be of at least two classes, got one"
            )
        module.eval()
        ways = module.candidates(_vectors(module, task.train, places), labels, seed)
        measures: dict[str, Any] = {"fitted_rows": len(places)}
        if not len(task.validation):
            middle = len(choices) // 2
            measures["choice"] = middle
            return measures | {"chosen": next(islice(ways, middle, None))}
        held = _vectors(module, task.validation, torch.arange(len(task.validation)))
        module.take_validation(held, task.validation.labels)
        best, best_loss = changing_state(module), math.inf
        for choice, way in enumerate(ways):
            loss = METRICS["loss"].score(self._logits(held), task.validation.labels, self.target)
            if loss < best_loss:
                best = {name: value.clone() for name, value in changing_state(module).items()}
                best_loss = loss
                measures |= {"chosen": way, "choice": choice}
            tick(choice + 1, len(choices))
        load_changing_state(module, best)
        return measures | {"validation_loss": best_loss}

    @contextmanager
    def _only(self, choice: int) -> Iterator[None]:
        """Let the module have one choice of its setting."""
        module, choices = self._simple, self._simple.choices
        module.choices = (choices[choice],)
        try:
            yield
        finally:
            module.choices = choices

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
    return mix_classes(nothing, chances, 1 - share)


def mix_classes(logits: Tensor, votes: Tensor, share: float) -> Tensor:
    """Return ``log(share * votes + (1 - share) * p_model)``; of one logit, the log odds."""
    if logits.shape[1] == 1:
        both = mix_probabilities(
            logsigmoid(torch.cat([-logits, logits], dim=1)), votes, share
        )  # (B, 2)
        return both[:, 1:] - both[:, :1]
    return mix_probabilities(logits.log_softmax(dim=1), votes, share)


def mix_probabilities(of_model: Tensor, votes: Tensor, share: float) -> Tensor:
    """Return the logarithm of the mixture of log probabilities and probabilities."""
    return torch.logaddexp(of_model + math.log1p(-share), (share * votes).log())


def _draw_rows(count: int, seed: int) -> Tensor:
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

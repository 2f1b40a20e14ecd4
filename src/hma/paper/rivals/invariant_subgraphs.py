"""CIGA and DIR: predict from a part of each graph, with a shortcut head on the rest."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal, NamedTuple, cast, final, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from hma.attention.contrast import batch_rows, contrast_of_batch
from hma.checks import expect_number
from hma.data import Batch, Task
from hma.errors import UserError, wrong_choice
from hma.memory.distributed import world_size
from hma.methods.erm import Classifier, erm
from hma.methods.learner import BackboneFactory, Learner, Method
from hma.model import Output
from hma.options.config import WEIGHT
from hma.paper.rivals.subgraph_encoder import Inner, Reads, SubgraphEncoder, choose_subgraphs
from hma.paper.rivals.wrapping import WrappedLearner, WrappedModule
from hma.targets import Number, Target

Contrasts = Literal["predicted", "chosen"]
"""What CIGA contrasts: features that are predicted from, or sums of the chooser's over nodes."""
Head = Literal["hidden", "linear"]
"""What CIGA predicts with."""
HIDDEN = 2
"""Width of a head's hidden layer, in widths of the encoder."""


class OutputWithRest(NamedTuple):
    """An ``Output`` of kept parts, with what else a training step needs; None for what it does not.

    Shape:
        - ``rest``: logits of what is left of the graphs, ``(B, C)``.
        - ``chosen``: sums of the chooser's features over the nodes of the kept parts, ``(B, W)``.
    """

    logits: Tensor
    features: Tensor
    rest: Tensor | None
    chosen: Tensor | None


def rest_of(output: Output) -> Tensor | None:
    """Return the logits of the rests of a training batch; None where they were not asked for."""
    return getattr(output, "rest", None)


def hidden_head(width: int, outputs: int) -> nn.Sequential:
    """Return a head with one hidden layer, ``(F, 2 F, C)``."""
    return nn.Sequential(
        nn.Linear(width, HIDDEN * width), nn.ReLU(), nn.Linear(HIDDEN * width, outputs)
    )


class ShortcutModule(WrappedModule):
    """Lead a training batch through both of its parts; at test the kept part alone answers.

    What the head on the rest reads has no gradient, so that it alone learns from it.

    Args:
        inner: Module of the method inside, on a :class:`SubgraphEncoder`.
        settings: What was asked for.
        outputs: Logits of the head on the rest, a network of one hidden layer; 0 for no head.
        drift: Whether the rest moves the statistics that BatchNorm evaluates the kept part with.
        contrasts: Whether a step is given the chooser's features of the kept parts too.
    """

    def __init__(
        self,
        inner: nn.Module,
        settings: str,
        *,
        outputs: int,
        drift: bool = False,
        contrasts: Contrasts = "predicted",
    ) -> None:
        super().__init__(inner, settings)
        self.drift, self.contrasts = drift, contrasts
        self.shortcut = hidden_head(self.subgraphs.feature_dim, outputs) if outputs else None

    @property
    def subgraphs(self) -> SubgraphEncoder:
        """The encoder that chooses; a slow copy of it in the module inside comes after it."""
        return next(part for part in self.inner.modules() if isinstance(part, SubgraphEncoder))

    def output(self, x: Any, features: Tensor | None = None, *more: Any) -> Output:
        """Return what the method inside gives; in training also the logits of the rest."""
        asked = self.shortcut is not None or self.contrasts == "chosen"
        if not self.training or not asked or features is not None:
            return super().output(x, features, *more)
        encoder = self.subgraphs
        cut = encoder.cut(x)
        kept = cut.kept
        output = super().output(x, encoder.encoder(kept), *more)
        rest = None
        if self.shortcut is not None:
            statistics = nullcontext() if self.drift else _keep_statistics(encoder.encoder)
            with torch.no_grad(), statistics:
                rest = encoder.encoder(cut.rest)  # (B, F)
            rest = self.shortcut(rest)
        chosen = cut.chosen if self.contrasts == "chosen" else None
        made = OutputWithRest(output.logits, output.features, rest, chosen)
        return cast("Output", made)


class SubgraphLearner(WrappedLearner):
    """A method on chosen subgraphs, with losses of its own beside those of the method inside.

    Args:
        inner: Learner on a :class:`SubgraphEncoder`.
        module: Wraps its module.
    """

    def expect_own_logits(self, output: Output, batch: Batch) -> None:
        """Raise unless there is a row of logits for each row trained on."""
        if len(output.logits) != len(batch.y):
            raise UserError(
                "method must predict one row of logits for each row it trains on, got "
                f"{len(output.logits)} for {len(batch.y)} from {type(self.inner).__name__}; choose "
                "another method inside, such as erm or with_memory"
            )


def weighted_mean(values: Tensor, weight: Tensor | None) -> Tensor:
    """Return the mean of ``values`` ``(..., B)`` over the rows, weighted; 0 without any weight."""
    if weight is None:
        return values.mean(dim=-1)
    total = weight.sum()
    return (values * weight).sum(dim=-1) / torch.where(total > 0, total, 1)


@contextmanager
def _keep_statistics(module: nn.Module) -> Iterator[None]:
    """Within the block, let no batch change what BatchNorm has learned for evaluation."""
    # in CIGA's code the rest moves the statistics that the kept part is evaluated with
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, before, strict=True):
            cast("Any", norm).momentum = momentum


def expect_subgraphs(learner: Learner) -> Learner:
    """Return a learner, or say that its backbone is not the one that chooses subgraphs."""
    if not any(isinstance(part, SubgraphEncoder) for part in learner.module.modules()):
        raise UserError(
            f"inner must train the backbone it is given, got {type(learner).__name__} without it; "
            "give erm, or partial(with_memory, config=...)"
        )
    return learner


# --------------------------------------------------------------------------------------------- CIGA


def class_contrast(
    features: Tensor, y: Tensor, target: Target, weight: Tensor | None = None
) -> Tensor:
    r"""Return the supervised contrastive loss of a batch, over rows that another one agrees with.

    .. math:: L_c = \mathrm{mean}_i \Big( -\frac{1}{|P_i|} \sum_{p \in P_i} \log
        \frac{\exp(z_i \cdot z_p)}{\sum_{j \ne i} \exp(z_i \cdot z_j)} \Big)

    with :math:`z` features of length 1 and :math:`P_i` the other rows of row :math:`i`'s class;
    rows without any are left out, and without any row the loss is 0.

    Args:
        features: Of each row, ``(B, F)``.
        y: Labels, as the target takes them.
        target: What a label is; how far two labels agree is up to it.
        weight: What a row counts, ``(B,)``; None for 1.
    """
    membership = target.membership(target.check(y, len(features))).to(features.dtype)
    losses = contrast_of_batch(batch_rows(features, membership, None), [], 1.0, gather=False)
    itself = torch.eye(len(features), dtype=torch.bool, device=features.device)
    agrees = (membership @ membership.T).masked_fill(itself, 0).sum(dim=1) > 0
    counts = agrees.to(losses.dtype)
    return weighted_mean(losses, counts if weight is None else counts * weight)


def hinged_risk(rest: Tensor, kept: Tensor, weight: Tensor | None = None) -> Tensor:
    r"""Return the mean loss of the rest over the rows where the kept part does better.

    .. math:: L_s = \sum_i [\ell^s_i > \ell^c_i] \, \ell^s_i \Big/ \sum_i [\ell^s_i > \ell^c_i]

    So the rest of a graph learns to tell the label, but never better than its kept part does.

    Args:
        rest, kept: Loss of each row, ``(B,)``.
        weight: What a row counts, ``(B,)``; None for 1.

    Example:
        >>> hinged_risk(torch.tensor([2.0, 0.5, 4.0]), torch.tensor([1.0, 1.0, 1.0]))
        tensor(3.)
    """
    gate = (rest > kept).to(rest.dtype)
    return weighted_mean(rest, gate if weight is None else gate * weight)


@final
class Ciga(SubgraphLearner):
    """The loss of the method inside, contrast between the kept parts, and the rest's risk.

    Args:
        inner: Learner on a :class:`SubgraphEncoder`.
        contrast: What the contrast counts, CIGA's alpha.
        spurious: What the risk of the rest counts, CIGA's beta; 0 is CIGAv1.
        contrasts: What is contrasted.
        drift: Whether the rest moves BatchNorm's statistics.
    """

    def __init__(
        self,
        inner: Learner,
        contrast: float,
        spurious: float,
        contrasts: Contrasts = "predicted",
        drift: bool = False,
    ) -> None:
        self.contrast, self.spurious = contrast, spurious
        settings = f"contrast={contrast}, spurious={spurious}"
        if contrasts != "predicted" or drift:
            settings += f", contrasts={contrasts!r}, drift={drift}"
        outputs = inner.target.outputs if spurious else 0
        module = ShortcutModule(
            inner.module, settings, outputs=outputs, drift=drift, contrasts=contrasts
        )
        super().__init__(inner, module)

    def loss_of(self, output: Output, batch: Batch) -> Tensor:
        """Return the sum of all of them."""
        total = super().loss_of(output, batch)
        if self.contrast:
            chosen = getattr(output, "chosen", None)
            features = output.features if chosen is None else chosen
            contrast = class_contrast(features, batch.y, self.target, batch.weight)
            total = total + self.contrast * contrast
        if (logits := rest_of(output)) is not None:
            self.expect_own_logits(output, batch)
            rest = self.target.loss(logits, batch.y)
            kept = self.target.loss(output.logits, batch.y).detach()
            total = total + self.spurious * hinged_risk(rest, kept, batch.weight)
        return total


def ciga(
    backbone: BackboneFactory,
    inner: Inner = erm,
    *,
    share: float = 0.25,
    contrast: float = 1.0,
    spurious: float = 0.0,
    reads: Reads = "hidden",
    head: Head = "hidden",
    contrasts: Contrasts = "predicted",
    drift: bool = False,
) -> Method:
    """Return the method that predicts from a part of each graph, chosen as CIGA does.

    Args:
        backbone: Makes an encoder for a task; two are made, to choose and to predict.
        inner: What trains the encoder of the chosen parts.
        share: Share of the edges of each graph that is kept.
        contrast: What the contrast between the kept parts counts.
        spurious: What the risk of the rest counts: 0 is CIGAv1, above it CIGAv2.
        reads: Whether the second encoder reads what the first makes of the nodes, or the nodes.
        head: Whether :func:`~hma.methods.erm` has a head of one hidden layer, ``(F, 2 F, C)``, as
            in the authors' code, or its linear one; other methods keep their own.
        contrasts: ``"predicted"`` for features that are predicted from; ``"chosen"`` for sums of
            the chooser's features over the nodes of the kept part.
        drift: Whether the rest moves the statistics that BatchNorm evaluates the kept part with,
            as in the authors' code.
    """
    for name, value in (("contrast", contrast), ("spurious", spurious)):
        expect_number(name, value, WEIGHT)
    for name, given, kind in (("head", head, Head), ("contrasts", contrasts, Contrasts)):
        if given not in get_args(kind):
            raise UserError(wrong_choice(name, given, get_args(kind)))
    method = inner(choose_subgraphs(backbone, share, reads))

    def build(task: Task, seed: int) -> Ciga:
        if contrast and isinstance(task.target, Number):
            raise UserError(
                f"contrast needs labels that rows can share, {task.name!r} has numbers; set "
                "contrast=0"
            )
        learner = expect_subgraphs(method(task, seed))
        if head == "hidden":
            _widen_heads(learner.module)
        return Ciga(learner, contrast, spurious, contrasts, drift)

    return build


def _widen_heads(module: nn.Module) -> None:
    """Give every classifier inside a head with a hidden layer in place of its linear one."""
    for part in module.modules():
        if isinstance(part, Classifier) and isinstance(part.head, nn.Linear):
            made = hidden_head(part.head.in_features, part.head.out_features)
            cast("Any", part).head = made


# ---------------------------------------------------------------------------------------------- DIR


GROWTH = 1.6
"""Power of the epoch that the interventions count with, as in the authors' code."""


def intervened_risks(
    logits: Tensor, shortcuts: Tensor, y: Tensor, target: Target, weight: Tensor | None = None
) -> Tensor:
    r"""Return the risk of the kept parts beside each rest of the batch, ``(S,)``.

    .. math:: R_s = \mathrm{mean}_i \; \ell(\sigma(u_s) \odot z_i, y_i)

    Args:
        logits: Of the kept parts, :math:`z`, ``(B, C)``.
        shortcuts: Logits of the rests, :math:`u`, ``(S, C)``.
        y: Labels of the kept parts.
        target: What a label is.
        weight: What a kept part counts, ``(B,)``; None for 1.
    """
    gated = shortcuts.sigmoid()[:, None] * logits  # (S, 1, C) * (B, C) -> (S, B, C)
    labels = y.repeat(len(shortcuts), *[1] * (y.dim() - 1))  # (S * B, ...)
    losses = target.loss(gated.flatten(0, 1), labels).view(len(shortcuts), len(logits))
    return weighted_mean(losses, weight)


def variance(risks: Tensor) -> Tensor:
    """Return the variance of the risks, divided by their number less one; 0 of a single one."""
    apart = (risks - risks.mean()).square()
    return apart.sum() / max(len(risks) - 1, 1)


class InterventionModule(ShortcutModule):
    """Count the rows trained on in a buffer, so that a resumed run knows its epoch.

    Args:
        inner: Module of the method inside.
        settings: What was asked for.
        outputs: Logits of the head on the rest.
    """

    rows: Tensor

    def __init__(self, inner: torch.nn.Module, settings: str, *, outputs: int) -> None:
        super().__init__(inner, settings, outputs=outputs)
        self.register_buffer("rows", torch.zeros((), dtype=torch.long))


@final
class Dir(SubgraphLearner):
    """The loss of the method inside, that of the rests, and the interventions' mean and variance.

    Args:
        inner: Learner on a :class:`SubgraphEncoder`.
        train_rows: Rows of an epoch.
        weight: What the interventions count in epoch 1; in epoch ``e``, from 0, ``e ** 1.6`` times
            as much.
        variance: What the variance of the intervened risks counts beside their mean.
    """

    def __init__(self, inner: Learner, train_rows: int, weight: float, variance: float) -> None:
        self.train_rows, self.weight, self.variance = train_rows, weight, variance
        settings = f"weight={weight}, variance={variance}"
        self._counter = InterventionModule(inner.module, settings, outputs=inner.target.outputs)
        super().__init__(inner, self._counter)

    def loss_of(self, output: Output, batch: Batch) -> Tensor:
        """Return the sum of all of them."""
        total = super().loss_of(output, batch)
        if (shortcuts := rest_of(output)) is None:
            return total
        self.expect_own_logits(output, batch)
        shortcut = weighted_mean(self.target.loss(shortcuts, batch.y), batch.weight)
        risks = intervened_risks(
            output.logits, shortcuts.detach(), batch.y, self.target, batch.weight
        )
        epoch = self._counter.rows // self.train_rows
        counts = self.weight * epoch.to(risks.dtype) ** GROWTH
        return total + shortcut + counts * (risks.mean() + self.variance * variance(risks))

    @torch.no_grad()
    def after_step(self, batch: Batch) -> None:
        """Count the rows."""
        super().after_step(batch)
        self._counter.rows += len(batch.y) * world_size()


def dir_(
    backbone: BackboneFactory,
    inner: Inner = erm,
    *,
    share: float = 0.25,
    weight: float = 0.01,
    variance: float = 1024.0,
    reads: Reads = "hidden",
) -> Method:
    """Return the method that predicts from a part of each graph, chosen as DIR does.

    Args:
        backbone: Makes an encoder for a task; two are made, to choose and to predict.
        inner: What trains the encoder of the chosen parts.
        share: Share of the edges of each graph that is kept.
        weight: What the interventions count in epoch 1; in epoch ``e``, from 0, ``e ** 1.6`` times
            as much.
        variance: What the variance of the intervened risks counts beside their mean; the authors'
            code has the square of the batch size, 32.
        reads: Whether the second encoder reads what the first makes of the nodes, or the nodes.
    """
    for name, value in (("weight", weight), ("variance", variance)):
        expect_number(name, value, WEIGHT)
    method = inner(choose_subgraphs(backbone, share, reads))

    def build(task: Task, seed: int) -> Dir:
        return Dir(expect_subgraphs(method(task, seed)), len(task.train), weight, variance)

    return build

"""The momentum encoder: a slow copy of the backbone that writes the real memory."""

import copy
import warnings
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from hma.checks import expect_tensor


class MomentumEncoder(nn.Module):
    r"""Follow a backbone slowly: :math:`E_m \leftarrow \lambda E_m + (1 - \lambda) E`.

    No parameter of it ever requires a gradient, so optimizers and DDP pass it by.

    Args:
        backbone: The encoder to follow; copied here, not kept.
        momentum: Share of itself it keeps at each update, :math:`\lambda`.
        warmup: Keep :math:`\min(\lambda, (1 + t) / (10 + t))` at the update after ``t`` others, so
            that it is no memory of first weights; ``steps`` counts them.

    Example:
        >>> backbone = nn.Linear(1, 1, bias=False)
        >>> encoder = MomentumEncoder(backbone, momentum=0.9)
        >>> _ = nn.init.ones_(encoder.encoder.weight), nn.init.zeros_(backbone.weight)
        >>> encoder.update(backbone)
        >>> round(encoder(torch.ones(1, 1)).item(), 4)
        0.9
    """

    steps: Tensor

    def __init__(self, backbone: nn.Module, momentum: float, warmup: bool = False) -> None:
        super().__init__()
        self.momentum = momentum
        self.warmup = warmup
        if warmup:
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.encoder = copy.deepcopy(backbone).requires_grad_(False)
        self.encoder.eval()

    def train(self, mode: bool = True) -> Self:
        """Stay in eval mode: what enters the memory does not depend on its batch or on dropout."""
        # DIFF[released code]: train mode there, with BatchNorm statistics of its own.
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Any) -> Tensor:
        """Return the features that enter the memory."""
        features: Tensor = self.encoder(x)
        return features

    @torch.no_grad()
    def copy_buffers(self, backbone: nn.Module) -> None:
        """Take over what the backbone keeps besides parameters, such as BatchNorm statistics."""
        for mine, theirs in zip(self.encoder.buffers(), backbone.buffers(), strict=True):
            mine.copy_(theirs)

    @torch.no_grad()
    def update(self, backbone: nn.Module) -> None:
        """Move one step towards ``backbone``."""
        mine, theirs = list(self.encoder.parameters()), list(backbone.parameters())
        if self.warmup:
            moved = 1 - self._kept_in_warmup()
            for own, other in zip(mine, theirs, strict=True):
                own.lerp_(other, moved.to(own.dtype))
            self.steps += 1
            return
        average = get_ema_multi_avg_fn(self.momentum)  # type: ignore[no-untyped-call]
        average(mine, theirs, None)

    def _kept_in_warmup(self) -> Tensor:
        # DIFF[paper 3.2]: the paper gives no value; at 0.999 the memory would hold features of a
        # nearly untrained encoder for most of a short run.
        steps = self.steps.float()
        return ((1 + steps) / (10 + steps)).clamp(max=self.momentum)

    def extra_repr(self) -> str:  # noqa: D102
        return f"momentum={self.momentum}" + (", warmup=True" if self.warmup else "")


def trains(module: nn.Module) -> bool:
    """Return whether any parameter of ``module`` requires a gradient."""
    return any(parameter.requires_grad for parameter in module.parameters())


def follow(backbone: nn.Module, momentum: float, warmup: bool = False) -> MomentumEncoder | None:
    """Return a momentum encoder, or None where it would never differ from the backbone."""
    for name, parameter in backbone.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise ValueError(
                f"backbone must have its parameters initialised, {name!r} is still lazy; "
                "run one batch through the backbone first"
            )
    return MomentumEncoder(backbone, momentum, warmup) if momentum and trains(backbone) else None


def stored_features(
    x: Any, backbone: nn.Module, encoder: MomentumEncoder | None, momentum: float
) -> Tensor:
    """Return the features of a batch that enter the memory: the slow copy's, if there is one.

    A backbone without a slow copy must be in eval mode.
    """
    if encoder is not None:
        encoder.copy_buffers(backbone)
        return expect_tensor("features", encoder(x))
    if momentum and trains(backbone):
        warnings.warn(
            "the backbone was frozen when HMA was built and trains now, so no momentum "
            "encoder follows it; unfreeze before building HMA, or set momentum=0",
            stacklevel=8,
        )
    return expect_tensor("features", backbone(x))

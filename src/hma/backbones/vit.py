"""Vision Transformers of timm, tuned whole, in part, or by learned prompts."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn

from hma.backbones.frozen import Frozen
from hma.backbones.named_backbone import NamedBackbone, PromptKind, Tuning
from hma.backbones.timm_models import images_wanted, timm_model
from hma.errors import UserError, wrong_choice

SPREAD = 0.02
"""Standard deviation of the tokens at the start."""


class Prompts(nn.Module):
    """Run tokens through the blocks of a Transformer together with learned ones.

    Args:
        kind: ``"first"`` appends the learned tokens before the first block and carries them
            through (prompt-p); ``"deep"`` appends fresh ones before every block and drops them
            after it (prompt-a).
        count: How many at a time, ``P``.
        depth: Number of blocks.
        dim: Width of a token, ``F``.

    Shape:
        - tokens: ``(B, T, F)``; output: ``(B, T + P, F)`` for ``"first"``, ``(B, T, F)`` for
          ``"deep"``; the image's own tokens come first.

    Example:
        >>> blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        >>> deep = Prompts("deep", count=5, depth=2, dim=4)
        >>> deep.tokens.shape, deep(torch.rand(3, 7, 4), blocks).shape
        (torch.Size([2, 5, 4]), torch.Size([3, 7, 4]))
    """

    def __init__(self, kind: PromptKind, count: int, depth: int, dim: int) -> None:
        super().__init__()
        if kind not in get_args(PromptKind):
            raise ValueError(f"prompts must be 'first', 'deep' or None, got {kind!r}")
        if count < 1:
            raise ValueError(f"prompt_tokens must be at least 1, got {count}")
        self.kind = kind
        self.count = count
        sets = 1 if kind == "first" else depth
        self.tokens = nn.Parameter(torch.empty(sets, count, dim))
        nn.init.normal_(self.tokens, std=SPREAD)

    def forward(self, tokens: Tensor, blocks: Iterable[nn.Module]) -> Tensor:
        """Return what the blocks make of ``tokens``."""
        rows, own = tokens.shape[:2]
        for number, block in enumerate(blocks):
            if self.kind == "deep" or number == 0:
                learned = self.tokens[number].expand(rows, -1, -1)  # (P, F) -> (B, P, F)
                tokens = torch.cat([tokens[:, :own], learned], dim=1)  # (B, T + P, F)
            tokens = block(tokens)
        return tokens[:, :own] if self.kind == "deep" else tokens

    def extra_repr(self) -> str:
        """Show kind and number."""
        return f"kind={self.kind!r}, count={self.count}"


class TunedViT(nn.Module):
    """The CLS token of a Vision Transformer after its final norm, with prompts if wanted.

    Args:
        model: A ``timm.models.VisionTransformer`` that pools by its CLS token.
        tuning: ``"full"`` trains all weights. ``"part"`` trains the CLS token and the prompts:
            gradients flow through the other weights, which stay as they are, and so do dropout
            and stochastic depth, which are off.
        prompts: ``"first"`` (prompt-p), ``"deep"`` (prompt-a) or None.
        prompt_tokens: Learned tokens at a time.

    Shape:
        - input: images ``(B, C, H, W)``; output: ``(B, F)`` with ``F = model.num_features``.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        tuning: Literal["full", "part"] = "full",
        prompts: PromptKind | None = None,
        prompt_tokens: int = 5,
    ) -> None:
        super().__init__()
        if tuning not in ("full", "part"):
            raise ValueError(wrong_choice("tuning", tuning, ("full", "part")))
        expect_plain_vit(model)
        transformer: Any = model
        self.tuning = tuning
        self.model = transformer
        self.feature_dim: int = transformer.num_features
        depth = len(transformer.blocks)
        self.prompts = (
            None if prompts is None else Prompts(prompts, prompt_tokens, depth, self.feature_dim)
        )
        if tuning == "part":
            transformer.requires_grad_(False)
            transformer.cls_token.requires_grad_(True)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set the mode; a model tuned in part stays in eval mode."""
        return super().train(mode and self.tuning != "part")

    def forward(self, images: Tensor) -> Tensor:
        """Return one vector per image."""
        model: Any = self.model
        tokens = model._pos_embed(model.patch_embed(images))  # (B, C, H, W) -> (B, T, F)
        tokens = model.norm_pre(model.patch_drop(tokens))
        if self.prompts is None:
            tokens = model.blocks(tokens)
        else:
            tokens = self.prompts(tokens, model.blocks)
        features: Tensor = model.norm(tokens)[:, 0]  # (B, T, F) -> (B, F)
        return features

    def extra_repr(self) -> str:
        """Show the tuning and the width."""
        return f"tuning={self.tuning!r}, feature_dim={self.feature_dim}"


def vit(
    name: str,
    shape: tuple[int, ...],
    *,
    tuning: Tuning = "full",
    prompts: PromptKind | None = None,
    prompt_tokens: int = 5,
    weights: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> TunedViT | Frozen:
    """Build a Vision Transformer of timm by name for one of the ways to tune it.

    Nothing is downloaded. In part tuning give HMA ``momentum=0``: the paper has no momentum
    encoder there.

    Args:
        name: A plain Vision Transformer of ``timm.list_models()``, such as
            ``vit_base_patch32_224``, with or without the tag of its weights.
        shape: Channels, height and width.
        tuning: ``"full"``, ``"part"`` (CLS token and prompts train), or ``"none"`` (nothing does).
        prompts: ``"first"`` (prompt-p), ``"deep"`` (prompt-a) or None.
        prompt_tokens: Learned tokens at a time.
        weights: A local file.
        settings: Further arguments of ``timm.create_model``, such as ``depth``.

    Example, not run as a doctest because it needs the vision extra::

        backbone = vit("vit_base_patch32_224", (3, 224, 224), tuning="part", prompts="deep")
    """
    problems = list(_problems(tuning, prompts, prompt_tokens))
    if problems:
        raise UserError("; ".join(problems))
    path = None if weights is None else Path(weights).expanduser()
    model = timm_model(name, shape, path, settings)
    try:
        expect_plain_vit(model)
    except ValueError as error:
        raise UserError(
            f"timm:{name} cannot be tuned as a Vision Transformer: {error}; choose a vit_* or "
            f"deit_* model, or use hma.backbones.backbone_for('timm:{name}') as it is"
        ) from error
    if tuning == "none":
        return Frozen(TunedViT(model))
    return TunedViT(model, tuning=tuning, prompts=prompts, prompt_tokens=prompt_tokens)


def _problems(tuning: str, prompts: str | None, prompt_tokens: int) -> Iterator[str]:
    if tuning not in get_args(Tuning):
        yield wrong_choice("tuning", tuning, get_args(Tuning))
    if prompts not in (None, *get_args(PromptKind)):
        yield wrong_choice("prompts", prompts, get_args(PromptKind))
    if prompt_tokens < 1:
        yield f"prompt_tokens must be at least 1, got {prompt_tokens}"
    if tuning == "none" and prompts is not None:
        yield f"prompts={prompts!r} are learned, which tuning='none' forbids; use tuning='part'"


def expect_plain_vit(model: nn.Module) -> None:
    """Raise unless ``model`` is a Vision Transformer whose blocks can be run one by one."""
    try:
        from timm.models.vision_transformer import VisionTransformer
    except ImportError as error:
        raise ValueError("model must be a Vision Transformer of timm, which is not here") from error
    kind: Any = type(model)
    if (
        not isinstance(model, VisionTransformer)
        or kind.forward_features is not VisionTransformer.forward_features
    ):
        raise ValueError(f"model must be a plain VisionTransformer of timm, got {kind.__name__}")
    pool = model.global_pool if model.has_class_token else "patches"
    if not model.has_class_token or pool != "token":
        raise ValueError(f"model must pool by its CLS token, got pooling by {pool!r}")


NAMED = (
    NamedBackbone(
        "vit:NAME",
        ("image",),
        lambda request: vit(
            request.name,
            request.shape,
            tuning=request.tuning,
            prompts=request.prompts,
            weights=request.weights,
        ),
        fits_weights=True,
        tunes=True,
        images=images_wanted,
    ),
)

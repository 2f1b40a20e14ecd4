"""What a memory adds to a ViT-B/32's forward in eval mode."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.report import Row, Section
from benchmarks.shapes import VIT_SHAPE, build_head
from hma.attention.hma import HMA
from hma.extras import ensure_torchvision
from hma.training.cost import Timing, interleave

SHAPE = replace(VIT_SHAPE, batch=32)
BACKBONE = "vit_base_patch32_224"
QUICK_BATCH = 2
AIM_PERCENT = 3.0
TITLE = "Eval: what the memory adds to a ViT-B/32's forward"
CACHED = "frozen, keys and values cached"
PROJECTED = "a weight changed, projected again"


def serving(quick: bool) -> Section:
    """Measure both ways to read beside the backbone; says why where there is no timm."""
    method = (
        f"timm's {BACKBONE} with random weights, then the memory and head on its features, in "
        "turn; medians. The overhead is the second over the first; its aim is for batch "
        f"{SHAPE.batch}. "
        f"{replace(SHAPE, batch=QUICK_BATCH) if quick else SHAPE}."
    )
    try:
        backbone = _vision_transformer()
    except ImportError as error:
        return Section(name="serving", title=TITLE, method=method, skipped=str(error))
    batch, repeats = (QUICK_BATCH, 2) if quick else (SHAPE.batch, 9)
    rows = _rows(backbone, torch.randn(batch, 3, 224, 224), repeats)
    return Section(name="serving", title=TITLE, method=method, rows=rows)


def _vision_transformer() -> nn.Module:
    ensure_torchvision()
    import timm

    create: Any = timm.create_model
    model: nn.Module = create(BACKBONE, pretrained=False, num_classes=0)
    return model.eval()


@torch.no_grad()
def _rows(backbone: nn.Module, images: Tensor, repeats: int) -> tuple[Row, ...]:
    features = backbone(images)  # (B, F)
    cached, changing = frozen_model(), build_head(SHAPE).model.eval()
    taken = interleave(
        {
            "backbone": lambda: backbone(images),
            CACHED: lambda: cached.classify(features),
            "backbone again": lambda: backbone(images),  # both reads find the same cold caches
            PROJECTED: lambda: classify_after_change(changing, features),
        },
        repeats,
    )
    both = Timing(taken["backbone"].seconds + taken["backbone again"].seconds)
    return tuple(_row(memory, len(images), both, taken[memory]) for memory in (CACHED, PROJECTED))


def _row(memory: str, batch: int, backbone: Timing, head: Timing) -> Row:
    percent = 100 * head.median / backbone.median
    aim = AIM_PERCENT if batch == SHAPE.batch else None
    return {
        "memory": memory,
        "batch": batch,
        "backbone_ms": backbone.milliseconds,
        "memory_and_head_ms": head.milliseconds,
        "overhead_percent": percent,
        "aim_percent": aim,
        "meets_aim": None if aim is None else percent <= aim,
        "repeats": len(head.seconds),
    }


def frozen_model() -> HMA:
    """Return a head in eval mode with its memory frozen: keys and values are projected once."""
    model = build_head(SHAPE).model.eval()
    model.freeze_memory()
    return model


@torch.no_grad()
def classify_after_change(model: HMA, features: Tensor) -> Tensor:
    """Touch a weight, as a training step would, then classify: nothing cached is valid."""
    model.tokens.get_parameter("table.weight").add_(0)
    return model.classify(features)

"""Checkpoints of the authors' released ViT module, loaded into ours with the same logits."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from hma.attention.config import HMAConfig
from hma.attention.hma import HMA
from hma.io.checkpoint import CheckpointError

BLOCKS = {"local_read_block.mab.": "real.read.", "ABD_block.mab.": "synthetic.read."}
LAYERS = {
    "fc_q": "to_queries",
    "ln0": "norm_queries",
    "ln0KV": "norm_memory",
    "ln1": "norm_hidden",
    "rff.0": "feed_forward.0",
    "rff.3": "feed_forward.3",
}


def load_released(
    state_dict: Mapping[str, Tensor],
    backbone: nn.Module,
    *,
    num_heads: int = 4,
    top_k: int | None = None,
    momentum: float = 0.999,
) -> HMA:
    """Return a model with the weights and memories of a released checkpoint, in eval mode.

    The number of heads and top-k leave no trace in a checkpoint and must be told.

    Args:
        state_dict: The released module's state, with or without a prefix such as ``net.``.
        backbone: A module of the encoder's architecture that returns ``(B, F)``; the encoder's
            own classification head, which the released module never calls, may be absent.
        num_heads: Attention heads it was trained with.
        top_k: Weights kept per query; the published DTD checkpoint used 16.
        momentum: Momentum for further training.
    """
    state = _without_prefix(state_dict)
    config, num_classes, feature_dim = _shape_of(state, num_heads, top_k, momentum)
    model = HMA(backbone, num_classes, config, feature_dim=feature_dim)
    renamed = _backbone_state(state, "encoder.", backbone, "backbone.")
    if model.momentum_encoder is not None:
        source = "momen_encoder." if _has(state, "momen_encoder.") else "encoder."
        copy = model.momentum_encoder.encoder
        renamed |= _backbone_state(state, source, copy, "momentum_encoder.encoder.")
    renamed |= {"head.weight": state["fc.weight"], "head.bias": state["fc.bias"]}
    if model.tokens.table is not None:
        renamed["tokens.table.weight"] = state["label_embeddings.weight"]
    for theirs, ours in BLOCKS.items():
        if _has(state, theirs):
            renamed |= _block_state(state, theirs, ours)
    if "global_memories" in state:
        renamed["synthetic.slots"] = state["global_memories"]
    renamed |= _queue_state(state, feature_dim)
    empty = {
        n: v for n, v in model.state_dict().items() if n.startswith(("anchors", "real.queue."))
    }
    renamed = empty | renamed
    model.load_state_dict(renamed)
    return model.eval()


def _without_prefix(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    mark = "label_embeddings.weight"
    found = [name for name in state_dict if name.endswith(mark)]
    if len(found) != 1:
        raise CheckpointError(
            f"state_dict is no released HMA checkpoint: it has {len(found)} entries that end in "
            f"{mark!r} and should have one; for a folder of ours use hma.load"
        )
    prefix = found[0].removesuffix(mark)
    return {
        name.removeprefix(prefix): value
        for name, value in state_dict.items()
        if name.startswith(prefix)
    }


def _shape_of(
    state: dict[str, Tensor], num_heads: int, top_k: int | None, momentum: float
) -> tuple[HMAConfig, int, int]:
    """Read configuration, number of classes and feature width off the tensors' shapes."""
    missing = [name for name in ("fc.weight", "fc.bias") if name not in state]
    if missing or not any(_has(state, block) for block in BLOCKS):
        raise CheckpointError(
            f"state_dict is no released HMA checkpoint: it lacks {missing or list(BLOCKS)}"
        )
    num_classes, read = state["fc.weight"].shape
    block = next(prefix for prefix in BLOCKS if _has(state, prefix))
    width = len(state[f"{block}ln0.weight"])
    if _has(state, "local_read_block.") and "queue" not in state:
        param = HMAConfig.ablation("param", num_heads=num_heads, scale="token", momentum=momentum)
        return param, num_classes, width
    label_dim = state["label_embeddings.weight"].shape[1]
    feature_dim = width - label_dim
    widths = {feature_dim + label_dim: "all", feature_dim: "features", label_dim: "label"}
    slots = len(state["global_memories"]) if "global_memories" in state else 0
    config = HMAConfig.from_dict(
        {
            "label_dim": label_dim,
            "queue_size": len(state["queue"]) if "queue" in state else 0,
            "slots_per_class": slots // max(num_classes, 2),
            "num_heads": num_heads,
            "momentum": momentum,
            "batch_attention": _has(state, "ABD_block."),
            "queue_labels": "frozen",
            "scale": "token",
            "readout": widths[read],
            "top_k": top_k,
        }
    )
    return config, num_classes, feature_dim


def _block_state(state: dict[str, Tensor], theirs: str, ours: str) -> dict[str, Tensor]:
    known = [f"{theirs}{layer}." for layer in (*LAYERS, "fc_k", "fc_v")]
    strange = [n for n in state if n.startswith(theirs) and not n.startswith(tuple(known))]
    if strange:
        raise CheckpointError(
            f"state_dict has {strange[0]!r}, which changes the logits in a way hma does not have; "
            "only checkpoints trained without null keys and head mixing can be loaded"
        )
    renamed = {}
    for kind in ("weight", "bias"):
        for layer, name in LAYERS.items():
            renamed[f"{ours}{name}.{kind}"] = state[f"{theirs}{layer}.{kind}"]
        both = [state[f"{theirs}fc_k.{kind}"], state[f"{theirs}fc_v.{kind}"]]
        renamed[f"{ours}to_keys_values.{kind}"] = torch.cat(both)
    return renamed


def _queue_state(state: dict[str, Tensor], feature_dim: int) -> dict[str, Tensor]:
    if "queue" not in state:
        return {}
    queue = state["queue"]  # (M, D)
    unknown = torch.full((len(queue),), -1)
    return {
        "real.queue.features": queue[:, :feature_dim],
        "real.queue.label_values": queue[:, feature_dim:],
        "real.queue.labels": unknown,
        "real.queue.ids": unknown,
        # all rows are attended to there, written or not; the pointer is where writing goes on
        "real.queue.written": len(queue) + state["queue_ptr"].reshape(()).long(),
    }


def _backbone_state(
    state: dict[str, Tensor], theirs: str, backbone: nn.Module, ours: str
) -> dict[str, Tensor]:
    own = backbone.state_dict()
    given = {
        name.removeprefix(theirs): value for name, value in state.items() if name.startswith(theirs)
    }
    missing = [name for name in own if name not in given]
    surplus = [name for name in given if name not in own and not name.startswith("head.")]
    other = [name for name in own if name in given and own[name].shape != given[name].shape]
    if missing or surplus or other:
        raise CheckpointError(
            f"backbone does not fit the released encoder: missing {missing[:3]}, "
            f"surplus {surplus[:3]}, of other shape {other[:3]}; build it with the same timm name"
        )
    return {f"{ours}{name}": given[name] for name in own}


def _has(state: dict[str, Tensor], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in state)

"""Weights named as the first PyTorch port of EfficientNet names them, renamed for timm."""

import re

from torch import Tensor

State = dict[str, Tensor]

MARK = "_conv_stem.weight"
"""An entry that every file of that port has, and no other model."""
OUTSIDE = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
EXPANDED = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
"""Layers of a block that widens its input first."""
SEPARABLE = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
"""Layers of a block that does not."""
SQUEEZED = {"_se_reduce": "se.conv_reduce", "_se_expand": "se.conv_expand"}
BLOCK = re.compile(r"_blocks\.(\d+)\.(\w+)\.(.+)")


def from_first_port(state: State) -> bool:
    """Tell whether weights are named as in that port."""
    return MARK in state


def named_for_timm(state: State, own: State) -> State:
    """Return ``state`` under timm's names.

    That port counts its blocks from the first to the last, timm counts them stage by stage.

    Args:
        state: Tensors by name, from a file.
        own: Tensors of the timm model, whose order of blocks decides.
    """
    blocks = list(dict.fromkeys(".".join(n.split(".")[:3]) for n in own if n.startswith("blocks.")))
    widened = {name.split(".")[1] for name in state if "._expand_conv." in name}
    renamed = {}
    for name, value in state.items():
        inside = BLOCK.fullmatch(name)
        if inside is None:
            layer, _, rest = name.partition(".")
            renamed[f"{OUTSIDE.get(layer, layer)}.{rest}"] = value
            continue
        number, layer, rest = inside.groups()
        layers = SQUEEZED | (EXPANDED if number in widened else SEPARABLE)
        block = blocks[int(number)] if int(number) < len(blocks) else f"_blocks.{number}"
        renamed[f"{block}.{layers.get(layer, layer)}.{rest}"] = value
    return renamed

"""Text encoders of Hugging Face from a folder or the local cache."""

from pathlib import Path
from typing import Any

from torch import nn

from hma.backbones.named_backbone import NamedBackbone, Pool
from hma.backbones.text import TransformerFeatures
from hma.backbones.weights import load_weights, part_of_state, read_weights
from hma.encoder_files import load_encoder
from hma.errors import UserError
from hma.extras import needed
from hma.json_files import read_json

POOLING = "1_Pooling/config.json"
"""Where sentence-transformers says how the tokens of a text become one vector."""


def hf_backbone(
    name: str, tokens: int, weights: Path | None = None, pooling: Pool | None = None
) -> TransformerFeatures:
    """Load a text encoder from a folder or from the local cache; nothing is downloaded.

    Args:
        name: A folder that ``save_pretrained`` wrote, or a name of the Hugging Face hub that
            has been downloaded before.
        tokens: Largest number of tokens in a row.
        weights: A local file to take the weights from instead.
        pooling: How a text becomes one vector; by default as :func:`pooling_of` says.
    """
    model: Any = load_encoder(name, other_weights=weights is not None)
    most = getattr(model.config, "max_position_embeddings", None)
    if isinstance(most, int) and tokens > most:
        raise UserError(
            f"hf:{name} reads at most {most} tokens, the rows have up to {tokens}; "
            "prepare the texts with a smaller length"
        )
    model.train()  # what is loaded is in eval mode
    if weights is not None:
        # a model with a head keeps its encoder's under the name of it
        state = part_of_state(read_weights(weights), f"{model.base_model_prefix}.")
        load_weights(model, state, weights, f"hf:{name}")
    if isinstance(getattr(model, "pooler", None), nn.Module):
        model.pooler.requires_grad_(False)  # no feature passes through it
    return TransformerFeatures(model, pooling or pooling_of(name))


def pooling_of(name: str) -> Pool:
    """Return how an encoder was made to be pooled: as sentence-transformers says, or the mean.

    Args:
        name: A folder, or a name in the local cache.
    """
    folder = Path(name).expanduser()
    path: Any = folder / POOLING
    if not folder.is_dir():
        hub = needed("huggingface_hub", "an encoder by name")
        try:
            path = hub.try_to_load_from_cache(name, POOLING)
        except ValueError:  # no name of the hub; loading it tells
            path = None
    if not isinstance(path, str | Path) or not Path(path).is_file():
        return "mean"
    said = read_json(Path(path), dict, remedy=f"give pooling, or repair {name}")
    modes = {n for n, on in said.items() if n.startswith("pooling_mode_") and on is True}
    if modes == {"pooling_mode_cls_token"}:
        return "cls"
    if modes != {"pooling_mode_mean_tokens"}:
        raise UserError(
            f"hf:{name} pools by {', '.join(sorted(modes)) or 'nothing'}, which is not known here; "
            "choose with pooling 'mean' or 'cls'"
        )
    return "mean"


NAMED = (
    NamedBackbone(
        "hf:NAME_OR_DIR",
        ("text",),
        lambda asked: hf_backbone(asked.name, asked.shape[0], asked.weights, asked.pooling),
        fits_weights=True,
        pretrained=True,
        pooling=pooling_of,
    ),
)

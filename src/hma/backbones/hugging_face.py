"""Text encoders of Hugging Face from a folder or the local cache."""

from pathlib import Path
from typing import Any, get_args

from torch import nn

from hma.backbones.named_backbone import NamedBackbone, Pool, TextVector
from hma.backbones.text import TransformerFeatures
from hma.backbones.weights import load_weights, part_of_state, read_weights
from hma.errors import UserError
from hma.extras import needed
from hma.io.encoder_files import load_encoder
from hma.io.json_files import read_json

MODULES = "modules.json"
"""Where sentence-transformers lists what makes one vector of a text."""
KNOWN = ("Transformer", "Pooling", "Normalize")
"""Modules of it that are obeyed."""


def hf_backbone(
    name: str,
    tokens: int,
    weights: Path | None = None,
    pooling: Pool | None = None,
    normalize: bool | None = None,
) -> TransformerFeatures:
    """Load a text encoder from a folder or from the local cache; nothing is downloaded.

    Args:
        name: A folder that ``save_pretrained`` wrote, or a name of the Hugging Face hub that
            has been downloaded before.
        tokens: Largest number of tokens in a row.
        weights: A local file to take the weights from instead.
        pooling, normalize: How a text becomes one vector; by default as :func:`text_vector_of`
            says.
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
    pool, length = text_vector_of(name, pooling, normalize)
    return TransformerFeatures(model, pool, normalize=length)


def text_vector_of(
    name: str, pooling: Pool | None = None, normalize: bool | None = None
) -> TextVector:
    """Return how an encoder makes one vector of a text: as sentence-transformers says, or the mean.

    Args:
        name: A folder, or a name in the local cache.
        pooling, normalize: What is asked for instead.
    """
    if pooling is not None and normalize is not None:
        return TextVector(pooling, normalize)
    said = _said(name, MODULES, list[dict[str, Any]])
    modules = {str(one.get("type")).rpartition(".")[2]: one for one in said or []}
    if unknown := [kind for kind in modules if kind not in KNOWN]:
        raise UserError(
            f"hf:{name} ends in {', '.join(unknown)} ({MODULES}), which is not known here; choose "
            "both --pooling and --normalize or --no-normalize to use it without"
        )
    if pooling is None:
        folder = modules.get("Pooling", {}).get("path") or "1_Pooling"
        pooling = _pool(name, _said(name, f"{folder}/config.json", dict[str, Any]) or {})
    return TextVector(pooling, "Normalize" in modules if normalize is None else normalize)


def _pool(name: str, said: dict[str, Any]) -> Pool:
    """Return the pooling that ``config.json`` of sentence-transformers names."""
    modes = sorted(n.removeprefix("pooling_mode_") for n, on in said.items()
                   if n.startswith("pooling_mode_") and on is True)  # fmt: skip
    if "pooling_mode" in said:
        modes = [str(said["pooling_mode"])]
    known: dict[str, Pool] = {
        f"{pool}{ending}": pool for pool in get_args(Pool) for ending in ("", "_token", "_tokens")
    }
    if said and (len(modes) != 1 or modes[0] not in known):
        raise UserError(
            f"hf:{name} pools by {', '.join(modes) or 'nothing'}, which is not known here; choose "
            f"one of --pooling {', '.join(get_args(Pool))}"
        )
    return known[modes[0]] if said else "mean"


def _said(name: str, file: str, shape: Any) -> Any:
    """Return what a file of an encoder says; None where it has no such file."""
    folder = Path(name).expanduser()
    path: Any = folder / file
    if not folder.is_dir():
        hub = needed("huggingface_hub", "an encoder by name")
        try:
            path = hub.try_to_load_from_cache(name, file)
        except ValueError:  # no name of the hub; loading it tells
            path = None
    if not isinstance(path, str | Path) or not Path(path).is_file():
        return None
    return read_json(
        Path(path), shape, remedy=f"repair {name}, or choose --pooling and --normalize"
    )


NAMED = (
    NamedBackbone(
        "hf:NAME_OR_DIR",
        ("text",),
        lambda asked: hf_backbone(
            asked.name, asked.shape[0], asked.weights, asked.pooling, asked.normalize
        ),
        fits_weights=True,
        pretrained=True,
        text_vector=text_vector_of,
    ),
)

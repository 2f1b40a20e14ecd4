"""Text encoders of Hugging Face from a folder or the local cache."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from hma.backbones.named_backbone import NamedBackbone, Pool
from hma.backbones.text import TransformerFeatures
from hma.backbones.weights import load_weights, part_of_state, read_weights, shown
from hma.errors import UserError, reason
from hma.extras import needed, needed_beside_torchvision
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
    transformers = needed_beside_torchvision("transformers", "this backbone", extra="text")
    folder = Path(name).expanduser()
    source = str(folder) if folder.is_dir() else name
    try:
        with _without_bars(transformers.utils.logging):
            model, report = transformers.AutoModel.from_pretrained(
                source, local_files_only=True, output_loading_info=True, trust_remote_code=False
            )
    except Exception as error:  # a damaged folder fails in many ways
        raise UserError(_not_loaded(name, folder, error)) from error
    absent = [name for name in report["missing_keys"] if not name.startswith("pooler.")]
    if absent and weights is None:
        raise UserError(
            f"hf:{name} lacks weights of its own encoder: {len(absent)} missing ({shown(absent)}); "
            "give a folder with all of them"
        )
    most = getattr(model.config, "max_position_embeddings", None)
    if isinstance(most, int) and tokens > most:
        raise UserError(
            f"hf:{name} reads at most {most} tokens, the rows have up to {tokens}; "
            "prepare the texts with a smaller length"
        )
    model = model.float().train()  # what from_pretrained returns is in eval mode
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


def _not_loaded(name: str, folder: Path, error: Exception) -> str:
    if folder.is_dir():
        return f"hf:{name} cannot be loaded: {reason(error)}"
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        return f"hf:{name} names a folder that is not there; give one that save_pretrained wrote"
    return (
        f"hf:{name} is neither a folder nor in the local cache; fetch it once with "
        f"`hf download {name}`, or give a folder that save_pretrained wrote"
    )


@contextmanager
def _without_bars(logging: Any) -> Iterator[None]:
    """Keep Hugging Face from drawing a bar for every file it reads."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


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

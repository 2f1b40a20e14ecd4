"""Text encoders of Hugging Face, loaded from a folder or the local cache; nothing is downloaded."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from hma.errors import UserError, reason
from hma.extras import needed_beside_torchvision

SHOWN = 3


def load_encoder(name: str, *, other_weights: bool = False) -> nn.Module:
    """Load a bare encoder, as ``transformers.AutoModel`` has it, in eval mode.

    Args:
        name: A folder that ``save_pretrained`` wrote, or a name of the Hugging Face hub that
            has been downloaded before.
        other_weights: Whether weights may be missing, since the caller has them from elsewhere.
    """
    transformers = needed_beside_torchvision("transformers", "a text encoder", extra="text")
    folder = Path(name).expanduser()
    source = str(folder) if folder.is_dir() else name
    try:
        with _hide_progress_bars(transformers.utils.logging):
            model, report = transformers.AutoModel.from_pretrained(
                source, local_files_only=True, output_loading_info=True, trust_remote_code=False
            )
    except Exception as error:  # a damaged folder fails in many ways
        raise UserError(_explain_failure(name, folder, error)) from error
    absent = [name for name in report["missing_keys"] if not name.startswith("pooler.")]
    if absent and not other_weights:
        raise UserError(
            f"hf:{name} lacks weights of its own encoder: {len(absent)} missing, such as "
            f"{', '.join(absent[:SHOWN])}; give a folder with all of them"
        )
    loaded: nn.Module = model.float()
    return loaded


def _explain_failure(name: str, folder: Path, error: Exception) -> str:
    if folder.is_dir():
        return f"hf:{name} cannot be loaded: {reason(error)}"
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        return f"hf:{name} names a folder that is not there; give one that save_pretrained wrote"
    return (
        f"hf:{name} is neither a folder nor in the local cache; fetch it once with "
        f"`hf download {name}`, or give a folder that save_pretrained wrote"
    )


@contextmanager
def _hide_progress_bars(logging: Any) -> Iterator[None]:
    """Keep Hugging Face from drawing a bar for every file it reads."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()

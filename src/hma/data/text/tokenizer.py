"""Tokenizers of encoders, loaded without running code that comes with them."""

import hashlib
import json
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

from hma.errors import UserError
from hma.extras import needed
from hma.io.json_files import read_json

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
REASON = 200
MOST_TOKENS = 512
"""Kept of a text where nothing less is said; some tokenizers claim to take any number."""


def load_tokenizer(encoder: str, *, words: bool = False) -> Any:
    """Load the tokenizer of an encoder from a folder, or by name from the local cache.

    Nothing is downloaded.

    Args:
        encoder: Folder of a Hugging Face model, a folder with one such folder inside (as a
            package ships it), or a name on the hub that is in the local cache.
        words: For texts that come cut into words: each is read as after a space.
    """
    transformers = needed("transformers", "text")
    choices = {"add_prefix_space": True} if words else {}
    # a name is looked up in the cache first: given one, transformers asks the hub all the same
    folder = find_folder(encoder)
    try:
        return transformers.AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, **choices
        )
    except Exception as error:  # a damaged file fails in many ways
        reason = shorten(f"{type(error).__name__}: {error}", REASON)
        raise UserError(f"no tokenizer can be loaded from {folder}: {reason}") from error


def find_folder(encoder: str) -> Path:
    """Return the folder of an encoder that :func:`load_tokenizer` takes."""
    return encoder_folder(encoder) if _is_folder(encoder) else _find_cached(encoder)


def _find_cached(name: str) -> Path:
    hub = needed("huggingface_hub", "an encoder by name")
    try:
        return encoder_folder(hub.snapshot_download(name, local_files_only=True))
    except (OSError, ValueError) as error:
        raise UserError(
            f"no tokenizer can be loaded from {name[:REASON]!r}: it is neither a folder nor in the "
            "local cache of the Hugging Face hub; give a folder, or fetch it first: hf download "
            f"{name[:REASON]}"
        ) from error


def encoder_folder(encoder: str) -> Path:
    """Return the folder that holds the tokenizer: the one given, or the only one inside it."""
    folder = Path(encoder)
    if _holds_tokenizer(folder):
        return folder
    inside = [deep for deep in sorted(folder.iterdir()) if deep.is_dir() and _holds_tokenizer(deep)]
    if len(inside) == 1:
        return inside[0]
    raise UserError(
        f"{folder} holds no tokenizer ({', '.join(TOKENIZER_FILES)}); give the folder of a Hugging "
        "Face model"
    )


class TextsWanted(NamedTuple):
    """What texts an encoder was made for.

    Args:
        tokens: Most tokens of a text.
        lower_case: Whether texts are lower-cased before its tokenizer sees them.
    """

    tokens: int
    lower_case: bool = False


def texts_wanted(encoder: str, tokenizer: Any) -> TextsWanted:
    """Return what sentence-transformers says of an encoder, or its tokenizer and model.

    Args:
        encoder: Folder or name, as :func:`load_tokenizer` takes it.
        tokenizer: Its tokenizer.
    """
    folder = find_folder(encoder)
    said, model = (
        _read_optional(folder / "sentence_bert_config.json"),
        _read_optional(folder / "config.json"),
    )
    limits = (
        said.get("max_seq_length"), tokenizer.model_max_length, model.get("max_position_embeddings")
    )  # fmt: skip
    least = min(int(limit) for limit in (*limits, MOST_TOKENS) if isinstance(limit, int | float))
    return TextsWanted(max(least, 1), said.get("do_lower_case") is True)


def _read_optional(path: Path) -> dict[str, Any]:
    """Return the values of a JSON file; nothing if there is no such file."""
    if not path.is_file():
        return {}
    found: dict[str, Any] = read_json(path, dict, remedy="restore the folder of the encoder")
    return found


def hash_vocabulary(tokenizer: Any) -> str:
    """Return the SHA-256 of a tokenizer's vocabulary."""
    words = json.dumps(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(words.encode()).hexdigest()


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):  # too long for a path, or with a NUL in it
        return False


def _holds_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TOKENIZER_FILES)

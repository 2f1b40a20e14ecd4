"""Text encoders of Hugging Face: loaded from a folder or the local cache, pooled to one vector."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from hma.backbones.named_backbone import NamedBackbone, TextVector
from hma.backbones.weights import load_weights, part_of_state, read_weights
from hma.errors import UserError, wrong_choice
from hma.extras import needed
from hma.io.encoder_files import load_encoder
from hma.io.json_files import read_json
from hma.options.run import Pool

MODULES = "modules.json"
"""Where sentence-transformers lists what makes one vector of a text."""
KNOWN = ("Transformer", "Pooling", "Normalize")
"""Modules of it that are obeyed."""


def pool_mean(hidden: Tensor, seen: Tensor) -> Tensor:
    """Average the positions that ``seen`` marks; a row that marks none gives zeros.

    The sum runs in float32 or wider, so long texts keep their precision under bf16.

    Args:
        hidden: One vector per position.
        seen: True at the positions that count.

    Shape:
        - hidden: ``(B, T, F)``; seen: ``(B, T)`` of bool.
        - output: ``(B, F)``.

    Example:
        >>> hidden = torch.tensor([[[1.0], [3.0], [50.0]]])
        >>> pool_mean(hidden, torch.tensor([[True, True, False]]))
        tensor([[2.]])
    """
    wide = torch.promote_types(hidden.dtype, torch.float32)
    unseen = ~seen.unsqueeze(-1)  # (B, T) -> (B, T, 1)
    # filled, not multiplied: padding that holds nan or inf stays out of the sum
    total = hidden.masked_fill(unseen, 0.0).sum(dim=1, dtype=wide)  # (B, T, F) -> (B, F)
    count = seen.sum(dim=1, keepdim=True).clamp(min=1)  # (B, T) -> (B, 1)
    return (total / count).to(hidden.dtype)


def pool_max(hidden: Tensor, seen: Tensor) -> Tensor:
    """Take the largest value of each feature over the positions that ``seen`` marks.

    Arguments and shapes as :func:`pool_mean`; a row that marks none gives zeros.

    Example:
        >>> hidden = torch.tensor([[[1.0, 4.0], [3.0, 2.0], [50.0, 50.0]]])
        >>> pool_max(hidden, torch.tensor([[True, True, False]]))
        tensor([[3., 4.]])
    """
    largest = hidden.masked_fill(~seen.unsqueeze(-1), -torch.inf).amax(dim=1)  # -> (B, F)
    return largest.masked_fill(~seen.any(dim=1, keepdim=True), 0.0)


def pool_first(hidden: Tensor, seen: Tensor) -> Tensor:
    """Take the first position that ``seen`` marks, whichever side the padding is on.

    Arguments and shapes as :func:`pool_mean`.

    Example:
        >>> hidden = torch.tensor([[[50.0], [1.0], [3.0]]])
        >>> pool_first(hidden, torch.tensor([[False, True, True]]))
        tensor([[1.]])
    """
    first = seen.int().argmax(dim=1)  # (B, T) -> (B,)
    return hidden[torch.arange(len(hidden), device=hidden.device), first]  # (B, T, F) -> (B, F)


POOLS: dict[Pool, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": pool_mean,
    "cls": pool_first,
    "max": pool_max,
}


class TransformerFeatures(nn.Module):
    """Run a text encoder on a tokenised batch and pool its last hidden state to one vector.

    Args:
        model: The bare encoder, such as ``transformers.AutoModel`` loads: called with the batch
            as keyword arguments, it returns an object with ``last_hidden_state``, and its
            ``config.hidden_size`` is ``F``.
        pool: ``"mean"`` averages the positions the attention mask marks, ``"cls"`` takes the
            first of them, ``"max"`` the largest value of each feature; without a mask every
            position counts.
        normalize: Bring each vector to length 1, as most sentence encoders were trained.

    Shape:
        - input: a mapping of tensors ``(B, T)``, as a tokenizer returns; ``labels`` are dropped.
        - output: ``(B, F)``.

    Example:
        >>> from types import SimpleNamespace
        >>> class Encoder(nn.Embedding):
        ...     config = SimpleNamespace(hidden_size=4)
        ...
        ...     def forward(self, input_ids, attention_mask):
        ...         return SimpleNamespace(last_hidden_state=super().forward(input_ids))
        >>> backbone = TransformerFeatures(Encoder(100, 4))
        >>> ids = torch.tensor([[5, 7, 0], [9, 2, 4]])
        >>> backbone({"input_ids": ids, "attention_mask": (ids != 0).long()}).shape
        torch.Size([2, 4])
    """

    def __init__(self, model: nn.Module, pool: Pool = "mean", *, normalize: bool = False) -> None:
        super().__init__()
        if pool not in POOLS:
            raise ValueError(wrong_choice("pool", pool, get_args(Pool)))
        hidden_size = getattr(getattr(model, "config", None), "hidden_size", None)
        if not isinstance(hidden_size, int):
            raise ValueError(
                "model must have an integer config.hidden_size, the width of its "
                f"last_hidden_state; {type(model).__name__} has {hidden_size!r}; set "
                "model.config.hidden_size before wrapping it"
            )
        self.model = model
        self.pool: Pool = pool
        self.normalize = normalize
        self.feature_dim = hidden_size

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return one feature vector per text."""
        if not isinstance(batch, Mapping):
            raise TypeError(
                f"batch must be a mapping of tensors, got {type(batch).__name__}; pass what "
                "tokenizer(texts, padding=True, return_tensors='pt') returns"
            )
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        output = self.model(**inputs)
        if not hasattr(output, "last_hidden_state"):
            raise TypeError(
                "model must return an object with last_hidden_state, got "
                f"{type(output).__name__} from {type(self.model).__name__}; wrap the bare encoder "
                "(transformers.AutoModel), not one with a head, and leave return_dict on"
            )
        hidden: Tensor = output.last_hidden_state  # (B, T, F)
        mask = inputs.get("attention_mask")
        if mask is None:
            mask = hidden.new_ones(hidden.shape[:2], dtype=torch.bool)
        if mask.shape != hidden.shape[:2]:
            raise ValueError(
                f"attention_mask must have shape {tuple(hidden.shape[:2])}, one entry per position "
                f"of last_hidden_state, got {tuple(mask.shape)}"
            )
        pooled = POOLS[self.pool](hidden, mask != 0)  # (B, T, F) -> (B, F)
        return nn.functional.normalize(pooled, dim=1) if self.normalize else pooled

    def extra_repr(self) -> str:
        """Show how a text becomes one vector, and its width."""
        length = ", normalize=True" if self.normalize else ""
        return f"pool={self.pool!r}, feature_dim={self.feature_dim}{length}"


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
    said = _read_optional(name, MODULES, list[dict[str, Any]])
    modules = {str(one.get("type")).rpartition(".")[2]: one for one in said or []}
    if unknown := [kind for kind in modules if kind not in KNOWN]:
        raise UserError(
            f"hf:{name} ends in {', '.join(unknown)} ({MODULES}), which is not known here; choose "
            "both --pooling and --normalize or --no-normalize to use it without"
        )
    if pooling is None:
        folder = modules.get("Pooling", {}).get("path") or "1_Pooling"
        pooling = _pool(name, _read_optional(name, f"{folder}/config.json", dict[str, Any]) or {})
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


def _read_optional(name: str, file: str, shape: Any) -> Any:
    """Return the values of a JSON file of an encoder; None if it has no such file."""
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
        lambda request: hf_backbone(
            request.name, request.shape[0], request.weights, request.pooling, request.normalize
        ),
        fits_weights=True,
        pretrained=True,
        text_vector=text_vector_of,
    ),
)

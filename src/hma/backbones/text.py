"""Features from a text Transformer: any encoder with Hugging Face's call convention."""

from collections.abc import Callable, Mapping
from typing import get_args

import torch
from torch import Tensor, nn

from hma.backbones.named_backbone import Pool
from hma.errors import wrong_choice


def mean_of_seen(hidden: Tensor, seen: Tensor) -> Tensor:
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
        >>> mean_of_seen(hidden, torch.tensor([[True, True, False]]))
        tensor([[2.]])
    """
    wide = torch.promote_types(hidden.dtype, torch.float32)
    unseen = ~seen.unsqueeze(-1)  # (B, T) -> (B, T, 1)
    # filled, not multiplied: padding that holds nan or inf stays out of the sum
    total = hidden.masked_fill(unseen, 0.0).sum(dim=1, dtype=wide)  # (B, T, F) -> (B, F)
    count = seen.sum(dim=1, keepdim=True).clamp(min=1)  # (B, T) -> (B, 1)
    return (total / count).to(hidden.dtype)


def largest_seen(hidden: Tensor, seen: Tensor) -> Tensor:
    """Take the largest value of each feature over the positions that ``seen`` marks.

    Arguments and shapes as :func:`mean_of_seen`; a row that marks none gives zeros.

    Example:
        >>> hidden = torch.tensor([[[1.0, 4.0], [3.0, 2.0], [50.0, 50.0]]])
        >>> largest_seen(hidden, torch.tensor([[True, True, False]]))
        tensor([[3., 4.]])
    """
    largest = hidden.masked_fill(~seen.unsqueeze(-1), -torch.inf).amax(dim=1)  # -> (B, F)
    return largest.masked_fill(~seen.any(dim=1, keepdim=True), 0.0)


def first_seen(hidden: Tensor, seen: Tensor) -> Tensor:
    """Take the first position that ``seen`` marks, whichever side the padding is on.

    Arguments and shapes as :func:`mean_of_seen`.

    Example:
        >>> hidden = torch.tensor([[[50.0], [1.0], [3.0]]])
        >>> first_seen(hidden, torch.tensor([[False, True, True]]))
        tensor([[1.]])
    """
    first = seen.int().argmax(dim=1)  # (B, T) -> (B,)
    return hidden[torch.arange(len(hidden), device=hidden.device), first]  # (B, T, F) -> (B, F)


POOLS: dict[Pool, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": mean_of_seen,
    "cls": first_seen,
    "max": largest_seen,
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

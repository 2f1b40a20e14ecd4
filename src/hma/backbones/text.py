"""Features from a text Transformer: any encoder with Hugging Face's call convention."""

from collections.abc import Mapping
from typing import get_args

import torch
from torch import Tensor, nn

from hma.backbones.named_backbone import Pool


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


class TransformerFeatures(nn.Module):
    """Run a text encoder on a tokenised batch and pool its last hidden state to one vector.

    Args:
        model: The bare encoder, such as ``transformers.AutoModel`` loads: called with the batch
            as keyword arguments, it returns an object with ``last_hidden_state``, and its
            ``config.hidden_size`` is ``F``.
        pool: ``"mean"`` averages the positions the attention mask marks, ``"cls"`` takes the
            first of them; without a mask every position counts.

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

    def __init__(self, model: nn.Module, pool: Pool = "mean") -> None:
        super().__init__()
        if pool not in get_args(Pool):
            raise ValueError(f"pool must be 'mean' or 'cls', got {pool!r}")
        hidden_size = getattr(getattr(model, "config", None), "hidden_size", None)
        if not isinstance(hidden_size, int):
            raise ValueError(
                "model must have an integer config.hidden_size, the width of its "
                f"last_hidden_state; {type(model).__name__} has {hidden_size!r}; set "
                "model.config.hidden_size before wrapping it"
            )
        self.model = model
        self.pool = pool
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
            return hidden.mean(dim=1) if self.pool == "mean" else hidden[:, 0]  # -> (B, F)
        if mask.shape != hidden.shape[:2]:
            raise ValueError(
                f"attention_mask must have shape {tuple(hidden.shape[:2])}, one entry per position "
                f"of last_hidden_state, got {tuple(mask.shape)}"
            )
        pooled = mean_of_seen if self.pool == "mean" else first_seen
        return pooled(hidden, mask != 0)  # (B, T, F) -> (B, F)

    def extra_repr(self) -> str:
        """Show the pooling and the width."""
        return f"pool={self.pool!r}, feature_dim={self.feature_dim}"

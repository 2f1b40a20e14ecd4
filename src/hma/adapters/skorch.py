"""skorch: a memory as a module whose settings can be searched, and a callback that writes it."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from hma.adapters.writing import StepWriter, find_memory_model, replay_rows
from hma.attention.config import HMAConfig
from hma.attention.hma import HMA
from hma.errors import UserError, wrong_choice
from hma.model import MemoryModel
from hma.vote.config import VoteConfig
from hma.vote.voting_memory import VotingMemory

with warnings.catch_warnings():
    # skorch imports torch_geometric where it is installed, and that scripts a class
    warnings.filterwarnings("ignore", ".*torch.jit.script.*", DeprecationWarning)
    from skorch.callbacks import Callback  # type: ignore[import-untyped]
    from skorch.dataset import Dataset, unpack_data  # type: ignore[import-untyped]
    from skorch.utils import to_tensor  # type: ignore[import-untyped]


class RowsWithIds(Dataset):  # type: ignore[misc]
    """Rows that bring along which sample they are: ``NeuralNetClassifier(dataset=RowsWithIds)``.

    The id of a row is its place in what was given to ``fit``. Rows that are dicts may bring
    ``ids`` of their own, as they must where ``partial_fit`` is to add rows to those of before.
    """

    def __getitem__(self, i: int) -> tuple[dict[str, Any], Any]:
        x, y = super().__getitem__(i)
        return {"ids": i, **(x if isinstance(x, Mapping) else {"x": x})}, y


def _unpack(batch: Any) -> tuple[Any, Any, Any]:
    """Return ``(x, y, ids)`` as :meth:`MemoryModule.forward` is given them."""
    x, y = unpack_data(batch)
    if not isinstance(x, Mapping):
        return x, y, None
    parts = dict(x)
    ids = parts.pop("ids", None)
    return parts["x"] if set(parts) == {"x"} else parts, y, ids


class MemoryModule(nn.Module):
    """A model with a memory that skorch can build anew for every fit, clone and point of a grid.

    Args:
        backbone: Builds a fresh backbone; a function, so that no fit starts from the last one's
            weights. ``functools.partial(mlp, 64)`` can be pickled, a lambda cannot.
        num_classes: Number of logits, ``C``.
        memory: 'vote' for :class:`hma.VotingMemory`, 'hma' for the paper's :class:`hma.HMA`.
        settings: Fields of its configuration: ``module__memory_size=128`` in skorch's words.

    Example:
        >>> from functools import partial
        >>> from hma.backbones import mlp
        >>> module = MemoryModule(partial(mlp, 64, hidden=(32,)), 10, memory_size=16)
        >>> module.model.config.memory_size, module.model.head.in_features
        (16, 32)
    """

    def __init__(
        self,
        backbone: Callable[[], nn.Module],
        num_classes: int,
        *,
        memory: str = "vote",
        **settings: Any,
    ) -> None:
        super().__init__()
        if isinstance(backbone, nn.Module):
            raise UserError(
                f"backbone must be a function that builds one, got a {type(backbone).__name__}; "
                "a second fit would start from its trained weights: pass "
                "functools.partial(mlp, 64) or the like"
            )
        if memory not in ("vote", "hma"):
            raise UserError(wrong_choice("memory", memory, ("vote", "hma")))
        self.model: MemoryModel
        if memory == "vote":
            self.model = VotingMemory(backbone(), num_classes, VoteConfig.from_dict(settings))
            return
        config = HMAConfig.from_dict(settings)
        if config.contrastive:
            raise UserError(
                "skorch's criterion sees logits and labels alone, so it has no contrastive loss; "
                f"leave contrastive out, got {config.contrastive}"
            )
        self.model = HMA(backbone(), num_classes, config)

    def forward(self, x: Any = None, *, ids: Tensor | None = None, **parts: Any) -> Tensor:
        """Return the logits; skorch hands over rows that are dicts as keyword arguments."""
        logits: Tensor = self.model(parts if x is None else x)
        return logits


class RememberCallback(Callback):  # type: ignore[misc]
    """Give a model its memory while skorch trains it.

    A memory that is learned after the backbone (:class:`hma.VotingMemory`) is learned in
    ``on_train_end``, with the rows of skorch's validation split to judge by; ``partial_fit``
    learns it anew, from the rows it is given. The paper's memory is written for each batch trained
    on, after the optimizer step that learned from it.

    skorch's ``on_batch_end`` comes after the step. A net of your own that accumulates gradients
    steps less often; the batches then wait until the optimizer says that it has stepped.

    Args:
        model: The model to write into; by default the one inside the net's module.

    Example, not run as a doctest because it trains::

        net = NeuralNetClassifier(
            MemoryModule, module__backbone=partial(mlp, 64), module__num_classes=10,
            criterion=nn.CrossEntropyLoss, dataset=RowsWithIds, callbacks=[RememberCallback()],
        )
    """

    def __init__(self, model: MemoryModel | None = None) -> None:
        self.model = model

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:  # noqa: N803
        """Find the model and begin to count steps."""
        if isinstance(net.criterion_, nn.NLLLoss):
            raise UserError(
                "criterion must take logits, got NLLLoss, skorch's default; pass "
                "criterion=torch.nn.CrossEntropyLoss"
            )
        model = find_memory_model(net.module_, self.model)
        self.writer_ = StepWriter(model, _unpack)
        self.stepped_ = False
        self.rows_ = self.held_out_ = None
        optimizer = getattr(net.optimizer_, "optimizer", net.optimizer_)  # accelerate wraps it
        self.hook_: RemovableHandle | None = optimizer.register_step_post_hook(self._count)

    def _count(self, *_: Any) -> None:
        self.stepped_ = True

    def on_epoch_begin(
        self, net: Any, dataset_train: Any = None, dataset_valid: Any = None, **kwargs: Any
    ) -> None:
        """Know the rows of training and validation, and start slots that wait for them."""
        self.rows_, self.held_out_ = dataset_train, dataset_valid
        self.writer_.start(_replay(net, dataset_train))

    def on_batch_end(
        self, net: Any, batch: Any = None, training: bool | None = None, **kwargs: Any
    ) -> None:
        """Hold a training batch, and write what is held if the optimizer has stepped."""
        if not training:
            return
        self.writer_.hold(to_tensor(unpack_data(batch), device=net.device))
        if self.stepped_:
            self.stepped_ = False
            self.writer_.write()

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:  # noqa: N803
        """Learn a memory that is learned last; stop counting, and let go of all rows."""
        if self.rows_ is not None:
            self.writer_.finish(_replay(net, self.rows_), _replay(net, self.held_out_))
        if self.hook_ is not None:
            self.hook_.remove()
            self.hook_ = None
        self.rows_ = self.held_out_ = None
        self.writer_.held.clear()


def _replay(net: Any, rows: Any) -> Iterator[Any]:
    """Yield the batches of a data set in order, where the model is."""
    if rows is not None:
        for batch in replay_rows(net.get_iterator(rows, training=False)):
            yield to_tensor(unpack_data(batch), device=net.device)

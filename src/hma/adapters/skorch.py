"""skorch: HMA as a module whose settings can be searched, and a callback that writes the memory."""

import warnings
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from hma.adapters.writing import StepWriter, find_hma
from hma.config import HMAConfig
from hma.errors import UserError
from hma.model import HMA

with warnings.catch_warnings():
    # skorch imports torch_geometric where it is installed, and that scripts a class
    warnings.filterwarnings("ignore", ".*torch.jit.script.*", DeprecationWarning)
    from skorch.callbacks import Callback  # type: ignore[import-untyped]
    from skorch.dataset import unpack_data  # type: ignore[import-untyped]
    from skorch.utils import to_tensor  # type: ignore[import-untyped]


class MemoryModule(HMA):
    """An HMA that skorch can build anew for every fit, every clone and every point of a grid.

    Args:
        backbone: Builds a fresh backbone; a function, so that no fit starts from the last one's
            weights. ``functools.partial(mlp, 64)`` can be pickled, a lambda cannot.
        num_classes: Number of logits, ``C``.
        settings: Fields of :class:`hma.HMAConfig`: ``module__queue_size=128`` in skorch's words.
            The others are those of the paper's design, which needs no sample ids.

    Example:
        >>> from functools import partial
        >>> from hma.backbones import mlp
        >>> module = MemoryModule(partial(mlp, 64, hidden=(32,)), 10, queue_size=16)
        >>> module.config.queue_size, module.feature_dim
        (16, 32)
    """

    def __init__(
        self, backbone: Callable[[], nn.Module], num_classes: int, **settings: Any
    ) -> None:
        if isinstance(backbone, nn.Module):
            raise UserError(
                f"backbone must be a function that builds one, got a {type(backbone).__name__}; "
                "a second fit would start from its trained weights: pass "
                "functools.partial(mlp, 64) or the like"
            )
        super().__init__(backbone(), num_classes, HMAConfig.paper(**settings))

    def forward(self, x: Any = None, **parts: Any) -> Tensor:
        """Return the logits; skorch hands over rows that are dicts as keyword arguments."""
        return super().forward(parts if x is None else x)


class RememberCallback(Callback):  # type: ignore[misc]
    """Call ``remember`` for every batch trained on, after the optimizer step that learned from it.

    skorch's ``on_batch_end`` comes after the step. A net of your own that accumulates gradients
    steps less often; the batches then wait until the optimizer says that it has stepped.

    Args:
        model: The model to write into; by default the one HMA inside the net's module.

    Example, not run as a doctest because it trains::

        net = NeuralNetClassifier(
            MemoryModule, module__backbone=partial(mlp, 64), module__num_classes=10,
            criterion=nn.CrossEntropyLoss, callbacks=[RememberCallback()],
        )
    """

    def __init__(self, model: HMA | None = None) -> None:
        self.model = model

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:  # noqa: N803
        """Find the model and begin to count steps."""
        if isinstance(net.criterion_, nn.NLLLoss):
            raise UserError(
                "criterion must take logits, got NLLLoss, skorch's default; pass "
                "criterion=torch.nn.CrossEntropyLoss"
            )
        self.writer_ = StepWriter(find_hma(net.module_, self.model), unpack_data)
        self.stepped_ = False
        optimizer = getattr(net.optimizer_, "optimizer", net.optimizer_)  # accelerate wraps it
        self.hook_: RemovableHandle | None = optimizer.register_step_post_hook(self._count)

    def _count(self, *_: Any) -> None:
        self.stepped_ = True

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
        """Stop counting, and let go of batches whose step never came."""
        if self.hook_ is not None:
            self.hook_.remove()
            self.hook_ = None
        self.writer_.held.clear()

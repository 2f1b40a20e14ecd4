"""The Hugging Face Trainer: a model as it is called, and a callback that writes its memory."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.hooks import RemovableHandle

from hma.adapters.writing import StepWriter, Unpack, find_memory_model, replay_rows
from hma.attention.hma import HMA
from hma.errors import UserError
from hma.extras import ensure_torchvision
from hma.model import MemoryModel

with suppress(ImportError):  # no torchvision, nothing to repair
    ensure_torchvision()
from transformers import (
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)


def split_labels(batch: Any) -> tuple[Any, Any]:
    """Return a batch of named tensors as ``(everything else, labels)``."""
    if not isinstance(batch, Mapping) or batch.get("labels") is None:
        held = ", ".join(batch) if isinstance(batch, Mapping) else type(batch).__name__
        raise UserError(
            f"labels must reach the model for the memory to learn them, it was called with {held}; "
            "label smoothing and compute_loss_func keep them back: use ForTrainer(loss=...) instead"
        )
    x = {name: value for name, value in batch.items() if name != "labels" and value is not None}
    return x, batch["labels"]


class ForTrainer(nn.Module):
    """A model with a memory that the Trainer can call: named tensors in, loss and logits out.

    Args:
        model: The model; its backbone gets the named tensors without the labels as one dict.
        inputs: Makes the backbone's input from that dict, such as
            ``lambda batch: batch["pixel_values"]``.
        loss: Loss of logits ``(B, C)`` and labels ``(B,)``; the model's contrastive loss, if it has
            one, is added in training.

    Example:
        >>> from hma import VotingMemory
        >>> model = VotingMemory(nn.Linear(2, 8), 3, feature_dim=8)
        >>> trained = ForTrainer(model, inputs=lambda batch: batch["pixel_values"])
        >>> rows = {"pixel_values": torch.rand(4, 2), "ids": torch.arange(4)}
        >>> output = trained(**rows, labels=torch.tensor([0, 1, 2, 0]))
        >>> output["loss"].shape, output["logits"].shape
        (torch.Size([]), torch.Size([4, 3]))
    """

    accepts_loss_kwargs = False
    """The loss is a mean over rows, so the Trainer divides it by the accumulated batches."""

    def __init__(
        self,
        model: MemoryModel,
        *,
        inputs: Callable[[dict[str, Tensor]], Any] = dict,
        loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
    ) -> None:
        super().__init__()
        self.model = model
        self.inputs = inputs
        self.loss = loss

    def forward(  # the Trainer keeps the columns that are named here
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        labels: Tensor | None = None,
        ids: Tensor | None = None,
        **others: Tensor,
    ) -> dict[str, Tensor]:
        """Return the logits, and the loss where labels are given.

        A column ``ids`` tells samples apart, so that none is stored twice;
        :class:`hma.adapters.writing.WithIds` adds one to any data set of dicts.
        """
        named = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "pixel_values": pixel_values,
            **others,
        }
        given = {name: value for name, value in named.items() if value is not None}
        output = self.model.output(self.inputs(given))
        if labels is None:
            return {"logits": output.logits}
        loss = self.loss(output.logits, labels)
        if self.training and isinstance(self.model, HMA) and self.model.config.contrastive:
            contrast = self.model.contrast(output.features, labels, ids=ids).mean()
            loss = loss + self.model.config.contrastive * contrast
        return {"loss": loss, "logits": output.logits}

    def unpack(self, batch: Any) -> tuple[Any, Any, Any]:
        """Take a batch apart as ``forward`` does."""
        given, labels = split_labels(batch)
        ids = given.pop("ids", None)
        return self.inputs(given), labels, ids


class RememberCallback(TrainerCallback):
    """Give a model its memory while the Trainer trains it.

    A memory that is learned after the backbone (:class:`hma.VotingMemory`) is learned in
    ``on_train_end`` from the training rows, with those of the last evaluation to judge by:
    checkpoints from before hold backbone and head alone, so call ``model.learn_memory`` after
    loading one. The paper's memory is written for each batch trained on, after the optimizer step
    that learned from it.

    The Trainer tells callbacks when a step is done but not what was in it, so a hook on the model
    keeps the arguments of its last training call. With gradient accumulation the batches wait
    for the step. Checkpoints and evaluations come after this callback.

    Args:
        model: The model to write into; by default the one inside the Trainer's model.
        unpack: Takes the arguments of a call apart into ``(x, y)`` or ``(x, y, ids)``; by default
            as :class:`ForTrainer` does, or ``labels`` from everything else.

    Example, not run as a doctest because it trains::

        trainer = Trainer(ForTrainer(model), arguments, train_dataset=WithIds(rows),
                          callbacks=[RememberCallback()])
    """

    def __init__(self, model: MemoryModel | None = None, *, unpack: Unpack | None = None) -> None:
        self.model = model
        self.unpack = unpack
        self._hook: RemovableHandle | None = None
        self._called: Any = None
        self._writer: StepWriter | None = None

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        """Find the model, start slots that wait for rows, and begin to listen to it."""
        assert model is not None
        if args.n_gpu > 1:
            raise UserError(
                f"the memory cannot follow a model that is split over {args.n_gpu} devices in one "
                "process; start one process per device with torchrun, or set CUDA_VISIBLE_DEVICES"
            )
        own = model.unpack if isinstance(model, ForTrainer) else split_labels
        self._writer = StepWriter(find_memory_model(model, self.model), self.unpack or own)
        self._writer.start(_replay(kwargs.get("train_dataloader"), args))
        self._stop_listening()
        self._hook = model.register_forward_pre_hook(self._listen, with_kwargs=True)

    def _listen(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if module.training and torch.is_grad_enabled():
            self._called = args[0] if len(args) == 1 and not kwargs else dict(kwargs)

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Hold a batch whose gradients are being accumulated."""
        assert self._writer is not None
        if self._called is None:
            raise UserError(
                "the model was not called in training mode during this step, so the memory cannot "
                "know the batch; let compute_loss call the model it is given"
            )
        called, self._called = self._called, None
        self._writer.hold(called)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Hold the last batch of the step and write all of them."""
        self.on_substep_end(args, state, control)
        assert self._writer is not None
        self._writer.write()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Learn a memory that is learned last; stop listening."""
        assert self._writer is not None
        rows = _replay(kwargs.get("train_dataloader"), args, whole=True)
        self._writer.finish(rows, _replay(kwargs.get("eval_dataloader"), args, whole=True))
        self._stop_listening()
        self._writer = None

    def _stop_listening(self) -> None:
        self._called = None
        if self._hook is not None:
            self._hook.remove()
            self._hook = None


def _replay(loader: Any, args: TrainingArguments, *, whole: bool = False) -> Iterator[Any]:
    """Yield the batches of a loader once more, where the model is."""
    from accelerate.utils import send_to_device  # type: ignore[import-untyped]

    for batch in replay_rows(loader, whole=whole):
        yield send_to_device(batch, args.device)

"""The loop itself: rounds of steps, validation, and which round is best so far."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hma.data import Batch, Split, Task
from hma.errors import UserError
from hma.memory.distributed import gather_rows
from hma.methods import Learner
from hma.methods.frozen_state import changing_state, frozen_sha256
from hma.metrics import METRICS, Metric, recorded, temperature_for
from hma.options.recipe import Recipe
from hma.training.devices import place_on_device
from hma.training.evaluation import all_logits, evaluate
from hma.training.optimizer import learning_rate, make_optimizer
from hma.training.order import BATCH_SORTED, LEAST_ROWS, TrainingOrder, class_weights
from hma.training.randomness import RandomState, preserve_random_state
from hma.training.record import EpochResult, Record, Scores

if TYPE_CHECKING:
    from lightning.fabric import Fabric


@dataclass
class Standing:
    """How far a run is; with weights, optimizer and random state, all that the next step needs.

    An epoch here ends with a validation: a pass over the rows, or a round of so many steps.
    """

    epoch: int = 0
    step: int = 0
    """Steps done in this epoch."""
    rows: int = 0
    """Rows seen in this epoch."""
    epochs: list[EpochResult] = field(default_factory=list)
    best_epoch: int | None = None
    best_score: float = math.nan


class Training:
    """Train a learner step by step; what it does besides is up to ``between_steps``.

    Args:
        learner: What to train; its forward pass goes through Fabric from now on.
        task: What from.
        recipe: How.
        seed: Decides the order of rows.
        fabric: Where.
        like: Record of an earlier fit, whose validation rows chose epochs, temperature and what a
            memory counts; they may be among the training rows now.
    """

    def __init__(
        self,
        learner: Learner,
        task: Task,
        recipe: Recipe,
        seed: int,
        fabric: "Fabric",
        like: Record | None = None,
    ) -> None:
        self.learner, self.task, self.recipe, self.seed = learner, task, recipe, seed
        self.like = like
        self.fabric = fabric
        self.module = learner.module
        self.optimizer = make_optimizer(self.module, recipe)
        self.device, self.processes = fabric.device, fabric.world_size
        self._stepper = place_on_device(learner, self.optimizer, fabric, recipe)
        least = LEAST_ROWS * self.processes
        self.train = learner.training_split(task.train, seed)
        self.order = TrainingOrder(
            self.train.labels, recipe.batch_size, seed, recipe.balance, least, recipe.drop_last
        )
        per_pass = self.order.steps_per_epoch
        self.steps = recipe.steps_of(per_pass)
        self.per_epoch = recipe.evaluate_every_steps or per_pass
        self.epochs = -(-self.steps // self.per_epoch)
        self.rate = learning_rate(recipe, per_pass, self.steps)
        if like is not None:
            self.epochs = min(self.epochs, like.selected_epoch + 1)
            self.steps = min(self.steps, self.epochs * self.per_epoch)
        self.standing = Standing()
        self.loss_sum = torch.zeros((), device=self.device)
        self.last_loss = self.loss_sum
        self.best: dict[str, Tensor] = {}
        self.frozen = frozen_sha256(self.module)
        self.random_before: RandomState | None = None
        self.between_steps: Callable[[], None] = lambda: None
        balanced = recipe.balance == "loss"
        classes = task.target.table_rows
        self._weights = class_weights(self.train.labels, classes) if balanced else None

    @property
    def step(self) -> int:
        """Steps done since the start of the run."""
        done = self.standing.epoch * self.per_epoch + self.standing.step
        return min(done, self.steps)  # the last epoch may be cut short

    @property
    def finished(self) -> bool:
        """Whether the last epoch is done, or patience has run out."""
        standing, patience = self.standing, self.recipe.patience
        if standing.epoch >= self.epochs:
            return True
        if patience is None or standing.best_epoch is None:
            return False
        since = max(standing.best_epoch, self.recipe.patience_from - 1)
        waited = standing.epoch - 1 - since
        return waited >= patience and waited * self.per_epoch >= self.recipe.patience_steps

    def begin(self) -> None:
        """Before the first step of all, let the learner start; random numbers are given back."""
        if self.step == 0:
            with preserve_random_state(self.device) as self.random_before:
                self.learner.before_training(self.task.train, lambda: self.between_steps())
            self.random_before = None

    # --------------------------------------------------------------------- an epoch

    def run_epoch(self) -> EpochResult:
        """Train what is left of an epoch, validate, and return what it came to."""
        standing = self.standing
        self.learner.module.train()
        last = min((standing.epoch + 1) * self.per_epoch, self.steps)
        for passes, places in self.order.steps(self.step, last):
            self.train_on(places, passes)
            standing.step += 1
            standing.rows += len(places)
            self.between_steps()
        result = EpochResult(
            epoch=standing.epoch,
            train_loss=self._mean_loss(),
            validation=self._validation(),
            lr=self.rate(self.step - 1),
        )
        self._keep_if_best(result)
        standing.epochs.append(result)
        standing.epoch, standing.step, standing.rows = standing.epoch + 1, 0, 0
        self.loss_sum.zero_()
        return result

    def train_on(self, places: Tensor, passes: int) -> None:
        """Make one step on some rows, with ``passes`` whole passes over all rows before it."""
        rate = self.rate(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        batch = self._batch(places, passes)
        loss = self.learner.loss(batch)
        loss = self._shared(loss, batch, places)
        self.fabric.backward(loss)
        if self.recipe.clip_norm is not None:
            self.fabric.clip_gradients(
                self.learner.module,
                self._stepper,
                max_norm=self.recipe.clip_norm,
                error_if_nonfinite=False,  # asking would wait for the device
            )
        self._stepper.step()
        self._stepper.zero_grad()
        with self.fabric.autocast():
            self.learner.after_step(batch)
        self.last_loss = loss.detach()
        self.loss_sum.add_(self.last_loss, alpha=len(places) / self.processes)

    def _batch(self, places: Tensor, passes: int) -> Batch:
        if self.processes > 1:
            places = places.tensor_split(self.processes)[self.fabric.global_rank]
        batch = self.train.batch(places, epoch=passes)
        if self._weights is not None:
            balanced = self._weights[batch.y]
            given = batch.weight
            batch = batch._replace(weight=balanced if given is None else balanced * given)
        return batch if self.device.type == "cpu" else batch.to(self.device)

    def _shared(self, loss: Tensor, batch: Batch, places: Tensor) -> Tensor:
        """Scale the loss so that the mean over processes is the mean over all rows."""
        if self.processes == 1:
            return loss
        if batch.weight is None:
            return loss * (len(batch.y) * self.processes / len(places))
        own = batch.weight.sum()
        total = own.clone()
        dist.all_reduce(total)
        return loss * (own * self.processes / total)

    def _mean_loss(self) -> float:
        total = gather_rows(self.loss_sum[None]).sum()
        mean = float(total) / self.standing.rows
        if not math.isfinite(mean):
            raise UserError(
                f"training diverged: the loss of {self.recipe.round} {self.standing.epoch} is "
                f"{mean}; lower lr (now {self.recipe.lr}) or set clip_norm"
            )
        return mean

    # ------------------------------------------------------------------- evaluation

    def _validation(self) -> Scores:
        number = self.standing.epoch + 1
        due = number % self.recipe.evaluate_every == 0 or number == self.epochs
        if due:
            self.learner.before_evaluation(self.task.train, self.between_steps)
        if not due or len(self.task.validation) == 0:
            return {}
        followed = [m.name for m in recorded(self.task.target) if m.followed]
        selecting = selecting_metric(self.task, self.recipe).name
        wanted = dict.fromkeys([self.task.metric, *followed, selecting])
        contexts = [context for context in self.learner.contexts if context != BATCH_SORTED]
        return self.evaluate(self.task.validation, wanted, contexts)

    def evaluate(
        self, split: Split, metrics: Iterable[str] = (), contexts: Iterable[str] | None = None
    ) -> Scores:
        """Return the scores on a split in each context; random numbers it draws are given back."""
        self._bring_buffers_together()
        with preserve_random_state(self.device) as self.random_before:
            by_context = evaluate(
                self.learner,
                split,
                batch_size=self.recipe.eval_batch_size,
                contexts=contexts,
                metrics=metrics,
                target=self.task.target,
                tick=lambda: self.between_steps(),
            )
        self.random_before = None
        return by_context

    def calibrate(self) -> dict[str, float]:
        """Divide the logits by the temperature that the validation rows ask for.

        Return it, and what the validation loss then is; the temperature of an earlier fit is taken
        as it is.
        """
        if self.like is not None:
            apply_temperature(self.module, self.like.measures.get("temperature", 1.0))
            return {}
        head, split = getattr(self.module, "head", None), self.task.validation
        self._bring_buffers_together()
        logits = all_logits(self.learner, split, batch_size=self.recipe.eval_batch_size)
        temperature = 1.0
        if isinstance(head, nn.Linear):
            temperature = temperature_for(logits, split.labels, self.task.target)
            apply_temperature(self.module, temperature)
        loss = METRICS["loss"].score(logits / temperature, split.labels, self.task.target)
        return {"temperature": temperature, "validation_loss": loss}

    def learn_the_rest(self) -> dict[str, Any]:
        """Let the learner do what follows the last epoch, and return what it says of it."""
        self._bring_buffers_together()
        weight = None if self._weights is None else self._weights[self.task.train.labels]
        with preserve_random_state(self.device) as self.random_before:
            found = self.learner.after_training(
                self.task,
                seed=self.seed,
                weight=weight,
                tick=lambda: self.between_steps(),
                like=None if self.like is None else self.like.measures,
            )
        self.random_before = None
        return found

    def _bring_buffers_together(self) -> None:
        if self.processes > 1:
            for buffer in self.module.buffers():
                dist.broadcast(buffer, src=0)

    def _keep_if_best(self, result: EpochResult) -> None:
        if not result["validation"]:
            return
        context, metric = self.learner.contexts[0], selecting_metric(self.task, self.recipe)
        score, standing = result["validation"][context][metric.name], self.standing
        if math.isnan(score) and self.recipe.chooses_by_validation:
            raise UserError(
                f"{metric.name} is not defined on the validation split of {self.task.name!r}: it "
                "needs labels that differ; choose another metric or another split"
            )
        first = standing.best_epoch is None and not math.isnan(score)
        if first or metric.better(score, standing.best_score):
            standing.best_score, standing.best_epoch = score, result["epoch"]
            if self.recipe.selection != "last":
                self.best = {n: v.detach().clone() for n, v in changing_state(self.module).items()}


def selecting_metric(task: Task, recipe: Recipe) -> Metric:
    """Return the metric that decides which epoch is best."""
    if recipe.selection == "loss":
        return METRICS["calibrated_loss" if recipe.calibrate else "loss"]
    return METRICS[task.metric]


@torch.no_grad()
def apply_temperature(module: nn.Module, temperature: float) -> None:
    """Divide every logit by ``temperature``, in the weights of the head; a vote has none."""
    head = getattr(module, "head", None)
    if isinstance(head, nn.Linear):
        for weight in head.parameters():
            weight.div_(temperature)

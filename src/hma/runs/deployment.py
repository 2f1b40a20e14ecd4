"""What a run trains side by side, which of it answers new rows, and how much each counts."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self, cast

from torch import Tensor, nn

from hma.attention.config import ABLATIONS, HMAConfig
from hma.data import Task
from hma.errors import UserError
from hma.extras import needed
from hma.io.files import FileError
from hma.io.json_files import finite_or_none, none_to_nan, read_json, write_json
from hma.methods import Learner, Method, erm, with_memory
from hma.methods.learner import BackboneFactory
from hma.methods.simple import NoSimpleRowError, simple_methods
from hma.methods.simple import title as simple_title
from hma.metrics import METRICS
from hma.targets import Classes, Target
from hma.training import Record
from hma.vote.config import VoteConfig
from hma.vote.weighing import fit_shares

MemoryConfig = HMAConfig | VoteConfig

Which = Literal[
    "mixture", "memory", "plain", "logistic", "neighbours", "kernel", "boosting", "param"
]
"""Who answers: one of the candidates, or all of them together."""
MIXTURE: Which = "mixture"
"""All candidates together, each with its share."""
MEMORY: Which = "memory"
"""The backbone with its memory."""
PLAIN: Which = "plain"
"""The same backbone without one."""
SIMPLE: tuple[Which, ...] = ("logistic", "neighbours", "kernel", "boosting")
PARAM: Which = "param"
"""Shown beside the others and never part of an answer: it tells what a memory adds."""
CANDIDATES: tuple[Which, ...] = (PLAIN, MEMORY, *SIMPLE, PARAM)
"""Each has a folder of its own in the run folder, with a record and weights."""


def title(which: Which, target: Target) -> str:
    """Return the name of a candidate within a sentence.

    Example:
        >>> from hma.targets import Number
        >>> title("logistic", Number())
        'ridge regression'
    """
    titles: dict[Which, str] = {
        "mixture": "the mixture",
        "memory": "the memory",
        "plain": "the plain backbone",
        "param": "PARAM",
    }
    return titles[which] if which in titles else simple_title(which, target)


def method_of(which: Which, task: Task, backbone: nn.Module, config: MemoryConfig) -> Method:
    """Return the method of a candidate other than the memory, with a backbone that is there.

    Args:
        which: The candidate.
        task: What it learned; without rows if need be.
        backbone: The encoder; simple baselines take a frozen one alone.
        config: Sizes of the memories.
    """
    if which == PLAIN:
        return erm(lambda task: backbone)
    if which == PARAM:
        return with_memory(lambda task: backbone, without_memories(config), alone=True)
    return simple_methods(task, lambda task: backbone)[which]


def without_memories(config: MemoryConfig) -> HMAConfig:
    """Return the PARAM ablation: the same blocks without a memory."""
    if not isinstance(config, HMAConfig):
        raise UserError(
            "--param is for --memory hma, whose reads have blocks of their own; rows that vote "
            "have none, so the plain backbone is that comparison"
        )
    free = {name: value for name, value in asdict(config).items() if name not in ABLATIONS[PARAM]}
    return HMAConfig.ablation(PARAM, **free)


def new_learners(
    task: Task,
    seed: int,
    *,
    backbone: BackboneFactory,
    config: MemoryConfig,
    compare: bool = True,
    param: bool = False,
) -> dict[Which, Learner]:
    """Return what is to be trained; nothing is written yet.

    Simple methods share the plain backbone's encoder where it is frozen. What has no answer for
    such rows or labels is left out.

    Args:
        task: What is to be learned.
        seed: Decides the first weights.
        backbone: Makes the encoder.
        config: Sizes of the memories.
        compare: Whether anything is trained beside the memory.
        param: Whether PARAM is.
    """
    found: dict[Which, Learner] = {}
    if compare:
        found[PLAIN] = erm(backbone)(task, seed)
        found |= _simple_learners(task, seed, cast("Any", found[PLAIN].module).backbone, config)
    found[MEMORY] = with_memory(backbone, config, alone=True)(task, seed)
    if param:
        found[PARAM] = with_memory(backbone, without_memories(config), alone=True)(task, seed)
    return found


def _simple_learners(
    task: Task, seed: int, backbone: nn.Module, config: MemoryConfig
) -> dict[Which, Learner]:
    found: dict[Which, Learner] = {}
    needed("sklearn", "training simple baselines beside the networks")
    if isinstance(task.target, Classes) and len(set(task.train.labels.tolist())) < 2:
        return found  # nothing to tell apart
    for which in SIMPLE:
        with suppress(NoSimpleRowError, KeyError):
            found[which] = method_of(which, task, backbone, config)(task, seed)
    return found


SCHEMA = 1
DEPLOYMENT = "deployment.json"
REMEDY = "remove it and run its hma train command again, which repeats no training"
LEAST_SAID = 0.005
"""Share below which a candidate is not named."""
SHAPE = {
    "schema": int,
    "deployed": str,
    "validation_rows": int,
    "shares": dict[str, float],
    "validation_losses": dict[str, float | None],
    "mixture_tests": dict[str, dict[str, float | None]],
    "weights_sha256": dict[str, str | None],
}


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What ``hma predict`` asks.

    Args:
        which: Who answers: a candidate, or the mixture.
        shares: What each candidate counts in the mixture.
        losses: Validation loss of each candidate and of the mixture, as far as it is known.
        target: What a label is.
        rows: Validation rows that decided.
        tests: Scores of the mixture: test split -> metric -> value.
        weights: Hash of the weights of each candidate.
    """

    which: Which
    shares: Mapping[Which, float]
    losses: Mapping[Which, float]
    target: Target
    rows: int = 0
    tests: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    weights: Mapping[Which, str | None] = field(default_factory=dict)

    @property
    def counted(self) -> Mapping[Which, float]:
        """What each candidate counts in an answer, the most first; those that do not are left out.

        Example:
            >>> from hma.targets import Classes
            >>> shares = {"plain": 0.3, "memory": 0.7}
            >>> found = Deployment(which="mixture", shares=shares, losses={}, target=Classes(2))
            >>> found.counted, found.asked("plain").counted
            ({'memory': 0.7, 'plain': 0.3}, {'plain': 1.0})
        """
        return self.mixed if self.which == MIXTURE else {self.which: 1.0}

    @property
    def mixed(self) -> Mapping[Which, float]:
        """What each candidate counts in the mixture, the most first; without those that do not."""
        order = sorted(self.shares, key=lambda name: -self.shares[name])
        return {name: self.shares[name] for name in order if self.shares[name] > 0}

    @property
    def why(self) -> str:
        """Who answers and why, in one line."""
        if len(self.shares) == 1:
            return f"deployed: {self.title()}, nothing was trained beside it"
        said = self.title()
        if self.which == MIXTURE:
            parts = [
                f"{share:.0%} {self.title(name)}"
                for name, share in self.counted.items()
                if share >= LEAST_SAID
            ]
            said = f"a mixture, {', '.join(parts)}"
        own = self.losses.get(self.which)
        others = [name for name in self.losses if name not in (self.which, MIXTURE)]
        if own is None or not others:
            why = (
                "there are no validation rows to decide by"
                if not self.rows
                else ("the validation losses are not known")
            )
            return f"deployed: {said}; {why}"
        best = min(others, key=self.losses.__getitem__)
        alone = "the best one alone" if self.which == MIXTURE else "the best of the others"
        few = ""
        if self.which == MIXTURE and own > self.losses[best]:
            few = f"; {self.rows} validation rows are too few to separate them"
        return (
            f"deployed: {said}; validation loss {own:.4f} against {self.losses[best]:.4f} for "
            f"{alone} ({self.title(best)}){few}{self._of_the_networks()}"
        )

    def _of_the_networks(self) -> str:
        plain, memory = self.losses.get(PLAIN), self.losses.get(MEMORY)
        if plain is None or memory is None or len(self.shares) == 2:
            return ""
        better = MEMORY if memory < plain else PLAIN
        return f"; of the two networks validation prefers {self.title(better)}"

    def title(self, which: Which | None = None) -> str:
        """Return the name of a candidate within a sentence; of who answers if none is given."""
        return title(which or self.which, self.target)

    def asked(self, which: Which | None) -> Self:
        """Return the same with another one to answer; None leaves it."""
        return self if which is None else replace(self, which=which)

    def write(self, folder: Path) -> None:
        """Write ``deployment.json``, sealed; a file that says the same is left as it is."""
        values = {
            "schema": SCHEMA,
            "deployed": self.which,
            "validation_rows": self.rows,
            "shares": dict(self.shares),
            "validation_losses": dict(self.losses),
            "mixture_tests": finite_or_none(self.tests),
            "weights_sha256": dict(self.weights),
        }
        write_json(folder / DEPLOYMENT, values, sealed=True)


def read_deployment(folder: Path, target: Target) -> Deployment | None:
    """Read what :meth:`Deployment.write` wrote; None where nothing was written."""
    path = folder / DEPLOYMENT
    if not path.exists():
        return None
    values = read_json(path, SHAPE, sealed=True, remedy=REMEDY)
    if values["schema"] != SCHEMA:
        raise UserError(
            f"{path} was written by another version of hma (schema {values['schema']}, this one "
            f"reads {SCHEMA}); use that version, or {REMEDY}"
        )
    found = Deployment(
        which=values["deployed"],
        shares=values["shares"],
        losses={n: loss for n, loss in values["validation_losses"].items() if loss is not None},
        target=target,
        rows=values["validation_rows"],
        tests=none_to_nan(values["mixture_tests"]),
        weights=values["weights_sha256"],
    )
    if problem := _problem(found):
        raise FileError(f"{path} is damaged: {problem}; {REMEDY}")
    return found


def _problem(found: Deployment) -> str | None:
    strange = sorted(set(found.shares) - (set(CANDIDATES) - {PARAM}))
    if strange:
        return f"it names {strange[0]!r}, which no run has"
    if found.which not in (*found.shares, MIXTURE):
        return f"it deploys {found.which!r}, which has no share"
    right = all(share >= 0 for share in found.shares.values())
    if not right or not math.isclose(math.fsum(found.shares.values()), 1.0, abs_tol=1e-6):
        return "its shares are no shares of 1"
    return None


def fitted_deployment(
    said: Mapping[Which, Tensor],
    labels: Tensor,
    target: Target,
    weights: Mapping[Which, str | None],
) -> Deployment:
    """Return the mixture whose shares the validation rows decide.

    Without validation rows nothing speaks for one or the other: the two networks share the
    answer, since simple baselines would have to choose their settings by such rows.

    Args:
        said: Logits of each candidate on the validation rows, ``(N, outputs)``.
        labels: Of these rows.
        target: What a label is.
        weights: Hash of the weights of each candidate.
    """
    names = list(said)
    if len(labels) == 0:
        networks = [name for name in names if name in (PLAIN, MEMORY)]
        equal = {name: float(name in networks) / len(networks) for name in names}
        return Deployment(which=MIXTURE, shares=equal, losses={}, target=target, weights=weights)
    shares = fit_shares([said[name] for name in names], labels, target)
    mixed = target.mix_logits(
        [said[n] for n, share in zip(names, shares, strict=True) if share > 0],
        [share for share in shares if share > 0],
    )
    loss = METRICS["loss"]
    losses = {name: loss.score(logits, labels, target) for name, logits in said.items()}
    losses[MIXTURE] = loss.score(mixed, labels, target)
    return Deployment(
        which=MIXTURE if len(names) > 1 else names[0],
        shares=dict(zip(names, shares, strict=True)),
        losses={name: value for name, value in losses.items() if math.isfinite(value)},
        target=target,
        rows=len(labels),
        weights=weights,
    )


def validation_loss(record: Record) -> float | None:
    """Return the loss of the kept weights on the validation rows; None if it is not known."""
    measured = record.measures.get("validation_loss")
    if isinstance(measured, int | float):
        return float(measured)
    scores: Mapping[str, Any] = {}
    if record.epochs:
        scores = record.epochs[record.selected_epoch]["validation"]
    first: Mapping[str, float] = next(iter(scores.values()), {})
    return next((first[name] for name in ("loss", "nll") if name in first), None)

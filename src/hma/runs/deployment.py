"""Which of the trained candidates answers new rows, and how much each of them counts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from hma.errors import UserError
from hma.io.files import FileError
from hma.io.json_files import finite_or_none, none_to_nan, read_json, write_json
from hma.metrics import METRICS
from hma.runs.candidates import CANDIDATES, MEMORY, MIXTURE, PARAM, PLAIN, Which, title
from hma.targets import Target
from hma.training import Record
from hma.vote.shares import fitted_shares

SCHEMA = 1
DEPLOYMENT = "deployment.json"
REMEDY = "remove it and give the run's hma train command again, which trains nothing anew"
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
            few = f"; {self.rows} validation rows are few and cannot tell them well apart"
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
    answer, since simple methods would have to choose their settings by such rows.

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
    shares = fitted_shares([said[name] for name in names], labels, target)
    mixed = target.mixed(
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


def deployment_before(memory: Record, plain: Record | None, target: Target) -> Deployment:
    """Return what answers in a folder from before there were mixtures.

    That is the network with the smaller validation loss, of equals the plain backbone; records
    that do not hold the losses leave the memory, which was asked for.
    """
    records = {MEMORY: memory} if plain is None else {PLAIN: plain, MEMORY: memory}
    losses = {name: validation_loss(record) for name, record in records.items()}
    known = {name: loss for name, loss in losses.items() if loss is not None}
    which = min(known, key=known.__getitem__) if len(known) == 2 else MEMORY
    return Deployment(
        which=which,
        shares={name: float(name == which) for name in records},
        losses=known,
        target=target,
        rows=1,
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

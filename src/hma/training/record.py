"""What a run came to: one JSON file, written whole."""

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self, TypedDict

from hma.errors import UserError
from hma.io.files import MissingFileError
from hma.io.json_files import Default, finite_or_none, none_to_nan, read_json, validate, write_json

SCHEMA = 1
MACHINE_FIELDS = ("seconds", "epoch_seconds", "peak_memory_bytes")
"""What the machine happened to take; all other fields come out the same again, bit for bit."""

Scores = dict[str, dict[str, float]]
"""Inference context -> metric -> value."""

SCORES = dict[str, dict[str, float | None]]
EPOCH = {"epoch": int, "train_loss": float | None, "validation": SCORES, "lr": float | None}
SHAPE = {
    "schema": int,
    "name": str,
    "seed": int,
    "setup": {"method": {"contexts": list[str]}, "recipe": dict},
    "resolved": Default(dict, {}),
    "git_commit": Default(str | None),
    "versions": Default(dict[str, str], {}),
    "data_fingerprint": Default(str, ""),
    "epochs": [EPOCH],
    "selected_epoch": int,
    "selection_rule": Default(str, ""),
    "tests": dict[str, SCORES],
    "weights_sha256": Default(str | None),
    "seconds": Default(float, 0.0),
    "epoch_seconds": Default(list[float], []),
    "peak_memory_bytes": Default(int, 0),
    "measures": Default(dict, {}),
}
"""What a record must hold, and what stands in for a field that it does not have."""


class EpochResult(TypedDict):
    """One epoch: mean training loss, scores in each context (none if not validated), last lr."""

    epoch: int
    train_loss: float
    validation: Scores
    lr: float


@dataclass(frozen=True, kw_only=True)
class Record:
    """A finished run.

    Args:
        name: Of the run, as printed in tables.
        seed: Seed of the run.
        setup: Task, method and recipe, in JSON values.
        resolved: The options that the caller gave, in JSON values.
        git_commit: Commit of hma's source, ``-dirty`` if changed; None for an installed package.
        versions: Version of Python and of the packages that numbers depend on.
        data_fingerprint: Hash of the task's data.
        epochs: Every epoch, in order.
        selected_epoch: Which of them the kept weights are from, counted from 0.
        selection_rule: How it was chosen, in words.
        tests: Test split -> context -> metric -> value, with the kept weights.
        weights_sha256: Hash of ``weights.safetensors``; None where no folder was given.
        seconds: Time taken, over all starts of the run.
        epoch_seconds: Time of each epoch with its validation.
        peak_memory_bytes: Most memory held at once: of the device, or of the process on a CPU.
        measures: What else was measured beside scores, in JSON values.
        others: Fields of a record that another version wrote and this one does not know.
        schema: Version of this layout; grows when a field comes to mean something else, not when
            one is added.
    """

    name: str
    seed: int
    setup: dict[str, Any]
    resolved: dict[str, Any]
    git_commit: str | None
    versions: dict[str, str]
    data_fingerprint: str
    epochs: list[EpochResult]
    selected_epoch: int
    selection_rule: str
    tests: dict[str, Scores]
    weights_sha256: str | None
    seconds: float
    epoch_seconds: list[float]
    peak_memory_bytes: int
    measures: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values; a number that is not finite becomes None."""
        values: dict[str, Any] = finite_or_none(asdict(self))
        others: dict[str, Any] = values.pop("others")
        if not self.measures:  # as records were before anything could be measured
            del values["measures"]
        return {"schema": self.schema, **values, **others}

    def repeatable(self) -> dict[str, Any]:
        """Return the part that a run gives again, bit for bit: all but ``MACHINE_FIELDS``."""
        return {name: v for name, v in self.to_json().items() if name not in MACHINE_FIELDS}

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Build a record from what :meth:`to_json` returned, by this version or an earlier one.

        A field that is not there takes its default, one that is not known is kept in ``others``.
        """
        schema = values.get("schema") if isinstance(values, dict) else None
        if isinstance(schema, int) and schema > SCHEMA:
            raise UserError(
                f"a record of schema {schema} was written by a newer hma, this one reads up to "
                f"{SCHEMA}; install the version that wrote it, and leave the record as it is"
            )
        known = validate(values, SHAPE)
        if known["schema"] != SCHEMA:
            raise UserError(f"a record must have a schema from 1 to {SCHEMA}, got {schema}")
        if not 0 <= known["selected_epoch"] < max(len(known["epochs"]), 1):
            raise UserError(
                f"a record must select one of its {len(known['epochs'])} epochs, got "
                f"{known['selected_epoch']}"
            )
        names = {one.name for one in fields(cls)} - {"others"}
        own = {name: value for name, value in known.items() if name in names}
        others = {name: value for name, value in known.items() if name not in names}
        numbers = {name: none_to_nan(own[name]) for name in ("epochs", "tests")}
        return cls(**own | numbers, others=others)

    def write(self, path: Path) -> None:
        """Write the record as JSON, whole or not at all."""
        write_json(path, self.to_json())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what :meth:`write` wrote."""
        remedy = "restore it from a copy, or remove its folder and train again"
        try:
            values = read_json(path, Any, remedy=remedy)
        except MissingFileError as error:
            raise UserError(f"there is no record at {path}: the run did not finish") from error
        try:
            return cls.from_json(values)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        except ValueError as error:
            raise UserError(f"{path} is damaged: {error}; {remedy}") from error


DIVERGED = 2.0
"""How many times the best training loss the last one may be."""


def curve_note(record: Record) -> str | None:
    """Return a line where a run ended too early or went astray; None for a run that is fine."""
    losses = [epoch["train_loss"] for epoch in record.epochs]
    if len(losses) < 2:
        return None
    recipe = record.setup["recipe"]
    lr = recipe.get("lr")
    if losses[-1] > DIVERGED * min(losses) and losses[-1] > losses[0] / 2:
        return (
            f"the training loss rose again, from {min(losses):.3g} to {losses[-1]:.3g}: lower --lr "
            f"(now {lr:g}) or --clip-norm"
        )
    planned = recipe.get("steps") is None and recipe.get("epochs") in (None, len(losses))
    if planned and record.selected_epoch == len(losses) - 1 and losses[-1] < 0.98 * losses[-2]:
        return (
            f"still improving in the last of {len(losses)} epochs: more --epochs or a higher --lr "
            f"(now {lr:g}) may help"
        )
    return None

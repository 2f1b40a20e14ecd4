"""What a run came to: one JSON file, written whole."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self, TypedDict

from hma.errors import UserError
from hma.files import written_whole
from hma.training.writing import no_lost_writes

SCHEMA = 1
MACHINE_FIELDS = ("seconds", "epoch_seconds", "peak_memory_bytes")
"""What the machine happened to take; all other fields come out the same again, bit for bit."""

Scores = dict[str, dict[str, float]]
"""Inference context -> metric -> value."""


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
        schema: Version of this layout.
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
    schema: int = SCHEMA

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values; a number that is not finite becomes None."""
        values: dict[str, Any] = finite_or_none(asdict(self))
        return {"schema": self.schema} | values

    def repeatable(self) -> dict[str, Any]:
        """Return the part that a run gives again, bit for bit: all but ``MACHINE_FIELDS``."""
        return {name: v for name, v in self.to_json().items() if name not in MACHINE_FIELDS}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Build a record from what :meth:`to_json` returned."""
        schema = values.get("schema")
        if schema != SCHEMA:
            raise UserError(
                f"a record must have schema {SCHEMA}, got {schema!r}: another version of hma wrote "
                "it; use that version, or train again in an empty folder"
            )
        names = {field.name for field in fields(cls)}
        if names != set(values):
            raise UserError(
                f"a record must have the fields {sorted(names)}; missing: "
                f"{sorted(names - set(values))}, unknown: {sorted(set(values) - names)}"
            )
        numbers = ("epochs", "tests")
        return cls(**{name: none_to_nan(v) if name in numbers else v for name, v in values.items()})

    def write(self, path: Path) -> None:
        """Write the record as JSON, whole or not at all."""
        text = json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n"
        with no_lost_writes(path), written_whole(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what :meth:`write` wrote."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise UserError(f"there is no record at {path}: the run did not finish") from error
        except ValueError as error:
            raise UserError(
                f"{path} is damaged: {error}; restore it from a copy, or remove its folder and "
                "train again"
            ) from error
        if not isinstance(values, dict):
            raise UserError(f"{path} must hold a JSON object, got a {type(values).__name__}")
        return cls.from_json(values)


def finite_or_none(value: Any) -> Any:
    """Return JSON values with every number that is not finite replaced by None, as JSON wants."""
    if isinstance(value, Mapping):
        return {str(name): finite_or_none(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def none_to_nan(value: Any) -> Any:
    """Undo :func:`finite_or_none` for values that are all numbers."""
    if isinstance(value, dict):
        return {name: none_to_nan(item) for name, item in value.items()}
    if isinstance(value, list):
        return [none_to_nan(item) for item in value]
    return math.nan if value is None else value

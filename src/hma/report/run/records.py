"""From the record of a run, as JSON values, to curves, costs and tables of options."""

import json
import math
from collections.abc import Mapping
from typing import Any

from hma.report.run.run_report import Cost, Curve

Values = Mapping[str, Any]
LISTED = 20
"""Items of a list that are written out."""
SHORTER = {"git_commit": "commit", "data_fingerprint": "data fingerprint"}


def curve(method: str, record: Values, metric: str) -> Curve:
    """Return how training went; what the record lacks is NaN, not left out.

    Example:
        >>> epochs = [{"epoch": 0, "train_loss": 1.5, "validation": {"alone": {"accuracy": 0.5}}}]
        >>> curve("HMA", {"epochs": epochs, "selected_epoch": 0}, "accuracy").validation
        {'alone': (0.5,)}
    """
    epochs = list(record.get("epochs") or [])
    contexts = list(dict.fromkeys(c for epoch in epochs for c in epoch.get("validation") or {}))
    return Curve(
        method=method,
        epochs=tuple(int(epoch.get("epoch", i)) for i, epoch in enumerate(epochs)),
        train_loss=tuple(_number(epoch.get("train_loss")) for epoch in epochs),
        validation={
            context: tuple(
                _number(((epoch.get("validation") or {}).get(context) or {}).get(metric))
                for epoch in epochs
            )
            for context in contexts
        },
        selected=record.get("selected_epoch"),
        rule=str(record.get("selection_rule") or ""),
    )


def cost(method: str, record: Values, counted: int | None) -> Cost:
    """Return what a run took; parameters are ``counted`` where the record does not tell."""
    times = record.get("epoch_seconds") or []
    known = (record.get("setup") or {}).get("method") or {}
    return Cost(
        method=method,
        seconds=record.get("seconds"),
        epochs=len(record.get("epochs") or []),
        epoch_seconds=sum(times) / len(times) if times else None,
        peak_memory_bytes=record.get("peak_memory_bytes"),
        parameters=known.get("trained_weights", counted),
    )


def options(record: Values) -> dict[str, str]:
    """Return what was asked for and what came of it: options, then method and recipe."""
    setup = record.get("setup") or {}
    asked = flat(record.get("resolved") or {})
    parts = {name: setup[name] for name in ("method", "recipe") if setup.get(name)}
    return asked | {name: value for name, value in flat(parts).items() if name not in asked}


def provenance(record: Values) -> dict[str, str]:
    """Return versions, commit, data fingerprint and seed as flat names and values.

    Example:
        >>> provenance({"seed": 3, "versions": {"torch": "2.13.0"}})
        {'seed': '3', 'torch version': '2.13.0'}
    """
    names = ("name", "seed", "data_fingerprint", "git_commit")
    kept = {SHORTER.get(name, name): record[name] for name in names if record.get(name) is not None}
    versions = flat(record.get("versions") or {})
    return flat(kept) | {f"{name} version": version for name, version in versions.items()}


def disagreements(memory: Values, plain: Values) -> list[str]:
    """Say where two records differ in what must be the same for a fair comparison."""
    return [
        f"The two methods differ in {SHORTER.get(name, name)}: {plain[name]} for the plain "
        f"backbone, {memory[name]} for HMA. The comparison is not of like with like."
        for name in ("data_fingerprint", "seed")
        if name in plain and name in memory and plain[name] != memory[name]
    ]


def flat(values: Values, prefix: str = "") -> dict[str, str]:
    """Return nested JSON values as dotted names and short texts.

    Example:
        >>> flat({"recipe": {"lr": 0.001, "schedule": None}, "contexts": ["batch", "alone"]})
        {'recipe.lr': '0.001', 'recipe.schedule': 'none', 'contexts': 'batch, alone'}
    """
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = _text(value)
    return found


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None or value == {} or value == []:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        shown = ", ".join(_text(item) for item in value[:LISTED])
        return shown + (f" and {len(value) - LISTED} more" if len(value) > LISTED else "")
    return json.dumps(value, default=str)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan

"""What an audit of the memories found: scores, changes with intervals, and a verdict."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hma.io.json_files import checked, finite_or_none, none_to_nan
from hma.metrics import METRICS, Metric

AUDIT = "audit"
"""Name of the measure in records: test split -> :meth:`Audit.to_json`."""
PERMUTED = "labels permuted"
"""Every stored row has the label of another."""
EMPTIED = "rows emptied"
"""No stored row is there."""
WITHOUT_SLOTS = "slots removed"
"""No learned row is there."""
ALONE = "neighbours removed"
"""No row sees another of its batch."""
SHUFFLED = "rows shuffled"
"""Rows share a batch with others than those beside which they were given."""
TOGETHER = "neighbours added"
"""Asked alone before, rows see those beside which they were given."""
TOGETHER_SHUFFLED = "shuffled neighbours added"
"""Asked alone before, rows see others of those that were given."""


NUMBERS = dict[str, float | None]
SHAPE = {
    "rows": int,
    "stored": int,
    "slots": int,
    "context": str,
    "repeats": int,
    "scores": NUMBERS,
    "changes": dict[str, dict[str, NUMBERS]],
}
"""What an audit is in JSON."""


@dataclass(frozen=True)
class Change:
    """A score of the model with other memories, against the one as it is.

    Args:
        score: What it is then.
        change: By how much it is more.
        low, high: Ends of the 95 % interval of the change; None where none was made.
    """

    score: float
    change: float
    low: float | None = None
    high: float | None = None

    @property
    def certain(self) -> bool:
        """Tell whether the interval is there and leaves 0 out."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    @property
    def none(self) -> bool:
        """Tell whether there is no change at all, however rows are drawn."""
        return self.change == 0 and not self.low and not self.high


Changes = Mapping[str, Change]
"""A change for each metric, the main one first."""


@dataclass(frozen=True)
class Audit:
    """Whether the memories of a model are read, by what their absence changes.

    Args:
        rows: Rows that were asked.
        stored: Rows in the real memory.
        slots: Learned rows.
        context: Inference context of the score as it is.
        repeats: Permutations, and orders of the rows, that are averaged.
        scores: Each metric as it is, the main one first.
        changes: What was done to the memories, and what that did to each metric; what a model
            does not have is not there.
    """

    rows: int
    stored: int
    slots: int
    context: str
    repeats: int
    scores: Mapping[str, float]
    changes: Mapping[str, Changes]

    @property
    def read(self) -> bool | None:
        """Tell whether permuted labels change the main score, or make another one worse.

        None where that cannot be told.
        """
        permuted = self.changes.get(PERMUTED)
        if permuted is None:
            return None if self.stored else False
        if _shown_by(permuted) is not None:
            return True
        known = all(change.none or change.low is not None for change in permuted.values())
        return False if known else None

    @property
    def verdict(self) -> str:
        """Return in one line whether the memory is read."""
        permuted = self.changes.get(PERMUTED)
        if permuted is None and not self.stored:
            return "not read: no row is stored"
        if permuted is None:
            return "cannot be told: all stored rows have the same label"
        main = next(iter(permuted))
        if self.read is None:
            return f"permuted labels {_costs(main, permuted[main])}; no interval was made"
        if not self.read:
            return f"not read: {self._unmoved(permuted)}{self._constant()}"
        name = _shown_by(permuted) or main
        harm = ", to its harm" if _cost(name, permuted[name])[0] < 0 else ""
        unseen = "" if name == main else f", though {METRICS[main].title} does not show it"
        return f"read{harm}{unseen}: permuted labels {_costs(name, permuted[name])}"

    def _unmoved(self, permuted: Changes) -> str:
        if all(change.none for change in permuted.values()):
            return "permuting the labels of the rows changes nothing"
        main = next(iter(permuted))
        return (
            f"permuted labels {_costs(main, permuted[main])}, which {self.rows} rows cannot tell "
            "from nothing"
        )

    def _constant(self) -> str:
        """Say of a memory that is not read that it is needed all the same."""
        emptied = self.changes.get(EMPTIED, {})
        for name, change in emptied.items():
            if change.certain and _cost(name, change)[0] > 0:
                return f"; emptied it {_costs(name, change)}, so it acts as a constant"
        return ""

    def __str__(self) -> str:
        """Return a small table, a line for each change, and the verdict."""
        metrics = [METRICS[name] for name in self.scores]
        lines = [["", *(cell for metric in metrics for cell in (metric.title, "change"))]]
        lines.append(["as it is"])
        for metric in metrics:
            lines[-1] += [score_text(metric, self.scores[metric.name]), ""]
        for done, changes in self.changes.items():
            lines.append([done])
            for metric in metrics:
                found = changes[metric.name]
                lines[-1] += [score_text(metric, found.score), change_text(metric, found)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        about = f"{self.rows} rows asked in context {self.context!r}; {self.stored} rows stored"
        about += f", {self.slots} slots" if self.slots else ""
        return "\n".join([*table, about, self.verdict])

    def to_json(self) -> dict[str, Any]:
        """Return plain values; what is not defined is None."""
        plain: dict[str, Any] = finite_or_none(asdict(self))
        return plain | {"read": self.read, "verdict": self.verdict}

    @classmethod
    def from_json(cls, values: Any) -> "Audit":
        """Return the audit that :meth:`to_json` gave, or raise a ``ValueError``."""
        held = checked(values, SHAPE)
        if strange := [name for name in held["scores"] if name not in METRICS]:
            raise ValueError(f"scores has a metric that is not known: {strange[0]!r}")
        changes = {
            done: {name: _change(found.get(name)) for name in held["scores"]}
            for done, found in held["changes"].items()
        }
        fields = {name: held[name] for name in ("rows", "stored", "slots", "context", "repeats")}
        return cls(**fields, scores=none_to_nan(held["scores"]), changes=changes)


def _change(values: Any) -> Change:
    held = checked(values, dict.fromkeys(("score", "change", "low", "high"), float | None))
    score, change = none_to_nan(held["score"]), none_to_nan(held["change"])
    return Change(score, change, held["low"], held["high"])


def _shown_by(permuted: Changes) -> str | None:
    """Return the first metric that shows that labels are read.

    A score beside the main one must get worse: one that gets better by noise in the labels shows
    that the model is too sure, not that it reads.
    """
    for place, (name, change) in enumerate(permuted.items()):
        if change.certain and (place == 0 or _cost(name, change)[0] > 0):
            return name
    return None


# ------------------------------------------------------------------------------------- numbers


def _cost(name: str, change: Change) -> tuple[float, float | None, float | None]:
    """Return by how much a score got worse, and the ends of that."""
    if not METRICS[name].larger_is_better:
        return change.change, change.low, change.high
    low, high = (None if end is None else -end for end in (change.high, change.low))
    return -change.change, low, high


def _costs(name: str, change: Change) -> str:
    """Return a change as what it costs, or gains where it makes the score better."""
    metric = METRICS[name]
    cost, low, high = _cost(name, change)
    verb = "cost"
    if cost < 0:
        verb, cost = "gain", -cost
        low, high = (None if end is None else -end for end in (high, low))
    unit = "points" if metric.scale == 100 else f"in {metric.title}"
    unit += "" if name == "accuracy" or metric.scale != 100 else f" of {metric.title}"
    between = "" if low is None else f" ({score_text(metric, low)} to {score_text(metric, high)})"
    return f"{verb} {score_text(metric, cost)} {unit}{between}"


def change_text(metric: Metric, change: Change) -> str:
    """Return a change with its sign and its interval, in points or in the unit of the metric."""
    text = score_text(metric, change.change, "+")
    if change.low is None:
        return text
    low, high = (score_text(metric, end, "+") for end in (change.low, change.high))
    return f"{text} ({low} to {high})"


def score_text(metric: Metric, value: float | None, sign: str = "") -> str:
    """Return a score, in percent where the metric is a share."""
    if value is None:
        return "?"
    digits = 1 if metric.scale == 100 else metric.digits
    text = f"{metric.scale * value:{sign}.{digits}f}"
    return text.lstrip("+-") if value == value and float(text) == 0 else text

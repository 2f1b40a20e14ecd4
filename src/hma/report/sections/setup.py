"""How the data was split, what the run took and came from, and how the page is read."""

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

from hma.report.html import fill
from hma.report.numbers import MISSING
from hma.report.run_facts import Values, flat
from hma.report.run_report import RunReport, Section


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a method took."""

    method: str
    seconds: float | None
    epochs: int
    epoch_seconds: float | None
    peak_memory_bytes: int | None
    parameters: int | None


def cost(method: str, record: Values) -> Cost:
    """Return what the training of a method took; what the record does not tell is None."""
    times = record.get("epoch_seconds") or []
    known = (record.get("setup") or {}).get("method") or {}
    return Cost(
        method=method,
        seconds=record.get("seconds"),
        epochs=len(record.get("epochs") or []),
        epoch_seconds=sum(times) / len(times) if times else None,
        peak_memory_bytes=record.get("peak_memory_bytes"),
        parameters=known.get("trained_weights"),
    )


def draw_data(report: RunReport, found: dict[str, Mapping[str, str]]) -> Markup:
    """Draw the rows of each group in each split, and how the splits came about."""
    return fill("data", report=report, facts=found["facts"])


def draw_run(report: RunReport, found: tuple[Cost, ...]) -> Markup:
    """Draw costs, options with what differs between the methods, and provenance."""
    options = []
    for name in dict.fromkeys(name for values in report.options.values() for name in values):
        values = [held.get(name, MISSING) for held in report.options.values()]
        options.append({"name": name, "values": values, "differ": len(set(values)) > 1})
    return fill("run", report=report, costs=found, options=options)


def draw_reading(report: RunReport, found: bool) -> Markup:
    """Draw what the words of the page mean."""
    memory = report.parts.get("memory")
    return fill("reading", report=report, audited=bool(memory and memory.audits))


SECTIONS = (
    Section(
        "data",
        "Data",
        "How the data was split",
        lambda facts: {"facts": flat(facts.facts)} if facts.facts or facts.splits else None,
        draw_data,
    ),
    Section(
        "run",
        "Run",
        "The run",
        lambda facts: tuple(cost(method, record) for method, record in facts.records.items()),
        draw_run,
    ),
    Section("reading", "How to read", "How to read this page", lambda facts: True, draw_reading),
)

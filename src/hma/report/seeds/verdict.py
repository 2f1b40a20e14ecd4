"""What the seeds together come to, in plain sentences, by the rules for a single run."""

from hma.metrics import METRICS
from hma.report.numbers import counted, probability
from hma.report.run.trial import Comparison
from hma.report.run.verdict import (
    Verdict,
    amount,
    change,
    change_interval,
    judged,
)
from hma.report.seeds.seeds_report import SeedsReport, SeedsTrial, Standing


def verdict(report: SeedsReport, trial: SeedsTrial) -> Verdict:
    """Say what HMA changed on a test set, over the seeds.

    Better or worse is said only where the interval over seeds and rows leaves 0 out, the paired
    t-test over seeds agrees, and the winner also beats the best simple row.
    """
    metric = report.metrics[0]
    memory, plain, simple = trial.of("memory"), trial.of("plain"), trial.best_simple
    seeds = counted(len(report.seeds), "seed")
    if memory is None or plain is None:
        said = " ".join(_reaches(metric, one) for one in trial.standings)
        return Verdict("alone", "No plain backbone to compare with", f"Over {seeds}: {said}")
    said = (
        f"Over {seeds} {memory.name} reaches {_mean(metric, memory)}, the plain backbone "
        f"{_mean(metric, plain)}."
    )
    said = f"{said} {_difference(metric, memory)}"
    if simple is not None:
        said += f" The best simple row, {simple.name}, reaches {_mean(metric, simple)}."
    if (deployed := trial.of("deployed")) is not None:
        said += f" What was deployed reaches {_mean(metric, deployed)}{_beside(metric, deployed)}."
    if len(report.seeds) < 2:
        return Verdict("alone", "One seed is finished, and one decides nothing", said)
    found = Comparison(
        context="", differences=memory.to_plain, p_over_seeds=memory.tested.get(metric)
    )
    named = None if simple is None else (simple.name, simple.mean(metric))
    outcome, headline = judged(metric, found, plain.mean(metric), memory.mean(metric), named)
    return Verdict(outcome, f"{headline} ({seeds})", said)


def _mean(metric: str, one: Standing) -> str:
    title = METRICS[metric].title
    value = amount(metric, one.mean(metric))
    return f"{value} {title}" if METRICS[metric].share else f"{title} {value}"


def _reaches(metric: str, one: Standing) -> str:
    return f"{one.name} reaches {_mean(metric, one)}."


def _difference(metric: str, one: Standing) -> str:
    ends, p = one.to_plain[metric], one.tested[metric]
    unit = " points" if METRICS[metric].share else ""
    test = "" if p is None else f"; paired t-test over seeds, p {_compared(p)}"
    span = f"95% interval over seeds and rows {change_interval(metric, ends)}{unit}"
    return f"The mean difference is {change(metric, ends.value)}{unit} ({span}{test})."


def _beside(metric: str, deployed: Standing) -> str:
    if metric not in deployed.to_simple:
        return ""
    ends = deployed.to_simple[metric]
    unit = " points" if METRICS[metric].share else ""
    away = f"{change(metric, ends.value)}{unit} ({change_interval(metric, ends)})"
    return f", {away} from that simple row"


def _compared(p: float) -> str:
    shown = probability(p)
    return shown.replace("<", "< ") if shown.startswith("<") else f"= {shown}"

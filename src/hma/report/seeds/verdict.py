"""What the seeds together come to, in plain sentences, by the rules for a single run."""

from hma.metrics import METRICS
from hma.metrics.resampling import Interval
from hma.report.numbers import counted, probability
from hma.report.run.trial import Comparison
from hma.report.run.verdict import Verdict, amount, change, change_interval, judged
from hma.report.seeds.seeds_report import SeedsReport, SeedsTrial, Standing

DEPLOYED = "what is deployed"


def verdict(report: SeedsReport, trial: SeedsTrial) -> Verdict:
    """Say what is gained over the plain backbone on a test set, over the seeds.

    It is about what is deployed, and about HMA where that is the plain backbone itself. Better or
    worse is said only where the interval over seeds and rows leaves 0 out, the paired t-test over
    seeds agrees, and the winner also beats the best simple row.
    """
    metric = report.metrics[0]
    plain, simple = trial.of("plain"), trial.best_simple
    subject = _subject(trial, plain)
    if subject is None or plain is None:
        said = "; ".join(f"{one.name} {_mean(metric, one)}" for one in trial.standings)
        return Verdict(
            "alone", "No plain backbone to compare with", f"{said[:1].upper()}{said[1:]}."
        )
    seeds = counted(len(report.seeds), "seed")
    name = DEPLOYED if subject.kind == "deployed" else subject.name
    said = (
        f"Over {seeds} {name} reaches {_mean(metric, subject)}, the plain backbone "
        f"{_mean(metric, plain)}. {_difference(metric, subject)}{_beside(metric, subject, simple)}"
        f"{_memory(metric, trial, subject)}"
    )
    if len(report.seeds) < 2:
        return Verdict("alone", "One seed is finished, and one decides nothing", said)
    found = Comparison(
        method=name,
        context="",
        differences=subject.to_plain,
        p_over_seeds=subject.tested.get(metric),
    )
    named = None if simple is None else (simple.name, simple.mean(metric))
    outcome, headline = judged(metric, found, plain.mean(metric), subject.mean(metric), named)
    return Verdict(outcome, f"{headline} ({seeds})", said)


def _subject(trial: SeedsTrial, plain: Standing | None) -> Standing | None:
    deployed = trial.of("deployed")
    if deployed is None or (plain is not None and deployed.scores == plain.scores):
        return trial.of("memory")
    return deployed


def _mean(metric: str, one: Standing) -> str:
    title = METRICS[metric].title
    value = amount(metric, one.mean(metric))
    return f"{value} {title}" if METRICS[metric].share else f"{title} {value}"


def _difference(metric: str, one: Standing) -> str:
    p = one.tested[metric]
    test = "" if p is None else f"; paired t-test over seeds, p {_compared(p)}"
    ends = one.to_plain[metric]
    span = f"95% interval over seeds and rows {change_interval(metric, ends)}"
    return f"The mean difference is {change(metric, ends.value)}{_unit(metric)} ({span}{test})."


def _beside(metric: str, one: Standing, simple: Standing | None) -> str:
    if simple is None:
        return ""
    said = f" The best simple row, {simple.name}, reaches {_mean(metric, simple)}"
    ends = one.to_simple.get(metric)
    return f"{said}." if ends is None else f"{said}: a difference of {_away(metric, ends)}."


def _memory(metric: str, trial: SeedsTrial, subject: Standing) -> str:
    memory = trial.of("memory")
    if memory is None or memory is subject or metric not in memory.to_plain:
        return ""
    away = _away(metric, memory.to_plain[metric])
    return f" {memory.name} alone reaches {_mean(metric, memory)}, {away} from the plain backbone."


def _away(metric: str, ends: Interval) -> str:
    return f"{change(metric, ends.value)}{_unit(metric)} ({change_interval(metric, ends)})"


def _unit(metric: str) -> str:
    return " points" if METRICS[metric].share else ""


def _compared(p: float) -> str:
    shown = probability(p)
    return shown.replace("<", "< ") if shown.startswith("<") else f"= {shown}"

"""Sheets of whole runs: what is deployed against the best simple row, and every candidate."""

from collections.abc import Iterator, Mapping

from hma.metrics import METRICS
from hma.report.numbers import MISSING, percent
from hma.report.table import scores
from hma.report.table.sheet import Field, Sheet
from hma.report.table.table_report import Deployed, TableReport

YES_NO = {True: "yes", False: "no", None: MISSING}


def candidate_sheets(report: TableReport) -> Iterator[Sheet]:
    """Yield for each metric the deployed model against the best simple row, then the candidates."""
    note = " ".join(
        [
            *(_found(metric, tasks) for metric, tasks in report.deployments.items()),
            "Difference: deployed minus the simple row with the best mean on the test rows, which "
            "only they could choose. Standard errors are those of the difference, paired: over the "
            "seeds, and over the test rows of all seeds. Holds: within one of them, or better.",
        ]
    )
    for metric, tasks in report.deployments.items():
        yield _against_simple(report, metric, tasks, note)
    for metric, tasks in report.deployments.items():
        yield _every_candidate(report, metric, tasks)
    yield _shares(report)


def _found(metric: str, tasks: Mapping[str, Deployed]) -> str:
    """Return on how many tasks the deployed model holds, and where it does not by how much."""
    compared = {task: one for task, one in tasks.items() if one.best_simple is not None}
    by_rows = [task for task, one in compared.items() if one.holds(one.rows_error)]
    by_seeds = [task for task, one in compared.items() if one.holds(one.seeds_error)]
    missed = [
        f"{task} ({scores.amount(metric, one.difference, sign='+')}, standard error "
        f"{scores.amount(metric, one.rows_error)})"
        for task, one in compared.items()
        if task not in by_rows
    ]
    name = METRICS[metric].title
    text = (
        f"{name[0].upper()}{name[1:]}: within one standard error of the best simple row or better "
        f"on {len(by_rows)} of {len(compared)} by the test rows, {len(by_seeds)} by the seeds"
    )
    return f"{text}; not on {', '.join(missed)}." if missed else f"{text}."


def _against_simple(
    report: TableReport, metric: str, tasks: Mapping[str, Deployed], note: str
) -> Sheet:
    columns = ("task", "deployed", "best simple row", "difference", "error, seeds", "error, rows")
    lines = []
    for task, one in _in_order(report, tasks).items():
        best = one.best_simple
        simple = scores.spread(metric, None if best is None else one.candidates[best])
        texts = [
            scores.amount(metric, one.difference, sign="+"),
            scores.amount(metric, one.seeds_error),
            scores.amount(metric, one.rows_error),
            _holds(one),
        ]
        named = Field(simple, () if best is None else (report.methods[best],))
        measured = Field(scores.spread(metric, one.measured))
        lines.append((Field(task), measured, named, *map(Field, texts)))
    title = f"Deployed against the best simple row, {scores.title(metric)}"
    return Sheet("overview", title, (*columns, "holds"), tuple(lines), note)


def _holds(one: Deployed) -> str:
    """Return whether the deployed model is within one error or better, and by which error."""
    rows, seeds = one.holds(one.rows_error), one.holds(one.seeds_error)
    if rows is None or seeds is None or rows == seeds:
        return YES_NO[rows]
    return "by rows" if rows else "by seeds"


def _every_candidate(report: TableReport, metric: str, tasks: Mapping[str, Deployed]) -> Sheet:
    names = _names(report, tasks)
    lines = []
    for task, one in _in_order(report, tasks).items():
        spreads = {"": one.measured, **one.candidates}
        best = max(one.sign * spread.mean for spread in spreads.values())
        fields = [
            Field(scores.spread(metric, spreads[name]), best=one.sign * spreads[name].mean == best)
            if name in spreads
            else Field("")
            for name in ("", *names)
        ]
        lines.append((Field(task), *fields))
    return Sheet(
        "candidates",
        f"Every candidate, {scores.title(metric)}",
        ("task", "deployed", *(report.methods[name] for name in names)),
        tuple(lines),
        "Mean ± sample standard deviation over seeds. Bold: the best mean of a task.",
    )


def _shares(report: TableReport) -> Sheet:
    tasks = next(iter(report.deployments.values()))
    names = _names(report, tasks)
    lines = [
        (Field(task), *(Field(percent(one.shares[n], 0) if n in one.shares else "") for n in names))
        for task, one in _in_order(report, tasks).items()
    ]
    return Sheet(
        "candidates",
        "Shares of the deployed model",
        ("task", *(report.methods[name] for name in names)),
        tuple(lines),
        "As the validation rows decided them, mean over seeds.",
    )


def _names(report: TableReport, tasks: Mapping[str, Deployed]) -> list[str]:
    return [
        name for name in report.methods if any(name in one.candidates for one in tasks.values())
    ]


def _in_order(report: TableReport, tasks: Mapping[str, Deployed]) -> dict[str, Deployed]:
    order = [task for group in report.groups for task in group.tasks]
    return {task: tasks[task] for task in order if task in tasks}

"""Step 3: is the memory read? The score with its labels permuted."""

from hma.questions.audit import PERMUTED, Audit
from hma.quickstart.step import Step
from hma.runs import Run
from hma.runs.audits import audit_run, read_audits


def read_or_not(run: Run) -> tuple[Step, Audit]:
    """Return the audit of the run's memory on its test rows; training made it already."""
    audit = next(iter((read_audits(run) or audit_run(run)).values()))
    permuted = audit.changes[PERMUTED]["accuracy"]
    step = Step(
        name="audit",
        title="Is the memory read? The audit gives its rows the labels of other rows",
        result=audit.verdict,
        command=f"hma audit {run.folder}",
        numbers={
            "accuracy as it is": audit.scores["accuracy"],
            "accuracy with labels permuted": permuted.score,
            "stored rows": audit.stored,
        },
    )
    return step, audit

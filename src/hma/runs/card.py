"""The model card of a run: what it deploys, what that scored, and how to ask it."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from hma.data import is_builtin
from hma.io.card import (
    LIBRARY,
    audit_text,
    cell,
    front_matter,
    joined,
    model_facts,
    section,
    table,
)
from hma.io.files import atomic_write
from hma.methods.memory import WithMemory
from hma.metrics import METRICS
from hma.questions.audit import score_text
from hma.report.numbers import MISSING, counted
from hma.report.sections.stored_rows import MemoryChange
from hma.runs.audits import read_audits
from hma.runs.deployment import MEMORY, MIXTURE, PARAM, Which, title
from hma.runs.folder import Run
from hma.runs.memory_versions import Score, Version


def what_was_done(version: Version) -> str:
    """Say in a line what made a version."""
    note = f" ({version.note})" if version.note else ""
    if version.verb == "damaged":
        return version.source
    if version.verb == "restore":
        return f"version {version.restored} answers again{note}"
    if version.verb == "forget":
        return f"forgot {counted(version.forgotten, 'row')}: {version.source}{note}"
    new = f", new: {', '.join(version.classes)}" if version.classes else ""
    return f"remembered {counted(version.added, 'row')} of {version.source}{new}{note}"


def when(version: Version) -> str:
    """Return the time of a version as people write it, in UTC."""
    return version.time.replace("T", " ").removesuffix("+00:00")


def score_numbers(score: Score) -> tuple[str, str, str]:
    """Return the name of the metric, and its values before and after."""
    title = METRICS[score.metric].title if score.metric in METRICS else score.metric
    before, after = (
        MISSING if value is None else f"{value:.4f}" for value in (score.before, score.after)
    )
    return title, before, after


def version_line(run: Run) -> str:
    """Say which version of the memory answers; nothing where it is what training left."""
    number = run.living.number
    if not number:
        return ""
    version = run.versions.version(number)
    return (
        f"Version {number} of the memory answers, with {counted(version.rows, 'row')}: "
        f"{what_was_done(version)}. Records, losses and shares are those of the training."
    )


def changes_of(run: Run) -> list[MemoryChange]:
    """Return every version of the memory after training, for the page."""
    found = []
    for version in run.versions.history() if run.living.number else []:
        lines = []
        for score in version.scores:
            title, before, after = score_numbers(score)
            said = f"{title} {before} before, {after} after" if title else ""
            lines.append(f"{score.rows} ({score.count}): {said}{'; ' if said else ''}{score.how}")
        found.append(
            MemoryChange(
                number=version.number,
                time=when(version),
                what=what_was_done(version),
                rows=version.rows,
                scores=tuple(lines),
                remains=version.remains,
            )
        )
    return found


MOST_NAMES = 20
"""Classes that are named; of more the first ones."""


def write_card(run: Run, path: Path) -> Path:
    """Write the card of a run and return where it is.

    Args:
        run: A finished run; its data is not needed.
        path: Where to.
    """
    text = card_of(run)
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return path


def card_of(run: Run) -> str:
    """Return the card of a run as Markdown, with front matter for the Hugging Face hub.

    Every score is one of its records, or of ``deployment.json``.
    """
    memory = run.learner(MEMORY)
    assert isinstance(memory, WithMemory)
    audits = read_audits(run)
    return joined(
        [
            front_matter(["memory"], None),
            f"# {cell(run.folder.resolve().name)}",
            f"{cell(run.deployed.why)}.",
            version_line(run),
            "## What it is",
            table(("part", "here"), _facts(run)),
            *section("Its memory", table(("part", "here"), model_facts(memory.model))),
            "## How to ask it",
            _asking(run),
            *section("Scores", _scores(run)),
            *section(
                "Does the model use its memory?", "\n\n".join(map(audit_text, audits.values()))
            ),
            "## Limits",
            "- Scores hold for rows like those they were measured on.\n"
            "- The memory holds features of training rows with their labels, and "
            "`preparation.json` what was fitted on them: whoever has the folder has them too.",
        ]
    )


def _facts(run: Run) -> dict[str, str]:
    options, preparation = run.options, run.preparation
    names = list(map(str, preparation.classes))
    shown = ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
    source = options.source if is_builtin(options.source) else Path(options.source).name
    rows = (f"{len(places):,} {name}" for name, places in run.places.items())
    parts = {
        "answers": f"{preparation.target.description}: {shown}",
        "data": f"{source} ({preparation.kind})",
        "rows": ", ".join(rows),
        "backbone": f"{options.backbone}{', frozen' if options.frozen_backbone else ''}",
        "who answers": _who(run),
        "seed": str(options.seed),
    }
    if run.refitted:
        parts["learned from"] = f"{run.learned_rows:,} training and validation rows"
    if options.target:
        parts["column of the labels"] = ", ".join(options.target)
    return parts


def _who(run: Run) -> str:
    counted, target = run.deployed.counted, run.preparation.target
    return ", ".join(f"{title(which, target)} {share:.0%}" for which, share in counted.items())


def _asking(run: Run) -> str:
    name = run.folder.resolve().name
    return f"""`pip install '{LIBRARY}[cli]'`, then, beside the folder `{name}` (`NEW` are rows as \
in training):

```console
hma predict {name} NEW -o answers.csv
hma explain {name} NEW --index 0
```

```python
from pathlib import Path

from hma.runs import Run

run = Run.open(Path({json.dumps(name)}))
learner = run.learner(run.deployed.which)  # in eval mode
```"""


# ------------------------------------------------------------------------------------- scores


def _scores(run: Run) -> str:
    """Return a table for each test set: what is deployed, and every candidate beside it."""
    deployed = run.deployed
    each: dict[Which, Mapping[str, Mapping[str, float]]] = {
        which: {test: found["alone"] for test, found in run.record(which).tests.items()}
        for which in run.candidates
        if which != PARAM
    }
    if MIXTURE in run.answering:
        each = {MIXTURE: deployed.tests, **each}
    tests = dict.fromkeys(test for found in each.values() for test in found)
    return "\n\n".join(_of_test(run, test, each) for test in tests)


def _of_test(run: Run, test: str, each: Mapping[Which, Mapping[str, Mapping[str, float]]]) -> str:
    scored = {which: found[test] for which, found in each.items() if test in found}
    metrics = list(dict.fromkeys(name for found in scored.values() for name in found))
    rows = run.places.get(test)
    count = "" if rows is None else f", {len(rows):,} rows"
    lines = [
        f"{cell(test)}{count}, each row asked alone:",
        "",
        f"| who answers | {' | '.join(METRICS[name].title for name in metrics)} |",
        "|---" * (len(metrics) + 1) + "|",
    ]
    for which, found in scored.items():
        name = title(which, run.preparation.target)
        said = f"**{name}** (deployed)" if which == run.deployed.which else name
        cells = [_number(metric, found.get(metric, math.nan)) for metric in metrics]
        lines.append(f"| {said} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(metric: str, value: float) -> str:
    return "—" if math.isnan(value) else score_text(METRICS[metric], value)

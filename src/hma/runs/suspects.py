"""Which training labels of a run may be wrong: what the memory says of each row without it."""

import torch
from torch import Tensor

from hma.data import Source
from hma.memory.rows import KeyedRows
from hma.methods.memory import WithMemory
from hma.model import MemoryModel
from hma.questions.suspects import Suspects, label_issues, suspects
from hma.report.sections.suspects import Against, SuspectRow, SuspectRows
from hma.runs.deployment import MEMORY
from hma.runs.folder import Run
from hma.runs.remembered import RememberedRows
from hma.training import Progress, progress_ticker

ON_THE_PAGE = 12
"""Rows that the page of a run shows."""
CHEAP = 25_000_000
"""Pairs of stored rows up to which the page asks by itself: a second or so."""


def suspects_of(
    run: Run,
    *,
    top: int | None = None,
    cleanlab: bool = False,
    progress: Progress | None = None,
) -> SuspectRows:
    """Return the stored rows of a run, the most suspicious label first.

    Args:
        run: A finished run.
        top: How many; all if not given.
        cleanlab: Let cleanlab say which labels are wrong: these come first.
        progress: Shows how far it is.
    """
    learner = run.learner(MEMORY)
    assert isinstance(learner, WithMemory)
    with progress_ticker(progress, "asking the others") as tick:
        found = suspects(learner.model, tick=tick)
    return _shown(run, found, RememberedRows(run), top, label_issues(found) if cleanlab else None)


def suspects_if_cheap(run: Run, model: MemoryModel, training: Source) -> SuspectRows | None:
    """Return what the page shows; None where rows do not vote, or are many.

    Args:
        run: A finished run.
        model: Its memory.
        training: Its training rows.
    """
    stored = None if model.real is None else model.real.queue
    count = len(stored.order()) if isinstance(stored, KeyedRows) else 0
    if not 2 <= count <= CHEAP**0.5:
        return None
    return _shown(run, suspects(model), RememberedRows(run, training), ON_THE_PAGE, None)


def _shown(
    run: Run, found: Suspects, remembered: RememberedRows, top: int | None, issues: Tensor | None
) -> SuspectRows:
    order = found.order.cpu()
    if issues is not None:
        order = order[issues[order].logical_not().byte().argsort(stable=True)]
    chosen: list[int] = order[:top].tolist()
    ids: list[int] = found.ids.tolist()
    against = {place: [p for p in found.against[place].tolist() if p >= 0] for place in chosen}
    named = list(dict.fromkeys([*chosen, *(p for held in against.values() for p in held)]))
    seen = dict(zip(named, remembered.seen([ids[place] for place in named]), strict=True))
    target, names = found.target, run.preparation.classes
    given, voted = found.given.tolist(), found.voted.tolist()
    sure, scores, shares = _sure(found).tolist(), found.score.tolist(), found.shares.tolist()
    rows = tuple(
        SuspectRow(
            id=ids[place],
            label=target.label_text(names, given[place]),
            suggested=target.label_text(names, voted[place]),
            sure=sure[place],
            score=scores[place],
            what=seen[place].what,
            where=seen[place].where,
            against=tuple(
                Against(
                    id=ids[other],
                    label=target.label_text(names, given[other]),
                    share=share,
                    what=seen[other].what,
                )
                for other, share in zip(against[place], shares[place], strict=False)
            ),
            issue=None if issues is None else bool(issues[place]),
        )
        for place in chosen
    )
    return SuspectRows(
        rows=rows,
        of=len(found),
        unjudged=len(found) - int(found.judged.sum()),
        issues=None if issues is None else int(issues.sum()),
        number=not target.gives_probabilities,
    )


def _sure(found: Suspects) -> Tensor:
    """Return how likely what is suggested is to the others, ``(N,)``; of a number nobody knows."""
    if not found.target.gives_probabilities:
        return torch.full_like(found.score, torch.nan)
    if not found.target.picks_one:  # of the label that is doubted most
        return found.score
    return found.expected.max(dim=1).values

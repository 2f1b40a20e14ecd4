"""Held-out rows decide how sharp the vote is, and what each of several answers counts."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hma.errors import UserError
from hma.memory.blocks import MOST_DISTANCES, evenly_spaced, in_blocks
from hma.memory.rows import EncodedRows
from hma.metrics.losses import minimise
from hma.targets import Number, Target
from hma.vote.added_classes import complete_head
from hma.vote.read import MOST_SHARPENED, QUERIES_AT_ONCE, VotingRead
from hma.vote.solved import AskedRows, Kernel

if TYPE_CHECKING:
    from hma.vote.voting_memory import VotingMemory

MOST_NUMBERS = 2**22
"""Outputs of one learner that shares are fitted to; of more rows some are taken, evenly."""
LEAST_ERROR = 1e-12
EVIDENCE = 1 / 5
"""What the loss of a row counts for or against a learner that answers alone: rows are alike, and
learners were chosen among many, so a likelihood as it is would be too sure."""
LEAST_FAVOUR = 0.02
"""Of every learner, so that none is ruled out by few rows."""


def fit_shares(
    logits: Sequence[Tensor],
    labels: Tensor,
    target: Target,
    *,
    counts: Tensor | None = None,
    favour: Sequence[float] | None = None,
) -> list[float]:
    r"""Return what each learner counts: the shares with the least loss on held-out rows.

    .. math:: \arg\min_w \sum_i \ell\Big(\sum_m w_m p_{mi},\, y_i\Big) - \sum_m a_m \log w_m

    over shares that sum to 1. The second sum pulls weakly towards shares in the ratio of ``a``, as
    ``a`` more rows for each learner would that it alone answers. There are as many such rows as
    learners, parted by how well each answers the held-out rows alone:

    .. math:: a_m = 0.02 + \frac{M e^{-L_m / 5}}{\sum_k e^{-L_k / 5}}

    with the summed loss :math:`L_m`: equal where rows are too few to tell, one learner's where they
    tell. Squared errors of numbers are counted in units of the least mean squared error, as the
    logarithm of a normal density has them. A learner whose outputs are not all finite gets no
    share.

    Args:
        logits: Of each learner on the same rows, ``(N, outputs)``.
        labels: Of these rows.
        target: What a label is.
        counts: What each row counts, ``(N,)``; None for 1.
        favour: ``a`` of each learner, instead.

    Example:
        >>> from hma.targets import Classes
        >>> right, wrong = torch.tensor([[3.0, 0.0]] * 50), torch.tensor([[0.0, 3.0]] * 50)
        >>> shares = fit_shares([right, wrong], torch.zeros(50, dtype=torch.long), Classes(2))
        >>> [round(share, 2) for share in shares]
        [1.0, 0.0]
    """
    sound = [m for m, said in enumerate(logits) if bool(said.isfinite().all())]
    if not sound or len(labels) == 0:
        raise UserError("shares must be fitted to finite outputs of at least one row, got none")
    rows = evenly_spaced(len(labels), max(MOST_NUMBERS // target.outputs, 1))
    said = [logits[m][rows].detach().cpu().double() for m in sound]
    labels = labels[rows].cpu()
    count = torch.ones(len(rows)) if counts is None else counts[rows].cpu()
    losses = torch.stack([(target.loss(z, labels) * count).sum() for z in said]).double()
    unit = 1.0
    if isinstance(target, Number):
        unit = 2 * max(float(losses.min() / count.sum()), LEAST_ERROR)
    if favour is None:
        alone = (-EVIDENCE * losses / unit).softmax(dim=0)
        more = LEAST_FAVOUR + len(said) * alone
    else:
        more = torch.tensor([favour[m] for m in sound])
    free = torch.zeros(len(said), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [free],
        max_iter=200,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def cost() -> Tensor:
        optimizer.zero_grad()
        each = target.loss(target.mix_logits(said, free.softmax(dim=0)), labels)
        found = (each * count).sum() / unit - (more * free.log_softmax(dim=0)).sum()
        found.backward()  # type: ignore[no-untyped-call]
        return found

    with torch.enable_grad():
        optimizer.step(cost)  # type: ignore[no-untyped-call]
    shares = dict(zip(sound, free.detach().softmax(dim=0).tolist(), strict=True))
    return [shares.get(m, 0.0) for m in range(len(logits))]


# ------------------------------------------------------------------------- the vote beside the head


MOST_HELD_OUT = 400
"""Held-out rows that are asked more than once."""
SPREAD = 0.5
"""How far from 1 a sharpening is expected, as the standard deviation of its logarithm."""
FOR_EACH = 0.5
"""Rows that head and vote are taken to have won each before any held-out row is asked."""

Keys = tuple[Tensor, Tensor, Tensor | None]
"""Where rows lie ``(N, K)``, their labels, and minus infinity where a place is empty ``(N,)``."""


def weigh(model: "VotingMemory", vote: VotingRead, held_out: EncodedRows) -> dict[str, Any]:
    """Let held-out rows decide how sharp the vote is and what each answer counts.

    Return their loss (``validation_loss``), by what the logarithm of the sharpness grew
    (``sharpened``), the ``kernels`` of solved votes, and the ``shares`` of the vote and of these.
    """
    rows, queries = _project_rows(model, vote), vote.keys(held_out.features)
    sharpened = _sharpen(model, vote, rows, held_out.at_most(MOST_HELD_OUT))
    said = vote_on_keys(vote, rows, queries, _choose_rows(model, vote, rows, queries))
    head = complete_head(model.head_logits(held_out.features), said, model.target)
    target = model.target
    kernels = choose_kernels(model, held_out=held_out)
    every = [head, said, *_solved_logits(model, held_out)]
    favour = [FOR_EACH] * len(every)
    shares = fit_shares(every, held_out.y, target, counts=held_out.weight, favour=favour)
    set_shares(model, shares[1:])
    loss = held_out.mean(target.loss(target.mix_logits(every, shares), held_out.y))
    return {
        "validation_loss": loss,
        "sharpened": sharpened,
        "kernels": [list(kernel) for kernel in kernels],
        "shares": shares[1:],
    }


def set_shares(model: "VotingMemory", shares: Sequence[float]) -> None:
    """Let the vote, then each solved vote, count its share of an answer."""
    for held, share in zip(
        [model.vote.share, *(one.share for one in model.solved)], shares, strict=True
    ):
        held.fill_(share)


def choose_kernels(
    model: "VotingMemory",
    kernels: Sequence[Sequence[float]] | None = None,
    held_out: EncodedRows | None = None,
) -> list[Kernel]:
    """Choose the kernel of each solved vote by the stored rows, or take those that are given."""
    found = []
    for place, solved in enumerate(model.solved):
        assert model.real is not None
        stored = model.real.queue.rows()
        view, asked = model.view_of(solved, stored.features), None
        given = None if kernels is None else Kernel.of(kernels[place])
        if held_out is not None:
            some = held_out.at_most(MOST_HELD_OUT)
            asked = AskedRows(model.view_of(solved, some.features), some.y, some.weight)
        found.append(solved.choose_kernel(view, stored.labels, stored.weight, given, asked))
        solved.share.fill_(1.0)  # until it is weighed
    return found


def _solved_logits(model: "VotingMemory", held_out: EncodedRows) -> Iterator[Tensor]:
    """Yield what each solved vote says of the held-out rows."""
    for solved, rows in zip(model.solved, model.solve(), strict=True):
        if rows is None:
            yield model.head_logits(held_out.features)  # nothing of its own to say
            continue
        parts = torch.split(model.view_of(solved, held_out.features), QUERIES_AT_ONCE)
        yield torch.cat([solved.answer(part, rows) for part in parts])


def _sharpen(
    model: "VotingMemory", vote: VotingRead, rows: list[Keys], held_out: EncodedRows
) -> float:
    """Give the learned sharpness the factor with the least loss, near 1 if rows are few.

    Return its logarithm.
    """
    learned = float(vote.log_sharpness.clamp(-MOST_SHARPENED, MOST_SHARPENED))
    queries = vote.keys(held_out.features)
    chosen = _choose_rows(model, vote, rows, queries)  # the nearest stay so however sharp the vote

    def cost(more: float) -> float:
        vote.log_sharpness.fill_(learned + more)
        each = model.target.loss(vote_on_keys(vote, rows, queries, chosen), held_out.y)
        return held_out.mean(each) * len(each) + more**2 / (2 * SPREAD**2)

    found = minimise(cost, -2.0, 2.0, rounds=10)
    vote.log_sharpness.fill_(learned + found)
    return found


def _project_rows(model: "VotingMemory", vote: VotingRead) -> list[Keys]:
    """Return keys, labels and bias of the stored rows, and of the slots."""
    found: list[Keys] = []
    if model.real is not None:
        queue = model.real.queue
        found.append((in_blocks(vote.keys, queue.features), queue.labels, model.real.unseen()))
    learned = model.synthetic
    if learned is not None and learned.slots is not None:
        found.append((vote.keys(learned.slots), learned.labels, None))
    return found


def _choose_rows(
    model: "VotingMemory", vote: VotingRead, rows: list[Keys], queries: Tensor
) -> Tensor | None:
    """Return the places of the stored rows that are to vote, ``(1, B, K)``; None for all."""
    if model.real is None or model.real.nearest is None:
        return None
    return model.real.places(vote.queries(queries), vote.at(*rows[0]))


def vote_on_keys(
    vote: VotingRead, rows: list[Keys], queries: Tensor, chosen: Tensor | None = None
) -> Tensor:
    """Return the vote on rows with keys ``(N, K)`` that are not in the memory, as logits.

    Args:
        vote: The read.
        rows: Groups of rows that vote.
        queries: Keys of those that are asked about, ``(B, K)``.
        chosen: Which rows of the first group vote on each, ``(1, B, k)``; None for all.
    """
    groups = [vote.at(*one) for one in rows]
    size = max(1, MOST_DISTANCES // max(1, sum(len(keys) for keys, _, _ in rows)))
    if chosen is None:
        parts = torch.split(queries, size)
        return torch.cat([vote(part, [*groups], keys=part)[0] for part in parts])
    first, *others = groups
    both = zip(
        torch.split(queries, QUERIES_AT_ONCE),
        torch.split(chosen, QUERIES_AT_ONCE, dim=1),
        strict=True,
    )
    return torch.cat([vote(q, [first.at(near), *others], keys=q)[0] for q, near in both])

"""What a trained run says of new rows: scores where they have labels, predictions where not."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from hma.data import Source, Split, labelled_rows, stream
from hma.errors import UserError
from hma.io.files import atomic_write
from hma.methods import Learner
from hma.methods.cached_features import encode_once
from hma.methods.learner import Tick
from hma.methods.mixture import Mixture
from hma.metrics import scores
from hma.options.run import Which
from hma.questions.row_order import SerialCorrelation
from hma.runs.coverage import Covered
from hma.runs.folder import ENCODED, Run
from hma.runs.prediction_files import ENDINGS, Content, prediction_file
from hma.targets import Target
from hma.training import Progress, Scores, logits_by_context, progress_ticker

__all__ = ["ENDINGS", "evaluate", "predict"]


def evaluate(run: Run, source: Source, *, progress: Progress | None = None) -> dict[Which, Scores]:
    """Return the scores of every candidate and of the mixture, in every context.

    A frozen backbone encodes the rows once for all of them.
    """
    if source.labels is None:
        raise UserError(f"{source.name} has no labels to evaluate against; use hma predict")
    labelled = labelled_rows(source)
    if not labelled:
        raise UserError(f"{source.name} has 0 rows with a label, so there is nothing to score")
    split = run.preparation.split(source, labelled)
    target, learners = run.preparation.target, run.learners()
    with progress_ticker(progress, "encoding") as tick:
        known = encode_once(split, [*learners.values()], batch_size=ENCODED, tick=tick)
    with progress_ticker(progress, "scoring") as tick:
        said = answers(learners, known, run.options.recipe.eval_batch_size, tick)
    return {
        which: {c: scores(logits, split.labels, target=target) for c, logits in found.items()}
        for which, found in said.items()
    }


def answers(
    learners: Mapping[Which, Learner], split: Split, batch_size: int, tick: Tick
) -> dict[Which, dict[str, Tensor]]:
    """Return the logits of every learner ``(N, outputs)`` in each of its contexts.

    What a mixture of them says follows from what they say: nothing is computed twice.

    Args:
        learners: Candidates, and perhaps their mixture, as :meth:`Run.learners` has them.
        split: Rows.
        batch_size: Rows per batch; where a row sees its batch it decides who sees whom.
        tick: Called with the rows that are answered, over all passes, and with all of them.
    """
    alone = {which: one for which, one in learners.items() if not isinstance(one, Mixture)}
    passes = sum(len(learner.contexts) for learner in alone.values())
    done = 0

    def count() -> None:
        nonlocal done
        done = min(done + batch_size, passes * len(split))
        tick(done, passes * len(split))

    found = {
        which: logits_by_context(learner, split, batch_size=batch_size, tick=count)
        for which, learner in alone.items()
    }
    for which, learner in learners.items():
        if isinstance(learner, Mixture):
            each = {name: found[cast("Which", name)] for name in learner.learners}
            found[which] = learner.mixed(each)
    return found


def predict(
    run: Run,
    source: Source,
    output: Path,
    *,
    which: Which | None = None,
    context: str = "alone",
    batch_size: int = 256,
    covered: Covered | None = None,
) -> Iterator[int]:
    """Write a prediction for every row into a CSV or Parquet file; yield the rows done so far.

    The file appears whole when the last row is done; memory does not grow with the input. Rows
    are taken as the source has them, so in context 'batch' a row sees its neighbours there; where
    they come in an order, :class:`hma.questions.row_order.OrderedRowsWarning` says so at the end.
    The learner that the run deployed answers, unless ``which`` names another, or ``covered``, which
    adds columns of its own, brings one.
    """
    if covered is not None:
        learner = covered.learner
    else:
        learner = run.learner(run.deployed.which if which is None else which)
    _use(learner, context)
    target, names = run.preparation.target, run.preparation.classes
    pictures = source.kind == "image"  # a picture is known by the name of its file
    columns: dict[str, Content] = {"row": "text" if pictures else "place"}
    columns |= columns_of(target, names) | ({} if covered is None else covered.columns)
    done, following = 0, SerialCorrelation()
    with atomic_write(output) as temporary, prediction_file(temporary, columns) as write:
        for batch in stream(run.preparation, source, batch_size):
            if covered is not None:
                batch = covered.encoded(batch)
            with torch.no_grad():
                said = target.expected(learner.predict(batch))
            following.add(said)
            places = batch.ids.tolist()
            rows = [source.describe(place) for place in places] if pictures else places
            answers = [_cells(target, names, values) for values in said.tolist()]
            if covered is not None:
                answers = covered.completed(answers, batch, said)
            write([(row, *cells) for row, cells in zip(rows, answers, strict=True)])
            done += len(places)
            yield done
    if context == "batch":
        following.warn()


def columns_of(target: Target, names: Sequence[str]) -> dict[str, Content]:
    """Return the columns that hold a prediction.

    Example:
        >>> from hma.targets import Number
        >>> columns_of(Number(), ["price"])
        {'price': 'number'}
    """
    if not target.gives_probabilities:
        return {names[0]: "number"}
    decided: dict[str, Content] = {"label": "text", "probability": "share"}
    shares: dict[str, Content] = {f"probability of {name}": "share" for name in names}
    return decided | shares if target.picks_one else shares


def _cells(target: Target, names: Sequence[str], values: Any) -> list[Any]:
    if not target.gives_probabilities:
        return [values]
    if not target.picks_one:
        return list(values)
    best = max(range(len(values)), key=values.__getitem__)
    return [names[best], values[best], *values]


def _use(learner: Learner, context: str) -> None:
    if context not in learner.contexts:
        raise UserError(
            f"context must be one of {', '.join(learner.contexts)} for this run, got {context!r}"
        )
    learner.use(context)
    learner.module.eval()

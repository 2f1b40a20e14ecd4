"""What a trained run says of new rows: scores where they have labels, predictions where not."""

import csv
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from hma.data import Batch, Source, stream
from hma.errors import UserError
from hma.explain import probabilities
from hma.files import written_whole
from hma.methods import Learner
from hma.runs.folder import MEMORY, PLAIN, Run, Which
from hma.training import Scores
from hma.training import evaluate as score

COLUMNS = ("row", "label", "probability")


def evaluate(run: Run, source: Source) -> dict[Which, Scores]:
    """Return the scores of both learners in every context on labelled rows."""
    if source.labels is None:
        raise UserError(f"{source.name} has no labels to evaluate against; use hma predict")
    split = run.preparation.split(source)
    methods: list[Which] = [PLAIN, MEMORY] if run.has_plain else [MEMORY]
    rows = run.options.recipe.eval_batch_size
    return {which: score(run.learner(which), split, batch_size=rows) for which in methods}


def predict(
    run: Run,
    source: Source,
    output: Path,
    *,
    which: Which = MEMORY,
    context: str = "alone",
    batch_size: int = 256,
) -> Iterator[int]:
    """Write a prediction for every row into a CSV file; yield the rows done so far.

    The file appears whole when the last row is done; memory does not grow with the input. Rows
    are taken as the source has them, so in context 'batch' a row sees its neighbours there.
    """
    if which == PLAIN and not run.has_plain:
        raise UserError(f"{run.folder} has no plain backbone: it was trained with --no-compare")
    learner = run.learner(which)
    if which == PLAIN:
        context = learner.contexts[0]
    if context not in learner.contexts:
        raise UserError(
            f"context must be one of {', '.join(learner.contexts)} for this run, got {context!r}"
        )
    learner.use(context)
    learner.module.eval()
    classes = run.preparation.classes
    with (
        written_whole(output) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, *(f"probability of {name}" for name in classes)])
        done = 0
        for batch in stream(run.preparation, source, batch_size):
            shares = _probabilities(learner, batch)
            for row, each in zip(batch.ids.tolist(), shares, strict=True):
                name = source.describe(row) if source.kind == "image" else row  # a file's name
                best = int(each.argmax())
                each_text = [f"{value:.6f}" for value in each.tolist()]
                writer.writerow([name, classes[best], each_text[best], *each_text])
            done += len(batch.ids)
            yield done


@torch.no_grad()
def _probabilities(learner: Learner, batch: Batch) -> Tensor:
    return probabilities(learner.predict(batch))

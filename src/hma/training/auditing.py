"""Is the memory of a trained model read? The audit of a whole split."""

from collections.abc import Iterable

import torch

from hma.data import Split
from hma.model import Context, MemoryModel
from hma.questions.audit import Audit, Part, audit_features
from hma.training.progress import Progress, counted


def audit_split(
    model: MemoryModel,
    split: Split,
    *,
    batch_size: int = 256,
    context: Context | None = None,
    metrics: Iterable[str] = (),
    repeats: int = 5,
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Audit:
    """Return :func:`hma.audit` of the rows of a split, in the order that they have there.

    Args:
        model: The model.
        split: Labelled rows, or features of them.
        batch_size: Rows per batch; where rows see each other it decides who sees whom.
        context, metrics, repeats, resamples, seed: As :func:`hma.audit` takes them.
        progress: Shows how far it is.
    """
    parts: list[Part] = []
    batches = torch.split(torch.arange(len(split)), batch_size) if len(split) else ()
    with model.reading(), torch.no_grad(), counted(progress, "encoding") as tick:
        for places in batches:
            batch = split.batch(places).to(model.device)
            features = batch.features
            if features is None:
                features = model.backbone(batch.x)
                tick(int(places[-1]) + 1, len(split))
            parts.append((features, batch.y, None))
    with counted(progress, "audit") as tick:
        return audit_features(
            model,
            parts,
            context=context,
            metrics=metrics,
            repeats=repeats,
            resamples=resamples,
            seed=seed,
            tick=tick,
        )

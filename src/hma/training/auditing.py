"""Is the memory of a trained model read? The audit of a whole split."""

from collections.abc import Callable, Iterable, Iterator

import torch

from hma.audit import Part, audit_features
from hma.audited import Audit
from hma.config import Context
from hma.data import Split
from hma.model import HMA


def audit_split(
    model: HMA,
    split: Split,
    *,
    batch_size: int = 256,
    context: Context | None = None,
    metrics: Iterable[str] = (),
    repeats: int = 5,
    resamples: int = 1000,
    seed: int = 0,
    tick: Callable[[int, int], None] | None = None,
) -> Audit:
    """Return :func:`hma.audit` of the rows of a split, in the order that they have there.

    Args:
        model: The model.
        split: Labelled rows, or features of them.
        batch_size: Rows per batch; in context 'batch' it decides who sees whom.
        context, metrics, repeats, resamples, seed: As :func:`hma.audit` takes them.
        tick: Told how much is done, and of how much.
    """
    told = tick or _nothing

    def parts() -> Iterator[Part]:
        batches = torch.split(torch.arange(len(split)), batch_size) if len(split) else ()
        for done, places in enumerate(batches):
            batch = split.batch(places).to(model.anchors.device)
            features = model.backbone(batch.x) if batch.features is None else batch.features
            yield features, batch.y, None
            told(done + 1, len(batches))

    return audit_features(
        model,
        parts(),
        context=context,
        metrics=metrics,
        repeats=repeats,
        resamples=resamples,
        seed=seed,
        tick=tick,
    )


def _nothing(done: int, total: int) -> None:
    pass

"""Which metrics a report shows, as formulas for weighted rows."""

from torch import Tensor

from hma.metrics import METRICS, OfWeights
from hma.targets import Classes

SHOWN = ("accuracy", "balanced accuracy", "macro F1", "nll")


def metrics_of(logits: Tensor, labels: Tensor, headline: str) -> dict[str, OfWeights]:
    """Return the metrics worth showing, the ``headline`` first.

    Args:
        logits: Of each class ``(N, C)``, or of the second of two ``(N, 1)``.
        labels: True class ids ``(N,)``.
        headline: What the task selects by.

    Example:
        >>> import numpy as np, torch
        >>> sure = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]]).log()
        >>> found = metrics_of(sure, torch.tensor([0, 1, 1, 1]), "accuracy")
        >>> {name: round(float(m(np.ones((4, 1)))[0]), 3) for name, m in found.items()}
        {'accuracy': 0.75, 'balanced accuracy': 0.833, 'macro F1': 0.733, 'auroc': 1.0, 'nll': 0.4}
    """
    target = Classes(logits.shape[1])
    serving = [name for name, metric in METRICS.items() if metric.serves(target)]
    if headline not in serving:
        known = ", ".join(map(repr, serving))
        raise ValueError(f"headline must be one of {known}, got {headline!r}")
    shown = {*SHOWN, headline} | ({"auroc"} if target.count <= 2 else set())
    wide = logits.detach().cpu().double()
    names = [headline, *(name for name in serving if name in shown and name != headline)]
    return {name: METRICS[name].weighted(wide, labels.cpu(), target) for name in names}

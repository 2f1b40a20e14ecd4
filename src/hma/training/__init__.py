"""One training loop for every method: fit, evaluate, exact resume, one record per run."""

from hma.training.devices import fabric_for
from hma.training.evaluation import evaluate, predictions
from hma.training.fit import fit
from hma.training.interruption import Interrupted
from hma.training.metrics import METRICS, scores
from hma.training.progress import Progress, RichProgress, SilentProgress, progress_for_terminal
from hma.training.recipe import Recipe
from hma.training.record import EpochResult, Record, Scores

__all__ = [
    "METRICS",
    "EpochResult",
    "Interrupted",
    "Progress",
    "Recipe",
    "Record",
    "RichProgress",
    "Scores",
    "SilentProgress",
    "evaluate",
    "fabric_for",
    "fit",
    "predictions",
    "progress_for_terminal",
    "scores",
]

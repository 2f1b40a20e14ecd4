"""One training loop for every method: fit, evaluate, exact resume, one record per run."""

from hma.errors import Interrupted
from hma.options.recipe import Recipe, UserRecipe
from hma.training.devices import ending_together, fabric_for, first_process
from hma.training.evaluation import all_logits, evaluate, logits_by_context, predictions
from hma.training.fit import fit
from hma.training.order import evaluation_order
from hma.training.progress import (
    LineProgress,
    Progress,
    RichProgress,
    SilentProgress,
    progress_for_terminal,
    progress_ticker,
)
from hma.training.record import EpochResult, Record, Scores, curve_note

__all__ = [
    "EpochResult",
    "Interrupted",
    "LineProgress",
    "Progress",
    "Recipe",
    "Record",
    "RichProgress",
    "Scores",
    "SilentProgress",
    "UserRecipe",
    "all_logits",
    "curve_note",
    "ending_together",
    "evaluate",
    "evaluation_order",
    "fabric_for",
    "first_process",
    "fit",
    "logits_by_context",
    "predictions",
    "progress_for_terminal",
    "progress_ticker",
]

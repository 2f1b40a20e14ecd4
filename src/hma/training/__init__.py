"""One training loop for every method: fit, evaluate, exact resume, one record per run."""

from hma.training.curves import curve_note
from hma.training.devices import ending_together, fabric_for, first_process
from hma.training.evaluation import all_logits, evaluate, logits_by_context, predictions
from hma.training.fit import fit
from hma.training.interruption import Interrupted
from hma.training.order import evaluation_order
from hma.training.progress import (
    LineProgress,
    Progress,
    RichProgress,
    SilentProgress,
    counted,
    progress_for_terminal,
)
from hma.training.recipe import Recipe, UserRecipe
from hma.training.record import EpochResult, Record, Scores

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
    "counted",
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
]

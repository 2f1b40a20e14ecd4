"""hma: memory for any PyTorch classifier."""

from typing import TYPE_CHECKING, Any

from hma import loading as loading  # first: it sees to Ctrl-C while torch is imported
from hma import targets
from hma.audit import audit
from hma.audited import Audit
from hma.checkpoint import load, save
from hma.checkpoint_files import CheckpointError
from hma.config import ConfigError, HMAConfig
from hma.contributions import Contributions, contributions
from hma.diagnostics import queue_diagnostics, slot_diagnostics
from hma.explain import Explanation, explain
from hma.memory_state import MemoryState
from hma.model import HMA
from hma.model_card import ModelCard
from hma.released import load_released
from hma.suspects import Suspects, suspects
from hma.unfamiliar import unfamiliarity

if TYPE_CHECKING:
    from hma.estimator import HMAClassifier, HMARegressor

__version__ = "0.1.0"

__all__ = [
    "HMA",
    "Audit",
    "CheckpointError",
    "ConfigError",
    "Contributions",
    "Explanation",
    "HMAClassifier",
    "HMAConfig",
    "HMARegressor",
    "MemoryState",
    "ModelCard",
    "Suspects",
    "audit",
    "contributions",
    "explain",
    "load",
    "load_released",
    "queue_diagnostics",
    "save",
    "slot_diagnostics",
    "suspects",
    "targets",
    "unfamiliarity",
]


def __getattr__(name: str) -> Any:
    """Import the estimator when it is asked for: scikit-learn is an extra."""
    if name in ("HMAClassifier", "HMARegressor"):
        from hma import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module 'hma' has no attribute {name!r}")

"""hma: memory for any PyTorch classifier."""

from hma.checkpoint import CheckpointError, load, save
from hma.config import ConfigError, HMAConfig
from hma.diagnostics import queue_diagnostics, slot_diagnostics
from hma.explain import Explanation, explain
from hma.memory import MemoryState
from hma.model import HMA
from hma.released import load_released

__version__ = "0.1.0"

__all__ = [
    "HMA",
    "CheckpointError",
    "ConfigError",
    "Explanation",
    "HMAConfig",
    "MemoryState",
    "explain",
    "load",
    "load_released",
    "queue_diagnostics",
    "save",
    "slot_diagnostics",
]

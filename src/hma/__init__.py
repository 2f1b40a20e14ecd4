"""hma: memory for any PyTorch classifier."""

from typing import TYPE_CHECKING

from hma.extras import lazy_names

if TYPE_CHECKING:
    from hma import targets
    from hma.attention.config import HMAConfig
    from hma.attention.hma import HMA
    from hma.estimator import MemoryClassifier, MemoryRegressor
    from hma.io.card import ModelCard
    from hma.io.checkpoint import CheckpointError, load, save
    from hma.io.released import load_released
    from hma.memory.memories import MemoryState
    from hma.model import MemoryModel
    from hma.options.config import ConfigError
    from hma.questions.audit import Audit, audit
    from hma.questions.contributions import Contributions, contributions
    from hma.questions.diagnostics import queue_diagnostics, slot_diagnostics
    from hma.questions.explain import Explanation, explain
    from hma.questions.suspects import Suspects, suspects
    from hma.questions.unfamiliar import unfamiliarity
    from hma.vote.config import VoteConfig
    from hma.vote.voting_memory import VotingMemory
else:
    __getattr__, __dir__ = lazy_names(__name__)

__version__ = "0.2.0"

__all__ = [
    "HMA",
    "Audit",
    "CheckpointError",
    "ConfigError",
    "Contributions",
    "Explanation",
    "HMAConfig",
    "MemoryClassifier",
    "MemoryModel",
    "MemoryRegressor",
    "MemoryState",
    "ModelCard",
    "Suspects",
    "VoteConfig",
    "VotingMemory",
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

"""How a model is trained: functions from a task and a seed to a learner."""

from hma.methods.erm import erm
from hma.methods.learner import FittedAtOnce, Learner, Method, OutputModule
from hma.methods.memory import with_memory
from hma.model import Output

__all__ = [
    "FittedAtOnce",
    "Learner",
    "Method",
    "Output",
    "OutputModule",
    "erm",
    "with_memory",
]

"""Rows of the tables: functions from a task and a seed to a learner."""

from hma.methods.erm import erm
from hma.methods.learner import Learner, Method
from hma.methods.memory import with_hma

__all__ = ["Learner", "Method", "erm", "with_hma"]

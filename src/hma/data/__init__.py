"""Sources of data become tasks; nothing in here knows a model."""

from hma.data.preparation import Preparation, PreparationOptions, preparation_from_json
from hma.data.sets.named import BUILTINS, builtin, is_builtin
from hma.data.source import Source
from hma.data.sources import open_source
from hma.data.streaming import stream
from hma.data.task import (
    Batch,
    InMemory,
    Kind,
    Split,
    Task,
    tensors_of,
)
from hma.data.task_from_source import Prepared, prepare

__all__ = [
    "BUILTINS",
    "Batch",
    "InMemory",
    "Kind",
    "Preparation",
    "PreparationOptions",
    "Prepared",
    "Source",
    "Split",
    "Task",
    "builtin",
    "is_builtin",
    "open_source",
    "preparation_from_json",
    "prepare",
    "stream",
    "tensors_of",
]

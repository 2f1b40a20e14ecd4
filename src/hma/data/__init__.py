"""Sources of data become tasks; nothing in here knows a model."""

from hma.data.named import BUILTINS, builtin, is_builtin
from hma.data.opening import open_source
from hma.data.preparation import Preparation, PreparationOptions, preparation_from_json
from hma.data.prepared import Prepared, prepare
from hma.data.source import Source
from hma.data.streaming import stream
from hma.data.task import (
    AugmentedSplit,
    Batch,
    InMemory,
    Kind,
    Metric,
    Split,
    Task,
    tensors_of,
    training_batch,
)

__all__ = [
    "BUILTINS",
    "AugmentedSplit",
    "Batch",
    "InMemory",
    "Kind",
    "Metric",
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
    "training_batch",
]

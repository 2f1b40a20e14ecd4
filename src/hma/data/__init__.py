"""Sources of data become tasks; nothing in here knows a model."""

from hma.data.graph.shift import Shift
from hma.data.graph.store import Graphs, GraphStore
from hma.data.kinds import preparation_from_json
from hma.data.label_kinds import Aim
from hma.data.options import PreparationOptions
from hma.data.preparation import Preparation
from hma.data.sets.by_name import BUILTINS, builtin, is_builtin
from hma.data.source import Source
from hma.data.sources import open_source, stream
from hma.data.task import Batch, InMemory, Kind, Mixed, Split, Task, tensors_of
from hma.data.task_from_source import Prepared, labelled_rows, prepare

__all__ = [
    "BUILTINS",
    "Aim",
    "Batch",
    "GraphStore",
    "Graphs",
    "InMemory",
    "Kind",
    "Mixed",
    "Preparation",
    "PreparationOptions",
    "Prepared",
    "Shift",
    "Source",
    "Split",
    "Task",
    "builtin",
    "is_builtin",
    "labelled_rows",
    "open_source",
    "preparation_from_json",
    "prepare",
    "stream",
    "tensors_of",
]

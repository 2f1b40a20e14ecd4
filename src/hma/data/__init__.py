"""Sources of data become tasks; nothing in here knows a model."""

from hma.data.graph.store import Graphs, GraphStore
from hma.data.preparation import Preparation
from hma.data.prepared import Prepared, labelled_rows, preparation_from_json, prepare
from hma.data.sets.by_name import BUILTINS, builtin, is_builtin
from hma.data.source import Source
from hma.data.sources import open_source, stream
from hma.data.task import Batch, InMemory, Mixed, Split, Task, tensors_of
from hma.options.preparation import Kind, PreparationOptions
from hma.options.run import Aim, Shift

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

"""Tables of the paper as things that run themselves: what is missing is measured, once."""

from hma.tables.cell import Cell
from hma.tables.finding import experiments_folder, find_table, load_table, load_tables
from hma.tables.processes import Processes
from hma.tables.rows import memory_row
from hma.tables.running import Board, Outcome, run
from hma.tables.searching import Trial, search
from hma.tables.store import Failure, Results
from hma.tables.table import BUDGETS, FULL, Budget, Problem, Row, Table
from hma.tables.work import measure, work
from hma.training import Record

__all__ = [
    "BUDGETS",
    "FULL",
    "Board",
    "Budget",
    "Cell",
    "Failure",
    "Outcome",
    "Problem",
    "Processes",
    "Record",
    "Results",
    "Row",
    "Table",
    "Trial",
    "experiments_folder",
    "find_table",
    "load_table",
    "load_tables",
    "measure",
    "memory_row",
    "run",
    "search",
    "work",
]

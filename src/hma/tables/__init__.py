"""Tables of the paper as things that run themselves: what is missing is measured, once."""

from hma.tables.attention_map import attention_map
from hma.tables.edge_hits import EDGE_HITS, edge_hits
from hma.tables.experiment_files import experiments_folder, find_table, load_table, load_tables
from hma.tables.ladder import Ladder
from hma.tables.measure_cell import absent_data, measure, work
from hma.tables.memory_row import memory_row
from hma.tables.pictures import ATTENTION_MAP, SLOT_MAP, AttentionMap, Picture, SizeSweep, SlotMap
from hma.tables.processes import Processes
from hma.tables.published_cost import PublishedCost
from hma.tables.results import Failure, Results
from hma.tables.row_answers import RowAnswers, kept_answers, row_answers
from hma.tables.run_cells import Board, Outcome, run
from hma.tables.search_settings import Trial, search
from hma.tables.slot_map import slot_map
from hma.tables.step_costs import STEP_COSTS, Side, cost_record, step_costs
from hma.tables.table import BUDGETS, FULL, Budget, Cell, Job, Problem, Row, Table
from hma.training import Record

__all__ = [
    "ATTENTION_MAP",
    "BUDGETS",
    "EDGE_HITS",
    "FULL",
    "SLOT_MAP",
    "STEP_COSTS",
    "AttentionMap",
    "Board",
    "Budget",
    "Cell",
    "Failure",
    "Job",
    "Ladder",
    "Outcome",
    "Picture",
    "Problem",
    "Processes",
    "PublishedCost",
    "Record",
    "Results",
    "Row",
    "RowAnswers",
    "Side",
    "SizeSweep",
    "SlotMap",
    "Table",
    "Trial",
    "absent_data",
    "attention_map",
    "cost_record",
    "edge_hits",
    "experiments_folder",
    "find_table",
    "kept_answers",
    "load_table",
    "load_tables",
    "measure",
    "memory_row",
    "row_answers",
    "run",
    "search",
    "slot_map",
    "step_costs",
    "work",
]

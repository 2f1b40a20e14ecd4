"""A run folder: train into it, open it again, answer and explain with it."""

from hma.runs.card import write_card
from hma.runs.deployment import MEMORY, MIXTURE, PLAIN, Which, title
from hma.runs.folder import Run
from hma.runs.options import RunOptions
from hma.runs.page import write_page
from hma.runs.seeds import SeveralRuns, train_seeds
from hma.runs.train import train
from hma.runs.whole_record import whole_record

__all__ = [
    "MEMORY",
    "MIXTURE",
    "PLAIN",
    "Run",
    "RunOptions",
    "SeveralRuns",
    "Which",
    "title",
    "train",
    "train_seeds",
    "whole_record",
    "write_card",
    "write_page",
]

"""A run folder: train into it, open it again, answer and explain with it."""

from hma.runs.folder import MEMORY, PLAIN, Run
from hma.runs.options import RunOptions
from hma.runs.page import write_page
from hma.runs.train import train

__all__ = ["MEMORY", "PLAIN", "Run", "RunOptions", "train", "write_page"]

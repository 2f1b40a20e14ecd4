"""Imported once, by the server that the processes of cells are forked from."""

from hma.tables import processes
from hma.training.extras import fabric_module, torchmetrics_classification

__all__ = ["processes"]

fabric_module()
torchmetrics_classification()

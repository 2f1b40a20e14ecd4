"""Imported once, by the server that the processes of cells are forked from."""

from hma.extras import fabric_module, torchmetrics_classification
from hma.tables import processes

__all__ = ["processes"]

fabric_module()
torchmetrics_classification()

"""Imported once, by the server that the processes of cells are forked from: it takes seconds."""

from hma.extras import fabric_module, needed, torchmetrics_classification
from hma.tables import processes

__all__ = ["processes"]

fabric_module()
torchmetrics_classification()
needed("tensorboard.summary.writer.record_writer", "logging for TensorBoard")
needed("tensorboard.compat.proto.event_pb2", "logging for TensorBoard")

"""Normalisation over the nodes of a batch."""

from torch import Tensor, nn


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that a training batch of one row passes with the running statistics.

    One row has no variance, and the last batch of an epoch may well be one graph.
    """

    def forward(self, rows: Tensor) -> Tensor:
        """Return the normalised rows."""
        if self.training and len(rows) < 2:
            mean, variance = self.running_mean, self.running_var
            return nn.functional.batch_norm(rows, mean, variance, self.weight, self.bias)
        normed: Tensor = super().forward(rows)
        return normed

"""The laboratory: the paper's tables, rivals and figures."""

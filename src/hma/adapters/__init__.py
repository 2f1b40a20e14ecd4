"""The memory where people already train: Lightning, the Hugging Face Trainer, skorch.

Each module needs the package it is named after; import it as ``hma.adapters.lightning``.
"""

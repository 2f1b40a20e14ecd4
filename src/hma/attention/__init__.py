"""The paper's memory: attention over past rows, then over learned rows and the batch."""

"""Graphs: the files of the TU collection, and one store that batches are cut from."""

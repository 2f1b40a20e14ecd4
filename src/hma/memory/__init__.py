"""Stores of rows, slots, projections and the state of both memories."""

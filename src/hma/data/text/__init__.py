"""Texts: lines of JSON, cut into tokens."""

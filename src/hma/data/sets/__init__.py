"""Data sets that have a name: a file each, or one for several of a kind."""

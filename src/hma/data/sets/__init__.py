"""Data sets that have a name: one file each, and one line here."""

from importlib import import_module

from hma.data.sets.named_set import NamedSet

MODULES = (
    "digits",
    "colored_digits",
    "mnist",
    "colored_mnist",
    "cifar10",
    "cifar100",
    "dtd",
    "pets37",
    "flowers102",
    "spurious_motif",
    "tu",
    "graph_sst5",
    "graph_twitter",
    "ogb",
)
"""Files of this folder that hold a data set, in the order they are listed to a user."""
SETS: tuple[NamedSet, ...] = tuple(
    import_module(f"hma.data.sets.{module}").SET for module in MODULES
)

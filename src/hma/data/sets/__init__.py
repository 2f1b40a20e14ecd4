"""Data sets that have a name: one file each, and one line here."""

from hma.data.sets import (
    cifar10,
    cifar100,
    colored_digits,
    colored_mnist,
    digits,
    dtd,
    flowers102,
    mnist,
    pets37,
    tu,
)
from hma.data.sets.named_set import NamedSet

SETS: tuple[NamedSet, ...] = (
    digits.SET,
    colored_digits.SET,
    mnist.SET,
    colored_mnist.SET,
    cifar10.SET,
    cifar100.SET,
    dtd.SET,
    pets37.SET,
    flowers102.SET,
    tu.SET,
)
"""All of them, in the order they are listed to a user."""

"""Graphs: a graph isomorphism network on molecules of MUTAG, plain and with a memory.

python graphs.py FOLDER reads graphs in TU format; without one, $HMA_DATA/TU/MUTAG.
"""

import sys

from hma import VoteConfig
from hma.backbones import GIN
from hma.data import builtin, open_source, prepare
from hma.methods import erm, with_memory
from hma.training import UserRecipe, fit

given = sys.argv[1:]
task = (prepare(open_source(given[0]), seed=0) if given else builtin("tu:MUTAG", seed=0)).task


def backbone(task):
    """Any module that maps a PyG Batch to ``(B, F)``."""
    return GIN(task.shape[0], width=32, num_layers=3)


recipe = UserRecipe(epochs=40, lr=3e-3)
plain = fit(erm(backbone)(task, 0), task, recipe, seed=0)
ours = fit(with_memory(backbone, VoteConfig())(task, 0), task, recipe, seed=0)
print(f"plain backbone: {plain.tests['test']['alone']['accuracy']:.3f}")
print(f"test accuracy {ours.tests['test']['alone']['accuracy']:.3f}")

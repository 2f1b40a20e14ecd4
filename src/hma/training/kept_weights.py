"""The weights that a run keeps: without a frozen backbone, which never changes."""

from pathlib import Path

from torch import nn

from hma.errors import UserError
from hma.io.tensor_files import read_about, read_shapes, read_tensors, shapes_of, write_tensors
from hma.memory.growing import load_without_copy, shapes_to_load
from hma.methods import Learner
from hma.methods.frozen_state import (
    changing_state,
    frozen_sha256,
    frozen_state,
    load_changing_state,
)

FROZEN = "frozen"
"""Where a file of weights has the hash of the frozen backbone that it goes with."""


def write_weights(path: Path, module: nn.Module) -> str:
    """Write what training may have changed in ``module``, and return the hash of the file."""
    still = frozen_sha256(module)
    about = None if still is None else {FROZEN: still}
    return write_tensors(path, changing_state(module), about=about)


def load_weights(learner: Learner, path: Path, sha256: str | None, remedy: str) -> None:
    """Give a learner the weights that a run kept; a frozen backbone must be the one of the run.

    Args:
        learner: Built as it was for the run, its frozen backbone with its weights.
        path: ``weights.safetensors`` of the run; of one from before, with the frozen backbone.
        sha256: Its recorded hash.
        remedy: What the reader of an error should do.
    """
    module = learner.module
    stored = read_shapes(path, remedy=remedy)
    whole = frozen_state(module).keys() <= stored.keys()
    wanted = shapes_of(module.state_dict() if whole else changing_state(module))
    wanted = shapes_to_load(module, wanted, stored)
    weights = read_tensors(path, sha256=sha256, expect=wanted, remedy=remedy)
    before = read_about(path, remedy=remedy).get(FROZEN)
    if not whole and before != frozen_sha256(module):
        raise UserError(
            f"{path} was trained on a frozen backbone with other weights; give the same --weights, "
            f"or {remedy}"
        )
    with load_without_copy():
        load_changing_state(module, weights)

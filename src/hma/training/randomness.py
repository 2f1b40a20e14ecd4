"""Every global source of random numbers, seeded, saved and put back together."""

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

RandomState = dict[str, Tensor]
_MASK = 2**32 - 1


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed torch on every device, NumPy and Python; each process of a run draws its own numbers."""
    torch.manual_seed(seed + (rank << 32))
    np.random.seed([seed & _MASK, rank])
    random.seed(f"{seed} {rank}")


def random_state(device: torch.device) -> RandomState:
    """Return where every global source stands, as tensors on the CPU."""
    _, words, gauss = random.getstate()
    _, keys, place, has_gauss, cached = np.random.get_state(legacy=True)
    state = {
        "torch": torch.get_rng_state(),
        "python": torch.tensor(words, dtype=torch.int64),
        "python_gauss": torch.tensor(math.nan if gauss is None else gauss, dtype=torch.float64),
        "numpy": torch.from_numpy(np.array([*keys, place, has_gauss], dtype=np.int64)),
        "numpy_gauss": torch.tensor(cached, dtype=torch.float64),
    }
    if device.type == "cuda":
        state["device"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        state["device"] = torch.mps.get_rng_state()
    return state


def restore_random_state(state: RandomState, device: torch.device) -> None:
    """Put every global source back to where :func:`random_state` found it."""
    torch.set_rng_state(state["torch"])
    gauss = float(state["python_gauss"])
    words = tuple(state["python"].tolist())
    random.setstate((3, words, None if math.isnan(gauss) else gauss))
    *keys, place, has_gauss = state["numpy"].tolist()
    cached = float(state["numpy_gauss"])
    np.random.set_state(("MT19937", np.array(keys, dtype=np.uint32), place, has_gauss, cached))
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["device"], device)
    elif device.type == "mps":
        torch.mps.set_rng_state(state["device"])


@contextmanager
def preserve_random_state(device: torch.device) -> Iterator[RandomState]:
    """Undo, at the end of the block, whatever it drew; yields the state it began with."""
    before = random_state(device)
    try:
        yield before
    finally:
        restore_random_state(before, device)

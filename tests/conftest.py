"""One torch thread for every test, Ctrl-C received by all, and a way to the real data."""

import os
import signal
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _interruptible():
    """Receive Ctrl-C even if the tests run in the background, where shells ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def data_root():
    root = os.environ.get("HMA_DATA")
    if not root or not Path(root).is_dir():
        pytest.skip("real data is absent: set HMA_DATA to its folder")
    return Path(root)

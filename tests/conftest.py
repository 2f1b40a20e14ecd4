"""One torch thread for every test, Ctrl-C received by all, a way to the real data, skips in CI."""

import os
import signal
from pathlib import Path
from tempfile import gettempdir

import pytest
import torch
from skips_in_ci import pytest_sessionfinish, pytest_terminal_summary  # noqa: F401

# Numbers may not hang on the order of a sum: HMA_TEST_THREADS=2 and ATEN_CPU_CAPABILITY change it.
if capability := os.environ.get("ATEN_CPU_CAPABILITY"):  # compiled code is kept, and fits one only
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(gettempdir()) / f"inductor-{capability}")
torch.set_num_threads(int(os.environ.get("HMA_TEST_THREADS", "1")))


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

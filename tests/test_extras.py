"""The torchvision repair, made in a process of its own because it cannot be undone."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from hma import extras
from hma.extras import ensure_torchvision

EXTRAS = ("torchvision", "timm", "transformers")
MISSING = [name for name in EXTRAS if importlib.util.find_spec(name) is None]

REPAIR = """
import json, sys, warnings
import torch

torch.set_num_threads(1)
from hma import extras

facts = {"imported before the call": "torchvision" in sys.modules}
try:
    import torchvision  # where it fails, it leaves modules half imported, as in a user's session
except RuntimeError:
    pass
extras.ensure_torchvision()
first = sys.modules["torchvision"], len(extras._declared)
extras.ensure_torchvision()
again = sys.modules["torchvision"], len(extras._declared)
facts["second call changes nothing"] = first == again

import torchvision
from torchvision.transforms import v2

parts = [name.split(".") for name in sys.modules if name.startswith("torchvision.")]
facts["parts out of reach"] = [p[1] for p in parts if not hasattr(torchvision, p[1])]
facts["flipped"] = v2.functional.horizontal_flip(torch.tensor([[[1, 2, 3]]])).tolist()
boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.9], [5.0, 5.0, 6.0, 6.0]])
try:
    facts["nms"] = torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5).tolist()
except RuntimeError as error:
    facts["nms"] = str(error)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # those of timm and transformers
    import timm
    import transformers

    vit = timm.create_model("vit_tiny_patch16_224", num_classes=0).eval()
    facts["vit"] = list(vit(torch.zeros(1, 3, 224, 224)).shape)
    facts["bert"] = transformers.BertModel.__name__
print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def repaired():
    """Facts printed by a fresh process that called ``ensure_torchvision``."""
    if MISSING:
        pytest.skip(f"needs {', '.join(MISSING)}: pip install 'hma-torch[vision,text]'")
    program = [sys.executable, "-W", "error", "-c", REPAIR]
    run = subprocess.run(program, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_importing_the_module_does_not_import_torchvision(repaired):
    assert repaired["imported before the call"] is False


def test_a_second_call_changes_nothing(repaired):
    assert repaired["second call changes nothing"]


def test_no_part_is_left_over_from_a_failed_import(repaired):
    assert repaired["parts out of reach"] == []


def test_torchvision_transforms_work_afterwards(repaired):
    assert repaired["flipped"] == [[[3, 2, 1]]]


def test_a_compiled_operator_computes_or_says_that_it_is_missing(repaired):
    assert repaired["nms"] == [0, 2] or "Couldn't load custom C++ ops" in repaired["nms"]


def test_timm_builds_a_vision_transformer_afterwards(repaired):
    assert repaired["vit"] == [1, 192]


def test_transformers_loads_its_models_afterwards(repaired):
    assert repaired["bert"] == "BertModel"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a torchvision made of one line before the installed one; nothing is left behind."""
    real = {name: sys.modules[name] for name in sys.modules if name.split(".")[0] == "torchvision"}
    for name in real:
        del sys.modules[name]
    monkeypatch.setattr(extras, "_declared", [])
    monkeypatch.syspath_prepend(tmp_path)

    def write(line: str) -> None:
        (tmp_path / "torchvision.py").write_text(line)
        importlib.invalidate_caches()

    yield write
    sys.modules.pop("torchvision", None)
    sys.modules.update(real)


def test_a_healthy_torchvision_is_imported_and_no_operator_declared(install):
    install("healthy = True")
    ensure_torchvision()
    assert sys.modules["torchvision"].healthy
    assert extras._declared == []


def test_an_imported_torchvision_is_left_alone(install):
    install("raise AssertionError('imported again')")
    sys.modules["torchvision"] = mine = ModuleType("torchvision")
    ensure_torchvision()
    assert sys.modules["torchvision"] is mine


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("raise RuntimeError('no operator torchvision::x')", RuntimeError, "no operator .*::x$"),
        ("import what_it_needs", ModuleNotFoundError, "^No module named 'what_it_needs'$"),
    ],
)
def test_another_failure_is_raised_as_it_is(install, line, error, message):
    install(line)
    with pytest.raises(error, match=message):
        ensure_torchvision()
    assert extras._declared == []


def test_a_missing_torchvision_names_the_vision_extra(install):
    install("raise ModuleNotFoundError('No module named torchvision', name='torchvision')")
    with pytest.raises(ImportError, match=r"not installed; .* pip install .*\[vision\]'$"):
        ensure_torchvision()


def test_a_checkout_is_named_by_its_folder_in_the_command_that_adds_an_extra():
    checkout = Path(__file__).parent.parent
    assert extras.install_command("graph") == f"pip install -e '{checkout}[graph]'"


@pytest.mark.parametrize("kept", [True, False])
def test_a_wheel_is_named_by_its_file_while_that_is_there(kept, tmp_path, monkeypatch):
    wheel = tmp_path / "a folder" / "hma_torch-1-py3-none-any.whl"
    wheel.parent.mkdir()
    if kept:
        wheel.touch()
    about = tmp_path / "site" / "hma_torch-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hma-torch\nVersion: 1\n")
    (about / "direct_url.json").write_text(json.dumps({"url": wheel.as_uri(), "archive_info": {}}))
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "site" / "hma" / "extras.py"))
    source = f" @ {wheel.as_uri()}" if kept else ""
    assert extras.install_command("graph,cli") == f"pip install 'hma-torch[graph,cli]{source}'"

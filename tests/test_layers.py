"""Imports may only point down the list; the arrow of the data decides the arrow of the code."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "hma"
MAY_IMPORT = {
    "ground": set(),
    "core": set(),
    "data": set(),
    "backbones": {"core"},
    "methods": {"core", "data", "backbones"},
    "training": {"core", "data", "methods"},
    "tables": {"core", "data", "backbones", "methods", "training"},
    "report": {"core", "tables"},
    "runs": {"core", "data", "backbones", "methods", "training", "report"},
    "serve": {"core", "data", "training", "report", "runs"},
    "adapters": {"core"},
    "estimator": {"core", "data", "backbones", "methods", "training"},
    "quickstart": {"core", "data", "methods", "training", "report", "runs"},
    "__main__": {"cli"},
    "__init__": {"core", "estimator"},
}
MAY_IMPORT["cli"] = set(MAY_IMPORT) - {"__main__", "__init__"}
EXTRAS = ["torchvision", "timm", "torch_geometric", "matplotlib", "sklearn", "rich", "cyclopts",
          "huggingface_hub", "transformers", "lightning", "onnx", "starlette",
          "uvicorn", "faiss"]  # fmt: skip
GROUND = {"errors", "files", "json_files", "tensor_files", "targets", "metrics", "extras",
          "torchvision_ops", "printable", "loading", "line_search", "shares",
          "feature_file", "encoder_files"}  # fmt: skip
"""Modules that know nothing of the rest and may be imported by all."""


def layer_of(module: str) -> str:
    part = module.split(".")[1] if "." in module else ""
    if part in GROUND:
        return "ground"
    return part if part in MAY_IMPORT else "core"


def hma_imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] == "hma"}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    here = layer_of(".".join(("hma", *path.relative_to(ROOT).with_suffix("").parts)))
    reached = {layer_of(name) for name in hma_imports(path)} - {here, "ground"}
    wrong = sorted(reached - MAY_IMPORT[here])
    assert not wrong, f"{here} must not import {wrong}"


def test_importing_hma_pulls_in_no_extra():
    code = "import sys, json, hma; print(json.dumps(sorted(m.split('.')[0] for m in sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not set(EXTRAS) & set(json.loads(found.stdout))

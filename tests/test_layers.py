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
    "memory": set(),
    "hub": set(),
    "model": {"memory", "hub"},
    "attention": {"memory", "model"},
    "vote": {"memory", "model"},
    "questions": {"memory", "model"},
    "io": {"memory", "model", "attention", "vote", "questions"},
    "data": set(),
    "backbones": set(),
    "methods": {"memory", "model", "attention", "vote", "data", "backbones"},
    "training": {"memory", "model", "attention", "vote", "questions", "data", "methods"},
    "report": {"memory", "model", "questions"},
    "paper": {"memory", "model", "attention", "vote", "questions", "data", "backbones", "methods",
              "training", "report"},
    "runs": {"memory", "model", "attention", "vote", "questions", "io", "data", "backbones",
             "methods", "training", "report"},
    "serve": {"model", "questions", "data", "training", "report", "runs"},
    "adapters": {"memory", "model", "attention", "vote"},
    "estimator": {"memory", "model", "attention", "vote", "questions", "io", "data", "backbones",
                  "methods", "training"},
    "quickstart": {"attention", "vote", "questions", "data", "methods", "training", "report",
                   "runs"},
    "__main__": {"cli"},
    "__init__": {"memory", "model", "attention", "vote", "questions", "io", "estimator"},
}  # fmt: skip
MAY_IMPORT["cli"] = set(MAY_IMPORT) - {"__main__", "__init__"}
"""What a layer may import beside the ground; neither design knows the other, and what is asked of
a memory is asked of both."""
IN_FUNCTIONS = {"io.hub": {"io"}}
"""What a module may import besides where it is used: every memory saves and loads itself by
``io.hub``, a base of ``model``, and the files of ``io`` know every memory."""
FOR_TYPES = {"io.hub": {"io", "model"}}
"""The same under ``TYPE_CHECKING``."""
EXTRAS = ["torchvision", "timm", "torch_geometric", "matplotlib", "sklearn", "rich", "cyclopts",
          "huggingface_hub", "transformers", "lightning", "onnx", "starlette",
          "uvicorn", "faiss"]  # fmt: skip
GROUND = {"errors", "options", "checks", "extras", "targets", "metrics",
          "io.files", "io.json_files", "io.tensor_files", "io.encoder_files"}  # fmt: skip
"""Modules that know nothing of the rest and may be imported by all."""


def layer_of(module: str) -> str:
    """Return the layer of a module, or of a name in it, both without ``hma.``."""
    part, _, rest = module.partition(".")
    whole = f"{part}.{rest.split('.')[0]}"
    if part in GROUND or whole in GROUND:
        return "ground"
    if whole == "io.hub":
        return "hub"
    assert part in MAY_IMPORT, f"{module} is of no layer"
    return part


def hma_imports(node: ast.AST) -> set[str]:
    """Return what is imported anywhere in a part of a module, without ``hma.``."""
    names = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Import):
            names |= {alias.name for alias in one.names}
        elif isinstance(one, ast.ImportFrom):
            names |= {f"{one.module}.{alias.name}" for alias in one.names}
    return {name.removeprefix("hma.") for name in names if name.split(".")[0] == "hma"} - {"hma"}


def apart(tree: ast.Module) -> tuple[set[str], set[str], set[str]]:
    """Return what is imported with a module, within its functions, and for types alone."""
    types, functions = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            types |= hma_imports(node)
        elif isinstance(node, ast.FunctionDef):
            functions |= hma_imports(node)
    return hma_imports(tree) - types - functions, functions, types


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    here = layer_of(module)
    always, functions, types = apart(ast.parse(path.read_text()))
    for names, besides in (
        (always, set()),
        (functions, IN_FUNCTIONS.get(module, set())),
        (types, FOR_TYPES.get(module, set())),
    ):
        reached = {layer_of(name) for name in names} - {here, "ground"}
        wrong = sorted(reached - MAY_IMPORT[here] - besides)
        assert not wrong, f"{here} must not import {wrong}"


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_laboratory_is_imported_by_the_commands_that_run_it_when_they_run(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    here = layer_of(module)
    always, functions, _ = apart(ast.parse(path.read_text()))
    with_module = {layer_of(name) for name in always}
    if here not in ("paper", "cli"):
        assert "paper" not in with_module | {layer_of(name) for name in functions}
    if here == "cli":
        assert "paper" not in with_module


@pytest.mark.parametrize("module", IN_FUNCTIONS.keys() | FOR_TYPES.keys())
def test_an_exception_is_one(module):
    """A rule that no module needs any more is to go."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    _, functions, types = apart(ast.parse(path.read_text()))
    assert {layer_of(name) for name in functions} - {"ground"} == IN_FUNCTIONS[module]
    assert {layer_of(name) for name in types} - {"ground"} == FOR_TYPES[module]


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_of_the_package_itself_only_its_version_and_place_are_asked(path):
    """``import hma`` would reach everything, past the layers."""
    tree = ast.parse(path.read_text())
    asked = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "hma"
    }
    assert asked <= {"__version__", "__file__", "__doc__"}


def test_importing_hma_pulls_in_no_extra():
    code = "import sys, json, hma; print(json.dumps(sorted(m.split('.')[0] for m in sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not set(EXTRAS) & set(json.loads(found.stdout))

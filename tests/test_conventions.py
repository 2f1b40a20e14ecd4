"""What the files about the project say is true: workflow, hooks, release, classifiers."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SPEAKING_OF_MAKE = [
    ".github/workflows/test.yml",
    ".github/pull_request_template.md",
    ".pre-commit-config.yaml",
    ".readthedocs.yaml",
    "CONTRIBUTING.md",
    "README.md",
    "RELEASE.md",
]


def pythons():
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert named
    return named


@pytest.mark.parametrize("name", SPEAKING_OF_MAKE)
def test_targets_that_files_name_are_in_the_makefile(name):
    text = (ROOT / name).read_text()
    named = set(re.findall(r"(?:`|: |- |^)make ([a-z]+)", text, re.MULTILINE))
    assert named
    assert named <= TARGETS


def test_the_workflow_runs_make_test_with_each_python_of_the_classifiers():
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    job = workflow["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == pythons()
    assert {"run": "make test"} in job["steps"]


def test_the_first_python_of_the_classifiers_is_the_lower_bound():
    assert PROJECT["requires-python"] == f">={pythons()[0]}"
    for name in ("README.md", "docs/start.md"):
        assert f"Python {pythons()[0]} or newer" in (ROOT / name).read_text()


def test_the_hook_needs_no_address():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    (hook,) = repository["hooks"]
    assert (hook["entry"], hook["language"]) == ("make lint", "system")


@pytest.mark.parametrize("path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")))
def test_issue_forms_have_what_a_form_needs(path):
    form = yaml.safe_load(path.read_text())
    if path.stem == "config":
        return
    assert {"name", "description", "body"} <= set(form)
    fields = [field["id"] for field in form["body"]]
    assert len(fields) == len(set(fields))


def test_read_the_docs_copies_the_folder_that_make_docs_fills():
    # the configuration of mkdocs has tags of Python, which a safe loader refuses
    (folder,) = re.findall(r"^site_dir: (\S+)", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    commands = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())["build"]["commands"]
    assert commands[0] == "make docs"
    assert f"cp -r {folder} " in commands[1]


def test_what_security_promises_of_pickles_and_code_holds_for_the_source():
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            given = {one.arg: ast.unparse(one.value) for one in node.keywords}
            assert called not in ("eval", "exec", "pickle.load", "pickle.loads"), path
            assert not called.endswith(".read_pickle"), path
            assert {given.get("allow_pickle"), given.get("trust_remote_code")} <= {None, "False"}
            if called in ("torch.load", "np.load", "numpy.load"):
                assert given.get("weights_only") == "True" or given["allow_pickle"] == "False"

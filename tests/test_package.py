"""What the wheel and the source archive hold, built as pip would build them."""

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import hma

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "hma"
BUILD = "import sys; from hatchling import build; build.build_{}(sys.argv[1])"


def built(kind, folder):
    pytest.importorskip("hatchling", reason="pip install -e '.[dev]'")
    subprocess.run(
        [sys.executable, "-c", BUILD.format(kind), str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"},
    )
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    with zipfile.ZipFile(built("wheel", tmp_path_factory.mktemp("wheel"))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    with tarfile.open(built("sdist", tmp_path_factory.mktemp("sdist"))) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def tracked(folder):
    """Files of a folder that are no leftovers of a Python that ran there."""
    found = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)) for path in found if path.is_file()}


def test_the_wheel_holds_the_package_the_experiments_and_nothing_else(wheel):
    own = {f"hma/{name}" for name in tracked(PACKAGE)}
    own |= {f"hma/experiments/{name}" for name in tracked(ROOT / "experiments")}
    about = {name for name in wheel if ".dist-info/" in name}
    assert set(wheel) - about == own
    assert {"hma/py.typed", "hma/report/templates/style.css"} <= own
    assert any(name.endswith(".html.j2") for name in own)
    assert any(name.endswith("licenses/LICENSE") for name in about)


def test_the_wheel_knows_version_command_and_extras(wheel):
    (metadata,) = (text.decode() for name, text in wheel.items() if name.endswith("/METADATA"))
    (commands,) = (text.decode() for name, text in wheel.items() if name.endswith("points.txt"))
    about = message_from_string(metadata)
    assert about["Version"] == hma.__version__
    assert "hma = hma.__main__:main" in commands
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(about.get_all("Provides-Extra")) == set(wanted["optional-dependencies"])


def test_the_source_archive_builds_the_package_and_leaves_tests_and_records_out(source):
    assert {f"src/hma/{name}" for name in tracked(PACKAGE)} <= source
    assert {"pyproject.toml", "README.md", "LICENSE", "experiments/m1_tables.py"} <= source
    for name in source:
        assert name.split("/")[0] not in ("tests", "results", "benchmarks")
        assert "__pycache__" not in name


# ------------------------------------------------------------------------------ oldest versions


def test_the_oldest_versions_are_the_lower_bounds():
    """A bound that is raised or lowered is tested anew: ``make oldest``."""
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    pinned = {name.lower().replace("_", "-"): version for name, version in pinned.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    told = [*project["dependencies"]]
    told += [one for name in extras if name not in ("dev", "docs") for one in extras[name]]
    for requirement in map(Requirement, told):
        name = requirement.name.lower().replace("_", "-")
        if name == "hma-torch":
            continue
        (bound,) = requirement.specifier
        tested = pinned[name].split(".")[: len(bound.version.split("."))]
        assert ".".join(tested) == bound.version, f"{requirement}, tested with {pinned[name]}"

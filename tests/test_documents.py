"""The documents: their code runs, their links lead somewhere, and what they name exists."""

import ast
import importlib
import json
import re
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, stdev
from unittest.mock import patch

import pytest
import torch
from test_examples import STARTS

import hma
from hma.backbones import by_name
from hma.data import sources
from hma.data.prepared import KINDS
from hma.data.sets import by_name as sets_by_name
from hma.metrics import METRICS
from hma.report import sections

ROOT = Path(__file__).parent.parent
ADDED_TO = (
    (sets_by_name, "SETS"),
    (by_name, "BACKBONES"),
    (sources, "READERS"),
    (sections, "SECTIONS"),
)
RUN = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ABOUT = ("CONTRIBUTING", "CHANGELOG", "SECURITY", "CODE_OF_CONDUCT", "RELEASE")
READ = [*RUN, *(ROOT / f"{name}.md" for name in ABOUT)]

FENCE = re.compile(r"^```(?P<tags>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?:src|tests|docs)/[\w./-]*|\w+\.(?:toml|md|cff)|Makefile")
NAME = re.compile(r"(?<![\w/])hma(?:\.[A-Za-z_]\w*)+")
MARK = re.compile(r"# DIFF\[([^\]]+)\]")
SHOWN = re.compile(r"<!-- here the site shows (\S+) -->")
CITED = re.compile(r"`(src/hma/[\w/]+\.py)` `DIFF\[([^\]]+)\]`")


@dataclass(frozen=True)
class Block:
    """A fenced block of Python, such as follows ```` ```python needs=timm slow ````."""

    path: Path
    line: int
    code: str
    needs: tuple[str, ...]
    slow: bool

    @property
    def name(self) -> str:
        return f"{self.path.name}:{self.line}"


def blocks_of(path: Path) -> list[Block]:
    text = path.read_text()
    found = []
    for match in FENCE.finditer(text):
        language, *tags = match["tags"].split() or [""]
        if language != "python":
            continue
        needs = [tag.removeprefix("needs=") for tag in tags if tag.startswith("needs=")]
        unknown = [tag for tag in tags if tag != "slow" and not tag.startswith("needs=")]
        line = text.count("\n", 0, match.start()) + 1
        assert not unknown, f"{path.name}:{line} has unknown tags {unknown}"
        packages = tuple(name for tag in needs for name in tag.split(","))
        found.append(Block(path, line, match["code"], packages, "slow" in tags))
    return found


def prose_of(path: Path) -> str:
    return FENCE.sub("", path.read_text())


def spans_of(path: Path) -> list[str]:
    return SPAN.findall(prose_of(path))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def import_quietly(package: str) -> None:
    """Import a package whose own import warns; what the block itself causes stays an error."""
    from hma.extras import ensure_torchvision

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(ImportError):
            ensure_torchvision()
        importlib.import_module(package)


BLOCKS = [
    pytest.param(block, id=block.name, marks=[pytest.mark.slow] if block.slow else [])
    for path in RUN
    for block in blocks_of(path)
]


# torch warns about its own classes when it exports, and so does Lightning when it uses them
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated:FutureWarning")
# keys and values of a frozen memory are two views of one tensor; torch.export.save remarks on it
@pytest.mark.filterwarnings("ignore:No complete tensor found in the group:UserWarning")
# Lightning's advice on workers, and its remark that the momentum encoder is in eval mode
@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:.*in eval mode at the start of training")
@pytest.mark.parametrize("block", BLOCKS)
def test_code_in_the_documents_runs(block, tmp_path, monkeypatch):
    for package in block.needs:
        if find_spec(package) is None:
            pytest.skip(f"{block.name} needs the package {package}")
        import_quietly(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    for module, name in ADDED_TO:
        monkeypatch.setattr(module, name, getattr(module, name))  # what a block adds, it alone has
    padded = "\n" * block.line + block.code  # so that a traceback shows the document's lines
    torch.manual_seed(0)
    with patch.dict(METRICS), patch.dict(KINDS):
        exec(compile(padded, str(block.path), "exec"), {"__name__": "documents"})


def test_the_page_of_the_paper_shows_the_reference_as_it_is():
    reference = (ROOT / "benchmarks" / "reference.py").read_text()
    assert reference in (ROOT / "docs" / "paper.md").read_text()


def test_every_page_that_promises_code_has_some():
    own = [path for path in RUN if path.parent.name not in ("api", "results")]  # these are made
    empty = {path.name for path in own if not blocks_of(path)}
    assert empty == {"index.md", "deviations.md", "command-line.md"}


def test_files_that_pages_show_are_examples_that_run():
    shown = [file for path in RUN for file in SHOWN.findall(path.read_text())]
    assert sorted(shown) == sorted(f"examples/{name}" for name in STARTS)


@pytest.mark.parametrize("path", RUN, ids=name_of)
def test_code_in_the_documents_fits_the_line(path):
    long = [
        line for block in blocks_of(path) for line in block.code.splitlines() if len(line) > 100
    ]
    assert not long


def anchors_of(path: Path) -> set[str]:
    """Return the anchors GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", READ, ids=name_of)
def test_links_between_the_documents_resolve(path):
    broken = []
    for target in LINK.findall(prose_of(path)):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        page = (path.parent / file).resolve() if file else path
        if not page.is_file() or (anchor and anchor not in anchors_of(page)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("path", READ, ids=name_of)
def test_files_named_in_the_documents_exist(path):
    named = {span for span in spans_of(path) if PATH.fullmatch(span)}
    assert not [name for name in named if not (ROOT / name).exists()]


def resolves(dotted: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for name in parts[count:]:
            if not hasattr(found, name):
                break
            found = getattr(found, name)
        else:
            return True
    return False


@pytest.mark.parametrize("path", READ, ids=name_of)
def test_names_in_the_documents_exist(path):
    named = {name for span in spans_of(path) for name in NAME.findall(span)} - {"hma.json"}
    assert not sorted(name for name in named if not resolves(name))


@pytest.mark.parametrize("name", hma.__all__)
def test_the_reference_has_every_public_name(name):
    assert re.search(rf"`hma\.{name}\b", (ROOT / "docs" / "api" / "index.md").read_text())


def test_deviations_and_marks_in_the_code_are_the_same():
    marked = Counter(
        (name_of(path), mark)
        for path in (ROOT / "src").rglob("*.py")
        for mark in MARK.findall(path.read_text())
    )
    cited = Counter(CITED.findall((ROOT / "docs" / "deviations.md").read_text()))
    assert marked
    assert cited == marked


MODEL_FILES = {"card", "checkpoint", "checkpoint_files", "released"}
"""Modules of ``hma.io`` that know the models; the others know files alone."""


def room_of(module: str) -> str:
    """Return which room of the picture a module is in."""
    first, *rest = module.split(".")[1:]
    if first == "io":
        return "io models" if rest and rest[0] in MODEL_FILES else "io files"
    return first


def rooms_imported(path: Path) -> set[str]:
    """Return the rooms that a file imports when it is imported itself."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {room_of(name) for name in names if name.startswith("hma.")}


def test_the_picture_of_the_rooms_shows_all_of_them_and_imports_point_down():
    page = (ROOT / "docs" / "architecture.md").read_text()
    picture = page.split("```text\n")[1].split("```")[0].splitlines()
    floors = [re.split(r"\s{2,}", line)[0].split(" · ") for line in picture]
    floor_of = {room: floor for floor, rooms in enumerate(floors) for room in rooms}
    package = ROOT / "src" / "hma"
    seen, wrong = set(), []
    for path in package.rglob("*.py"):
        module = ".".join(("hma", *path.relative_to(package).with_suffix("").parts))
        if module in ("hma.__init__", "hma.__main__"):
            continue
        here = room_of(module.removesuffix(".__init__"))
        seen.add(here)
        for other in rooms_imported(path) - {here}:
            if other != "__version__" and floor_of[other] <= floor_of[here]:
                wrong.append((module, other))
    assert seen == set(floor_of)
    assert not wrong


def test_the_citation_names_this_version_and_the_paper():
    text = (ROOT / "CITATION.cff").read_text()
    assert f"version: {hma.__version__}\n" in text
    assert "arXiv:2310.10909" in text
    authors = re.findall(r"family-names: (\w+)", text)
    assert authors == ["Qiu", "Liu", "Yan", "Zhang", "Fu"]


def test_the_changelog_knows_this_version():
    assert f"## [{hma.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_first_screen_has_a_place_for_the_measured_number():
    text = (ROOT / "README.md").read_text()
    opened, closed = text.index("<!-- measured: quickstart -->"), text.index("<!-- /measured -->")
    assert text.index("```python") < opened < closed < text.index("## Use it if")


def test_the_first_screen_prints_what_it_says(capsys):
    """Percentages may differ by three points: a trained score hangs on the processor."""
    text = (ROOT / "README.md").read_text()
    code, said = re.findall(r"```(?:python needs=sklearn|text)\n(.*?)```", text, re.DOTALL)
    torch.manual_seed(0)
    exec(compile(code, "README.md", "exec"), {"__name__": "documents"})
    printed = capsys.readouterr().out
    number = re.compile(r"\d+")
    assert len(printed.splitlines()) == len(said.splitlines())
    for line, wanted in zip(printed.splitlines(), said.splitlines(), strict=True):
        assert number.sub("N", line) == number.sub("N", wanted)
        if "right" in line or "doubted" in line:
            first, other = (int(number.search(each)[0]) for each in (line, wanted))
            assert abs(first - other) <= 3, line


def test_pages_by_hand_are_few_and_each_leads_on():
    pages = {path.name: path for path in (ROOT / "docs").glob("*.md")}
    assert len(pages) <= 20
    own = pages.keys() - {"tables.md", "estimator.md", "extend.md"}
    for name in sorted(own):
        lines = pages[name].read_text().rstrip().splitlines()
        assert any(line.startswith("After this page you") for line in lines[:8]), name
        assert lines[-1].startswith("Next: ["), name


QUOTED = [
    ("unknown", "7s called unknown"),
    ("unknown", "other digits called unknown"),
    ("taught", "new digit before"),
    ("taught", "new digit after"),
    ("taught", "other digits before"),
    ("taught", "other digits after"),
    ("wrong labels", "precision"),
]
"""Numbers of the tour's steps that the first screen names."""


def test_the_measured_numbers_are_those_of_the_record():
    page = (ROOT / "README.md").read_text()
    said = page.split("<!-- measured: quickstart -->")[1].split("<!-- /measured -->")[0]
    record = json.loads((ROOT / "results" / "quickstart.json").read_text())
    assert len(record["table"]) == 7
    for line in record["table"]:
        score = f"{100 * mean(line['accuracy']):.1f} ± {100 * stdev(line['accuracy']):.1f} %"
        assert score in said, line["method"]
    steps = {step["name"]: step["numbers"] for step in record["steps"]}
    for step, name in QUOTED:
        assert f"{100 * steps[step][name]:.1f} %" in said, name
    reads = json.loads((ROOT / "benchmarks/results/memory-size-2-cores.json").read_text())["reads"]
    (read,) = (each for each in reads if (each["rows"], each["read"]) == (10_000, "all rows"))
    assert f"{read['one_query_ms']:.1f} ms" in said

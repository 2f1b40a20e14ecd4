"""The documentation site: it builds without a warning, leads nowhere dead and asks nobody else."""

import ast
import importlib
import importlib.util
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import CHROMIUM, needs_chromium

ROOT = Path(__file__).parent.parent
PACKAGES = [
    f"hma.{name}"
    for name in ["backbones", "data", "methods", "metrics", "runs", "targets", "training"]
]
"""Public below ``hma``; each has a page of its own."""
INSIDE = {"cell_process", "example_rows", "ray_tasks"}
"""Modules of ``hma.paper`` that only others of it use."""
LABORATORY = [f for f in (ROOT / "src/hma/paper").glob("[!_]*.py") if f.stem not in INSIDE]
PICTURE_BYTES = 150_000
LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
"""What a browser asks for by itself, without a click."""


class Html(HTMLParser):
    """What a page leads to, loads and has anchors for."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors = [], [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name"):
                self.anchors.add(value)
            elif (tag, name) in LOADED:
                self.loaded.append(value)
            elif tag == "a" and name == "href":
                self.links.append(value)


def build(into):
    """Build the site as ``make docs`` does; return what it said."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(into)],
        capture_output=True, text=True, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    run = build(folder)
    assert run.returncode == 0, run.stderr
    assert "WARNING" not in run.stderr
    return folder


def part_of_the_site(name):
    """Import a file of ``docs/site``."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "site" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference():
    return part_of_the_site("reference")


@pytest.fixture(scope="module")
def pages(site):
    found = {path: Html(path.read_text()) for path in sorted(site.rglob("*.html"))}
    assert len(found) > 40
    return {path: page for path, page in found.items() if path.name != "404.html"}


@pytest.mark.slow
def test_no_link_and_no_anchor_of_the_site_is_dead(pages):
    dead = []
    for path, page in pages.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else {""}
            if not target.is_file() or unquote(parts.fragment) not in anchors:
                dead.append((path.name, link))
    assert not dead


@pytest.mark.slow
def test_no_page_of_the_site_loads_anything_from_elsewhere(pages, site):
    assert not [
        (path.name, address)
        for path, page in pages.items()
        for address in page.loaded
        if urlsplit(address).scheme not in ("", "data") or address.startswith("//")
    ]
    styles = [*site.rglob("*.css")]
    assert styles
    assert not [path for path in styles if "@import" in path.read_text()]


@pytest.mark.slow
@pytest.mark.parametrize("package", ["hma", *PACKAGES])
def test_every_public_name_is_on_a_page_of_the_api_with_its_docstring(package, pages, reference):
    expect_documented(package, importlib.import_module(package).__all__, pages, reference)


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(LABORATORY), ids=lambda file: file.stem)
def test_every_public_name_of_a_table_is_on_the_page_of_tables(file, pages, reference):
    names = [
        node.name
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    ]
    expect_documented(f"hma.paper.{file.stem}", names, pages, reference)


def expect_documented(package, names, pages, reference):
    names = [f"{package}.{name}" for name in names]
    api = [page for path, page in pages.items() if path.parent.name == "api"]
    anchors = set().union(*(page.anchors for page in api))
    absent = [name for name in names if reference.defined(name) not in anchors]
    assert names
    assert absent == (["hma.targets"] if package == "hma" else [])  # it has a page of its own
    said = [reference.member(reference.defined(name)).docstring for name in names]
    assert all(said)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_a_page_begins_with_its_title(page):
    assert page.read_text().startswith("# ")


def test_pictures_are_small_and_made_by_a_command_that_pages_name():
    pictures = sorted((ROOT / "docs" / "pictures").glob("*.png"))
    made = (ROOT / "docs" / "pictures" / "make.py").read_text()
    pages = {
        path: path.read_text() for path in (*(ROOT / "docs").rglob("*.md"), ROOT / "README.md")
    }
    assert pictures
    for picture in pictures:
        assert picture.stat().st_size < PICTURE_BYTES
        assert f'"{picture.stem}"' in made
        showing = [text for text in pages.values() if f"pictures/{picture.name}" in text]
        assert showing
        assert all("python docs/pictures/make.py" in text for text in showing)


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_page_fits_a_phone_and_asks_nobody_else(site, scheme):
    from playwright.sync_api import sync_playwright

    asked = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 400, "height": 800}, color_scheme=scheme)
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto((site / "index.html").as_uri())
        width = tab.evaluate("document.documentElement.scrollWidth")
        shown = tab.evaluate("document.body.dataset.mdColorScheme")
        browser.close()
    assert width == 400
    assert shown == {"light": "default", "dark": "slate"}[scheme]
    assert not [address for address in asked if not address.startswith(("file:", "data:", "blob:"))]


def test_the_site_reads_docstrings_of_the_house():
    read = part_of_the_site("docstrings").rewritten
    assert read("Say.\n\n.. math:: a = b\n\nEnd.") == "Say.\n\n```text\na = b\n```\n\nEnd."
    assert read("Example:\n    >>> 1\n    1") == "Examples:\n    >>> 1\n    1"
    assert read("See :func:`~hma.save`.") == "See ``hma.save``."
    assert read("Args:\n    x, y: Both\n        of them.") == (
        "Args:\n    x: Both\n        of them.\n    y: Both\n        of them."
    )


def test_a_name_that_a_module_and_a_function_share_means_the_function(reference):
    assert reference.defined("hma.explain") == "hma.questions.explain.explain"
    assert reference.defined("hma.paper.rivals.asap") == "hma.paper.rivals.asap.asap"
    assert reference.names_of("hma.paper.rivals.asap") == ["hma.paper.rivals.asap"]
    assert "hma.methods.erm" in reference.names_of("hma.methods")

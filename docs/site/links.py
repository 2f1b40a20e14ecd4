"""What mkdocs does not do by itself: globs in the navigation, links out of ``docs/``, whole files.

Pages link to files beside ``docs/`` as a Git host shows them. The site has no other host to
lead to, so each such file becomes a page of its own below ``source/``.
"""

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?=\))")
TAGS = re.compile(r"^```python (?:needs=\S+|slow)[^\n]*$", re.MULTILINE)
FILE = re.compile(r"^<!-- here the site shows (?P<path>\S+) -->$", re.MULTILINE)
LANGUAGES = {".py": "python", ".json": "json", ".toml": "toml"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Write out ``folder/*.md`` in the navigation; the page of the folder comes first."""
    for entry in config.nav or []:
        for title, pages in entry.items():
            if isinstance(pages, str) and "*" in pages:
                entry[title] = listed(Path(config.docs_dir), pages)
    return config


def listed(docs: Path, pattern: str) -> list[str]:
    """Return the pages of a pattern, those that stand for their folder first."""
    found = [path.relative_to(docs).as_posix() for path in docs.glob(pattern)]
    return sorted(found, key=lambda page: (Path(page).stem not in ("index", "README"), page))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file outside ``docs/`` that a page, or such a file, links to."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    waiting += ["CONTRIBUTING.md", "CHANGELOG.md"]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue  # files may link to each other
        seen.add(path)
        if not path.startswith("docs/"):
            files.append(outside(path, config))
        if path.endswith(".md"):
            for match in LINK.finditer((ROOT / path).read_text()):
                target = linked(path, match["path"])
                if not target.startswith("docs/") and (ROOT / target).is_file():
                    waiting.append(target)
    return files


def outside(path: str, config: MkDocsConfig) -> File:
    """Return the page of a file that lies outside ``docs/``; the search leaves code out."""
    if path.endswith(".md"):
        text = (ROOT / path).read_text()
    else:
        text = f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n{fenced(path)}\n"
    return File.generated(
        config, place(path), content=text, inclusion=InclusionLevel.NOT_IN_NAV
    )  # fmt: skip


def fenced(path: str) -> str:
    """Return a file as a block of code."""
    language = LANGUAGES.get(PurePosixPath(path).suffix, "text")
    return f"``````{language}\n{(ROOT / path).read_text()}``````"


def linked(page: str, link: str) -> str:
    """Return the path that a link on a page means, both below the repository's root."""
    return normpath(PurePosixPath(page).parent / link)


def place(path: str) -> str:
    """Return where the site has a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def origin(page: str) -> str:
    """Return which file of the repository a page of the site is."""
    return page.removeprefix("source/") if page.startswith("source/") else f"docs/{page}"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to where the site has their files; leave out what only tests read."""
    here = page.file.src_uri
    if here.startswith("source/") and here.endswith((".py.md", ".json.md")):
        return markdown

    def moved(match: re.Match[str]) -> str:
        target = place(linked(origin(here), match["path"]))
        return relpath(target, PurePosixPath(here).parent) + (match["anchor"] or "")

    text = LINK.sub(moved, TAGS.sub("```python", markdown))
    return FILE.sub(lambda match: fenced(match["path"]), text)

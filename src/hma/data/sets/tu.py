"""Data sets of the TU collection, by name."""

from difflib import get_close_matches
from functools import partial
from pathlib import Path

from hma.data.graph.source import GraphFolder, find_adjacency
from hma.data.prepared import Prepared, prepare
from hma.data.sets.named_set import NamedSet, SetRequest
from hma.data.storage import data_folder, fetch_archive, missing_data

ADDRESS = "https://www.chrsmrrs.com/graphkerneldatasets/"
VALIDATION, TEST = 0.1, 0.2
SHORT = {
    "IMDB-B": "IMDB-BINARY",
    "IMDB-M": "IMDB-MULTI",
    "REDD-B": "REDDIT-BINARY",
    "REDD-M5": "REDDIT-MULTI-5K",
    "REDD-M12": "REDDIT-MULTI-12K",
}
"""Names that papers use for some data sets of the collection."""
WELL_KNOWN = (
    "AIDS", "BZR", "COLLAB", "COX2", "DBLP_v1", "DD", "DHFR", "ENZYMES", "FRANKENSTEIN",
    "IMDB-BINARY", "IMDB-MULTI", "KKI", "MCF-7", "MOLT-4", "MUTAG", "Mutagenicity", "NCI1",
    "NCI109", "OHSU", "PROTEINS", "PROTEINS_full", "PTC_FM", "PTC_FR", "PTC_MM", "PTC_MR",
    "REDDIT-BINARY", "REDDIT-MULTI-12K", "REDDIT-MULTI-5K", "SYNTHETIC",
    "TWITTER-Real-Graph-Partial", "deezer_ego_nets", "github_stargazers", "reddit_threads",
    "twitch_egos",
)  # fmt: skip
"""Data sets of the collection that a misspelt name may mean."""


def tu_source(name: str, data_root: Path | None = None, *, download: bool = False) -> GraphFolder:
    """Return a data set of the TU collection.

    Args:
        name: Its name, such as PROTEINS, or a short one, such as IMDB-B.
        data_root: Where the folder ``TU`` is.
        download: Fetch it if it is not there.
    """
    name = SHORT.get(name, name)
    folder = data_folder(data_root) / "TU" / name
    if find_adjacency(folder) is None:
        address = f"{ADDRESS}{name}.zip"
        if not download:
            raise missing_data(
                f"tu:{name}", folder / "raw", address, *_find_near(name, folder.parent)
            )
        fetch_archive(address, folder / "raw", partial(_place, name), Path(f"{name}_A.txt"))
    return GraphFolder(folder)


def _place(name: str, member: Path) -> Path | None:
    """Return where a file of an archive goes: the texts of the data set, without their folder."""
    own = member.name.startswith(f"{name}_") and member.suffix == ".txt"
    return Path(member.name) if own else None


def _find_near(name: str, beside: Path) -> list[str]:
    """Return the data set that was probably meant: one on disk, or a well-known one."""
    there = [path.name for path in beside.glob("*")]
    known = {one.lower(): one for one in (*SHORT, *WELL_KNOWN, *there)}
    if name in WELL_KNOWN:
        return []
    return [known[one] for one in get_close_matches(name.lower(), known, n=1)]


def _source(request: SetRequest) -> GraphFolder:
    return tu_source(request.groups["name"] or "", request.data_root, download=request.download)


def _prepare(request: SetRequest) -> Prepared:
    source = _source(request)
    return prepare(
        source, seed=request.seed, validation=VALIDATION, test=TEST, options=request.options
    )


SETS = (
    NamedSet(
        ("tu:NAME",),
        r"tu:(?P<name>[\w-]{1,100})",
        _prepare,
        _source,
    ),
)

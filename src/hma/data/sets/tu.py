"""Data sets of the TU collection, by name."""

from difflib import get_close_matches
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

from hma.data.graph.tu_folder import GraphFolder, find_adjacency
from hma.data.location import data_folder, fetch, missing_data
from hma.data.sets.named_set import Asked, NamedSet
from hma.data.task_from_source import Prepared, prepare
from hma.errors import UserError
from hma.io.files import written_whole

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
            raise missing_data(f"tu:{name}", folder / "raw", address, *_near(name, folder.parent))
        _fetch_tu(address, name, folder / "raw")
    return GraphFolder(folder)


def _near(name: str, beside: Path) -> list[str]:
    """Return the name that was probably meant, if another: of data that is there, or of any."""
    there = [path.name for path in beside.glob("*")]
    known = {one.lower(): one for one in (*SHORT, *WELL_KNOWN, *there)}
    if name in WELL_KNOWN:
        return []
    return [known[one] for one in get_close_matches(name.lower(), known, n=1)]


def _fetch_tu(address: str, name: str, folder: Path) -> None:
    with TemporaryDirectory() as temporary:
        packed = Path(temporary) / f"{name}.zip"
        fetch(address, packed)
        try:
            with ZipFile(BytesIO(packed.read_bytes())) as file:
                members = {Path(member).name: member for member in file.namelist()}
                texts = {
                    inside: file.read(member)
                    for inside, member in members.items()
                    if inside.startswith(f"{name}_") and inside.endswith(".txt")
                }
        except BadZipFile as error:
            raise UserError(f"{address} is damaged: {error}; try again later") from error
    edges = f"{name}_A.txt"
    if edges not in texts:
        raise UserError(f"{address} does not hold {edges}, but {sorted(members)}")
    folder.mkdir(parents=True, exist_ok=True)
    # the file of edges comes last: a folder without it counts as missing
    for inside in sorted(texts, key=lambda inside: inside == edges):
        with written_whole(folder / inside) as target:
            target.write_bytes(texts[inside])


def _source(asked: Asked) -> GraphFolder:
    return tu_source(asked.found["name"] or "", asked.data_root, download=asked.download)


def _prepared(asked: Asked) -> Prepared:
    source = _source(asked)
    return prepare(source, seed=asked.seed, validation=VALIDATION, test=TEST, options=asked.options)


SET = NamedSet(
    ("tu:NAME",),
    r"tu:(?P<name>[\w-]{1,100})",
    _prepared,
    _source,
)

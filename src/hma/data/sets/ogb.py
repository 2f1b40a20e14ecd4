"""Molecules of the Open Graph Benchmark, by name, with OGB's split by scaffold."""

from difflib import get_close_matches
from pathlib import Path

from hma.data.graph.molecules import OgbMolecules, Told
from hma.data.prepared import Prepared, prepare_splits
from hma.data.sets.named_set import NamedSet, SetRequest
from hma.data.storage import data_folder, fetch_archive, missing_data
from hma.errors import UserError

ADDRESS = "http://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/"
YES_NO = ("molbace", "molbbbp", "molclintox", "molhiv", "molmuv", "molpcba", "molsider",
          "moltox21", "moltoxcast")  # fmt: skip
NUMBERS = ("molesol", "molfreesolv", "mollipo")
"""Data sets whose labels are numbers."""
ENDINGS = (".csv.gz", ".md")
LAST = Path("split", "scaffold", "test.csv.gz")


def ogb_source(
    name: str,
    data_root: Path | None = None,
    *,
    download: bool = False,
    told: Told | None = None,
) -> OgbMolecules:
    """Return molecules of OGB.

    Args:
        name: Their name there without the beginning, such as molbace.
        data_root: Where the folder ``ogbg_molbace`` is.
        download: Fetch it if it is not there.
        told: Called with the molecules that are made of SMILES and with all of them.
    """
    if name not in (*YES_NO, *NUMBERS):
        near = get_close_matches(name, (*YES_NO, *NUMBERS), n=1)
        guess = f"did you mean 'ogb:{near[0]}'? " if near else ""
        raise UserError(
            f"there are no molecules called 'ogb:{name}'; {guess}there are "
            f"{', '.join((*YES_NO, *NUMBERS))}"
        )
    folder = data_folder(data_root) / f"ogbg_{name}"
    if not (folder / LAST).exists():
        address = f"{ADDRESS}{name.removeprefix('mol')}.zip"
        if not download:
            raise missing_data(f"ogb:{name}", folder, address)
        fetch_archive(address, folder, _place, LAST)
    return OgbMolecules(folder, numbers=name in NUMBERS, told=told)


def _place(member: Path) -> Path | None:
    """Return where a file of OGB's archive goes: below the folder, without that of the archive."""
    own = member.name.endswith(ENDINGS) and ".." not in member.parts
    return Path(*member.parts[1:]) if own else None


def _source(request: SetRequest) -> OgbMolecules:
    name = request.groups["name"] or ""
    return ogb_source(name, request.data_root, download=request.download, told=request.told)


def _prepare(request: SetRequest) -> Prepared:
    source = _source(request)
    return prepare_splits(
        source,
        source.scaffolds(),
        classes=source.label_names,
        seed=request.seed,
        facts={"split": "by scaffold, as OGB gives it", "seed": request.seed},
        options=request.options,
    )


SETS = (NamedSet(("ogb:molbace", "ogb:molhiv"), r"ogb:(?P<name>[\w-]{1,100})", _prepare, _source),)

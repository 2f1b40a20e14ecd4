"""Molecules of the Open Graph Benchmark, by name, with OGB's split by scaffold."""

from difflib import get_close_matches
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

from hma.data.graph.ogb_folder import OgbMolecules, Told
from hma.data.location import data_folder, fetch, missing_data
from hma.data.sets.named_set import Asked, NamedSet
from hma.data.task_from_source import Prepared, prepare_splits
from hma.errors import UserError
from hma.io.files import written_whole

ADDRESS = "http://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/"
YES_NO = ("molbace", "molbbbp", "molclintox", "molhiv", "molmuv", "molpcba", "molsider",
          "moltox21", "moltoxcast")  # fmt: skip
NUMBERS = ("molesol", "molfreesolv", "mollipo")
"""Data sets whose labels are numbers."""
ENDINGS = (".csv.gz", ".md")


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
    if not (folder / "split" / "scaffold" / "test.csv.gz").exists():
        address = f"{ADDRESS}{name.removeprefix('mol')}.zip"
        if not download:
            raise missing_data(f"ogb:{name}", folder, address)
        _fetch_ogb(address, folder)
    return OgbMolecules(folder, numbers=name in NUMBERS, told=told)


def _fetch_ogb(address: str, folder: Path) -> None:
    with TemporaryDirectory() as temporary:
        packed = Path(temporary) / "molecules.zip"
        fetch(address, packed)
        try:
            with ZipFile(BytesIO(packed.read_bytes())) as file:
                inside = {
                    Path(*Path(member).parts[1:]): file.read(member)
                    for member in file.namelist()
                    if member.endswith(ENDINGS) and ".." not in Path(member).parts
                }
        except BadZipFile as error:
            raise UserError(f"{address} is damaged: {error}; try again later") from error
    last = Path("split", "scaffold", "test.csv.gz")  # a folder without it counts as missing
    if last not in inside:
        raise UserError(f"{address} does not hold {last}, but {sorted(map(str, inside))}")
    for place in sorted(inside, key=lambda place: place == last):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        with written_whole(folder / place) as target:
            target.write_bytes(inside[place])


def _source(asked: Asked) -> OgbMolecules:
    name = asked.found["name"] or ""
    return ogb_source(name, asked.data_root, download=asked.download, told=asked.told)


def _prepared(asked: Asked) -> Prepared:
    source = _source(asked)
    return prepare_splits(
        source,
        source.scaffolds(),
        classes=source.label_names,
        seed=asked.seed,
        facts={"split": "by scaffold, as OGB gives it", "seed": asked.seed},
        options=asked.options,
    )


SET = NamedSet(("ogb:molbace", "ogb:molhiv"), r"ogb:(?P<name>[\w-]{1,100})", _prepared, _source)

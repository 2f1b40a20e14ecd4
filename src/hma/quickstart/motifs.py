"""Step 7: graphs whose base betrays the label in training and nowhere else."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from hma.extras import install_command
from hma.quickstart.step import Found, Step
from hma.report.numbers import percent
from hma.runs import MIXTURE, PLAIN, Run, RunOptions, Which, title, train
from hma.runs.audits import read_audits
from hma.training import Progress, UserRecipe

FOLDER = "motifs"
SOURCE, TEST = "spmotif:0.9", "unbiased"
EPOCHS = 12


def has_graphs() -> bool:
    """Return whether PyG is installed, which graphs need."""
    return find_spec("torch_geometric") is not None


def motifs(folder: Path, progress: Progress | None) -> Found:
    """Train on spurious motifs; where PyG is missing, say what to install.

    Args:
        folder: Of the tour.
        progress: Shows how far it is.
    """
    if not has_graphs():
        remedy = f"left out: needs {install_command('graph')}"
        return Found(step=_step(folder, remedy, numbers={}))
    recipe = replace(UserRecipe(), epochs=EPOCHS).fixed()
    run = train(RunOptions(source=SOURCE, recipe=recipe), folder / FOLDER, progress=progress)
    scores = _scores(run)
    deployed, backbone = scores[_name(run, MIXTURE)], scores[_name(run, PLAIN)]
    audit = read_audits(run)[TEST]
    result = (
        f"where the base no longer helps, what is deployed is right on {percent(deployed)} of "
        f"{audit.rows} graphs, the plain backbone on {percent(backbone)}, chance is "
        f"{percent(1 / len(run.preparation.classes))}; audit of the memory: {audit.verdict}"
    )
    numbers = {
        "test graphs": audit.rows,
        "deployed accuracy": deployed,
        "plain backbone accuracy": backbone,
    }
    return Found(step=_step(folder, result, numbers), graphs=scores)


def _step(folder: Path, result: str, numbers: dict[str, float]) -> Step:
    return Step(
        name="motifs",
        title="Graphs with a shift: in training the base betrays the motif",
        result=result,
        command=f"hma train {SOURCE} --epochs {EPOCHS} -o {folder / FOLDER}",
        numbers=numbers,
    )


def _scores(run: Run) -> dict[str, float]:
    found = {
        _name(run, which): run.record(which).tests[TEST]["alone"]["accuracy"]
        for which in run.candidates
    }
    return found | {_name(run, MIXTURE): run.deployed.tests[TEST]["accuracy"]}


def _name(run: Run, which: Which) -> str:
    return title(which, run.preparation.target).removeprefix("the ")

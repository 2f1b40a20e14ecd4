"""``hma remember``, ``hma forget`` and ``hma memory``: what they print and refuse."""

import shutil

import numpy as np
import pandas
import pytest

from hma.runs import RunOptions, train
from hma.training import Recipe, SilentProgress


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("living")
    draw = np.random.default_rng(0)
    kinds = np.arange(64) % 3
    frame = pandas.DataFrame(draw.normal(size=(64, 3)) + 5 * np.eye(3)[kinds], columns=[*"abc"])
    frame = frame.round(3).assign(kind=np.array(["up", "down", "odd"])[kinds])
    frame[frame.kind != "odd"].to_csv(folder / "rows.csv", index=False)
    frame[frame.kind == "odd"][:4].to_csv(folder / "new.csv", index=False)
    options = RunOptions(
        source=str(folder / "rows.csv"),
        target=("kind",),
        backbone="mlp",
        recipe=Recipe(epochs=1, batch_size=16),
    )
    train(options, folder / "run", compare=False, progress=SilentProgress())
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    shutil.copytree(trained / "run", tmp_path / "run")
    shutil.copy(trained / "new.csv", tmp_path / "new.csv")
    return tmp_path


def plain(text):
    return " ".join(text.split())


def test_a_class_is_taught_predicted_listed_and_forgotten(run_hma, folder):
    run, new = folder / "run", folder / "new.csv"
    ended = run_hma("remember", run, new, "--new-classes", "--note", "strange ones")
    assert ended.code == 0, ended.err
    assert "version 1: remembered 4 rows of" in plain(ended.out)
    for said in ("new: odd", "validation rows", "taught rows of new", "leave-one-out"):
        assert said in plain(ended.out)
    assert run_hma("predict", run, new, "-o", folder / "said.csv").code == 0
    said = pandas.read_csv(folder / "said.csv")
    assert list(said) == ["row", "label", "probability", *(f"probability of {name}" for name in
                          ("down", "up", "odd"))]  # fmt: skip
    scored = run_hma("evaluate", run, new)
    assert "4 of these rows were trained on or taught" in plain(scored.out)
    listed = run_hma("memory", run, "--class", "odd", "-o", folder / "rows.csv")
    assert "wrote 4 rows" in listed.out
    rows = pandas.read_csv(folder / "rows.csv")
    assert rows["where"].tolist() == ["new.csv"] * 4
    near = run_hma("memory", run, "--like", new, "--index", 2, "--top", 1)
    assert str(rows["id"][2]) in near.out
    ids = ",".join(map(str, rows["id"][:2]))
    ended = run_hma("forget", run, "--ids", ids)
    assert ended.code == 0, ended.err
    assert "version 2: forgot 2 rows" in plain(ended.out)
    assert "what remains: nothing, since no weight" in plain(ended.out)
    ended = run_hma("forget", run, "--where", "a > 5 and kind == 'up'")
    assert "remains in the weights: the backbone, its head" in plain(ended.out)
    shown = plain(run_hma("memory", run, "--history").out)
    assert "remembered 4 rows" in shown
    assert "forgot 2 rows" in shown
    ended = run_hma("memory", run, "--restore", 1)
    assert "version 4: version 1 answers again" in plain(ended.out)
    again = run_hma("predict", run, new, "-o", folder / "again.csv")
    assert again.code == 0
    assert (folder / "again.csv").read_bytes() == (folder / "said.csv").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("remember", "run", "new.csv"), "holds 'odd' in 4 of 4 rows, which this run does not "
         "know as a class; pass --new-classes"),
        (("remember", "run", "none.csv"), "there is no file, folder or built-in data"),
        (("forget", "run"), "give one of --ids, --where and --class"),
        (("forget", "run", "--ids", "3,x"), "--ids must be whole numbers such as 3,17, got 'x'"),
        (("forget", "run", "--ids", "700"), "--ids names 700, which the memory does not hold"),
        (("forget", "run", "--ids", "9223372036854775808"),
         "--ids names 9223372036854775808, which the memory does not hold"),
        (("forget", "run", "--ids", "9" * 5000), "--ids must be whole numbers such as 3,17"),
        (("forget", "run", "--class", "up"), "pass --yes"),
        (("memory", "run", "--restore", "9"), "no version 9"),
        (("memory", "run", "--restore", "0", "--deciding"), "--history and --restore stand alone"),
        (("memory", "run", "--like", "new.csv", "--deciding"), "give --like or --deciding"),
        (("memory", "run", "--like", "new.csv", "--index", "50"), "--index must be from 0 to 3"),
        (("memory", "run", "--class", "odd"), "--class must be one of 'down', 'up', got 'odd'"),
        (("memory", "run", "-o", "rows.txt"), "--output must end in .csv"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line(refuses, folder, monkeypatch, arguments, said):
    monkeypatch.chdir(folder)
    assert said in refuses(*arguments)


def test_a_lost_pointer_is_one_line_and_the_command_it_names_repairs_the_run(
    run_hma, refuses, folder
):
    run, new = folder / "run", folder / "new.csv"
    assert run_hma("remember", run, new, "--new-classes").code == 0
    assert run_hma("predict", run, new, "-o", folder / "said.csv").code == 0
    (run / "memory/current.json").unlink()
    said = refuses("predict", run, new, "-o", folder / "again.csv")
    assert f"say which version answers: hma memory {run} --restore 1" in said
    assert "--restore 1" in refuses("forget", run, "--ids", "0")
    assert "remembered 4 rows" in plain(run_hma("memory", run, "--history").out)
    ended = run_hma("memory", run, "--restore", 1)
    assert "version 2: version 1 answers again" in plain(ended.out)
    assert run_hma("predict", run, new, "-o", folder / "again.csv").code == 0
    assert (folder / "again.csv").read_bytes() == (folder / "said.csv").read_bytes()

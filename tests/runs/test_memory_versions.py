"""Versions on disk: no taught row is lost, no complete version is removed, no chain is endless."""

import json
import os
import re
import shutil
import signal
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

import hma.runs.folder
import hma.runs.memory_versions
from hma.errors import UserError
from hma.io.files import FileError, atomic_write
from hma.io.json_files import SEAL, write_json
from hma.io.tensor_files import read_tensors, write_tensors
from hma.runs import MEMORY, Run, RunOptions, train
from hma.runs.audits import read_audits
from hma.runs.coverage import read_calibration
from hma.runs.living import LivingMemory
from hma.runs.memory_versions import MOST_ID
from hma.runs.remembered import RememberedRows
from hma.runs.taught_rows import TENSORS, TEXTS, write_change
from hma.training import Recipe, SilentProgress

CENTRES = 4 * np.eye(3)
TRAINED = 72
"""Rows that the memory holds: those of training, and of validation once they have decided."""
FORK = get_context("fork")


def table(count, seed, kinds=3):
    """Rows around a centre for each kind; kinds from the fourth on lie elsewhere."""
    draw, of = np.random.default_rng(seed), np.arange(count) % kinds
    x = draw.normal(size=(count, 3)) + CENTRES[of % 3]
    frame = pandas.DataFrame(x, columns=[*"abc"]).round(4)
    return frame.assign(kind=[f"k{kind}" for kind in of])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("versions")
    table(90, 0).to_csv(folder / "rows.csv", index=False)
    options = RunOptions(
        source=str(folder / "rows.csv"),
        target=("kind",),
        backbone="mlp",
        recipe=Recipe(epochs=1, batch_size=16),
    )
    train(options, folder / "run", compare=False, progress=SilentProgress())
    return folder / "run"


@pytest.fixture
def folder(trained, tmp_path):
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def memory(folder):
    return LivingMemory.open(folder)


def teach(memory, frame, **more):
    """Teach rows of a file."""
    path = memory.run.folder.parent / "taught.csv"
    frame.to_csv(path, index=False)
    return memory.remember(str(path), **more)


def teach_quickly(memory, frame):
    """Teach rows without scores."""
    path = memory.run.folder.parent / "quick.csv"
    frame.to_csv(path, index=False)
    source = hma.runs.source.rows_for(memory.run, str(path), labelled=True)
    split = memory.run.preparation.split(source)
    batch = split.batch(torch.arange(len(split)))
    what = source.describe_all(range(len(split)))
    return memory.remember_rows(batch, list(frame.kind), what, scored=False)


def ids_of(memory):
    return [row.id for row in memory.rows()]


def three_versions(memory):
    """Teach, teach, forget; return the ids that each version holds."""
    held = [ids_of(memory)]
    for seed in (1, 2):
        teach_quickly(memory, table(4, seed))
        held.append(ids_of(memory))
    memory.forget(ids=[0, held[2][-1]], scored=False)
    return [*held, ids_of(memory)]


def files_of(folder, numbers="[0-9]*"):
    found = (folder / "memory/versions").glob(f"{numbers}/**/*")
    return {path: path.read_bytes() for path in found if path.is_file()}


def change_json(path, change, *, sealed=True):
    """Write other values into a file, with a seal that fits or none."""
    values = json.loads(path.read_text())
    values.pop(SEAL, None)
    write_json(path, change(values), sealed=sealed)


# ------------------------------------------------------------------------------ sample ids


def test_a_file_that_grew_loses_no_row_and_no_id_is_given_twice(memory):
    first = len(memory.rows())
    day, other = table(80, 1), table(86, 2)
    assert teach(memory, day[:40]).rows == first + 40
    assert teach(memory, day).rows == first + 80
    version = teach(memory, other)
    assert (version.added, version.rows) == (86, first + 80 + 86)
    ids = ids_of(memory)
    assert len(set(ids)) == len(ids) == first + 166
    trained = memory.run.versions.trained.rows
    assert ids[first:] == list(range(trained, trained + 166))
    again = LivingMemory.open(memory.run.folder)
    assert ids_of(again) == ids
    cells = again.run.living.rows.cells["a"]
    assert [float(cell) for cell in cells] == [*day.a, *other.a]


def test_an_id_is_never_given_again_after_forget_and_restore(memory):
    seen = set(ids_of(memory))
    for seed, step in enumerate(
        ["teach", "forget", "teach", "restore", "teach", "forget", "teach"]
    ):
        before = set(ids_of(memory))
        if step == "teach":
            teach_quickly(memory, table(4, 10 + seed))
            new = set(ids_of(memory)) - before
            assert len(new) == 4
            assert not new & seen
            seen |= new
        elif step == "forget":
            memory.forget(ids=sorted(before)[-3:], scored=False)
        else:
            memory.restore(0, scored=False)
        memory = LivingMemory.open(memory.run.folder)


def test_a_row_that_is_held_with_many_labels_is_held_with_each(memory):
    row = table(1, 5)
    many = pandas.concat([row.assign(kind=f"new{place}") for place in range(20)])
    assert teach(memory, many, new_classes=True).added == 20
    for place in range(20):
        with pytest.raises(UserError, match=r"holds all 1 rows of .* already; nothing was changed"):
            teach(memory, many[place : place + 1])


# ------------------------------------------------------------------------- which one answers


def test_a_lost_pointer_is_said_and_the_remedy_works(memory, folder):
    held = three_versions(memory)
    (folder / "memory/current.json").unlink()
    before = files_of(folder)
    said = r"current.json is not there, but versions up to 3 are; .* hma memory .*run --restore 3"
    with pytest.raises(FileError, match=said):
        _ = Run.open(folder).learner(MEMORY)
    again = LivingMemory.open(folder)
    for change in (lambda: again.forget(ids=[1]), lambda: teach_quickly(again, table(2, 9))):
        with pytest.raises(FileError, match=said):
            change()
    assert files_of(folder) == before
    told = []
    again = LivingMemory.open(folder, told.append)
    assert [one.number for one in again.history()] == [1, 2, 3]
    assert "current.json is not there" in told[0]
    version = again.restore(3)
    assert (version.number, version.restored) == (4, 3)
    assert ids_of(LivingMemory.open(folder)) == held[3]
    assert files_of(folder, "[123]") == before


@pytest.mark.parametrize("number", [2, 3, 0])
def test_an_older_pointer_is_said_and_either_version_can_answer(memory, folder, number):
    teach_quickly(memory, table(4, 1))
    teach_quickly(memory, table(4, 2))
    held = {0: ids_of(LivingMemory(memory.run.at(memory.run.versions.living(0))))}
    held[2], pointer = ids_of(memory), (folder / "memory/current.json").read_bytes()
    memory.forget(ids=[0], scored=False)
    held[3] = ids_of(memory)
    before = files_of(folder)
    (folder / "memory/current.json").write_bytes(pointer)
    said = r"current.json names version 2, but version 3 is newer .* --restore 3, or .* --restore 2"
    again = LivingMemory.open(folder)
    with pytest.raises(FileError, match=said):
        again.rows()
    with pytest.raises(FileError, match=said):
        again.forget(ids=[1])
    assert files_of(folder) == before
    version = again.restore(number)
    assert (version.number, version.parent, version.restored) == (4, 3, number)
    assert ids_of(LivingMemory.open(folder)) == held[number]
    assert files_of(folder, "[123]") == before


@pytest.mark.parametrize("number", [4, 10**9, 2**63 - 1, 0, -1])
def test_a_pointer_to_no_version_is_said_at_once(memory, folder, number):
    held = three_versions(memory)
    change_json(folder / "memory/current.json", lambda values: values | {"version": number})
    again = LivingMemory.open(folder)
    with pytest.raises(FileError, match=rf"current.json .*names version {number}.* --restore "):
        again.rows()
    assert [one.number for one in again.history()] == [1, 2, 3]
    again.restore(2)
    assert ids_of(LivingMemory.open(folder)) == held[2]


def _killed(folder, at):
    """Forget a row, and be killed at a moment after ``version.json`` is there."""
    memory = LivingMemory.open(folder)
    unlink, replace_file = Path.unlink, Path.replace

    def kill(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    def killing_replace(path, target):
        return kill() if Path(target).name == "current.json" else replace_file(path, target)

    def killing_unlink(path, missing_ok=False):
        return kill() if path.name == at and path.exists() else unlink(path, missing_ok)

    if at == "current.json":
        Path.replace = killing_replace
    elif at == "rmtree":
        hma.runs.memory_versions.rmtree = kill
    else:
        Path.unlink = killing_unlink
    memory.forget(ids=[1], scored=False)


def killed(folder, at):
    writer = FORK.Process(target=_killed, args=(folder, at))
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL


def test_a_writer_killed_after_version_json_leaves_the_version_before(memory, folder):
    three_versions(memory)
    held, before = ids_of(memory), files_of(folder)
    killed(folder, "current.json")
    assert (folder / "memory/versions/4/version.json").exists()
    assert ids_of(LivingMemory.open(folder)) == held
    killed(folder, "rmtree")  # the next one, while it removes what the first one left
    assert ids_of(LivingMemory.open(folder)) == held
    killed(folder, "current.json")
    again = LivingMemory.open(folder)
    assert teach_quickly(again, table(3, 7)).number == 4
    assert ids_of(LivingMemory.open(folder))[:-3] == held
    assert files_of(folder, "[123]") == before


def test_a_writer_killed_after_the_pointer_leaves_the_new_version(memory, folder):
    three_versions(memory)
    held = ids_of(memory)
    killed(folder, "unfinished")
    again = LivingMemory.open(folder)
    assert ids_of(again) == [id for id in held if id != 1]
    assert again.run.versions.current()[0] == 4
    pointer = (folder / "memory/current.json").read_bytes()
    again.forget(ids=[2], scored=False)
    (folder / "memory/current.json").write_bytes(pointer)
    with pytest.raises(FileError, match="names version 4, but version 5 is newer"):
        Run.open(folder).versions.current()


def test_a_killed_writer_and_a_lost_pointer_lose_no_version(memory, folder):
    three_versions(memory)
    killed(folder, "unfinished")
    (folder / "memory/current.json").unlink()
    before = files_of(folder)
    assert LivingMemory.open(folder).restore(0).number == 5
    assert {path: path.read_bytes() for path in before if path.name != "unfinished"} == {
        path: data for path, data in before.items() if path.name != "unfinished"
    }


def test_folders_that_are_not_complete_are_no_versions_and_go(memory, folder):
    three_versions(memory)
    left = folder / "memory/versions/4"
    left.mkdir()
    shutil.copy(folder / "memory/versions/3" / TENSORS, left)
    assert LivingMemory.open(folder).run.living.number == 3
    assert LivingMemory.open(folder).restore(1).number == 4


# ------------------------------------------------------------------------- chains and seals


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"parent": 3}, "parent must be an earlier version than 3, got 3"),
        ({"parent": 10**9}, "parent must be an earlier version than 3, got 1000000000"),
        ({"parent": -1}, "parent must be an earlier version than 3, got -1"),
        ({"number": 2}, "it is of version 2, in the folder of version 3"),
        ({"verb": "restore", "restored": 3}, "restored must be an earlier version than 3, got 3"),
        ({"verb": "restore", "restored": None}, "verb 'restore' does not go with restored None"),
        ({"restored": 1}, "verb 'forget' does not go with restored 1"),
        ({"verb": "damaged"}, "verb 'damaged' does not go with"),
        ({"next_id": 2**63}, f"next_id must be from {TRAINED} to {MOST_ID}, got {2**63}"),
        ({"next_id": -1}, "next_id must be from"),
        ({"classes": [3]}, r"classes\[0\] must be text, got 3"),
        ({"scores": [None]}, r"scores\[0\] must be an object, got None"),
        ({"files": {}}, "files lacks rows.json, rows.safetensors"),
        ({"added": 1}, "its rows are not as many as version.json says"),
    ],
)
def test_a_version_that_cannot_be_true_is_one_line(memory, folder, change, said):
    three_versions(memory)
    change_json(folder / "memory/versions/3/version.json", lambda values: values | change)
    refused(folder, said)


def refused(folder, said, start="memory/versions/3"):
    """Expect one line with file and remedy, a history that is shown, and a way out."""
    before = files_of(folder)
    again = LivingMemory.open(folder)
    for use in (again.rows, lambda: again.forget(ids=[1]), lambda: teach(again, table(2, 9))):
        with pytest.raises(UserError, match=rf"{start}.*{said}.* --restore 0$") as caught:
            use()
        assert "\n" not in str(caught.value)
    assert files_of(folder) == before
    assert [one.number for one in again.history()] == [1, 2, 3]
    assert again.restore(0, scored=False).number == 4
    assert len(LivingMemory.open(folder).rows()) == TRAINED


def test_null_is_no_version(memory, folder):
    three_versions(memory)
    (folder / "memory/versions/3/version.json").write_text("null\n")
    refused(folder, "version.json is damaged")


@pytest.mark.parametrize(
    "name",
    ["run.json", "preparation.json", "places.json", "deployment.json", "calibrations/*.json",
     "audit.json", "memory/current.json", "memory/versions/2/version.json"],
)  # fmt: skip
def test_a_file_without_its_seal_is_damaged(memory, folder, name):
    def use():
        run = Run.open(folder)
        _ = run.preparation, run.places, run.deployed, run.learner(MEMORY)
        for path in (folder / "calibrations").glob("*.json"):
            read_calibration(folder, path.stem)
        read_audits(run)

    name = next((str(path.relative_to(folder)) for path in folder.glob(name)), name)
    if not (folder / name).exists() and not name.startswith("memory"):
        pytest.skip(f"this run keeps no {name}")
    three_versions(memory)
    use()
    change_json(folder / name, lambda values: values, sealed=False)
    with pytest.raises(UserError, match=rf"{re.escape(name)} is damaged: it lacks its own hash"):
        use()


# ------------------------------------------------------------------- crafted, with a fair seal


def craft(folder, number, *, tensors=None, texts=None, version=None):
    """Change the files of a version, and every hash that tells of it."""
    where = folder / "memory/versions" / str(number)
    if tensors is not None:
        write_tensors(where / TENSORS, read_tensors(where / TENSORS) | tensors)
    if texts is not None:
        write_json(where / TEXTS, json.loads((where / TEXTS).read_text()) | texts, indent=None)
    hashes = {name: hma.io.files.file_sha256(where / name) for name in (TENSORS, TEXTS)}
    more = {"files": hashes} | (version or {})
    change_json(where / "version.json", lambda values: values | more)


def taught(**tensors):
    return {"tensors": tensors}


CRAFTED = {
    "narrow features": (
        lambda f: taught(features=torch.zeros(4, 2)),
        r"features must be \(4, \d+\) floats, got float32 of shape \(4, 2\)",
    ),
    "no features": (lambda f: taught(features=torch.zeros(4)), r"features must be \(4, \d+\)"),
    "whole features": (lambda f: taught(features=f.long()), "features must be .* got int64"),
    "NaN": (lambda f: taught(features=f * torch.nan), "features must be finite"),
    "infinity": (lambda f: taught(features=f + torch.inf), "features must be finite"),
    "negative ids": (
        lambda f: taught(ids=torch.tensor([76, 77, -5, 78])),
        r"ids must be from 0 to \d+, got -5",
    ),
    "huge ids": (
        lambda f: taught(ids=torch.tensor([2**63, 77, 78, 79], dtype=torch.uint64)),
        "ids must be one int64 for each row, got uint64",
    ),
    "ids beyond the next": (
        lambda f: taught(ids=torch.tensor([2**62, 77, 78, 79])),
        r"ids must be from 0 to \d+, got 4611686018427387904",
    ),
    "ids of numbers": (lambda f: taught(ids=torch.rand(4)), "ids must be one int64 .* got float32"),
    "equal ids": (
        lambda f: taught(ids=torch.tensor([76, 77, 77, 79])),
        "ids must be there once each, got 77 twice",
    ),
    "a training row's id": (
        lambda f: taught(ids=torch.tensor([76, 77, 3, 79])),
        "the id 3 is that of a training row",
    ),
    "a taught row's id": (
        lambda f: taught(ids=torch.tensor([76, 77, 73, 79])),
        "the id 73 was given to an earlier row",
    ),
    "labels outside": (
        lambda f: taught(labels=torch.tensor([0, 1, 3, 0])),
        "labels do not fit: y must hold class ids from 0 to 2, got 3",
    ),
    "negative labels": (
        lambda f: taught(labels=torch.tensor([0, 1, -1, 0])),
        "labels do not fit: y must hold class ids from 0 to 2, got -1",
    ),
    "shares as labels": (lambda f: taught(labels=torch.rand(4, 3)), "labels must be like int64"),
    "forgotten twice": (
        lambda f: taught(forgotten=torch.tensor([1, 1])) | {"version": {"forgotten": 2}},
        "forgotten must be there once each, got 1 twice",
    ),
    "forgotten, never held": (
        lambda f: taught(forgotten=torch.tensor([79])) | {"version": {"forgotten": 1}},
        "it forgets the id 79, which is not held before",
    ),
    "a class that there is": (
        lambda f: {"version": {"classes": ["k1"]}},
        "it adds the class 'k1', which there is already",
    ),
    "a class twice": (
        lambda f: {"version": {"classes": ["new", "new"]}},
        "it adds the class 'new', which there is already",
    ),
    "classes without rows": (
        lambda f: {"version": {"classes": [f"c{place}" for place in range(5000)]}},
        "it adds 5000 classes, and 5000 have no row",
    ),
    "no base64": (
        lambda f: {"texts": {"pictures": ["rubbish!", None, None, None]}},
        r"pictures\[0\] is no PNG in base64",
    ),
    "no PNG": (
        lambda f: {"texts": {"pictures": [None, "aGVsbG8=", None, None]}},
        r"pictures\[1\] is no PNG in base64",
    ),
    "no texts": (lambda f: {"texts": {"what": None}}, "what must be a list, got None"),
    "few texts": (lambda f: {"texts": {"what": ["one"]}}, "its files do not fit each other"),
    "other columns": (
        lambda f: {"texts": {"cells": {"a": ["1", "2"]}}},
        "its files do not fit each other",
    ),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_version_is_one_line_and_nothing_happens(memory, folder, name):
    teach_quickly(memory, table(4, 1))
    memory.forget(ids=[0], scored=False)
    teach_quickly(memory, table(4, 2))
    make, said = CRAFTED[name]
    features = read_tensors(folder / "memory/versions/3" / TENSORS)["features"]
    craft(folder, 3, **make(features))
    refused(folder, said)


def test_a_picture_that_is_none_is_said_when_it_is_shown(memory, folder):
    rubbish = "iVBORw0KGgo" + "A" * 21  # begins like one
    teach_quickly(memory, table(4, 1))
    craft(folder, 1, texts={"pictures": [rubbish, None, None, None]})
    run = Run.open(folder)
    with pytest.raises(UserError, match=r"picture of the taught row 72 .* is damaged: .*--restore"):
        RememberedRows(run).thumbnail(TRAINED)


@pytest.mark.parametrize("id", [2**63, 2**64, -1, 10**30, MOST_ID])
def test_ids_that_no_row_can_have_are_not_held(memory, id):
    with pytest.raises(UserError, match=rf"--ids names {id}, which the memory does not hold"):
        memory.forget(ids=[id])


# -------------------------------------------------------------------------- as fast as before


@pytest.fixture
def often(memory, monkeypatch):
    """A memory with a state every fourth version, changed eleven times."""
    monkeypatch.setattr(hma.runs.memory_versions, "STATE_EVERY", 4)
    for seed in range(11):
        if seed % 3 == 2:
            memory.forget(ids=ids_of(memory)[-1:], scored=False)
        else:
            teach_quickly(memory, table(3, 10 + seed))
    return memory


def counted_reads(monkeypatch, use):
    read, numbers = hma.runs.memory_versions.read_change, []

    def counting(folder, hashes, remedy):
        numbers.append(str(folder.relative_to(folder.parents[1])))
        return read(folder, hashes, remedy)

    monkeypatch.setattr(hma.runs.memory_versions, "read_change", counting)
    use()
    return numbers


def test_a_state_saves_reading_the_chain(often, folder, monkeypatch):
    held = ids_of(often)
    again = LivingMemory.open(folder)
    read = counted_reads(monkeypatch, again.rows)
    assert read == ["8/state", "versions/9", "versions/10", "versions/11"]
    assert ids_of(again) == held
    assert again.run.living.chain == tuple(range(1, 12))
    for number in range(12):
        assert again.run.versions.living(number).chain == tuple(range(1, number + 1))


def test_a_state_that_does_not_match_is_not_used(often, folder, monkeypatch):
    held = ids_of(often)
    state = folder / "memory/versions/8/state"
    rows, forgotten = often.run.living.rows, often.run.living.forgotten
    write_change(state, rows, forgotten)  # another state than the version says
    assert ids_of(LivingMemory.open(folder)) == held
    shutil.rmtree(state)
    assert ids_of(LivingMemory.open(folder)) == held
    craft(folder, 2, version={"note": "another chain"})  # from here on no state is that of it
    again = LivingMemory.open(folder)
    read = counted_reads(monkeypatch, lambda: ids_of(again))
    assert read == [f"versions/{number}" for number in range(1, 12)]
    assert ids_of(again) == held
    (folder / "memory/versions/2/version.json").write_text("{")
    with pytest.raises(FileError, match=r"versions/2/version.json is damaged"):
        LivingMemory.open(folder).rows()


def test_a_write_reads_no_version_again_and_loads_the_model_once(often, folder, monkeypatch):
    load, loads = hma.runs.folder.load, []
    monkeypatch.setattr(hma.runs.folder, "load", lambda *given: loads.append(given) or load(*given))
    change = lambda: often.forget(ids=ids_of(often)[-1:], scored=False)  # noqa: E731
    assert counted_reads(monkeypatch, change) == []
    assert len(loads) == 1  # the version that is new
    loads.clear()
    teach(LivingMemory.open(folder), table(3, 30))
    assert len(loads) == 2  # the version before and the one after


def test_another_writer_is_noticed(often, folder):
    other = LivingMemory.open(folder)
    other.forget(ids=[0], scored=False)
    often.forget(ids=[1], scored=False)
    assert [one.verb for one in often.history()][-2:] == ["forget", "forget"]
    assert not {0, 1} & set(ids_of(often))


# ----------------------------------------------------------------------- what killed writers left


def _abandon(folder):
    with atomic_write(folder / "file") as temporary:
        temporary.write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)


def test_what_killed_writers_left_goes_when_the_run_is_opened(memory, folder):
    three_versions(memory)
    places = [folder, folder / "memory", folder / "memory/versions/2"]
    for place in places:
        writer = FORK.Process(target=_abandon, args=(place,))
        writer.start()
        writer.join()
    with atomic_write(folder / "memory/model/file") as held:
        held.write_text("whole")
        assert len([*folder.rglob(".writing-*")]) == 4
        Run.open(folder)
        assert [*folder.rglob(".writing-*")] == [held.parent]
    assert (folder / "memory/model/file").read_text() == "whole"

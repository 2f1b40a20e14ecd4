"""Packed records: the very same values, whatever is killed when, and errors that name the file."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from table_records import keep, made_up_table, record_of, records_of

from hma.errors import UserError
from hma.paper.cells import work
from hma.paper.packed_records import PackedRecords
from hma.paper.results import Results
from hma.paper.table import Cell

ROOT = Path(__file__).parents[2]
COMMITTED = sorted(path.stem for path in (ROOT / "results").glob("*.jsonl"))
EPOCHS = [
    {"epoch": 0, "train_loss": 0.1 + 0.2, "validation": {}, "lr": 1e-3},
    {
        "epoch": 1,
        "train_loss": None,
        "validation": {"alone": {"nll": None, "accuracy": 5e-324}, "batch": {"nll": -0.0}},
        "lr": 1.0,
    },
]


def epoch_lists():
    """Yield epochs as records have them, and others that no column takes."""
    yield EPOCHS
    yield [{**EPOCHS[0], "train_loss": 1}]  # a whole number would come back as 1.0
    yield [{**EPOCHS[0], "seconds": 1.0}]
    yield [{**EPOCHS[0], "note/of mine": 1.0}]
    yield [{**EPOCHS[0], "words": "well"}]
    yield [{**EPOCHS[1], "validation": {"alone": {}}}]
    yield [{**EPOCHS[0], "epoch": None}]
    yield []


@pytest.fixture
def made_up():
    return made_up_table()


@pytest.fixture
def singles(made_up, results):
    """A folder of results with a file a record."""
    records = records_of(made_up, made_up.cells("small", seeds=2))
    cell = next(iter(records))
    records[cell] = record_of(made_up, cell, epochs=EPOCHS, epoch_seconds=[0.1, 0.2])
    keep(results, records)
    return results


def texts(folder):
    """Return the records of single files, by cell."""
    files = sorted(folder.glob("T9/*/*/*/*.json"))
    return {
        str(path.relative_to(folder / "T9").with_suffix("")): json.loads(path.read_text())
        for path in files
    }


def files_of(folder):
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and ".unfinished" not in path.parts
    )


def test_packed_records_are_those_of_the_single_files(singles, made_up):
    before, read = texts(singles.folder), singles.records(made_up, made_up.cells("small"))
    assert singles.tables() == ("T9",)
    assert singles.pack("T9") == len(before) == 12
    assert files_of(singles.folder) == ["T9.curves.parquet", "T9.jsonl"]
    assert not (singles.folder / "T9").exists()
    packed = PackedRecords(singles.folder, "T9")
    assert packed.cells() == before.keys()
    for cell, values in before.items():
        assert json.dumps(packed.values(cell)) == json.dumps(values)  # to the last bit
    assert Results(singles.folder).records(made_up, made_up.cells("small")).keys() == read.keys()
    again = {c: r.to_json() for c, r in singles.records(made_up, made_up.cells("small")).items()}
    assert again == {cell: record.to_json() for cell, record in read.items()}
    assert singles.pack("T9") == 0


@pytest.mark.parametrize("epochs", [*epoch_lists()])
@pytest.mark.parametrize("seconds", [[1.0], [0.5, 1 / 3], [1, 2.0]])
def test_epochs_of_any_kind_come_back(tmp_path, epochs, seconds):
    packed, values = PackedRecords(tmp_path, "T"), {"epochs": epochs, "epoch_seconds": seconds}
    packed.write({"paper/a/b/0": values, "paper/a/b/1": {**values, "epochs": EPOCHS}})
    for reader in (packed, PackedRecords(tmp_path, "T")):
        assert json.dumps(reader.values("paper/a/b/0")) == json.dumps(values)
        assert json.dumps(reader.values("paper/a/b/1")["epochs"]) == json.dumps(EPOCHS)


def test_what_records_have_in_common_is_kept_once_and_seeds_are_sorted_as_numbers(tmp_path):
    packed = PackedRecords(tmp_path, "T")
    setup = {"task": {"name": "a" * 50}, "method": {"contexts": ["alone"]}, "recipe": {}}
    values = {"setup": setup, "epochs": [], "versions": {"python": "3.11"}}
    packed.write({f"paper/a/b/{seed}": values for seed in (10, 9, 100)})
    text = packed.path.read_text()
    assert text.count("a" * 50) == 1
    lines = [json.loads(line) for line in text.splitlines()]
    assert [one["cell"] for one in lines if "cell" in one] == [
        f"paper/a/b/{seed}" for seed in (9, 10, 100)
    ]
    first, second = packed.values("paper/a/b/9"), packed.values("paper/a/b/10")
    first["setup"]["task"]["name"] = "changed"
    assert second["setup"]["task"]["name"] == "a" * 50


def test_packing_bit_by_bit_gives_the_files_of_packing_at_once(singles, made_up, tmp_path):
    values = texts(singles.folder)
    at_once, parts = PackedRecords(tmp_path / "one", "T9"), PackedRecords(tmp_path / "two", "T9")
    for packed in (at_once, parts):
        packed.path.parent.mkdir()
    at_once.write(values)
    for cell in reversed(values):
        parts.write({cell: values[cell]})
    assert at_once.path.read_bytes() == parts.path.read_bytes()
    assert at_once.curves_path.read_bytes() == parts.curves_path.read_bytes()


def test_single_files_lie_on_top_of_packed_ones_until_they_are_packed_too(made_up, results):
    cells = made_up.cells("small", seeds=2)
    keep(results, records_of(made_up, cells[:5]))
    results.pack("T9")
    keep(results, records_of(made_up, cells[5:]))
    assert results.records(made_up, cells).keys() == set(cells)
    assert [results.state(cell) for cell in cells] == ["done"] * 12
    assert results.pack("T9") == 7
    assert Results(results.folder).records(made_up, cells).keys() == set(cells)


def test_a_reader_sees_what_another_process_packs(singles, made_up):
    reader, cells = Results(singles.folder), made_up.cells("small", seeds=2)
    assert len(reader.records(made_up, cells)) == 12
    singles.pack("T9")
    assert len(reader.records(made_up, cells)) == 12


def test_a_packed_cell_is_not_run_again(toy, results):
    cell = Cell("TOY", "smoke", "easy", "ERM", 0)
    work(toy, cell, results)
    results.pack("TOY")
    work(toy, cell, results)
    assert not results.path(cell).exists()
    assert results.state(cell) == "done"
    with pytest.raises(UserError, match=r"remove the line of smoke/easy/ERM/0 from .*TOY.jsonl to"):
        results.weights(toy, cell)


def test_two_records_of_a_cell_are_refused_if_they_differ(singles, made_up):
    cell = made_up.cells("small")[0]
    text = singles.path(cell).read_text()
    singles.pack("T9")
    singles.path(cell).parent.mkdir(parents=True)
    singles.path(cell).write_text(text)
    assert singles.record(made_up, cell).seed == cell.seed  # the same twice, after a kill
    singles.path(cell).write_text(text.replace('"c0ffee"', '"bad"'))
    for refused in (lambda: singles.record(made_up, cell), lambda: singles.pack("T9")):
        with pytest.raises(UserError, match=r"both have a record of .* and they differ") as caught:
            refused()
        assert str(singles.path(cell)) in str(caught.value)
        assert str(singles.folder / "T9.jsonl") in str(caught.value)
    assert singles.path(cell).exists()
    singles.path(cell).write_text(text)
    assert singles.pack("T9") == 1


def test_a_packed_record_of_other_settings_is_refused(singles, made_up):
    singles.pack("T9")
    path = singles.folder / "T9.jsonl"
    path.write_text(path.read_text().replace('"method":"plain"', '"method":"other"'))
    with pytest.raises(UserError, match=r"T9.jsonl, small/left/plain/0 was measured .* Remove its"):
        singles.record(made_up, Cell("T9", "small", "left", "plain", 0))


def damage(text):
    lines = text.splitlines(keepends=True)
    shared = next(line for line in lines if line.startswith('{"shared"'))
    yield text[:-20], "it ends in the middle of a line"
    yield "<<<<<<< ours\n" + text, "line 1 is neither of a cell nor shared"
    yield (
        text + lines[-1],
        rf"lines {len(lines)} and {len(lines) + 1} are both of small/right/rma/1",
    )
    yield text.replace(shared, ""), "nothing is shared as"
    yield text.replace('"record":{', '"record":{{'), r"line \d+: "
    yield text.replace('"rows":2,', '"rows":3,'), "it has 2 epochs of small/left/plain/0, line"


@pytest.mark.parametrize("place", range(6))
def test_damaged_lines_are_refused_by_name(singles, made_up, place):
    singles.pack("T9")
    path = singles.folder / "T9.jsonl"
    changed, message = list(damage(path.read_text()))[place]
    path.write_text(changed)
    with pytest.raises(UserError, match=message) as caught:
        singles.records(made_up, made_up.cells("small"))
    assert str(path) in str(caught.value)
    assert "restore it from a copy" in str(caught.value)


@pytest.mark.parametrize("content", [None, b"PAR1"])
def test_curves_that_are_lost_are_named(singles, made_up, content):
    singles.pack("T9")
    path = singles.folder / "T9.curves.parquet"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    results = Results(singles.folder)
    with pytest.raises(UserError) as caught:
        results.record(made_up, Cell("T9", "small", "left", "plain", 0))
    assert str(path) in str(caught.value)
    assert results.record(made_up, Cell("T9", "small", "right", "plain", 0)).epochs == []


def test_a_damaged_single_file_is_not_packed(singles, made_up):
    path = singles.path(made_up.cells("small")[3])
    path.write_text('{"sch')
    with pytest.raises(UserError, match="is damaged"):
        singles.pack("T9")
    assert len(texts_but(singles.folder, path)) == 11
    assert not (singles.folder / "T9.jsonl").exists()


def texts_but(folder, path):
    path.unlink()
    return texts(folder)


def test_reading_a_table_reads_no_other(singles, made_up):
    singles.pack("T9")
    (singles.folder / "T8.jsonl").write_text("damaged")
    assert len(singles.records(made_up, made_up.cells("small"))) == 12


KILLED = """
import json, os, shutil, signal, sys
from pathlib import Path
from hma.paper.packed_records import PackedRecords
from hma.paper.results import Results

singles, place = Path(sys.argv[1]), Path(sys.argv[2])
wanted = {
    str(path.relative_to(singles / "T9").with_suffix("")): json.loads(path.read_text())
    for path in singles.glob("T9/*/*/*/*.json")
}


def readable(folder):
    results, found = Results(folder), {}
    for name in wanted:
        path, packed = folder / "T9" / f"{name}.json", results.packed("T9").values(name)
        found[name] = packed or json.loads(path.read_text())
        assert packed is None or not path.exists() or packed == json.loads(path.read_text())
    return found == wanted


def pack_until(moment, folder):
    def killed(event, given):
        nonlocal moment
        if event in ("os.rename", "os.remove", "os.rmdir", "open") and str(folder) in str(given):
            moment -= 1
            if moment == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(killed)
    Results(folder).pack("T9")
    os._exit(0)


moment = 0
while True:
    moment += 1
    folder = place / str(moment)
    shutil.copytree(singles, folder)
    child = os.fork()
    if not child:
        pack_until(moment, folder)
    _, status = os.waitpid(child, 0)
    assert readable(folder), moment
    Results(folder).pack("T9")
    assert readable(folder), moment
    assert not list(folder.glob("T9/*/*/*/*.json"))
    shutil.rmtree(folder)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
print(moment)
"""


@pytest.mark.skipif(not hasattr(os, "fork") or not hasattr(signal, "SIGKILL"), reason="needs fork")
def test_killed_at_any_moment_a_pack_loses_nothing_and_goes_on(made_up, results, tmp_path):
    cells = made_up.cells("small", seeds=1)[:3]
    keep(results, {c: record_of(made_up, c, epochs=EPOCHS) for c in cells})
    place = tmp_path / "killed"
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(results.folder), str(place)],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 12


@pytest.mark.slow
@pytest.mark.parametrize("table", COMMITTED)
def test_committed_records_unpack_and_pack_to_the_same_files(table, tmp_path):
    committed, results = PackedRecords(ROOT / "results", table), Results(tmp_path)
    values = {cell: committed.values(cell) for cell in committed.cells()}
    for cell, one in values.items():
        path = tmp_path / table / f"{cell}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(one, indent=2) + "\n")
    assert results.pack(table) == len(values)
    again = results.packed(table)
    assert again.path.read_bytes() == committed.path.read_bytes()
    for cell, one in values.items():
        assert json.dumps(again.values(cell)) == json.dumps(one)

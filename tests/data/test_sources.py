"""What SOURCE may be, and rows that are read as they are needed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hma.data import BUILTINS, PreparationOptions, builtin, is_builtin, open_source, stream
from hma.data.preparation import Selection
from hma.data.source import guess_encoding
from hma.data.sources import MAY_BE
from hma.data.table.preparation import TablePreparation
from hma.errors import UserError
from hma.extras import needed
from hma.targets import Classes

MEASURE = """
import json, resource, sys
import torch
from hma.data import preparation_from_json, stream
torch.set_num_threads(1)
preparation = preparation_from_json(json.load(open(sys.argv[1])))
rows = sum(len(batch.ids) for batch in stream(preparation, sys.argv[2], 256))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_an_unknown_name_lists_everything_and_offers_the_nearest():
    with pytest.raises(
        UserError, match=r"called 'digts'; did you mean 'digits'\? SOURCE may be"
    ) as e:
        open_source("digts")
    assert str(e.value).endswith(MAY_BE)
    assert all(name in str(e.value) for name in BUILTINS)
    assert "\n" not in str(e.value)


def test_a_name_that_a_command_took_for_a_path_offers_the_nearest_name(tmp_path):
    with pytest.raises(UserError, match=r"did you mean 'graph-twitter'\?"):
        open_source(str(tmp_path / "graph-twiter"))


def test_a_file_with_nearly_that_name_is_offered(tmp_path):
    (tmp_path / "flowers.csv").write_text("a\n1\n")
    with pytest.raises(UserError, match=rf"did you mean '{tmp_path}/flowers.csv'"):
        open_source(tmp_path / "flower.csv")


def test_nothing_near_gives_no_guess():
    with pytest.raises(UserError, match=r"called 'qqqqqq'; SOURCE may be"):
        open_source("qqqqqq")


def test_a_file_of_an_unknown_kind_is_refused(tmp_path):
    (tmp_path / "a.docx").write_bytes(b"")
    with pytest.raises(UserError, match=r"a.docx is of no kind that can be read; SOURCE may be"):
        open_source(tmp_path / "a.docx")


@pytest.mark.parametrize("ending", ["xlsx", "XLS", "ods"])
def test_a_spreadsheet_says_how_to_bring_it(tmp_path, ending):
    (tmp_path / f"a.{ending}").write_bytes(b"")
    convert = rf"pandas.read_excel\('a.{ending}'\).to_csv\('a.csv', index=False\)"
    with pytest.raises(UserError, match=f"save it as CSV or Parquet, by hand or .*{convert}"):
        open_source(tmp_path / f"a.{ending}", target="y")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_file_that_is_not_utf_8_is_read_in_the_encoding_that_is_named(tmp_path, name):
    rows = {"a.csv": "text,y\né,1\nb,0\n", "a.jsonl": '{"text": "é"}\n{"text": "b"}\n'}
    (tmp_path / name).write_text(rows[name], encoding="latin-1")
    said = rf"{name} is not written in UTF-8 \(byte 0xe9 .*--encoding latin-1, cp1252"
    with pytest.raises(UserError, match=said):
        len(open_source(tmp_path / name))
    source = open_source(tmp_path / name, encoding="latin-1")
    found = source.texts if name == "a.jsonl" else source.frame["text"].tolist()
    assert found == ["é", "b"]
    with pytest.raises(UserError, match=r"encoding must be one that Python knows, .*got 'latin-x'"):
        open_source(tmp_path / name, encoding="latin-x")
    (tmp_path / name).write_text(rows[name], encoding="utf-8-sig")
    assert len(open_source(tmp_path / name, encoding="utf-8")) == 2


@pytest.mark.parametrize(
    ("content", "guess"),
    [
        ("é,1".encode(), None),
        (b"plain,1", None),
        ("é,1".encode("latin-1"), "latin-1"),
        ("é,5 €".encode("cp1252"), "cp1252"),
        ("é,1".encode("utf-16"), "utf-16"),
        (b"\x00\xe9,1", None),
        (b"\xe9,\x81", None),  # cp1252 has no sign for 0x81
        (b"a" * (1 << 20) + "é,1".encode("latin-1"), "latin-1"),
        (b"a" * ((1 << 20) - 1) + "é".encode(), None),  # a sign over the border of two parts
    ],
    ids=range(9),
)
def test_the_encoding_of_a_file_is_guessed(tmp_path, content, guess):
    (tmp_path / "a.csv").write_bytes(content)
    assert guess_encoding(tmp_path / "a.csv") == guess


def test_a_table_of_names_alone_or_without_names_says_what_is_missing(tmp_path):
    (tmp_path / "names.csv").write_text("a,b,y\n")
    with pytest.raises(UserError, match=r"names.csv has names of columns \('a', 'b', 'y'\) and no"):
        len(open_source(tmp_path / "names.csv", target="y").labels)
    (tmp_path / "rows.csv").write_text("0.5,1,big\n0.7,2,small\n")
    with pytest.raises(
        UserError, match=r"no column 'y'; is its first line a row\? Then put a line"
    ):
        open_source(tmp_path / "rows.csv", target="y")


def test_a_column_of_texts_is_that_of_a_table_that_has_it(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "b"}\n')
    with pytest.raises(UserError, match=r"text names a column of a CSV .*got 'b' with .*a.jsonl"):
        open_source(tmp_path / "a.jsonl", text="b")
    (tmp_path / "a.csv").write_text("words,y\na b,1\n")
    with pytest.raises(UserError, match=r"text: a.csv has no column 'word'; did you mean 'words'?"):
        open_source(tmp_path / "a.csv", target="y", text="word")
    with pytest.raises(UserError, match=r"text names the target 'y'"):
        open_source(tmp_path / "a.csv", target="y", text="y")


def test_a_name_that_is_also_a_folder_here_is_not_guessed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("digits", x=np.zeros((3, 2)))
    Path("digits.npz").rename("digits")
    with pytest.raises(UserError, match=r"write ./digits or builtin:digits"):
        open_source("digits")
    with pytest.raises(UserError, match=r"write ./digits or builtin:digits"):
        is_builtin("digits")
    assert not is_builtin("./digits")
    assert len(open_source("builtin:digits")) == 1797
    assert len(builtin("builtin:digits", seed=0).source) == 1797
    with pytest.raises(UserError, match=r"digits is of no kind"):
        open_source("./digits")
    with pytest.raises(UserError, match=r"digits is of no kind"):
        open_source(Path("digits"))


@pytest.mark.parametrize("spec", ["digits", "folder", "a.npz"])
def test_a_target_is_for_tables(tmp_path, monkeypatch, spec):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    np.savez("a.npz", x=np.zeros((3, 2)))
    with pytest.raises(
        UserError, match=rf"target is for CSV and Parquet files, got 'y' with {spec}"
    ):
        open_source(spec, target="y")


def test_several_graph_data_sets_in_one_folder_are_refused(tmp_path):
    for name in ("A", "B"):
        (tmp_path / f"{name}_A.txt").write_text("1, 2\n")
    with pytest.raises(UserError, match=r"holds several data sets \('A_A.txt', 'B_A.txt'\)"):
        open_source(tmp_path)


def test_a_package_that_is_not_installed_is_named_as_pip_knows_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UserError, match=r"reading images needs pillow: pip install pillow"):
        needed("PIL", "reading images")


def table(file, rows):
    generator = np.random.default_rng(rows)
    frame = pd.DataFrame(generator.normal(size=(rows, 6)).round(4), columns=list("abcdef"))
    frame["word"] = generator.choice(["red", "green", "blue"], rows)
    if file.suffix == ".csv":
        frame.to_csv(file, index=False)
    else:
        frame.to_parquet(file, row_group_size=10_000)
    return file


def measured(folder, file):
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(folder / "preparation.json"), str(file)],
        check=True,
        capture_output=True,
        text=True,
    )
    rows, kilobytes = map(int, done.stdout.split())
    return rows, kilobytes / 1024


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_ten_times_the_rows_take_no_more_memory(tmp_path, kind):
    small, large = (table(tmp_path / f"{rows}.{kind}", rows) for rows in (30_000, 300_000))
    preparation = TablePreparation.fit(
        Selection(open_source(small), range(1000)), ("a", "b"), Classes(2), PreparationOptions()
    )
    (tmp_path / "preparation.json").write_text(json.dumps(preparation.to_json()))
    few, before = measured(tmp_path, small)
    many, after = measured(tmp_path, large)
    assert (few, many) == (30_000, 300_000)
    assert after - before < 25  # the rows as float32 alone are 10 MB, as text 60 MB


@pytest.mark.parametrize("batch_size", [1, 7, 1000, 50_000])
def test_batches_are_of_one_size_across_chunks(tmp_path, batch_size):
    rows = 20_001 if batch_size > 1 else 50
    source = open_source(table(tmp_path / "a.csv", rows))
    options = PreparationOptions()
    preparation = TablePreparation.fit(
        Selection(source, range(50)), ("a", "b"), Classes(2), options
    )
    batches = list(stream(preparation, source, batch_size))
    sizes = [len(batch.ids) for batch in batches]
    assert set(sizes[:-1]) <= {batch_size}
    assert torch.cat([batch.ids for batch in batches]).tolist() == list(range(rows))
    whole = preparation.split(source)
    torch.testing.assert_close(torch.cat([b.x for b in batches]), whole.x, rtol=0, atol=0)


def test_labels_come_along_and_a_missing_one_is_named_by_its_row(tmp_path):
    lines = [f"{place},{'ab'[place % 2]}" for place in range(20_000)]
    (tmp_path / "a.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    source = open_source(tmp_path / "a.csv", target="y")
    options = PreparationOptions()
    preparation = TablePreparation.fit(
        Selection(source, range(50)), ("a", "b"), Classes(2), options
    )
    labels = torch.cat([batch.y for batch in stream(preparation, source, 512)])
    assert labels.tolist() == [0, 1] * 10_000
    lines[19_000] = "5,"
    (tmp_path / "a.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    again = open_source(tmp_path / "a.csv", target="y")
    with pytest.raises(UserError, match=r"no label in 1 of .*first in row 19000"):
        list(stream(preparation, again, 512))


def test_an_empty_table_streams_nothing(tmp_path):
    source = open_source(table(tmp_path / "a.csv", 20))
    options = PreparationOptions()
    preparation = TablePreparation.fit(
        Selection(source, range(20)), ("a", "b"), Classes(2), options
    )
    header = (tmp_path / "a.csv").read_text().splitlines()[0]
    (tmp_path / "empty.csv").write_text(header + "\n")
    assert sum(len(batch.ids) for batch in stream(preparation, tmp_path / "empty.csv", 8)) == 0


def test_a_batch_of_nothing_is_refused(tmp_path):
    source = open_source(table(tmp_path / "a.csv", 20))
    options = PreparationOptions()
    preparation = TablePreparation.fit(
        Selection(source, range(20)), ("a", "b"), Classes(2), options
    )
    with pytest.raises(UserError, match=r"batch_size must be at least 1, got 0"):
        stream(preparation, source, 0)

"""What SOURCE may be, and what is said when it is none of it."""

import sys
from pathlib import Path

import numpy as np
import pytest

from hma.data import BUILTINS, builtin, is_builtin, open_source
from hma.data.sources import MAY_BE
from hma.errors import UserError
from hma.extras import needed


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

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
    (tmp_path / "a.xlsx").write_bytes(b"")
    with pytest.raises(UserError, match=r"a.xlsx is of no kind that can be read; SOURCE may be"):
        open_source(tmp_path / "a.xlsx")


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

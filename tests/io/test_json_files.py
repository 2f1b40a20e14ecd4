"""Our JSON files: what was written is read, and anything else is refused in one line."""

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any, Literal

import pytest

from hma.io.files import FileError
from hma.io.json_files import Default, finite_or_none, none_to_nan, read_json, validate, write_json

SHAPE = {
    "name": str,
    "places": list[int],
    "share": float,
    "kind": Literal["a", "b"],
    "inner": {"deep": dict[str, list[int] | None]},
    "rows": [{"x": int}],
    "extra": Default(int | None, 3),
}
VALUES = {
    "name": "é",
    "places": [1, 2],
    "share": 1,
    "kind": "a",
    "inner": {"deep": {"one": [1], "two": None}},
    "rows": [{"x": 1}],
}


def test_what_is_written_is_read_and_hashed(tmp_path):
    path = tmp_path / "file.json"
    sha256 = write_json(path, VALUES)
    assert sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert read_json(path, SHAPE, sha256=sha256) == VALUES | {"extra": 3}
    assert json.loads(path.read_text(encoding="utf-8")) == VALUES


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": 3}, "name must be text, got 3"),
        ({"places": [1, "2"]}, r"places\[1\] must be a whole number, got '2'"),
        ({"places": [1, True]}, r"places\[1\] must be a whole number, got True"),
        ({"places": [1.5]}, r"places\[0\] must be a whole number, got 1.5"),
        ({"places": {"a": 1}}, "places must be a list, got {'a': 1}"),
        ({"share": True}, "share must be a number, got True"),
        ({"kind": "c"}, "kind must be one of 'a', 'b', got 'c'"),
        ({"inner": []}, r"inner must be an object, got \[\]"),
        ({"inner": {"deep": {"one": 1}}}, "inner.deep.one must be a list or null, got 1"),
        ({"rows": [{"x": 1}, {}]}, r"rows\[1\] lacks x"),
        ({"extra": "x"}, "extra must be a whole number or null, got 'x'"),
        ({"name": "x" * 999, "share": "y" * 999}, "share must be a number, got 'y{56}"),
    ],
)
def test_another_shape_is_refused_by_name(change, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        validate(VALUES | change, SHAPE)


def test_fields_that_are_not_declared_are_kept():
    assert validate({"a": 1, "b": 2}, {"a": int}) == {"a": 1, "b": 2}


def test_defaults_are_not_shared():
    shape = {"many": Default(list, [])}
    validate({}, shape)["many"].append(1)
    assert validate({}, shape) == {"many": []}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "Expecting value"),
        (b"[1, 2", "Expecting"),
        (b'"\xff"', "it is not UTF-8 at byte 1"),
        (b'"\\ud800"', "half of a surrogate pair"),
        (b"[" * 5000 + b"]" * 5000, "nested more than 100 deep"),
        (b"[" * 102 + b"]" * 102, "nested more than 100 deep"),
        (b'{"a":' * 200_000, "nested more than 100 deep"),
        (b"1" * 5000, "(?i)limit"),
        (b"1" * 40, "more than 64 bits"),
    ],
)
def test_damaged_text_is_one_line(tmp_path, content, said):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(FileError, match=said) as caught:
        read_json(path, Any)
    assert str(caught.value).startswith(f"{path} is damaged: ")
    assert str(caught.value).endswith("; restore it from a copy")
    assert "\n" not in str(caught.value)


def test_a_hundred_levels_and_a_whole_surrogate_pair_are_fine(tmp_path):
    path = tmp_path / "file.json"
    path.write_bytes(b"[" * 100 + b"]" * 100)
    read_json(path, list)
    path.write_bytes(b'"\\ud83d\\ude00"')
    assert read_json(path, str) == "\U0001f600"


def test_another_content_than_the_recorded_is_refused(tmp_path):
    path = tmp_path / "file.json"
    sha256 = write_json(path, {"mean": 1.0})
    path.write_text(path.read_text().replace("1.0", "1e12"))
    with pytest.raises(FileError, match="does not match its recorded hash"):
        read_json(path, {"mean": float}, sha256=sha256)


def test_a_sealed_file_knows_its_own_content(tmp_path):
    path = tmp_path / "file.json"
    write_json(path, VALUES, sealed=True)
    assert read_json(path, SHAPE) == VALUES | {"extra": 3}
    path.write_text(path.read_text().replace('"x": 1', '"x": 2'))
    with pytest.raises(FileError, match="does not match its own hash"):
        read_json(path, SHAPE)


@pytest.mark.parametrize(
    ("values", "said"),
    [(VALUES, "it lacks its own hash"), (None, "it must be an object"), ([1], "it must be an")],
)
def test_a_file_that_was_sealed_is_damaged_without_its_hash(tmp_path, values, said):
    path = tmp_path / "file.json"
    write_json(path, values)
    with pytest.raises(FileError, match=f"is damaged: {said}"):
        read_json(path, Any, sealed=True)


def test_empty_texts_are_told_from_what_is_no_text(tmp_path):
    assert validate({"a": ["x", None]}, {"a": list[str | None]}) == {"a": ["x", None]}
    with pytest.raises(ValueError, match=r"a\[1\] must be text or null, got 3"):
        validate({"a": ["x", 3]}, {"a": list[str | None]})


def test_what_is_no_file_is_refused_and_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero"), tmp_path / "none"):
        with pytest.raises(FileError):
            read_json(path, Any)
    (tmp_path / "large").write_text("[1, 2, 3]")
    with pytest.raises(FileError, match="9 bytes, and at most 8"):
        read_json(tmp_path / "large", Any, most_bytes=8)


def test_numbers_that_are_not_finite_are_null_and_back():
    values = {"a": [1.0, math.nan], "b": {"c": -math.inf}, "d": "text"}
    plain = finite_or_none(values)
    assert plain == {"a": [1.0, None], "b": {"c": None}, "d": "text"}
    back = none_to_nan(plain["a"])
    assert back[0] == 1.0
    assert math.isnan(back[1])


def test_a_number_that_json_does_not_know_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "file.json", {"a": math.nan})
    assert list(tmp_path.iterdir()) == []

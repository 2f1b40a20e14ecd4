"""What a request may cost: rows, columns, cells and conditions are bounded before work is done."""

import json

import pytest
from http_replies import JSON, line_of

from hma.data.table.source import MOST_CELLS, MOST_UNKNOWN, GivenTable
from hma.errors import UserError
from hma.io.files import hold_lock
from hma.runs.row_conditions import MOST_CHARACTERS, MOST_TERMS, parse_conditions
from hma.serve.requests import MOST_ROWS, MOST_VALUES


def test_columns_that_each_row_invents_are_refused_before_a_table_is_built(client, monkeypatch):
    built = []
    monkeypatch.setattr(GivenTable, "frame", property(built.append))
    many = [{f"column {row} {place}": 1 for place in range(100)} for row in range(MOST_ROWS)]
    for path, more in (("/predict", {}), ("/remember", {"labels": ["up"] * MOST_ROWS})):
        said = line_of(client.post(path, json={"rows": many, **more}), 400)
        assert f"has 25600 columns that the training table does not have; at most {MOST_UNKNOWN}" \
            in said  # fmt: skip
    assert not built


def test_cells_are_built_for_columns_of_the_training_table_alone(client, rows, monkeypatch):
    built = []
    frame = GivenTable.frame.func
    monkeypatch.setattr(
        GivenTable, "frame", property(lambda table: built.append(frame(table)) or built[-1])
    )
    many = [{**row, **{f"x{place}": 1 for place in range(MOST_UNKNOWN)}} for row in rows]
    reply = client.post("/predict", json={"rows": many})
    assert reply.status_code == 200
    assert "ignored columns 'x0', 'x1'" in reply.json()["notes"][0]
    assert {one.shape for one in built} == {(len(rows), 4)}
    plain = client.post("/predict", json={"rows": rows}).json()
    assert reply.json()["predictions"] == plain["predictions"]


def test_a_table_has_a_bounded_number_of_cells():
    names = [f"c{place}" for place in range(MOST_CELLS // 2 + 1)]
    wide = dict.fromkeys(names, 1)
    assert len(GivenTable("the request", [wide], known=names).columns) == len(names)
    with pytest.raises(UserError, match=r"has 2 rows of 524289 columns; at most 1048576 cells"):
        GivenTable("the request", [wide, {}], known=names)


def test_a_body_of_too_many_values_is_refused_before_it_is_read_as_json(client, monkeypatch):
    parsed = []
    monkeypatch.setattr("hma.serve.requests.parse_json", parsed.append)
    for values in (
        b"{}," * MOST_VALUES,
        b'{"rows":' + b"[[]," * MOST_VALUES,
        b"[" * (MOST_VALUES + 1),
        b'{"ids": [' + b"1," * MOST_VALUES + b"1]}",
    ):
        said = line_of(client.post("/forget", content=values, headers=JSON), 400)
        assert f"the body of /forget must hold at most {MOST_VALUES} values" in said
    assert not parsed


def test_marks_within_texts_are_no_values(client):
    text = '["a", \\" {"b": 1}] ' * (MOST_VALUES // 8)
    for content in (json.dumps({"texts": [text]}).encode(), b'"' + b'\\"' * MOST_VALUES + b"\\"):
        said = line_of(client.post("/predict", content=content, headers=JSON), 400)
        assert "values" not in said


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("a == 1 " + "and a == 1 " * 200_000, "must have at most 4000 characters, got 2200007"),
        ('"' * 2_000_000, "must have at most 4000 characters, got 2000000"),
        ("a == 1" + " and a == 1" * MOST_TERMS, f"at most {MOST_TERMS} comparisons"),
        ("a" * MOST_CHARACTERS, "must be COLUMN == VALUE"),
        (" " * MOST_CHARACTERS, "must be COLUMN == VALUE"),
        ("a == 'Oslo", "must be COLUMN == VALUE"),
    ],
)
def test_a_condition_is_refused_before_the_writers_lock_is_waited_for(client, folder, where, said):
    versions = folder / "memory" / "versions"
    versions.mkdir()
    with hold_lock(versions):
        line = line_of(client.post("/forget", json={"where": where}), 400)
    assert said in line
    assert len(line) < 400


def test_a_condition_of_the_largest_size_is_parsed():
    text = " and ".join(f"'column {place}' == {place}" for place in range(MOST_TERMS))
    found = parse_conditions(text.ljust(MOST_CHARACTERS))
    assert [(one.column, one.value) for one in found.comparisons] == [
        (f"column {place}", str(place)) for place in range(MOST_TERMS)
    ]


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, -(2**63), 2**63 - 1])
def test_ids_beyond_what_an_id_can_be_are_refused(client, number):
    line = line_of(client.post("/forget", json={"ids": [number]}), 400)
    assert f'"ids" names {number}, which the memory does not hold' in line

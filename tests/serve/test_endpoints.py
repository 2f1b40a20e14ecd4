"""The endpoints against ``hma predict`` and against what a memory holds."""

import csv
import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from starlette.testclient import TestClient

from hma.errors import UserError
from hma.runs import MEMORY, Run
from hma.runs.answers import predict
from hma.runs.coverage import CALIBRATIONS, Covered
from hma.runs.living import LivingMemory
from hma.runs.page import report_of
from hma.runs.source import rows_for
from hma.serve.app import app_of
from hma.serve.service import Service


@contextmanager
def serving(folder, coverage=None):
    service = Service(Run.open(folder), coverage)
    with TestClient(app_of(service), base_url="http://127.0.0.1") as client:
        yield client


def asked(client, path, **body):
    reply = client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_answers_are_those_of_hma_predict(client, trained, folder, rows, tmp_path):
    run = Run.open(folder)
    source = rows_for(run, str(trained / "asked.csv"), labelled=False)
    list(predict(run, source, tmp_path / "said.csv"))
    with open(tmp_path / "said.csv") as file:
        said = list(csv.DictReader(file))
    found = asked(client, "/predict", rows=rows)
    assert (found["version"], found["by"]) == (0, "mixture")
    assert len(found["predictions"]) == len(said) == 12
    for one, wanted in zip(found["predictions"], said, strict=True):
        assert one["label"] == wanted["label"]
        assert f"{one['probability']:.6f}" == wanted["probability"]
        for name in ("up", "down"):
            assert f"{one['probabilities'][name]:.6f}" == wanted[f"probability of {name}"]


def test_rows_of_the_source_are_asked_by_their_place(client, trained):
    with open(trained / "rows.csv") as file:
        written = list(csv.DictReader(file))
    row = {name: cell for name, cell in written[7].items() if name != "kind"}
    by_place = asked(client, "/predict", places=[7])["predictions"]
    assert by_place == asked(client, "/predict", rows=[row])["predictions"]
    # the label of the source is neither needed nor looked at
    assert by_place == asked(client, "/predict", rows=[written[7]])["predictions"]


def test_sets_and_unknown_rows_are_those_of_hma_predict(trained, folder, rows, tmp_path):
    run = Run.open(folder)
    source = rows_for(run, str(trained / "asked.csv"), labelled=False)
    list(predict(run, source, tmp_path / "said.csv", covered=Covered(run, 0.8)))
    with open(tmp_path / "said.csv") as file:
        said = list(csv.DictReader(file))
    with serving(folder, 0.8) as client:
        assert client.get("/run").json()["coverage"] == 0.8
        found = asked(client, "/predict", rows=rows)["predictions"]
    assert [" | ".join(one["labels"]) for one in found] == [one["labels"] for one in said]
    assert [one["unknown"] for one in found] == [one["unknown"] == "yes" for one in said]
    assert any(one["unknown"] for one in found)  # of the class that training never saw
    for one, wanted in zip(found, said, strict=True):
        assert f"{one['unfamiliarity']:.6g}" == f"{float(wanted['unfamiliarity']):.6g}"


def test_a_taught_row_is_no_longer_unknown_and_its_class_is_in_the_sets(folder, rows):
    with serving(folder, 0.8) as client:
        (before,) = asked(client, "/predict", rows=rows[2:3])["predictions"]
        asked(client, "/remember", rows=rows[2:3], labels=["odd"], new_classes=True)
        (after,) = asked(client, "/predict", rows=rows[2:3])["predictions"]
    assert (before["unknown"], after["unknown"]) == (True, False)
    assert "odd" in after["labels"]


def test_what_too_few_validation_rows_cannot_promise_is_not_promised(folder, rows):
    with serving(folder) as client:
        assert client.get("/run").json()["coverage"] is None
        found = asked(client, "/predict", rows=rows[:1])
    assert "labels" not in found["predictions"][0]
    (note,) = found["notes"]
    assert note.startswith("nothing is promised of answers: coverage 0.95 needs at least 19")
    with pytest.raises(UserError, match=r"coverage 0.99 needs at least 99 validation rows"):
        Service(Run.open(folder), 0.99)


def test_every_version_keeps_its_promises_whoever_changed_or_reported_it(folder, rows):
    def promised(client):
        found = asked(client, "/predict", rows=rows[:4])
        assert found["notes"] == []
        return [(one["labels"], one["unknown"]) for one in found["predictions"]]

    with serving(folder, 0.8) as client:
        first = promised(client)
        asked(client, "/remember", rows=rows[2:3], labels=["odd"], new_classes=True)
        second = promised(client)
        report_of(Run.open(folder))
        asked(client, "/forget", ids=[0])
        third = promised(client)
        asked(client, "/restore", version=1)
        assert promised(client) == second
        asked(client, "/restore", version=0)
        assert promised(client) == first
    for path in (folder / CALIBRATIONS).iterdir():  # made again as they were
        path.unlink()
    with serving(folder, 0.8) as client:
        assert promised(client) == first
        asked(client, "/restore", version=2)
        assert promised(client) == third


def test_thresholds_of_each_version_are_those_of_its_own_memory(folder, rows):
    with serving(folder, 0.8) as client:
        asked(client, "/remember", rows=rows[2:3], labels=["odd"], new_classes=True)
        said = [one["unfamiliarity"] for one in asked(client, "/predict", rows=rows)["predictions"]]
        unknown = [one["unknown"] for one in asked(client, "/predict", rows=rows)["predictions"]]
    made = Covered(Run.open(folder), 0.8).promise
    assert unknown == [value > made.most_unfamiliar for value in said]


def test_a_version_whose_rows_cannot_be_asked_says_why_nothing_is_promised(
    folder, rows, monkeypatch
):
    monkeypatch.setattr("hma.runs.coverage.MOST_ASKED", 3)
    with serving(folder, 0.8) as client:
        assert "labels" in asked(client, "/predict", rows=rows[:1])["predictions"][0]
        asked(client, "/remember", rows=rows[2:3], labels=["odd"], new_classes=True)
        found = asked(client, "/predict", rows=rows[:1])
        assert "labels" not in found["predictions"][0]
        assert "version 1 has no thresholds yet, and 8 validation rows" in found["notes"][0]
        assert client.get("/run").json()["coverage"] is None


def test_a_test_row_is_taught_only_when_that_is_meant(folder):
    run = Run.open(folder)
    place = run.places["test"][0]
    label = rows_for(run, run.options.source, labelled=True).labels[place]
    with serving(folder) as client:
        body = {"places": [place], "labels": [label]}
        refused = client.post("/remember", json=body)
        assert refused.status_code == 400
        assert "holds 1 test row of this run" in refused.json()["error"]
        assert refused.json()["error"].endswith('send "yes": true to do it')
        assert client.get("/health").json()["version"] == 0
        assert asked(client, "/remember", **body, yes=True)["number"] == 1
    assert Run.open(folder).versions.version(1).held_out == {"test": [0]}


def test_columns_that_training_did_not_have_are_ignored_and_named(client, rows):
    plain = asked(client, "/predict", rows=rows[:1])
    more = asked(client, "/predict", rows=[{**rows[0], "colour": "red"}])
    assert more["predictions"] == plain["predictions"]
    assert "ignored column 'colour'" in more["notes"][0]


def test_shares_of_voters_sum_to_the_answer_and_name_stored_rows(client, folder, rows):
    found = asked(client, "/explain", rows=rows[:1], top=100)
    assert found["prediction"] == asked(client, "/predict", rows=rows[:1])["predictions"][0]
    assert found["adds_up"]
    assert sum(one["share"] for one in found["voters"]) == pytest.approx(1.0, abs=1e-5)
    held = {row.id: row for row in LivingMemory.open(folder).rows()}
    named = [one for one in found["voters"] if one["id"] is not None]
    assert {one["id"] for one in named} == set(held)
    for one in named:
        row = held[one["id"]]
        assert (one["label"], one["what"], one["kind"]) == (row.label, row.what, "training row")
    run = Run.open(folder)
    assert found["memory_counts"] == run.deployed.counted.get(MEMORY, 0.0)


def test_many_at_once_answer_as_each_does_alone(client, rows):
    bodies = [{"rows": rows[place : place + 1 + place % 3]} for place in range(9)]
    alone = [asked(client, "/predict", **body) for body in bodies]
    explained = [asked(client, "/explain", rows=[row]) for row in rows[:4]]
    with ThreadPoolExecutor(8) as pool:
        said = [pool.submit(asked, client, "/predict", **body) for body in bodies * 3]
        why = [pool.submit(asked, client, "/explain", rows=[row]) for row in rows[:4] * 2]
        assert [one.result() for one in said] == alone * 3
        assert [one.result() for one in why] == explained * 2


def test_readers_get_one_version_or_the_other_while_rows_are_taught(client, rows):
    before = asked(client, "/predict", rows=rows)
    seen = []
    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(asked, client, "/predict", rows=rows) for _ in range(6)]
        writer = pool.submit(
            asked, client, "/remember", rows=[rows[2]], labels=["odd"], new_classes=True
        )
        readers += [pool.submit(asked, client, "/predict", rows=rows) for _ in range(6)]
        seen = [one.result() for one in readers]
        assert writer.result()["number"] == 1
    after = asked(client, "/predict", rows=rows)
    assert after != before
    assert all(one in (before, after) for one in seen)


def test_eight_who_read_while_two_write_get_what_each_version_answers_alone(client, rows):
    ends = time.monotonic() + 3.0
    refusals = ("does not hold", "answers already", "nothing was changed")

    def keep_reading(reader):
        seen = []
        while time.monotonic() < ends:
            row = rows[reader : reader + 1]
            path = ("/predict", "/explain")[len(seen) % 2]
            seen.append((path, row, asked(client, path, rows=row)))
        return seen

    def keep_writing(writer):
        done, places = [], itertools.count()
        while time.monotonic() < ends:
            place = next(places)
            row = {**rows[2], "a": place, "b": writer}
            steps = [
                ("/remember", {"rows": [row], "labels": ["odd"], "new_classes": True}),
                ("/forget", {"ids": [2 * place + writer]}),
                ("/restore", {"version": done[-1]["parent"] if done else 0}),
            ]
            for path, body in steps:
                reply = client.post(path, json=body)
                if reply.status_code == 200:
                    done.append(reply.json())
                else:  # the other writer was there first
                    assert reply.status_code == 400, reply.text
                    assert any(line in reply.text for line in refusals), reply.text
        return done

    with ThreadPoolExecutor(10) as pool:
        readers = [pool.submit(keep_reading, reader) for reader in range(8)]
        writers = [pool.submit(keep_writing, writer) for writer in range(2)]
        seen = [one for reader in readers for one in reader.result()]
        done = [one for writer in writers for one in writer.result()]
    assert {one["verb"] for one in done} == {"remember", "forget", "restore"}
    assert sorted(one["number"] for one in done) == list(range(1, len(done) + 1))
    versions = {said["version"] for _, _, said in seen}
    assert len(versions) > 2
    for version in versions:
        now = client.get("/health").json()["version"]
        if version != now:
            now = asked(client, "/restore", version=version)["number"]
        for path, row, said in seen:
            if said["version"] == version:
                assert {**asked(client, path, rows=row), "version": version} == said


def test_a_row_is_taught_changes_the_answer_and_is_undone_to_the_last_bit(client, folder, rows):
    row = rows[2]
    before = asked(client, "/explain", rows=[row])
    everything = asked(client, "/predict", rows=rows)["predictions"]
    told = asked(
        client, "/remember", rows=[row], labels=["odd"], new_classes=True, note="by a person"
    )
    assert (told["number"], told["parent"], told["added"], told["classes"]) == (1, 0, 1, ["odd"])
    taught = asked(client, "/explain", rows=[row])
    assert taught["prediction"]["probabilities"]["odd"] > 0.2
    first = next(one for one in taught["voters"] if one["kind"] == "taught row")
    assert (first["label"], first["what"].split("=")[0]) == ("odd", "a")
    listed = client.get("/memory", params={"class": "odd"}).json()
    assert (listed["of"], [one["id"] for one in listed["rows"]]) == (1, [first["id"]])
    undone = asked(client, "/restore", version=told["parent"], now=told["number"])
    assert undone["number"] == 2
    after = asked(client, "/explain", rows=[row])
    assert {**after, "version": 0} == before
    assert asked(client, "/predict", rows=rows)["predictions"] == everything
    versions = client.get("/versions").json()["versions"]
    assert [one["verb"] for one in versions] == ["remember", "restore"]
    assert versions[0]["note"] == "by a person"
    assert len(LivingMemory.open(folder).history()) == 2


def test_taught_rows_are_stored_as_a_file_of_them_would_be(client, folder, rows, tmp_path):
    asked(client, "/remember", rows=rows[:2], labels=["down", "up"], yes=True)
    by_hand = Run.open(folder)
    stored = by_hand.learner(MEMORY).model.real.queue.rows()
    cells = by_hand.living.rows.cells
    assert cells["kind"] == ("down", "up")
    assert cells["a"] == tuple(str(row["a"]) for row in rows[:2])
    memory = LivingMemory.open(folder)
    memory.restore(0, scored=False)
    with open(tmp_path / "taught.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "kind"])
        writer.writeheader()
        for row, kind in zip(rows[:2], ("down", "up"), strict=True):
            writer.writerow({**row, "kind": kind})
    memory.remember(str(tmp_path / "taught.csv"), yes=True)
    by_file = memory.run.learner(MEMORY).model.real.queue.rows()
    assert torch.equal(stored.features, by_file.features)
    assert torch.equal(stored.labels, by_file.labels)
    assert memory.run.living.rows.cells == cells


def test_rows_are_forgotten_by_id_condition_and_class(client, folder):
    held = LivingMemory.open(folder).rows()
    gone = asked(client, "/forget", ids=[held[0].id])
    assert (gone["forgotten"], gone["rows"]) == (1, len(held) - 1)
    assert "remains in the weights" in gone["remains"]
    oslo = asked(client, "/forget", where="town == Oslo")
    assert oslo["forgotten"] > 3
    refused = client.post("/forget", json={"class": "up"})
    assert refused.status_code == 400
    assert 'send "yes": true to do it' in refused.json()["error"]
    assert asked(client, "/forget", **{"class": "up", "yes": True})["forgotten"] > 3
    assert client.get("/memory", params={"class": "up"}).json()["of"] == 0


def test_a_version_that_another_process_writes_answers_at_once(client, folder, rows):
    before = asked(client, "/predict", rows=rows)
    version = LivingMemory.open(folder).forget(ids=[0, 1, 2], scored=False)
    after = asked(client, "/predict", rows=rows)
    assert (before["version"], after["version"]) == (0, version.number)
    assert client.get("/health").json() == {"status": "ok", "version": 1}


def test_undoing_what_another_changed_meanwhile_is_refused(client, folder):
    LivingMemory.open(folder).forget(ids=[3], scored=False)
    refused = client.post("/restore", json={"version": 0, "now": 0})
    assert refused.status_code == 409
    assert "version 1 answers, not version 0" in refused.json()["error"]


def test_the_memory_is_listed_in_parts(client, folder):
    held = [row._asdict() for row in LivingMemory.open(folder).rows()]
    found = client.get("/memory", params={"first": 3, "count": 4}).json()
    assert found == {"version": 0, "of": len(held), "rows": held[3:7]}


def test_the_run_says_its_columns_and_labels(client, trained):
    about = client.get("/run").json()
    kinds = {column["name"]: column["kind"] for column in about["columns"]}
    assert kinds == {"a": "number", "b": "number", "c": "number", "town": "category"}
    assert about["columns"][3]["values"] == ["Oslo", "Rome"]
    assert about["labels"] == {"kind": "classes", "names": ["down", "up"]}
    assert (about["kind"], about["field"], about["places"]) == ("table", "rows", 52)

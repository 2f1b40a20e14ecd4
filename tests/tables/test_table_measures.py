"""What a row measures beside scores, and the weights that it keeps."""

from dataclasses import replace

import pytest
import torch

from hma.errors import UserError
from hma.methods.simple import neighbours
from hma.tables import Cell, work
from hma.training import evaluate

CELL = Cell("TOY", "smoke", "easy", "ERM", 0)


def first_logit(learner, task):
    batch = task.tests["near"].batch(torch.arange(1))
    with torch.no_grad():
        logits = learner.predict(batch)
    return {"logits": logits[0].tolist(), "drawn": torch.rand(1).item(), "nothing": float("nan")}


def changed(toy, **changes):
    return replace(toy, rows={**toy.rows, "ERM": replace(toy.rows["ERM"], **changes)})


def rebuilt(table):
    row, problem = table.rows["ERM"], table.problems["easy"]
    task = problem.task(0)
    return row.build(problem.backbone)(task, 0), task


def test_what_a_row_measures_is_in_its_record_and_the_same_again(toy, results, tmp_path):
    table = changed(toy, measure=first_logit)
    work(table, CELL, results)
    found = results.record(table, CELL).measures
    results.path(CELL).unlink()
    torch.rand(7)
    work(table, CELL, results)
    assert results.record(table, CELL).measures == found
    assert found["nothing"] is None


def test_kept_weights_are_those_that_were_tested(toy, results):
    table = changed(toy, measure=first_logit, keep_weights=True)
    work(table, CELL, results)
    record = results.record(table, CELL)
    learner, task = rebuilt(table)
    learner.module.load_state_dict(results.weights(table, CELL))
    learner.module.eval()
    assert first_logit(learner, task)["logits"] == record.measures["logits"]
    scores = evaluate(learner, task.tests["near"], batch_size=16)
    assert scores["alone"]["accuracy"] == record.tests["near"]["alone"]["accuracy"]


def test_a_row_that_is_fitted_at_once_measures_and_keeps_its_weights_too(toy, results):
    table = changed(toy, build=neighbours, measure=first_logit, keep_weights=True)
    work(table, CELL, results)
    measures = results.record(table, CELL).measures
    assert {"validation_loss", "chosen", "fitted_rows", "logits"} <= measures.keys()
    learner, task = rebuilt(table)
    learner.module.load_state_dict(results.weights(table, CELL))
    assert first_logit(learner, task)["logits"] == measures["logits"]


def test_a_row_that_measures_nothing_has_the_record_it_always_had(toy, results):
    work(toy, CELL, results)
    assert "measures" not in results.path(CELL).read_text()
    assert not results.weights_path(CELL).exists()
    with pytest.raises(UserError, match=r"was measured without keep_weights=True; move .*0.json"):
        results.weights(toy, CELL)


def test_damaged_weights_are_refused(toy, results):
    table = changed(toy, keep_weights=True)
    work(table, CELL, results)
    data = bytearray(results.weights_path(CELL).read_bytes())
    data[-1] ^= 1
    results.weights_path(CELL).write_bytes(data)
    with pytest.raises(UserError, match="does not match its recorded hash; move"):
        results.weights(table, CELL)


def test_a_cell_killed_between_weights_and_record_ends_with_both(toy, results, monkeypatch):
    table = changed(toy, keep_weights=True)

    def killed(record, path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("hma.tables.results.Record.write", killed)
        with pytest.raises(KeyboardInterrupt):
            work(table, CELL, results)
    assert results.state(CELL) == "missing"
    work(table, CELL, results)
    assert results.weights(table, CELL)


def test_what_is_no_json_is_the_failure_of_the_cell(toy, results):
    work(changed(toy, measure=lambda learner, task: {"odd": object()}), CELL, results)
    assert "what TOY smoke easy/ERM seed 0 measures must be JSON" in results.failure(CELL).error

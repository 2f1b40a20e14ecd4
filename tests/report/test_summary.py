"""From a model and its records to plain values: checked against the core, asked directly."""

from dataclasses import fields, is_dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hma
from hma import HMAConfig
from hma.report.page import render
from hma.report.run_facts import TrainingRows
from hma.report.run_report import MEMORY, PLAIN
from hma.report.scoring import Answers
from hma.report.sections.attention import KINDS
from hma.report.sections.maps import maps
from hma.report.sections.stored_rows import SHOWN
from hma.targets import Classes

SMALL = {"label_dim": 4, "num_heads": 2}


def explained(run, context, row, batch_size=16):
    """Return the explanation of a test row inside its batch, and its place there."""
    start = row // batch_size * batch_size
    run.model.context = context
    found = hma.explain(run.model, run.test_x[start : start + batch_size])
    run.model.context = "batch"
    return found, row - start


@pytest.mark.parametrize("place", [0, 1])
def test_shares_by_kind_are_the_means_of_explanations(run, report, place):
    found = report.parts["attention"][place]
    rows = []
    for row in range(40):
        one, i = explained(run, found.context, row)
        parts = [one.itself[i], one.queue[i].sum(), one.batch[i].sum(), one.anchors[i].sum(),
                 one.slots[i].sum()]  # fmt: skip
        rows.append([float(part) for part in parts])
    np.testing.assert_allclose(found.overall, np.mean(rows, axis=0), atol=1e-6)
    assert found.overall.sum() == pytest.approx(1)
    assert len(found.overall) == len(KINDS)


def test_shares_of_an_answer_are_those_of_its_rows(run, report):
    said = run.answers.memory["batch"].argmax(1)
    for c in range(3):
        rows = [explained(run, "batch", row) for row in (said == c).nonzero().flatten().tolist()]
        want = np.mean([float(one.slots[i].sum()) for one, i in rows]) if rows else np.nan
        assert report.parts["attention"][0].by_class[c, 4] == pytest.approx(
            want, abs=1e-6, nan_ok=True
        )


def test_attention_on_the_answers_own_class_is_added_up(run, report):
    own = total = even = 0.0
    for row in range(40):
        one, i = explained(run, "batch", row)
        answer = int(one.prediction[i])
        own += float(one.queue[i][one.queue_classes == answer].sum())
        total += float(one.queue[i].sum())
        even += float((one.queue_classes == answer).float().mean())
    assert report.parts["attention"][0].same_class["queue"] == pytest.approx(
        (own / total, even / 40)
    )


def test_the_most_attended_rows_of_an_answer_are_those_a_loop_finds(run, report):
    said = run.answers.memory["batch"].argmax(1)
    ids = run.model.memory_state().ids
    shown = {one.label: one for one in report.parts["examples"].by_answer}
    for c, label in enumerate(report.classes):
        rows = (said == c).nonzero().flatten().tolist()
        if not rows:
            assert label not in shown
            continue
        drawn = dict.fromkeys(ids.tolist(), 0.0)
        for row in rows:
            one, i = explained(run, "batch", row)
            for sample, share in zip(one.queue_ids.tolist(), one.queue[i].tolist(), strict=True):
                drawn[sample] += share
        best = sorted(drawn, key=lambda sample: -drawn[sample])[:SHOWN]
        assert [e.text for e in shown[label].examples] == [f"row {100 + i}" for i in best]
        assert shown[label].rows == len(rows)
        share = drawn[best[0]] / sum(drawn.values())
        assert shown[label].examples[0].share == pytest.approx(share, rel=1e-5)


def test_the_most_attended_rows_of_a_class_are_of_that_class(report):
    assert [one.label for one in report.parts["examples"].by_class] == list(report.classes)
    for one in report.parts["examples"].by_class:
        assert {example.label for example in one.examples} == {one.label}
        shares = [example.share for example in one.examples]
        assert shares == sorted(shares, reverse=True)


def test_a_row_that_is_in_the_queue_twice_is_shown_once(make):
    twice = make(HMAConfig(queue_size=40, slots_per_class=3, **SMALL))
    twice.model.remember(twice.train_x, torch.arange(20) % 3, ids=torch.arange(20))
    for one in twice.report().parts["examples"].by_class:
        texts = [example.text for example in one.examples]
        assert len(texts) == len(set(texts))


def test_health_is_what_the_diagnostics_say(run, report):
    queue = hma.queue_diagnostics(run.model, run.train_x, torch.arange(20))
    slots = hma.slot_diagnostics(run.model, run.test_x)
    found = report.parts["memory"]
    assert (found.queue.rows, found.queue.size) == (queue.rows, queue.size) == (12, 12)
    assert found.queue.per_class.tolist() == queue.per_class.tolist()
    assert found.queue.balance == queue.balance
    np.testing.assert_allclose(found.queue.staleness, np.sort(queue.staleness.numpy()))
    assert found.slots.distinct.tolist() == slots.distinct.tolist()
    assert found.slots.usage.sum() == pytest.approx(1)
    assert found.slots.used.sum() == slots.used.sum()


def test_use_of_slots_is_that_by_all_test_rows(run, report):
    drawn = sum(one.slots[i] for one, i in (explained(run, "batch", row) for row in range(40)))
    np.testing.assert_allclose(report.parts["memory"].slots.usage, drawn / drawn.sum(), rtol=1e-5)


@pytest.mark.parametrize("context", ["batch", "alone"])
def test_collecting_leaves_the_model_as_it_was(run, context):
    run.model.context = context
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    run.report()
    assert run.model.context == context
    run.model.context = "batch"
    assert not run.model.training
    for name, value in run.model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_the_same_run_gives_the_same_page(run):
    assert render(run.report()) == render(run.report())


def test_records_become_curves_costs_and_options(report):
    plain, memory = report.parts["curves"]
    assert (plain.method, memory.method) == (PLAIN, MEMORY)
    assert np.isnan(memory.train_loss[1])
    assert memory.train_loss[3] == 0.25
    assert memory.validation["alone"] == pytest.approx((0.5, 0.6, 0.7, 0.8))
    assert memory.selected == 2
    assert report.parts["run"][1].epoch_seconds == 0.375
    assert report.parts["run"][1].parameters == 1234
    assert report.options[MEMORY]["recipe.lr"] == "0.001"
    assert report.provenance["torch version"] == "2.13.0"
    assert report.parts["data"]["facts"] == {"split": "by hand", "nested.seed": "0"}
    assert report.splits["test"].tolist() == [14, 13, 13]


def test_attention_is_that_of_the_batches_a_context_made(run):
    from dataclasses import replace

    logits, other = run.answers.memory["batch"], torch.arange(40).flip(0)
    both = {"batch": logits, "batch-sorted": logits}
    answers = replace(run.answers, memory=both, orders={"batch": other})
    shuffled, as_given = run.report(tests={"test": answers}).parts["attention"]
    np.testing.assert_allclose(as_given.overall, run.report().parts["attention"][0].overall)
    rows = run.test_x[other].split(16)
    found = torch.cat([hma.explain(run.model, part).batch.sum(dim=1) for part in rows])
    assert shuffled.overall[KINDS.index("batch")] == pytest.approx(float(found.mean()), abs=1e-6)
    assert not np.allclose(shuffled.overall, as_given.overall)


def test_a_record_with_another_accuracy_is_pointed_out(run):
    lying = run.memory_record | {"tests": {"test": {"batch": {"accuracy": 0.99}}}}
    note, weak = run.report(records={PLAIN: run.plain_record, MEMORY: lying}).notes
    assert "The record of the memory says 0.9900 accuracy on test in context batch" in note
    assert "the plain backbone is right on" in weak


def test_records_of_other_data_or_seeds_are_pointed_out(run):
    other = run.plain_record | {"seed": 7, "data_fingerprint": "0" * 64}
    notes = run.report(
        records={PLAIN: other, MEMORY: run.memory_record}, notes=["3 files left out"]
    ).notes
    assert notes[0] == "3 files left out"
    assert "data fingerprint" in notes[1]
    assert "seed: 7 for the plain backbone, 0 for the memory" in notes[2]


def test_without_a_plain_backbone_nothing_is_compared(run):
    alone = Answers(labels=run.answers.labels, memory=run.answers.memory, plain={}, features=None)
    found = run.report(tests={"test": alone}, records={MEMORY: run.memory_record})
    assert found.tests[0].comparisons == ()
    assert not {"attention", "examples", "map"} & found.parts.keys()
    assert found.parts["memory"].slots.usage is not None  # of the rows in the queue
    assert [cost.method for cost in found.parts["run"]] == [MEMORY]


@pytest.mark.parametrize("row", ["rma", "abd", "abd+syn", "abd+rma", "hma", "param"])
def test_every_ablation_has_a_page(make, row):
    fixed = {"param": {"label_dim": 0, "num_heads": 2}}.get(row, SMALL)
    sizes = {"queue_size": 12} if row in ("rma", "abd+rma", "hma") else {}
    config = HMAConfig.ablation(row, **fixed, **sizes)
    found = make(config).report()
    memory = found.parts.get("memory")
    assert (memory is not None and memory.queue is not None) == config.has_real_memory
    assert (memory is not None and memory.slots is not None) == (row in ("abd+syn", "hma"))
    assert "plain backbone" in render(found)


def test_one_logit_has_a_page(make):
    found = make(HMAConfig(queue_size=12, slots_per_class=3, **SMALL), ("no", "yes"), True).report()
    assert found.parts["attention"][0].by_class.shape == (2, 5)
    assert "AUROC" in render(found)


def test_samples_never_named_are_left_out(make):
    nameless = make()
    nameless.model.reset_memory()
    nameless.model.remember(nameless.train_x, torch.arange(20) % 3)
    found = nameless.report()
    assert "examples" not in found.parts
    assert found.parts["memory"].queue.staleness is None
    assert "Staleness is unknown" in render(found)


def test_places_of_another_run_are_refused(run):
    short = TrainingRows(describe=str, places=[1, 2])
    with pytest.raises(ValueError, match="places must name a row for each sample id, got 2"):
        run.report(training_rows=short)


def test_names_must_fit_the_model(run):
    with pytest.raises(ValueError, match="classes must name 3 classes, got 2"):
        run.report(classes=("one", "two"))


def test_at_least_one_test_set_is_needed(run):
    with pytest.raises(ValueError, match="tests must hold at least one test set"):
        run.report(tests={})


def test_nothing_of_torch_is_in_a_report(report):
    def values(thing):
        yield thing
        if is_dataclass(thing):
            for field in fields(thing):
                yield from values(getattr(thing, field.name))
        elif isinstance(thing, dict):
            for value in thing.values():
                yield from values(value)
        elif isinstance(thing, tuple):
            for value in thing:
                yield from values(value)

    assert not [thing for thing in values(report) if isinstance(thing, Tensor | nn.Module)]


def test_maps_hold_every_kind_and_keep_near_points_near(make):
    state = make().model.memory_state()
    centres = torch.eye(8)[:3] * 10
    labels = torch.arange(60) % 3
    features = centres[labels] + 0.1 * torch.randn(60, 8)
    both, slots = maps(state, features, labels, target=Classes(3), seed=0)
    assert both.places.shape == (60 + 12 + 9, 2)
    assert np.bincount(both.kinds).tolist() == [60, 12, 9]
    assert set(slots.kinds.tolist()) == {2}
    test = both.places[both.kinds == 0]
    apart = np.linalg.norm(test[:, None] - test[None], axis=2) + 1e9 * np.eye(60)
    assert (labels.numpy()[apart.argmin(axis=1)] == labels.numpy()).all()


def test_maps_are_the_same_again(make):
    state = make().model.memory_state()
    features, labels = torch.randn(30, 8), torch.zeros(30).long()
    first, again = (
        maps(state, features, labels, target=Classes(3), seed=1)[0].places for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)


def test_equal_points_have_no_map(make):
    empty = make(HMAConfig.ablation("abd", **SMALL)).model.memory_state()
    assert maps(empty, torch.ones(20, 8), torch.zeros(20).long(), target=Classes(3), seed=0) == ()
    assert maps(empty, torch.randn(4, 8), torch.zeros(4).long(), target=Classes(3), seed=0) == ()

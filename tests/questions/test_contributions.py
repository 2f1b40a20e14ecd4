"""Effects of leaving parts of the memories out, against models that never had them."""

from copy import deepcopy

import pytest
import torch
from read_designs import READS, opened
from torch import nn

from hma import HMA, HMAConfig, contributions
from hma.memory.rows import MemoryRows
from hma.questions.contributions import explained_output
from hma.targets import Classes, Number, YesNo
from hma.vote.search import BestRows

LABELS = {
    Classes: torch.tensor([0, 1, 2, 0, 1, 2]),
    Number: torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
    YesNo: torch.tensor([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]] * 2),
}


def model_of(target=None, **changes):
    torch.manual_seed(5)
    given = {"queue_size": 4, "slots_per_class": 2, "num_heads": 2, "label_dim": 4} | changes
    target = target or Classes(3)
    model = HMA(nn.Linear(3, 8), target=target, config=HMAConfig(**given), feature_dim=8)
    model = opened(model.double().eval())
    model.remember(torch.randn(6, 3).double(), LABELS[type(target)], ids=torch.arange(6))
    with torch.no_grad():
        model.head.weight.mul_(5)
        if model.synthetic is not None and model.synthetic.slots is not None:
            model.synthetic.slots.normal_()
    return model


def without_rows(model, hidden):
    """Return a model whose queue never held some of its rows."""
    other = deepcopy(model)
    features, labels, ids, *_ = model.real.queue.rows()
    kept = [place for place in range(len(features)) if place not in hidden]
    other.real.queue.clear()
    other.real.queue.write(MemoryRows(features[kept], labels[kept], ids[kept]))
    return other


@torch.no_grad()
def without_slots(model, hidden):
    """Return a model that never had some of its slots."""
    other = deepcopy(model)
    kept = [place for place in range(len(model.synthetic.classes)) if place not in hidden]
    other.synthetic.slots = nn.Parameter(model.synthetic.slots[kept]) if kept else None
    other.synthetic.labels = model.synthetic.labels[kept]
    other.synthetic.classes = model.synthetic.classes[kept]
    other.reproject()
    return other


@torch.no_grad()
def said(model, x, row, output):
    value = model.target.expected(model(x))[row]
    return float(value if value.dim() == 0 else value[output])


@pytest.mark.parametrize("design", READS)
@pytest.mark.parametrize("context", ["alone", "batch", "anchors"])
@pytest.mark.parametrize("target", [Classes(3), Number(2.0, 1.5), YesNo(2)], ids=lambda t: t.kind)
def test_effects_are_those_of_removing_the_part_for_real(target, context, design):
    model = model_of(target, context="batch", **READS[design])
    model.set_anchors(torch.randn(2, 3).double())
    model.context = context
    x, row = torch.randn(3, 3).double(), 1
    found = contributions(model, x, row=row)
    whole = said(model, x, row, found.output)
    assert found.value == pytest.approx(whole)
    groups = target.membership(model.synthetic.labels).argmax(dim=1).tolist()
    held = model.real.queue.labels[model.real.queue.order()]
    of_rows = target.membership(held)
    for place in range(4):
        expected = whole - said(without_rows(model, {place}), x, row, found.output)
        assert float(found.queue[place]) == pytest.approx(expected, abs=1e-6)
    for place in range(len(groups)):
        expected = whole - said(without_slots(model, {place}), x, row, found.output)
        assert float(found.slots[place]) == pytest.approx(expected, abs=1e-6)
    if isinstance(target, Classes):
        for group in range(3):
            rows = {i for i in range(4) if of_rows[i, group] > 0}
            slots = {i for i, g in enumerate(groups) if g == group}
            other = without_slots(without_rows(model, rows), slots)
            expected = whole - said(other, x, row, found.output)
            assert float(found.by_class[group]) == pytest.approx(expected, abs=1e-6)
    everything = set(range(4)), set(range(len(groups)))
    no_queue, no_slots = without_rows(model, everything[0]), without_slots(model, everything[1])
    neither = without_slots(no_queue, everything[1])
    for effect, other in (
        (found.whole_queue, no_queue),
        (found.whole_slots, no_slots),
        (found.memory, neither),
    ):
        assert effect == pytest.approx(whole - said(other, x, row, found.output), abs=1e-6)
    assert max(abs(float(effect)) for effect in (*found.queue, *found.slots)) > 1e-4


def test_a_search_for_the_nearest_rows_and_copies_of_the_row_agree():
    model, x = model_of(context="alone"), torch.randn(3, 3).double()
    together = contributions(model, x, row=2)
    model.real.nearest = BestRows(k=99)
    one_by_one = contributions(model, x, row=2)
    torch.testing.assert_close(together.queue, one_by_one.queue)
    torch.testing.assert_close(together.by_class, one_by_one.by_class)


@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        ({"queue_size": 0}, (0, 6)),
        ({"slots_per_class": 0}, (4, 0)),
        ({"slots_per_class": 0, "batch_attention": False}, (4, 0)),
    ],
)
def test_a_memory_that_is_not_there_has_no_effect(changes, sizes):
    found = contributions(model_of(**changes), torch.randn(1, 3).double())
    assert (len(found.queue), len(found.slots)) == sizes
    assert (found.whole_queue == 0) == (sizes[0] == 0)
    assert (found.whole_slots == 0) == (sizes[1] == 0)


def test_the_model_is_left_as_it_was():
    model, x = model_of(), torch.randn(2, 3).double()
    before = model(x).detach()
    model.train()
    contributions(model, x)
    assert model.training
    torch.testing.assert_close(model.eval()(x).detach(), before, rtol=0, atol=0)


def test_copies_of_a_sample_are_left_out_together():
    model, x = model_of(context="alone"), torch.randn(1, 3).double()
    model.real.queue.ids.copy_(torch.tensor([7, -1, 7, -1]))  # -1: nobody said which sample
    order = model.real.queue.order().tolist()
    found = contributions(model, x)
    whole = said(model, x, 0, found.output)
    both = whole - said(without_rows(model, {order.index(0), order.index(2)}), x, 0, found.output)
    assert float(found.queue[order.index(0)]) == pytest.approx(both, abs=1e-6)
    assert float(found.queue[order.index(2)]) == pytest.approx(both, abs=1e-6)
    alone = whole - said(without_rows(model, {order.index(1)}), x, 0, found.output)
    assert float(found.queue[order.index(1)]) == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize(
    ("target", "expected", "output"),
    [(YesNo(2), [0.6, 0.1], 1), (Classes(2), [0.4, 0.6], 1), (Number(), [-7.0], 0)],
)
def test_what_is_explained_is_what_is_predicted_or_the_surest_yes_or_no(target, expected, output):
    assert explained_output(target, torch.tensor(expected)) == output

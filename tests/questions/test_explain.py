"""Shares of attention against a trace by hand, and the health of the memories."""

import math

import pytest
import torch
from read_designs import READS, opened
from torch import nn

from benchmarks.reference import seen_along
from hma import HMA, HMAConfig, explain, queue_diagnostics, slot_diagnostics


def model_of(row="hma", context="batch", **changes):
    sizes = {"hma": {"queue_size": 4, "slots_per_class": 2}, "rma": {"queue_size": 4}}
    config = HMAConfig.ablation(
        row, num_heads=1, label_dim=4, context=context, **sizes.get(row, {}), **changes
    )
    model = HMA(nn.Linear(3, 8), 3, config, feature_dim=8).double().eval()
    model.remember(
        torch.randn(6, 3).double(), torch.tensor([0, 1, 2, 0, 1, 2]), ids=torch.arange(10, 16)
    )
    return model


NEAR = {"rtol": 1e-5, "atol": 1e-7}


def everything(shares):
    return torch.cat(
        [shares.itself[:, None], shares.queue, shares.batch, shares.anchors, shares.slots], dim=1
    )


def attention_by_hand(read, query, seen):
    q = read.to_queries(read.norm_queries(query))
    keys = read.to_keys_values(read.norm_memory(seen))[:, : read.dim]
    return torch.softmax(keys @ q * read.scale, dim=0)


@torch.no_grad()
@pytest.mark.parametrize("context", ["batch", "alone", "anchors"])
def test_shares_follow_both_reads_back_to_their_sources(context):
    """One head, one row at a time: what row 1 took from each source, by hand."""
    model, x = model_of(context=context), torch.randn(3, 3).double()
    anchors = torch.randn(2, 3).double()
    model.set_anchors(anchors)
    store = model.real.queue
    queue = model.tokens.label(store.features, store.labels)[store.order()]
    tokens = model.tokens.mask(model.backbone(torch.cat([x, anchors])))
    first = [attention_by_hand(model.real.read, t, torch.cat([t[None], queue])) for t in tokens]
    after, _ = model.real(tokens, model.real.project(model.tokens))
    slots = model.tokens.label(model.synthetic.slots, model.synthetic.classes)
    others = {"batch": [0, 1, 2], "alone": [1], "anchors": [1, 3, 4]}[context]
    second = attention_by_hand(model.synthetic.read, after[1], torch.cat([after[others], slots]))
    shares = explain(model, x)
    itself = second[others.index(1)] * first[1][0]
    torch.testing.assert_close(shares.itself[1].double(), itself, **NEAR)
    from_queue = sum(second[i] * first[j][1:] for i, j in enumerate(others))
    torch.testing.assert_close(shares.queue[1].double(), from_queue, **NEAR)
    torch.testing.assert_close(
        shares.slots[1].double(), second[len(others) :], rtol=1e-5, atol=1e-7
    )
    if context == "anchors":
        expected = torch.stack([second[1] * first[3][0], second[2] * first[4][0]])
        torch.testing.assert_close(shares.anchors[1].double(), expected, **NEAR)


@torch.no_grad()
@pytest.mark.parametrize("context", ["batch", "alone", "anchors"])
@pytest.mark.parametrize("attention", ["exact", "linear"])
def test_shares_of_one_read_are_its_weights(context, attention):
    """One head: the read of row 1 over itself, others, queue and slots, by hand."""
    model = model_of(context=context, stages="one", attention=attention)
    x, anchors = torch.randn(3, 3).double(), torch.randn(2, 3).double()
    model.set_anchors(anchors)
    store, read = model.real.queue, model.joint.read
    queue = model.tokens.label(store.features, store.labels)[store.order()]
    tokens = model.tokens.mask(model.backbone(torch.cat([x, anchors])))
    slots = model.tokens.label(model.synthetic.slots, model.synthetic.classes)
    others = {"batch": [0, 1, 2], "alone": [1], "anchors": [1, 3, 4]}[context]
    seen = torch.cat([tokens[others], queue, slots])
    if attention == "exact":
        weights = attention_by_hand(read, tokens[1], seen)
    else:
        q = read.to_queries(read.norm_queries(tokens[1]))
        keys = read.to_keys_values(read.norm_memory(seen))[:, : read.dim]
        weights = seen_along(read, keys) @ seen_along(read, q)
        weights = weights / weights.sum()
    shares = explain(model, x)
    own, of_queue, of_slots = torch.split(weights, [len(others), 4, 6])
    torch.testing.assert_close(shares.itself[1].double(), own[others.index(1)], **NEAR)
    torch.testing.assert_close(shares.queue[1].double(), of_queue, **NEAR)
    torch.testing.assert_close(shares.slots[1].double(), of_slots, **NEAR)
    if context == "anchors":
        torch.testing.assert_close(shares.anchors[1].double(), own[1:], **NEAR)
    if context == "batch":
        torch.testing.assert_close(shares.batch[1, [0, 2]].double(), own[[0, 2]], **NEAR)


@pytest.mark.parametrize("row", ["rma", "abd", "abd+syn", "abd+rma", "hma", "param"])
@pytest.mark.parametrize(
    ("design", "top_k"), [*((name, None) for name in READS), ("one", 2), ("paper", 2)]
)
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_shares_sum_to_one(row, design, top_k, batch):
    changes = {"label_dim": 0} if row == "param" else {"label_dim": 4}
    config = HMAConfig.ablation(row, top_k=top_k, num_heads=2, **changes, **READS[design])
    model = opened(HMA(nn.Linear(3, 8), 3, config, feature_dim=8)).eval()
    model.remember(torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2]))
    shares = explain(model, torch.randn(batch, 3))
    torch.testing.assert_close(everything(shares).sum(dim=1), torch.ones(batch))
    assert (everything(shares) >= 0).all()


def test_classes_sum_queue_rows_and_slots():
    model = model_of()
    shares = explain(model, torch.randn(2, 3).double())
    for row in range(2):
        for label in range(3):
            expected = shares.queue[row][shares.queue_classes == label].sum()
            expected = expected + shares.slots[row][shares.slot_classes == label].sum()
            torch.testing.assert_close(shares.by_class[row, label], expected)


def test_queue_sources_carry_class_and_sample_id():
    shares = explain(model_of("rma"), torch.randn(2, 3).double())
    assert shares.queue_ids.tolist() == [12, 13, 14, 15]
    assert shares.queue_classes.tolist() == [2, 0, 1, 2]
    top = shares.top(0, k=5)
    assert [s.share for s in top] == sorted((s.share for s in top), reverse=True)
    assert sum(s.share for s in top) == pytest.approx(1.0, abs=1e-6)
    by_place = {s.index: (s.label, s.sample) for s in top if s.kind == "queue"}
    assert by_place == {0: (2, 12), 1: (0, 13), 2: (1, 14), 3: (2, 15)}


def test_explaining_predicts_what_the_model_predicts_and_leaves_its_mode_alone():
    model, x = model_of(), torch.randn(3, 3).double()
    expected = model(x)
    model.train()
    shares = explain(model, x)
    torch.testing.assert_close(shares.logits, expected)
    assert model.training
    assert str(shares).splitlines()[0].startswith(f"row 0: class {int(expected[0].argmax())} (")


def test_one_logit_explains_two_classes():
    model = HMA(nn.Linear(3, 8), 1, HMAConfig(queue_size=4, slots_per_class=1), feature_dim=8)
    shares = explain(model, torch.randn(3, 3))
    assert shares.by_class.shape == (3, 2)
    torch.testing.assert_close(shares.probabilities[:, 1:], shares.logits.sigmoid())


def test_slots_from_zeros_are_told_from_distinct_ones():
    assert slot_diagnostics(model_of(slot_init="zeros")).distinct.tolist() == [1, 1, 1]
    healthy = slot_diagnostics(model_of())
    assert healthy.distinct.tolist() == [2, 2, 2]
    assert (healthy.nearest > 0.1).all()


def test_slot_usage_is_the_mean_share_and_an_avoided_slot_is_unused():
    model, x = model_of(), torch.randn(20, 3).double()
    usage = slot_diagnostics(model, x).usage
    shares = explain(model, x).slots.mean(dim=0)
    torch.testing.assert_close(usage, shares / shares.sum())
    read = model.synthetic.read
    with torch.no_grad():
        read.to_keys_values.bias[: read.dim] = 0
        read.to_queries.weight.zero_()  # every query asks for the same thing ...
        read.to_queries.bias.normal_(std=5)
        wanted = read.to_queries.bias @ read.to_keys_values.weight[: read.dim]
        model.synthetic.slots[:] = 1e3 * wanted[:8]  # ... which is what the slots offer,
        model.synthetic.slots[3] *= -1  # all but one
    found = slot_diagnostics(model, x)
    assert not found.used[3]
    assert found.used[[0, 1, 2, 4, 5]].all()


def test_slot_usage_is_unknown_without_anything_to_probe_with():
    model = HMA(nn.Linear(3, 8), 3, HMAConfig(queue_size=4, slots_per_class=2), feature_dim=8)
    assert slot_diagnostics(model).usage is None


def test_queue_fill_balance_and_staleness():
    model = model_of("rma")
    x = torch.randn(4, 3).double()
    model.remember(x, torch.tensor([0, 0, 0, 1]), ids=torch.tensor([20, 21, 22, 23]))
    found = queue_diagnostics(model)
    assert (found.fill, found.per_class.tolist()) == (1.0, [3, 1, 0])
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(3)
    assert found.balance == pytest.approx(entropy)
    assert found.staleness is None
    fresh = queue_diagnostics(model, x, torch.tensor([20, 21, 22, 99]))
    torch.testing.assert_close(fresh.staleness, torch.zeros(3).double(), atol=1e-2, rtol=0)
    with torch.no_grad():
        model.backbone.weight.mul_(2)
        model.backbone.bias.mul_(2)
    stale = queue_diagnostics(model, x, torch.tensor([20, 21, 22, 99]))
    torch.testing.assert_close(stale.staleness, torch.full((3,), 0.5).double(), atol=1e-2, rtol=0)


def test_staleness_needs_samples_and_their_ids():
    with pytest.raises(ValueError, match="x and ids must be given together"):
        queue_diagnostics(model_of("rma"), torch.randn(2, 3).double())


def test_a_queue_that_was_never_written_says_what_to_call():
    model = HMA(nn.Linear(3, 8), 3, HMAConfig(queue_size=4), feature_dim=8)
    text = str(queue_diagnostics(model))
    assert text == "empty: call model.remember(x, y) after every optimizer step"
    model.remember(torch.randn(2, 3), torch.tensor([0, 1]))
    assert str(queue_diagnostics(model)).startswith("2 of 4 rows filled")

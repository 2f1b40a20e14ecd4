"""The whole model against its definition, and its contexts against rows one by one."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from read_designs import READS, opened
from torch import nn

from benchmarks.reference import predict
from hma import HMA, ConfigError, HMAConfig
from hma.vote.search import BestRows

ROWS = ["rma", "abd", "abd+syn", "abd+rma", "hma", "param"]
SIZES = {
    "rma": {"queue_size": 5},
    "abd": {},
    "abd+syn": {"slots_per_class": 2},
    "abd+rma": {"queue_size": 5},
    "hma": {"queue_size": 5, "slots_per_class": 2},
    "param": {},
}


def small(row="hma", num_classes=3, **changes):
    if row != "param":
        changes = {"label_dim": 4} | changes
    config = HMAConfig.ablation(row, num_heads=2, dropout=0.0, **SIZES[row], **changes)
    return opened(HMA(nn.Linear(3, 8), num_classes, config, feature_dim=8).double())


def filled(model, rows=7):
    labels = torch.arange(rows) % model.num_labels
    model.remember(torch.randn(rows, 3).double(), labels)
    return model


def test_the_module_has_the_papers_number_of_parameters():
    backbone = nn.Identity()
    model = HMA(backbone, 47, HMAConfig(label_dim=64, slots_per_class=8), feature_dim=768)
    assert sum(p.numel() for p in model.parameters()) == 15_583_215


def test_a_narrow_memory_has_as_many_weights_as_its_formula_says():
    f, l, w, c, slots, factor = 2048, 64, 128, 10, 160, 2  # noqa: E741
    config = HMAConfig(width=w, feed_forward=factor)
    model = HMA(nn.Identity(), c, config, feature_dim=f)
    d = f + l
    narrow_and_widen, head, table = 2 * d * w + w + d, d * c + c, (c + 1) * l
    read = (3 + 2 * factor) * w * w + (3 + factor + 1 + 6) * w
    wanted = narrow_and_widen + head + table + slots * f + 2 * read
    assert sum(p.numel() for p in model.parameters()) == wanted


@pytest.mark.parametrize("stages", ["one", "two"])
@pytest.mark.parametrize("attention", ["exact", "linear"])
def test_a_narrow_memory_starts_as_the_plain_backbone(stages, attention):
    config = HMAConfig(width=8, stages=stages, attention=attention, readout="features")
    model = filled(HMA(nn.Linear(3, 8), 3, config, feature_dim=8).double())
    x = torch.randn(4, 3).double()
    for mode in (True, False):
        assert torch.equal(model.train(mode)(x), model.head(model.backbone(x)))
    nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 2, 0])).backward()
    assert model.tokens.widen.weight.grad.abs().max() > 0  # and it can leave that start


@pytest.mark.parametrize("design", READS)
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("num_classes", [3, 1])
@pytest.mark.parametrize("written", [0, 3, 7])
def test_logits_match_the_definition(row, num_classes, written, design):
    model = filled(small(row, num_classes, **READS[design]), written)
    x = torch.randn(4, 3).double()
    expected = predict(model, model.backbone(x))
    assert expected.shape == (4, num_classes)
    torch.testing.assert_close(model.train()(x), expected)
    torch.testing.assert_close(model.eval()(x), expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"readout": "features"},
        {"readout": "label"},
        {"scale": "token"},
        {"queue_labels": "frozen"},
        {"top_k": 2},
        {"slot_init": "zeros"},
    ],
    ids=str,
)
def test_logits_match_the_definition_under_every_switch(changes):
    model = filled(small(**changes))
    x = torch.randn(4, 3).double()
    torch.testing.assert_close(model(x), predict(model, model.backbone(x)))


@pytest.mark.parametrize(("row", "kept"), [("rma", "real"), ("abd+syn", "synthetic")])
@pytest.mark.parametrize("context", ["batch", "alone", "anchors"])
def test_one_read_of_one_memory_is_the_papers_read_of_it(row, kept, context):
    if row == "rma" and context == "anchors":
        return  # which needs neighbours
    paper, one = filled(small(row)).eval(), filled(small(row, stages="one")).eval()
    state = {
        name.replace(f"{kept}.read", "joint.read"): v for name, v in paper.state_dict().items()
    }
    one.load_state_dict(state)
    x = torch.randn(4, 3).double()
    for model in (paper, one):
        if context == "anchors":
            model.set_anchors(x[:2])
        model.context = context
    torch.testing.assert_close(one(x), paper(x))


@torch.no_grad()
def test_one_read_that_looks_for_the_nearest_rows_still_reads_every_slot():
    model, x = filled(small(stages="one")).eval(), torch.randn(4, 3).double()
    wanted = model(x)
    model.real.nearest = BestRows(k=5)
    torch.testing.assert_close(model(x), wanted)
    model.real.nearest = BestRows(k=2)
    shares = model.trace(model.backbone(x))
    assert shares.real.memory.shape == (2, 4, 2)
    assert shares.synthetic.memory.shape == (2, 4, 6)
    total = shares.real.own.sum(-1) + shares.real.memory.sum(-1) + shares.synthetic.memory.sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total))


def test_a_linear_read_refuses_to_look_for_the_nearest_rows():
    model = filled(small(attention="linear")).eval()
    model.real.nearest = BestRows(k=2)
    with pytest.raises(ValueError, match="nearest must be None for attention='linear'"):
        model(torch.randn(4, 3).double())


@settings(deadline=None, max_examples=50)
@given(
    batch=st.integers(0, 5),
    classes=st.integers(1, 4),
    queue=st.integers(0, 4),
    slots=st.integers(0, 3),
    written=st.integers(0, 9),
    context=st.sampled_from(["batch", "alone", "anchors"]),
    design=st.sampled_from(list(READS)),
)
def test_logits_match_the_definition_at_any_size(
    batch, classes, queue, slots, written, context, design
):
    sizes = {"queue_size": queue, "slots_per_class": slots, "num_heads": 2, "label_dim": 2}
    config = HMAConfig(context=context, **sizes, **READS[design])
    model = opened(HMA(nn.Linear(3, 4), classes, config, feature_dim=4).double())
    model = filled(model, written).eval()
    model.set_anchors(torch.randn(2, 3).double())
    x = torch.randn(batch, 3).double()
    found = model(x)
    assert found.shape == (batch, classes)
    if batch:
        torch.testing.assert_close(found, predict(model, model.backbone(x), context))


@pytest.mark.parametrize("design", READS)
@pytest.mark.parametrize("context", ["alone", "anchors"])
@pytest.mark.parametrize("row", ROWS)
def test_a_prediction_does_not_depend_on_its_neighbours(row, context, design):
    model = filled(small(row, **READS[design])).float().eval()
    if context == "anchors" and not model.config.batch_attention:
        with pytest.raises(ConfigError, match="needs batch_attention=True"):
            model.context = context
        return
    if context == "anchors":
        model.set_anchors(torch.randn(6, 3))
    model.context = context
    x = torch.randn(64, 3)
    one_by_one = torch.cat([model(row[None]) for row in x])
    assert (model(x) - one_by_one).abs().max() <= 1e-6
    assert (model(x[7:19]) - one_by_one[7:19]).abs().max() <= 1e-6


@pytest.mark.parametrize("design", READS)
def test_in_context_batch_neighbours_do_matter(design):
    model = filled(small(**READS[design])).eval()
    x = torch.randn(4, 3).double()
    assert (model(x)[:1] - model(x[:1])).abs().max() > 1e-4


@pytest.mark.parametrize("design", READS)
def test_anchors_are_the_rest_of_a_batch_that_never_changes(design):
    model = filled(small(**READS[design])).eval()
    anchors, x = torch.randn(5, 3).double(), torch.randn(3, 3).double()
    together = torch.cat([model(torch.cat([row[None], anchors]))[:1] for row in x])
    model.set_anchors(anchors)
    model.context = "anchors"
    torch.testing.assert_close(model(x), together)


def test_training_sees_the_batch_whatever_the_context():
    model = filled(small(context="alone")).train()
    x = torch.randn(4, 3).double()
    torch.testing.assert_close(model(x), predict(model, model.backbone(x), "batch"))


def test_the_anchors_context_without_anchors_says_what_to_call():
    model = small(context="anchors").eval()
    with pytest.raises(RuntimeError, match=r"call model.set_anchors\(x\) first"):
        model(torch.randn(2, 3).double())


@pytest.mark.parametrize("design", READS)
@pytest.mark.parametrize("row", ROWS)
def test_every_trainable_parameter_gets_a_gradient(row, design):
    model = filled(small(row, **READS[design]))
    nn.functional.cross_entropy(
        model(torch.randn(4, 3).double()), torch.tensor([0, 1, 2, 0])
    ).backward()
    without = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert without == []


def test_soft_labels_train_and_hard_ids_are_remembered():
    model = small()
    x, y = torch.randn(4, 3).double(), torch.tensor([0, 1, 2, 0])
    soft = 0.7 * nn.functional.one_hot(y, 3).double() + 0.3 * nn.functional.one_hot(y.flip(0), 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        loss = nn.functional.cross_entropy(model(x), soft)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.remember(x, y)
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert model.memory_state().labels.tolist() == [0, 0, 1, 2, 0]


def test_slots_that_start_at_zero_stay_identical_and_normal_ones_do_not():
    for start, same in [("zeros", True), ("normal", False)]:
        model = filled(small(slot_init=start))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(5):
            loss = nn.functional.cross_entropy(
                model(torch.randn(4, 3).double()), torch.tensor([0, 1, 2, 0])
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        first, second = model.memory_state().slots.view(3, 2, 8).unbind(dim=1)
        assert torch.allclose(first, second, atol=1e-12) is same


def test_live_queue_labels_follow_the_table_and_frozen_ones_do_not():
    x = torch.randn(4, 3).double()
    for kind, moves in [("live", True), ("frozen", False)]:
        model = filled(small("rma", queue_labels=kind)).eval()
        before = model(x)
        with torch.no_grad():
            model.tokens.table.weight[:-1] += 1.0
        assert torch.allclose(before, model(x)) is not moves

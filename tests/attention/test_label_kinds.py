"""A model of every kind of label: its tokens by hand, its memory, a problem it can solve."""

import math

import pytest
import torch
from read_designs import READS, opened
from torch import nn

from hma import HMA, HMAConfig, explain, queue_diagnostics
from hma.targets import Classes, Number, SoftClasses, YesNo

CONFIG = HMAConfig(
    label_dim=4, queue_size=16, slots_per_class=2, num_heads=2, dropout=0.0, momentum=0.9
)
NAN = math.nan
LABELS = {
    Classes(1): torch.tensor([0, 1, 1]),
    SoftClasses(3): torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.2, 0.3, 0.5]]),
    YesNo(2): torch.tensor([[1.0, 0.0], [NAN, 1.0], [NAN, NAN]]),
    Number(10.0, 4.0): torch.tensor([10.0, 2.0, 18.0]),
}


def model_of(target, **changes):
    config = HMAConfig(**{**vars(CONFIG), **changes})
    return opened(HMA(nn.Linear(5, 8), target=target, config=config, feature_dim=8))


def embedded_by_hand(target, y, table):
    """The label half of one row, written out label by label."""
    if isinstance(target, Classes):
        return table[int(y)]
    if isinstance(target, SoftClasses):
        return sum(float(share) * table[c] for c, share in enumerate(y))
    if isinstance(target, Number):
        return table[0] + (float(y) - target.centre) / target.scale * table[1]
    known = [(t, int(value)) for t, value in enumerate(y.tolist()) if not math.isnan(value)]
    if not known:
        return table[-1]
    return sum(table[2 * t + value] for t, value in known) / len(known)


@pytest.mark.parametrize("target", LABELS, ids=lambda target: target.kind)
def test_the_queue_shows_each_row_with_its_label_as_written_by_hand(target):
    model, y = model_of(target), LABELS[target]
    model.remember(None, y, features=torch.randn(3, 8))
    queue = model.real.queue
    tokens = model.tokens.label(queue.features[:3], queue.labels[:3])
    expected = torch.stack([embedded_by_hand(target, row, model.tokens.table.weight) for row in y])
    torch.testing.assert_close(tokens[:, 8:], expected)
    torch.testing.assert_close(model.memory_state().labels.to(y.dtype), y, equal_nan=True)


@pytest.mark.parametrize("design", READS)
@pytest.mark.parametrize("target", LABELS, ids=lambda target: target.kind)
def test_a_reloaded_model_of_any_target_predicts_the_same(target, design):
    model, y, x = model_of(target, **READS[design]), LABELS[target], torch.randn(3, 5)
    model.remember(x, y)
    other = model_of(target, **READS[design])
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(x), model.eval()(x))
    assert model(x).shape == (3, target.outputs)


@pytest.mark.parametrize("design", READS)
@pytest.mark.parametrize("target", LABELS, ids=lambda target: target.kind)
def test_explanations_and_diagnostics_count_what_a_label_belongs_to(target, design):
    model, y, x = model_of(target, **READS[design]).eval(), LABELS[target], torch.randn(3, 5)
    model.remember(x, y)
    found = explain(model, x)
    assert found.by_class.shape == (3, len(target.prototypes()))
    labelled = found.slots.sum(dim=1) + found.queue[:, :2].sum(dim=1)
    everything = labelled + found.queue[:, 2]  # of yes/no labels the last row has none
    wanted = labelled if isinstance(target, YesNo) else everything
    torch.testing.assert_close(found.by_class.sum(dim=1), wanted)
    assert str(found).count("\n") == 2
    counted = float(queue_diagnostics(model).per_class.sum())
    assert counted == pytest.approx(2 if isinstance(target, YesNo) else 3)


def train(model, x, y, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = model.target.loss(model(x), y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.remember(x, y)
    return float(loss.detach())


@pytest.mark.parametrize(
    "target", [SoftClasses(2), YesNo(2), Number(3.0, 2.0)], ids=lambda target: target.kind
)
def test_a_linear_rule_is_learned_for_every_target(target):
    x = torch.randn(48, 5)
    signal = x @ torch.tensor([[1.0, -1.0, 0.5, 0.0, 2.0]]).T  # (48, 1)
    y = {
        SoftClasses: torch.cat([signal.sigmoid(), 1 - signal.sigmoid()], dim=1),
        YesNo: torch.cat([(signal > 0).float(), (x[:, :1] > 0).float()], dim=1),
        Number: 3.0 + 2.0 * signal[:, 0] / signal.std(),
    }[type(target)]
    if isinstance(target, YesNo):
        y[::3, 0] = NAN
    model = model_of(target, context="alone")
    start = float(target.loss(model(x), y).mean().detach())
    floor = float(torch.special.entr(y).sum(1).mean()) if isinstance(target, SoftClasses) else 0.0
    end = train(model, x, y, steps=60)
    assert end - floor < 0.25 * (start - floor)
    decided = model.eval().target.decide(model(x))
    if isinstance(target, Number):
        assert torch.corrcoef(torch.stack([decided, y]))[0, 1] > 0.9


def test_one_of_classes_and_target_is_given():
    with pytest.raises(TypeError, match="got neither"):
        HMA(nn.Identity(), feature_dim=4)
    with pytest.raises(TypeError, match="got 3 and Number"):
        HMA(nn.Identity(), 3, target=Number(), feature_dim=4)


@pytest.mark.parametrize(
    ("target", "y", "message"),
    [
        (SoftClasses(2), torch.tensor([[0.5, 0.6]]), "sum to 1, got"),
        (SoftClasses(2), torch.tensor([[1.5, -0.5]]), "at least 0 that sum to 1"),
        (YesNo(2), torch.tensor([[2.0, 1.0]]), "must hold 0, 1, and NaN or -1"),
        (YesNo(2), torch.tensor([1.0]), r"y must have shape \(1, 2\)"),
        (Number(), torch.tensor([math.inf]), "finite numbers, got inf"),
    ],
)
def test_labels_that_do_not_fit_the_target_are_refused(target, y, message):
    model = model_of(target)
    with pytest.raises(ValueError, match=message):
        model.remember(None, y, features=torch.zeros(1, 8))
    assert len(model.memory_state().labels) == 0

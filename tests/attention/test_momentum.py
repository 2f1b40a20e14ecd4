"""The momentum encoder against its formula."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import hma
from hma import HMA, HMAConfig
from hma.attention.momentum import MomentumEncoder

SMALL = HMAConfig(queue_size=8, slots_per_class=2, label_dim=4)


def batchnorm_backbone():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))


def test_update_is_the_moving_average_of_every_parameter():
    backbone = nn.Linear(3, 4).double()
    encoder = MomentumEncoder(backbone, momentum=0.9)
    before = [p.clone() for p in encoder.parameters()]
    for parameter in backbone.parameters():
        nn.init.normal_(parameter)
    encoder.update(backbone)
    for old, new, target in zip(before, encoder.parameters(), backbone.parameters(), strict=True):
        torch.testing.assert_close(new, 0.9 * old + 0.1 * target)


def test_write_comes_before_the_update():
    """Algorithm 1: the row that enters is the one of the encoder as it was."""
    model = HMA(nn.Linear(3, 4), 2, SMALL, feature_dim=4)
    x, y = torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])
    nn.init.normal_(model.backbone.weight)
    expected = model.momentum_encoder.encoder(x)
    model.remember(x, y)
    torch.testing.assert_close(model.memory_state().features, expected)
    assert not torch.equal(model.momentum_encoder.encoder(x), expected)


def test_the_momentum_encoder_takes_over_batchnorm_statistics():
    model = HMA(batchnorm_backbone(), 2, SMALL, feature_dim=4)
    x, y = torch.randn(6, 3) * 5 + 2, torch.zeros(6, dtype=torch.long)
    model(x)
    model.remember(x, y)
    copy = model.momentum_encoder.encoder
    torch.testing.assert_close(copy[1].running_mean, model.backbone[1].running_mean)
    assert copy[1].num_batches_tracked == 1
    model.eval()
    torch.testing.assert_close(model.memory_state().features, model.backbone(x))


def test_it_needs_no_gradient_and_stays_in_eval_mode():
    model = HMA(batchnorm_backbone(), 2, SMALL, feature_dim=4).train()
    assert not any(p.requires_grad for p in model.momentum_encoder.parameters())
    assert not any(part.training for part in model.momentum_encoder.modules())
    before = [p.clone() for p in model.momentum_encoder.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    model(torch.randn(6, 3)).sum().backward()
    optimizer.step()
    for old, new in zip(before, model.momentum_encoder.parameters(), strict=True):
        torch.testing.assert_close(old, new, rtol=0, atol=0)


def test_a_frozen_backbone_has_no_copy_and_no_second_forward():
    calls = []
    backbone = batchnorm_backbone().requires_grad_(False)
    backbone.register_forward_hook(lambda *_: calls.append(1))
    model = HMA(backbone, 2, SMALL, feature_dim=4).train()
    assert model.momentum_encoder is None
    x, y = torch.randn(6, 3), torch.zeros(6, dtype=torch.long)
    features = model.backbone(x)
    model.classify(features).sum().backward()
    model.remember(x, y, features=features)
    assert len(calls) == 1
    torch.testing.assert_close(model.memory_state().features, features)


def test_writing_through_a_frozen_backbone_leaves_its_mode_and_statistics_alone():
    model = HMA(batchnorm_backbone().requires_grad_(False), 2, SMALL, feature_dim=4).train()
    model.backbone[2].eval()
    model.remember(torch.randn(6, 3), torch.zeros(6, dtype=torch.long))
    assert [part.training for part in model.backbone] == [True, True, False]
    assert model.backbone[1].num_batches_tracked == 0


def test_momentum_zero_stores_the_backbones_own_features():
    config = HMAConfig(queue_size=8, slots_per_class=2, label_dim=4, momentum=0)
    model = HMA(nn.Linear(3, 4), 2, config, feature_dim=4)
    x = torch.randn(6, 3)
    model.remember(x, torch.zeros(6, dtype=torch.long))
    assert model.momentum_encoder is None
    torch.testing.assert_close(model.memory_state().features, model.backbone(x))


def test_in_warmup_it_keeps_what_the_formula_says_at_every_step():
    momentum, backbone = 0.9, nn.Linear(1, 1, bias=False).double()
    encoder = MomentumEncoder(backbone, momentum, warmup=True)
    expected = encoder.encoder.weight.item()
    for step in range(100):  # (1 + t) / (10 + t) reaches 0.9 at t = 80
        nn.init.normal_(backbone.weight)
        encoder.update(backbone)
        kept = min(momentum, (1 + step) / (10 + step))
        expected = kept * expected + (1 - kept) * backbone.weight.item()
        assert encoder.encoder.weight.item() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert int(encoder.steps) == 100


@torch.no_grad()
def distances(steps, **config):
    """Return how far the slow copy is from where it began and from the encoder, after ``steps``."""
    torch.manual_seed(0)
    model = HMA(nn.Linear(3, 4), 2, replace(SMALL, **config), feature_dim=4)
    start = model.backbone.weight.clone()
    model.backbone.weight.add_(1.0)
    for _ in range(steps):
        model.remember(torch.randn(5, 3), torch.zeros(5, dtype=torch.long))
    slow = model.momentum_encoder.encoder.weight
    return float((slow - start).norm()), float((slow - model.backbone.weight).norm())


def test_after_a_few_steps_a_warmed_up_copy_is_near_the_encoder_and_the_papers_near_the_start():
    from_start, to_encoder = distances(10)
    assert from_start < 0.02 * to_encoder
    from_start, to_encoder = distances(10, momentum_warmup=True)
    assert to_encoder < 0.02 * from_start


def test_the_warmup_goes_on_from_where_a_saved_model_was(tmp_path):
    config = replace(SMALL, momentum_warmup=True)
    x, y = torch.randn(5, 3), torch.zeros(5, dtype=torch.long)
    model = HMA(nn.Linear(3, 4), 2, config, feature_dim=4)
    for _ in range(3):
        model.remember(x, y)
    hma.save(model, tmp_path)
    loaded = hma.load(tmp_path, nn.Linear(3, 4))
    for one in (model, loaded):
        nn.init.ones_(one.backbone.weight)
        one.remember(x, y)
    assert int(loaded.momentum_encoder.steps) == 4
    state = model.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in loaded.state_dict().items())


def test_a_model_saved_frozen_begins_its_warmup_when_it_trains(tmp_path):
    config = replace(SMALL, momentum_warmup=True)
    frozen = HMA(nn.Linear(3, 4).requires_grad_(False), 2, config, feature_dim=4)
    hma.save(frozen, tmp_path)
    loaded = hma.load(tmp_path, nn.Linear(3, 4))
    assert int(loaded.momentum_encoder.steps) == 0
    assert torch.equal(loaded.momentum_encoder.encoder.weight, frozen.backbone.weight)


def test_without_warmup_nothing_of_the_paper_changes():
    model = HMA(nn.Linear(3, 4), 2, SMALL, feature_dim=4)
    assert not HMAConfig().momentum_warmup
    assert "momentum_encoder.steps" not in model.state_dict()
    assert repr(model.momentum_encoder).startswith("MomentumEncoder(\n  momentum=0.999\n")

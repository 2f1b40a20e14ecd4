"""The momentum encoder against its formula."""

import torch
from torch import nn

from hma import HMA, HMAConfig
from hma.momentum import MomentumEncoder

SMALL = HMAConfig.paper(queue_size=8, slots_per_class=2, label_dim=4)


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
    config = HMAConfig.paper(queue_size=8, slots_per_class=2, label_dim=4, momentum=0)
    model = HMA(nn.Linear(3, 4), 2, config, feature_dim=4)
    x = torch.randn(6, 3)
    model.remember(x, torch.zeros(6, dtype=torch.long))
    assert model.momentum_encoder is None
    torch.testing.assert_close(model.memory_state().features, model.backbone(x))

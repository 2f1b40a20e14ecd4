"""The MLP against matrix products written out, and its start against Xavier's bound."""

import math

import pytest
import torch

from hma.backbones.mlp import MLP, mlp


def test_the_feature_is_the_last_hidden_activation():
    torch.manual_seed(0)
    backbone = mlp(in_features=12, hidden=(7, 5, 3)).double()
    inputs = torch.randn(4, 3, 2, 2).double()
    weights = list(backbone.parameters())
    expected = inputs.reshape(4, 12)
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        expected = torch.clamp(expected @ weight.T + bias, min=0)
    torch.testing.assert_close(backbone(inputs), expected)
    assert len(weights) == 2 * 3


def test_the_default_has_the_parameters_of_the_irm_network_without_its_last_layer():
    count = sum(parameter.numel() for parameter in mlp(in_features=2 * 14 * 14).parameters())
    assert count == (392 * 256 + 256) + (256 * 256 + 256)


def test_weights_start_xavier_uniform_and_biases_at_zero():
    torch.manual_seed(0)
    weight, bias, *_ = mlp(in_features=400, hidden=(200,)).parameters()
    bound = math.sqrt(6 / (400 + 200))
    assert weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.01)
    assert bias.count_nonzero() == 0


def test_dropout_acts_in_training_and_not_in_evaluation():
    torch.manual_seed(0)
    backbone = mlp(in_features=6, hidden=(1000,), dropout=0.5)
    inputs = torch.rand(1, 6)
    whole = backbone.eval()(inputs)
    kept = backbone.train()(inputs)
    positive = whole > 0
    share = (kept[positive] > 0).float().mean().item()
    assert share == pytest.approx(0.5, abs=0.1)
    survivors = kept > 0
    torch.testing.assert_close(kept[survivors], 2 * whole[survivors])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"in_features": 0}, "in_features must be at least 1, got 0"),
        ({"in_features": 4, "hidden": ()}, r"hidden must be one or more widths .* got \(\)"),
        ({"in_features": 4, "hidden": (8, 0)}, r"hidden must be .* got \(8, 0\)"),
        ({"in_features": 4, "dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
    ],
)
def test_an_impossible_argument_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        MLP(**arguments)


def test_an_input_of_the_wrong_size_names_in_features():
    with pytest.raises(ValueError, match=r"12 values per sample, got shape \(2, 3, 5\).*in_feat"):
        mlp(in_features=12)(torch.zeros(2, 3, 5))


def test_a_sample_without_a_batch_axis_is_refused():
    with pytest.raises(ValueError, match=r"got shape \(1,\)"):
        mlp(in_features=1)(torch.zeros(1))


def test_an_empty_batch_gives_no_features():
    assert mlp(in_features=12)(torch.zeros(0, 3, 4)).shape == (0, 256)

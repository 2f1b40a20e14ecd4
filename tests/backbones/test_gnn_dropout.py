"""Dropout of graph networks against ``torch.nn.Dropout``: the same values, the same share."""

import pytest
import torch

from hma.backbones.gnn.dropout import Dropout


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_values_are_dropped_with_their_probability_and_the_rest_is_scaled(share):
    values = torch.rand(400, 100) + 1
    values.requires_grad_()
    dropped = Dropout(share)(values)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], values[kept] / (1 - share))
    deviation = (share * (1 - share) / values.numel()) ** 0.5
    assert abs(1 - kept.double().mean().item() - share) < 5 * deviation
    dropped.sum().backward()
    torch.testing.assert_close(values.grad, kept.float() / (1 - share))


def test_in_eval_mode_and_at_zero_values_stay_and_nothing_is_drawn():
    values = torch.rand(5, 4)
    before = torch.get_rng_state()
    assert Dropout(0.5).eval()(values) is values
    torch.testing.assert_close(Dropout(0.0)(values), values, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_same_state_of_the_generator_drops_the_same_values():
    values = torch.ones(50, 8)
    torch.manual_seed(7)
    first = Dropout(0.5)(values)
    torch.manual_seed(7)
    torch.testing.assert_close(Dropout(0.5)(values), first, rtol=0, atol=0)


def test_half_precision_stays_half_precision():
    assert Dropout(0.5)(torch.ones(4, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16

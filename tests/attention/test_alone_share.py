"""A share of the training batches is read as a row by itself would be."""

from dataclasses import replace

import pytest
import torch
from read_designs import READS, opened
from torch import nn

from hma import HMA, HMAConfig

PAPER = HMAConfig(
    queue_size=8, slots_per_class=2, label_dim=4, num_heads=2, dropout=0.0, momentum=0.0
)


def model_of(**changes):
    torch.manual_seed(0)
    model = opened(HMA(nn.Linear(3, 8), 3, replace(PAPER, **changes), feature_dim=8))
    model.remember(torch.randn(6, 3), torch.arange(6) % 3)
    return model.train()


@torch.no_grad()
def kinds(model, x, batches):
    """Return of each training batch whether it was read alone; it is either that or together."""
    alone = model.eval()(x, context="alone")
    together = model(x, context="batch")
    assert not torch.allclose(alone, together, atol=1e-4)
    model.train()
    found = []
    for _ in range(batches):
        logits = model(x)
        found.append(torch.allclose(logits, alone, atol=1e-5))
        assert found[-1] or torch.allclose(logits, together, atol=1e-5)
    return found


@pytest.mark.parametrize("design", READS)
def test_so_many_batches_are_read_without_neighbours(design):
    x = torch.randn(5, 3)
    assert sum(kinds(model_of(**READS[design]), x, 20)) == 0
    count = sum(kinds(model_of(alone_share=0.3, **READS[design]), x, 300))
    assert 60 < count < 120  # 90 expected, 8 its deviation


def test_the_random_state_of_torch_decides_so_a_resumed_run_draws_the_same():
    model, x = model_of(alone_share=0.5), torch.randn(5, 3)
    torch.manual_seed(3)
    kinds(model, x, 7)
    state = torch.get_rng_state()
    first = kinds(model, x, 20)
    torch.set_rng_state(state)
    assert kinds(model, x, 20) == first
    assert len(set(first)) == 2


def test_the_papers_design_draws_nothing():
    model, x = model_of(), torch.randn(5, 3)
    before = torch.get_rng_state()
    model(x)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("design", READS)
def test_gradients_of_a_batch_read_alone_are_those_of_rows_one_by_one(design):
    model, x = model_of(alone_share=0.999, **READS[design]), torch.randn(4, 3)
    y = torch.tensor([0, 1, 2, 0])
    nn.functional.cross_entropy(model(x), y, reduction="sum").backward()
    together = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    for row in range(4):
        nn.functional.cross_entropy(model(x[row : row + 1]), y[row : row + 1]).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(together[name], parameter.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("changes", [{"batch_attention": False}, {"slots_per_class": 0}])
def test_a_row_without_neighbours_or_without_slots_is_read_as_ever(changes):
    model, x = model_of(alone_share=0.9, **changes), torch.randn(1, 3)
    torch.testing.assert_close(model(x), model_of(**changes)(x))

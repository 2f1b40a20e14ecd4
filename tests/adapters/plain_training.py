"""A loop written out by hand, the oracle for every adapter."""

import copy
from typing import Literal

import torch
from torch import Tensor, nn

import hma
from hma.backbones import mlp

MOMENTUM, RATE, CLASSES, INPUTS = 0.9, 0.1, 3, 6
Pair = tuple[Tensor, Tensor]


def fresh_model() -> hma.HMA:
    torch.manual_seed(7)
    config = hma.HMAConfig(
        label_dim=16, queue_size=20, slots_per_class=2, momentum=MOMENTUM, dropout=0.0
    )
    return hma.HMA(mlp(INPUTS, hidden=(16,)), CLASSES, config)


def rows(count: int) -> Pair:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(count, INPUTS, generator=generator)
    return x, x[:, :CLASSES].argmax(dim=1)


def in_batches(data: Pair, size: int) -> list[Pair]:
    return list(zip(data[0].split(size), data[1].split(size), strict=True))


def trained_by_hand(
    steps: list[list[Pair]],
    divisor: int | None = None,
    write: Literal["after", "before"] = "after",
    model: hma.HMA | None = None,
) -> hma.HMA:
    """Train on ``steps``, each a list of batches whose gradients add up.

    Args:
        steps: Batches of each optimizer step.
        divisor: What each loss is divided by; the number of batches of its step if None.
        write: Whether the memory is written after the optimizer's step, as it must be.
        model: What to train; a fresh model if None.
    """
    model = (model or fresh_model()).train()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)
    for batches in steps:
        optimizer.zero_grad()
        for x, y in batches:
            loss = nn.functional.cross_entropy(model(x), y) / (divisor or len(batches))
            loss.backward()
        joint = [torch.cat(parts) for parts in zip(*batches, strict=True)]
        if write == "before":
            model.remember(*joint)
        optimizer.step()
        if write == "after":
            model.remember(*joint)
    return model


def expect_same(model: hma.HMA, expected: hma.HMA) -> None:
    """Weights, queue, momentum encoder: everything that outlives a step is equal."""
    assert model.memory_state().labels.tolist() == expected.memory_state().labels.tolist()
    assert int(model.real.queue.written) == int(expected.real.queue.written)
    theirs = expected.state_dict()
    for name, value in model.state_dict().items():
        if name != "real.queue.ids":
            torch.testing.assert_close(
                value, theirs[name], msg=lambda text, at=name: f"{at}: {text}"
            )


def follows(model: hma.HMA, expected: hma.HMA) -> bool:
    """Whether the momentum encoder stands where it does in ``expected``."""
    pairs = zip(
        model.momentum_encoder.parameters(), expected.momentum_encoder.parameters(), strict=True
    )
    return all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in pairs)


def untouched_copy(model: hma.HMA) -> hma.HMA:
    return copy.deepcopy(model)

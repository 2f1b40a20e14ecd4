"""A backbone that does not train needs no momentum copy and no second forward."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.report import Row, Section
from hma.attention.config import HMAConfig
from hma.attention.hma import HMA
from hma.training.cost import Timing, interleave

BATCH, INPUTS, WIDTH, FEATURES, CLASSES = 128, 784, 1024, 128, 10


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One way to train beside a backbone."""

    name: str
    trains: bool
    """Whether the backbone trains."""
    copied: bool
    """Whether it trained when HMA was built with a momentum, so that a copy follows it."""
    handed: bool
    """Whether ``remember`` is given the features of the forward pass."""


SETUPS = (
    Setup(name="frozen, features handed over", trains=False, copied=False, handed=True),
    Setup(name="frozen, remember encodes", trains=False, copied=False, handed=False),
    Setup(name="frozen, with a momentum copy", trains=False, copied=True, handed=False),
    Setup(name="trains, no momentum encoder", trains=True, copied=False, handed=True),
    Setup(name="trains, momentum encoder", trains=True, copied=True, handed=False),
)


def frozen_backbone(quick: bool) -> Section:
    """Count forward calls and parameters, and time a step, with and without the copy."""
    models = {setup: build_model(setup) for setup in SETUPS}
    inputs, labels = torch.randn(BATCH, INPUTS), torch.randint(CLASSES, (BATCH,))
    sides = {
        setup.name: lambda setup=setup, model=model: step(model, setup, inputs, labels)
        for setup, model in models.items()
    }
    taken = interleave(sides, repeats=3 if quick else 31)
    return Section(
        name="frozen",
        title="Training step with and without the momentum encoder",
        method=(
            f"Backbone forward, head, backward and write; a multilayer perceptron {INPUTS}-{WIDTH}-"
            f"{WIDTH}-{FEATURES}, batch {BATCH}, M 512; all setups in turn, medians. Forwards are "
            "counted by hooks during one step. A copy beside a frozen backbone is what the "
            "released code keeps; hma does so only if it is frozen after it was wrapped."
        ),
        rows=tuple(
            _row(setup, model, taken[setup.name], inputs, labels) for setup, model in models.items()
        ),
    )


def build_model(setup: Setup) -> HMA:
    """Return a model in training mode over a backbone of its own."""
    backbone = nn.Sequential(
        nn.Linear(INPUTS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
        nn.Linear(WIDTH, FEATURES),
    )  # fmt: skip
    backbone.requires_grad_(setup.trains or setup.copied)
    config = HMAConfig(label_dim=32, momentum=0.999 if setup.copied else 0.0)
    model = HMA(backbone, CLASSES, config, feature_dim=FEATURES)
    if not setup.trains:
        backbone.requires_grad_(False)
    return model


def step(model: HMA, setup: Setup, inputs: Tensor, labels: Tensor) -> None:
    """Run one training step without the optimizer."""
    model.zero_grad(set_to_none=True)
    features = model.backbone(inputs)  # (B, F)
    F.cross_entropy(model.classify(features), labels).backward()  # type: ignore[no-untyped-call]
    model.remember(inputs, labels, features=features if setup.handed else None)


def count_forwards(model: HMA, setup: Setup, inputs: Tensor, labels: Tensor) -> dict[str, int]:
    """Return how often the backbone and its copy run in one step."""
    calls = {"backbone": 0, "copy": 0}

    def count(name: str) -> None:
        calls[name] += 1

    hooks = [model.backbone.register_forward_hook(lambda *_: count("backbone"))]
    if model.momentum_encoder is not None:
        encoder = model.momentum_encoder.encoder
        hooks.append(encoder.register_forward_hook(lambda *_: count("copy")))
    step(model, setup, inputs, labels)
    for hook in hooks:
        hook.remove()
    return calls


def _row(setup: Setup, model: HMA, timing: Timing, inputs: Tensor, labels: Tensor) -> Row:
    calls = count_forwards(model, setup, inputs, labels)
    copy = model.momentum_encoder
    return {
        "backbone": setup.name,
        "backbone_forwards": calls["backbone"],
        "copy_forwards": calls["copy"],
        "model_parameters": _size(model),
        "copy_parameters": 0 if copy is None else _size(copy),
        "step_ms": timing.milliseconds,
        "repeats": len(timing.seconds),
    }


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())

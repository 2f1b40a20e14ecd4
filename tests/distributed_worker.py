"""One of the processes that ``test_distributed`` starts, and the training both sides run.

Every case is a function of the rank that returns plain tensors; what it returned on each rank is
written to ``<folder>/<case>-<rank>.pt`` for the test to compare.
"""

import os
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from hma import HMA, HMAConfig, VoteConfig, VotingMemory
from hma.memory.distributed import gather_rows
from hma.training.devices import buffer_option

RANKS, STEPS, BATCH, WIDTH, CLASSES = 2, 5, 6, 8, 3
ABLATIONS = ("rma", "abd", "abd+syn", "abd+rma", "hma", "param", "one", "narrow", "vote")
SIZES = {
    "rma": {"queue_size": 16},
    "abd": {},
    "abd+syn": {"slots_per_class": 2},
    "abd+rma": {"queue_size": 16},
    "hma": {"queue_size": 16, "slots_per_class": 2},
    "param": {},
    "one": {"queue_size": 16, "slots_per_class": 2, "stages": "one"},
    "narrow": {"queue_size": 16, "slots_per_class": 2, "attention": "linear", "width": 4},
    "vote": {"key_dim": 4, "slots_per_class": 1},
}


def build(row, *, seed=0, backbone=None, **changes):
    torch.manual_seed(seed)
    backbone = backbone or nn.Sequential(nn.Linear(5, WIDTH), nn.Tanh())
    if row == "vote":
        config = VoteConfig(**SIZES[row], **changes)
        return VotingMemory(backbone, CLASSES, config, feature_dim=WIDTH).double()
    shared = {"num_heads": 2, "dropout": 0.0, "momentum": 0.9} | changes
    if row != "param":
        shared["label_dim"] = 4
    make = HMAConfig if row in ("one", "narrow") else partial(HMAConfig.ablation, row)
    config = make(**SIZES[row], **shared)
    return HMA(backbone, CLASSES, config, feature_dim=WIDTH).double()


def batch(step):
    """The whole batch of a step, the same in every process."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(BATCH, 5, generator=generator, dtype=torch.float64)
    return x, torch.randint(CLASSES, (BATCH,), generator=generator)


def train(model, *, part=slice(None), wrap=lambda model: model):
    """Train on ``part`` of each batch; return the parameters that got a gradient at every step."""
    wrapped, reached = wrap(model), []
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(learning, lr=0.1, momentum=0.9)
    for step in range(STEPS):
        x, y = (values[part] for values in batch(step))
        ids = torch.arange(BATCH)[part] + BATCH * (step % 2)  # each sample comes twice or more
        optimizer.zero_grad()
        cross_entropy(wrapped(x), y).backward()
        reached.append({name for name, p in model.named_parameters() if p.grad is not None})
        optimizer.step()
        model.after_step(x, y, ids=ids)
    return set.intersection(*reached)


def half(rank):
    return slice(rank * BATCH // RANKS, (rank + 1) * BATCH // RANKS)


# --------------------------------------------------------------------------- cases


def step_of_rows(rank, step):
    """Rows that a rank writes at a step: uneven, none from rank 1 at step 1, some ignored at 2."""
    count = [(3, 2), (4, 0), (2, 3), (0, 0), (1, 6)][step][rank]
    ids = torch.arange(count) + 100 * rank + 10 * step
    features = ids[:, None].double() * torch.ones(WIDTH, dtype=torch.float64)
    ignore = ids % 2 == 0 if (rank, step) == (1, 2) else None
    return {"features": features, "y": ids % CLASSES, "ids": ids, "ignore": ignore}


def rows(rank):
    config = HMAConfig(queue_size=7, slots_per_class=0, label_dim=4, num_heads=2)
    model = HMA(nn.Linear(5, WIDTH), CLASSES, config, feature_dim=WIDTH).double()
    found = []
    for step in range(5):
        model.remember(None, **step_of_rows(rank, step))
        memory = model.memory_state()
        found.append((memory.features, memory.labels, memory.ids))
    return found


def own_tensor(rank, dim):
    shape = [2, 2]
    shape.insert(dim, (3, 1)[rank])
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def loss_of(rank, gathered):
    """Another function of the gathered rows on each rank, so that each asks for other gradients."""
    weights = torch.arange(1.0, gathered.numel() + 1, dtype=torch.float64).view_as(gathered)
    return (gathered.sin() * weights ** (rank + 1)).sum()


def gradients(rank):
    found = []
    for dim in range(3):
        own = own_tensor(rank, dim).requires_grad_()
        gathered = gather_rows(own, dim=dim)
        loss_of(rank, gathered).backward()
        found.append((gathered.detach(), own.grad))
    return found


def training(row, **changes):
    def case(rank):
        model = build(row, **changes)
        reached = train(model, part=half(rank), wrap=DistributedDataParallel)
        return model.state_dict(), reached

    return case


SOMETIMES_ALONE = {"alone_share": 0.5, "momentum_warmup": True}


def sometimes_alone(rank):
    """Train with some batches read without neighbours; each rank draws numbers of its own."""
    model = build("hma", **SOMETIMES_ALONE)
    torch.manual_seed(rank)
    train(model, part=half(rank), wrap=DistributedDataParallel)
    return model.state_dict()


def other_seeds(row):
    def case(rank):
        backbone = nn.Sequential(nn.Linear(5, WIDTH), nn.BatchNorm1d(WIDTH), nn.Tanh())
        torch.manual_seed(rank)
        for parameter in backbone.parameters():
            nn.init.normal_(parameter)
        model = build(row, seed=rank, backbone=backbone)
        reached = train(model, part=half(rank), wrap=DistributedDataParallel)
        return model.state_dict(), reached

    return case


def slots(rank):
    """Slots that each rank would start elsewhere: from rows and by random numbers of its own."""
    model = build("hma")
    torch.manual_seed(100 + rank)
    features = torch.randn(30, WIDTH, dtype=torch.float64)
    model.set_slots("samples", features, torch.arange(30) % CLASSES)
    return model.memory_state().slots, features


COUNTED = ("paper", "default")
"""Designs whose messages are counted."""


def messages(design):
    """Count what a step hands to torch.distributed, operation by operation, in bytes."""

    def case(rank):
        model = counted_model(design)
        wrapped = DistributedDataParallel(model, **{buffer_option(): False})
        wrapped.register_comm_hook(None, allreduce_hook)  # gradients too go through Python then
        x, y = (values[half(rank)] for values in batch(0))
        ids = torch.arange(BATCH)[half(rank)]
        with counting() as found:
            cross_entropy(wrapped(x), y).backward()
            model.after_step(x, y, ids=ids)
        rows, held_out = (partial(model.encode_rows, [batch(step)]) for step in range(2))
        with counting() as later:
            model.after_training(rows, held_out)
        return found, later

    return case


def counted_model(design):
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(5, WIDTH), nn.Tanh())
    if design == "default":
        config = VoteConfig(key_dim=4, key_dropout=0.0, candidates=None)
        return VotingMemory(backbone, CLASSES, config, feature_dim=WIDTH).double()
    config = HMAConfig(label_dim=4, num_heads=2, **SIZES["hma"])
    return HMA(backbone, CLASSES, config, feature_dim=WIDTH).double()


@contextmanager
def counting():
    """Within the block, note each operation and the bytes that this process hands over."""
    found = []
    before = {name: getattr(dist, name) for name in ("all_gather", "all_reduce", "broadcast")}

    def noted(name, place):
        def call(*arguments, **options):
            tensor = arguments[place]
            found.append((name, tensor.numel() * tensor.element_size()))
            return before[name](*arguments, **options)

        return call

    try:
        for name in before:
            setattr(dist, name, noted(name, 1 if name == "all_gather" else 0))
        yield found
    finally:
        for name, own in before.items():
            setattr(dist, name, own)


CASES = {
    **{f"messages {design}": messages(design) for design in COUNTED},
    "slots": slots,
    "rows": rows,
    "gradients": gradients,
    **{f"train {row}": training(row) for row in ABLATIONS},
    "train apart": training("hma", gather_batch=False),
    "train sometimes alone": sometimes_alone,
    **{f"other seeds {row}": other_seeds(row) for row in ABLATIONS},
}


def main(rank, folder):
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    meeting = (folder / "meeting").as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS)
    for name, case in CASES.items():
        print(name, flush=True)
        torch.save(case(rank), folder / f"{name}-{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))

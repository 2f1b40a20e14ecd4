"""Molecules as graphs: a graph isomorphism network with a memory on MUTAG.

Looks for the data in $HMA_DATA/TU/MUTAG.
"""

import torch
from torch.nn.functional import cross_entropy

import hma
from hma.backbones import GIN
from hma.data import builtin

torch.manual_seed(0)
task = builtin("tu:MUTAG", seed=0).task
config = hma.HMAConfig.paper(label_dim=32, queue_size=128, slots_per_class=8, context="alone")
backbone = GIN(task.shape[0], width=32, num_layers=3)
model = hma.HMA(backbone, num_classes=len(task.classes), config=config)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)


@torch.no_grad()
def accuracy(split):
    model.eval()
    batch = split.batch(torch.arange(len(split)))
    return (model(batch.x).argmax(dim=1) == batch.y).float().mean().item()


best = 0.0
for _ in range(40):
    model.train()
    for places in torch.randperm(len(task.train)).split(32):
        batch = task.train.batch(places)  # batch.x is a PyG Batch
        loss = cross_entropy(model(batch.x), batch.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.remember(batch.x, batch.y, ids=batch.ids)
    score = accuracy(task.validation)
    if score >= best:
        best, test = score, accuracy(task.tests["test"])
print(f"test accuracy {test:.3f}")

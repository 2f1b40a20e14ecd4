"""A frozen image model of timm: its features are computed once, only the memory and head learn.

Without a weights file the model is untrained, which shows the mechanics and no more:

    python timm_frozen.py vit_tiny_patch16_224.safetensors
"""

import sys
import warnings
from dataclasses import replace

import torch
from torch.nn.functional import cross_entropy, interpolate

import hma
from hma.backbones import backbone_for
from hma.data.sets.digits import digits

weights = sys.argv[1] if len(sys.argv) > 1 else None
if weights is None:
    warnings.filterwarnings("ignore", "timm:vit_tiny_patch16_224 is frozen and has no weights")

torch.manual_seed(0)
task = digits(seed=0, per_class=20)
build = backbone_for("timm:vit_tiny_patch16_224", weights=weights, frozen=True)
backbone = build(replace(task, shape=(1, 32, 32)))  # two patches of 16 pixels each way


def features(split):
    """Features of every image, scaled to 32 pixels: ``(N, F)``."""
    images = interpolate(split.x, size=32, mode="bilinear")
    return torch.cat([backbone(part) for part in images.split(256)])


train, held_out = features(task.train), features(task.validation)
test = features(task.tests["test"])
mean, deviation = train.mean(dim=0), train.std(dim=0).clamp(min=1e-3)
train, held_out, test = ((part - mean) / deviation for part in (train, held_out, test))

model = hma.VotingMemory(torch.nn.Identity(), num_classes=10, feature_dim=train.shape[1])
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
labels = task.train.labels
for _ in range(10):
    for places in torch.randperm(len(train)).split(50):
        loss = cross_entropy(model(train[places]), labels[places])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
model.learn_memory([(train, labels)], held_out=[(held_out, task.validation.labels)])

model.eval()
with torch.no_grad():
    right = model(test).argmax(dim=1) == task.tests["test"].labels
print(f"test accuracy {right.float().mean():.3f}")

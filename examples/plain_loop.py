"""Give a classifier a memory in a loop of your own: 10 labels per digit, tested on 360 images."""

import torch
from torch.nn.functional import cross_entropy

import hma
from hma.backbones import mlp
from hma.data.sets.digits import digits

torch.manual_seed(0)
task = digits(seed=0, per_class=10)
model = hma.VotingMemory(mlp(in_features=64), num_classes=10)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
train, held_out, test = (
    split.batch(torch.arange(len(split)))
    for split in (task.train, task.validation, task.tests["test"])
)


def accuracy():
    with torch.no_grad():
        return (model(test.x).argmax(dim=1) == test.y).float().mean()


for _ in range(40):
    model.train()
    for rows in torch.randperm(len(train.y)).split(32):
        loss = cross_entropy(model(train.x[rows]), train.y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

model.eval()
print(f"plain backbone: {accuracy():.3f}")  # its memory is empty so far
model.learn_memory([(train.x, train.y, train.ids)], held_out=[(held_out.x, held_out.y)])
print(f"test accuracy {accuracy():.3f}")

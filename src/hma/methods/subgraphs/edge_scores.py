"""How much each edge of a graph counts for a prediction, of any method on graphs."""

from copy import copy

import torch
from torch import Tensor

from hma.data import Batch
from hma.memory.modes import evaluating
from hma.methods.learner import Learner
from hma.methods.subgraphs.encoder import SubgraphEncoder


def edge_scores(learner: Learner, batch: Batch) -> Tensor:
    """Return a score of each edge, ``(E,)``: the higher, the more it counts.

    A method that chooses a part of each graph has scores of its own. Of any other the score is the
    gradient of the predicted logit by the weight of the edge's messages, by its size.

    Args:
        learner: On graphs.
        batch: Graphs, with a PyG batch ``x``.
    """
    with evaluating(learner.module):
        for part in learner.module.modules():
            if isinstance(part, SubgraphEncoder):
                with torch.no_grad():
                    return part.cut(batch.x).scores
        return _gradients(learner, batch)


def _gradients(learner: Learner, batch: Batch) -> Tensor:
    edges = batch.x.edge_index.shape[1]
    weight = torch.ones(edges, device=batch.y.device, requires_grad=True)
    weighted = copy(batch.x)
    weighted.edge_weight = weight
    with torch.enable_grad():
        logits = learner.predict(batch._replace(x=weighted))
        (gradient,) = torch.autograd.grad(logits.max(dim=1).values.sum(), weight)
    return gradient.abs()

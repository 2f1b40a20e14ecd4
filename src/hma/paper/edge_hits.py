"""How often the edges that count for a prediction are those that the label is made of."""

from typing import Any

import torch
from torch import Tensor

from hma.data import Split, Task
from hma.methods import Learner
from hma.paper.rivals import edge_scores
from hma.paper.rivals.subgraph_encoder import rank_edges

EDGE_HITS = "edge hits"
"""Where they are among a record's ``measures``."""


def edge_hits(learner: Learner, task: Task, *, batch_size: int) -> dict[str, Any]:
    """Return the share of true edges among the highest scored ones, by test split, for a record.

    Of a graph with ``k`` true edges, those that ``batch.x.motif`` marks, the ``k`` edges with the
    highest scores (see :func:`hma.paper.rivals.edge_scores`) are looked at; chance is the share of
    true edges among all. Both are means over graphs that have any. A row that sees its batch is
    asked alone, if it can be.

    Args:
        learner: What was trained.
        task: Whose tests are asked.
        batch_size: Graphs at a time.
    """
    learner.use("alone" if "alone" in learner.contexts else learner.contexts[0])
    found = {name: _of_split(learner, split, batch_size) for name, split in task.tests.items()}
    learner.use(learner.contexts[0])
    return {EDGE_HITS: found}


def _of_split(learner: Learner, split: Split, batch_size: int) -> dict[str, float]:
    chance = torch.Generator().manual_seed(0)  # who of equal scores is first
    shares = []
    for places in torch.split(torch.arange(len(split)), batch_size):
        batch = split.batch(places).to(next(learner.module.parameters()).device)
        graphs = batch.x
        order = torch.randperm(graphs.edge_index.shape[1], generator=chance)
        scores = edge_scores(learner, batch).cpu()[order]
        graph_of = graphs.batch[graphs.edge_index[0]].cpu()[order]
        shares.append(hit_shares(scores, graph_of, graphs.motif.cpu()[order], len(places)))
    hits, by_chance = torch.cat(shares, dim=1).double().mean(dim=1).tolist()  # (2, N) -> (2,)
    return {"hits": hits, "chance": by_chance}


def hit_shares(scores: Tensor, graph_of: Tensor, true: Tensor, graphs: int) -> Tensor:
    """Return hits and chance of each graph that has a true edge, ``(2, B)``.

    Args:
        scores: Of each edge, ``(E,)``.
        graph_of: Graph of each edge, ``(E,)``.
        true: Which edges are looked for, ``(E,)`` of bool.
        graphs: How many graphs there are, ``B``.

    Example:
        >>> true = torch.tensor([True, False, False, True])
        >>> hit_shares(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.zeros(4).long(), true, 1)
        tensor([[0.5000],
                [0.5000]])
    """
    rank, counts = rank_edges(scores, graph_of, graphs)
    wanted = torch.zeros(graphs).index_add(0, graph_of, true.float())  # (B,)
    high = rank < wanted[graph_of]
    hits = torch.zeros(graphs).index_add(0, graph_of, (high & true).float())
    known = wanted > 0
    return torch.stack([hits / wanted, wanted / counts])[:, known]

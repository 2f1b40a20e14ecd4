"""A backbone that reads the part of each graph that it chose itself, and scores of edges."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast, final, get_args

import torch
from torch import Tensor, nn

from hma.backbones.gnn.encoder import graphs_of
from hma.checks import feature_dim_of
from hma.data import Batch, Task
from hma.data.graph.store import starts_of
from hma.errors import UserError, wrong_choice
from hma.extras import needed
from hma.memory.locking import eval_mode
from hma.methods.learner import BackboneFactory, Learner, Method

ROUNDING = 1e-9
"""A share of edges that is whole but for this much is whole: 0.07 * 100 is above 7."""


def expect_share(share: float) -> None:
    """Raise unless ``share`` is a share of edges that can be kept."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise UserError(
            f"share must be above 0 and at most 1, the share of edges kept of each graph, got "
            f"{share!r}"
        )


class Ranked(NamedTuple):
    """Edges by score, each among those of its own graph.

    Shape:
        - ``rank`` ``(E,)``: how many edges of its graph are before an edge.
        - ``counts`` ``(B,)``: edges of each graph.
    """

    rank: Tensor
    counts: Tensor


def rank_edges(scores: Tensor, graph_of: Tensor, graphs: int) -> Ranked:
    """Order the edges of each graph by score, the highest first; of equal scores the first is.

    Args:
        scores: Of each edge, ``(E,)``.
        graph_of: Graph of each edge, ``(E,)``, in any order.
        graphs: How many graphs there are; some may have no edges.

    Example:
        >>> rank_edges(torch.tensor([0.1, 0.9, 0.5, -3.0]), torch.tensor([0, 0, 0, 1]), 2).rank
        tensor([2, 0, 1, 0])
    """
    by_score = scores.detach().argsort(descending=True, stable=True)
    order = by_score[graph_of[by_score].argsort(stable=True)]  # by graph, then by score
    counts = torch.zeros(graphs, dtype=torch.long, device=scores.device)
    counts = counts.index_add(0, graph_of, torch.ones_like(graph_of))
    rank = torch.arange(len(order), device=scores.device) - starts_of(counts)[graph_of[order]]
    return Ranked(torch.empty_like(rank).scatter(0, order, rank), counts)


def highest(scores: Tensor, graph_of: Tensor, graphs: int, share: float) -> Tensor:
    r"""Mark the :math:`\lceil r E_g \rceil` edges with the highest scores of each graph, ``(E,)``.

    Args:
        scores, graph_of, graphs: As for :func:`rank_edges`.
        share: :math:`r`, above 0 and at most 1.

    Example:
        >>> graph_of = torch.tensor([0, 0, 0, 1])
        >>> highest(torch.tensor([0.1, 0.9, 0.5, -3.0]), graph_of, 2, share=0.5)
        tensor([False,  True,  True,  True])
    """
    rank, counts = rank_edges(scores, graph_of, graphs)
    wanted = (share * counts.double() - ROUNDING).ceil()  # (B,)
    return rank < wanted[graph_of]


def cut_out(batch: Any, nodes: Tensor, edges: Tensor, weight: Tensor, *, edgeless: bool) -> Any:
    """Return the part of a PyG batch that some of its edges span, as a batch of as many graphs.

    A node that none of these edges touches is left out.

    Args:
        batch: The graphs.
        nodes: Features of all their nodes, ``(N, W)``.
        edges: Which edges, ``(E,)`` of bool.
        weight: What a message along each edge is multiplied with, ``(E,)``; an edge that has a
            weight already gets the product.
        edgeless: Whether a graph without any edge is its own part; else nothing of it is.
    """
    graph_of, graphs = graphs_of(batch)
    ends = batch.edge_index[:, edges]  # (2, E) -> (2, K)
    inside = torch.zeros(len(nodes), dtype=torch.bool, device=nodes.device)
    inside = inside.index_fill(0, ends.flatten(), True)
    if edgeless:
        joined = torch.zeros(graphs, dtype=torch.bool, device=nodes.device)
        joined = joined.index_fill(0, graph_of[batch.edge_index[0]], True)
        inside = inside | ~joined[graph_of]
    number = inside.long().cumsum(0) - 1  # of each node that is inside
    kept = graph_of[inside]
    known = getattr(batch, "edge_weight", None)
    counts = torch.zeros(graphs, dtype=torch.long, device=nodes.device)
    parts = {
        "x": nodes[inside],
        "edge_index": number[ends],
        "edge_weight": (weight if known is None else weight * known)[edges],
        "batch": kept,
        "ptr": starts_of(counts.index_add(0, kept, torch.ones_like(kept))),
    }
    if getattr(batch, "edge_attr", None) is not None:
        parts["edge_attr"] = batch.edge_attr[edges]
    return needed("torch_geometric.data", "graphs", extra="graph").Batch(**parts)


Reads = Literal["hidden", "raw"]
"""What the encoder of the chosen part reads: nodes as the chooser sees them, or as they were."""
Inner = Callable[[BackboneFactory], Method]
"""What trains a backbone: ``erm``, or ``partial(with_memory, config=...)``."""


class Cut(NamedTuple):
    """A batch cut in two, by scores of its edges.

    Shape:
        - ``batch``: the PyG batch; ``nodes`` ``(N, W)``: what is read of its nodes.
        - ``hidden`` ``(N, W)``: what the chooser makes of them.
        - ``scores`` ``(E,)``: of its edges; ``high`` ``(E,)`` of bool: which are kept.
    """

    batch: Any
    nodes: Tensor
    hidden: Tensor
    scores: Tensor
    high: Tensor

    @property
    def kept(self) -> Any:
        """What the edges that are kept span; each counts ``sigmoid(score)``."""
        weight = self.scores.sigmoid()
        return cut_out(self.batch, self.nodes, self.high, weight, edgeless=True)

    @property
    def chosen(self) -> Tensor:
        """Sums of what the chooser makes of the nodes of the kept parts, ``(B, W)``."""
        part = cut_out(self.batch, self.hidden, self.high, self.scores.sigmoid(), edgeless=True)
        graphs = graphs_of(self.batch)[1]
        sums: Tensor = part.x.new_zeros(graphs, part.x.shape[1])
        return sums.index_add(0, part.batch, part.x)

    @property
    def rest(self) -> Any:
        """What the other edges span; each counts ``sigmoid(-score)``."""
        weight = (-self.scores).sigmoid()
        return cut_out(self.batch, self.nodes, ~self.high, weight, edgeless=False)


@final
class SubgraphEncoder(nn.Module):
    r"""Score the edges, keep the highest of each graph, and encode what they span.

    The score of an edge is a small network of its two ends as ``chooser`` sees them. Which edges
    are highest has no gradient; how much a kept edge counts, the sigmoid of its score, has.

    Args:
        chooser: Gives features of nodes, as :class:`hma.backbones.GIN` does.
        encoder: Maps a batch of the kept parts to ``(B, F)``.
        share: Share of the edges of each graph that is kept, :math:`r`.
        reads: Whether ``encoder`` reads what ``chooser`` made of the nodes, or their features.

    Shape:
        - input: a PyG ``Batch`` of ``B`` graphs; output: ``(B, F)``.
    """

    def __init__(
        self, chooser: nn.Module, encoder: nn.Module, share: float, reads: Reads = "hidden"
    ) -> None:
        super().__init__()
        width = feature_dim_of(chooser, None)
        self.chooser = of_nodes(chooser)
        self.encoder = encoder
        self.score = nn.Sequential(
            nn.Linear(2 * width, 4 * width), nn.ReLU(), nn.Linear(4 * width, 1)
        )
        self.share = share
        self.reads = reads
        self.feature_dim = feature_dim_of(encoder, None)

    def forward(self, batch: Any) -> Tensor:
        """Return one vector of each graph's kept part."""
        features: Tensor = self.encoder(self.cut(batch).kept)
        return features

    def cut(self, batch: Any) -> Cut:
        """Return the graphs cut in two."""
        hidden = cast("Any", self.chooser).nodes(batch)  # (N, W)
        source, target = batch.edge_index
        scores = self.score(torch.cat([hidden[source], hidden[target]], dim=1))[:, 0]  # (E,)
        graph_of, graphs = graphs_of(batch)
        high = highest(scores, graph_of[source], graphs, self.share)
        return Cut(batch, hidden if self.reads == "hidden" else batch.x, hidden, scores, high)

    def extra_repr(self) -> str:  # noqa: D102
        return f"share={self.share}, reads={self.reads!r}"


def of_nodes(backbone: nn.Module) -> nn.Module:
    """Return a backbone of which only features of nodes are used, or say that it has none."""
    if not callable(getattr(backbone, "nodes", None)):
        raise UserError(
            "backbone must give features of nodes by a method nodes(batch), as hma.backbones.GIN "
            f"does, got {type(backbone).__name__}"
        )
    if getattr(backbone, "project", None) is not None:
        cast("Any", backbone).project = None  # it follows the pool, so it would never be used
    return backbone


def of_hidden(
    backbone: BackboneFactory, task: Task, width: int, edges: tuple[int, ...]
) -> nn.Module:
    """Return an encoder of nodes as another one sees them.

    Args:
        backbone: Makes an encoder for ``task.shape``.
        task: The graphs.
        width: Of the nodes.
        edges: Width of the features of edges, if they have any.
    """
    made = backbone(replace(task, shape=(width, *edges)))
    takes = getattr(made, "in_features", width)
    if takes != width:
        raise UserError(
            f"backbone must be built for task.shape, whose first number is the width of the nodes: "
            f"an encoder of width {width} was asked for, got one of {takes}"
        )
    return made


def choose_subgraphs(backbone: BackboneFactory, share: float, reads: Reads) -> BackboneFactory:
    """Return what makes a :class:`SubgraphEncoder` of two encoders.

    Args:
        backbone: Makes an encoder for a task.
        share: Share of the edges of each graph that is kept.
        reads: What the encoder of the kept part reads.
    """
    expect_share(share)
    if reads not in get_args(Reads):
        raise UserError(wrong_choice("reads", reads, get_args(Reads)))

    def build(task: Task) -> nn.Module:
        if reads == "hidden" and 0 in task.shape:
            raise UserError(f"{task.name!r} has codes at its edges; set reads='raw'")
        chooser = of_nodes(backbone(task))
        if reads == "raw":
            return SubgraphEncoder(chooser, backbone(task), share, reads)
        width = feature_dim_of(chooser, None)
        second = of_hidden(backbone, task, width, task.shape[1:])
        return SubgraphEncoder(chooser, second, share, reads)

    return build


# ---------------------------------------------------------------------------------- scores of edges


def edge_scores(learner: Learner, batch: Batch) -> Tensor:
    """Return a score of each edge, ``(E,)``: the higher, the more it counts.

    A method that chooses a part of each graph has scores of its own. Of any other the score is the
    gradient of the predicted logit by the weight of the edge's messages, by its size.

    Args:
        learner: On graphs.
        batch: Graphs, with a PyG batch ``x``.
    """
    with eval_mode(learner.module):
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

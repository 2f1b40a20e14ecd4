"""A backbone that reads the part of each graph that it chose itself."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast, final, get_args

import torch
from torch import Tensor, nn

from hma.backbones.gnn.encoder import graphs_of
from hma.checks import feature_dim_of
from hma.data import Task
from hma.errors import UserError, wrong_choice
from hma.methods.learner import BackboneFactory, Method
from hma.methods.subgraphs.cutting import cut_out, expect_share, highest

Reads = Literal["hidden", "raw"]
"""What the encoder of the chosen part reads: nodes as the chooser sees them, or as they were."""
Inner = Callable[[BackboneFactory], Method]
"""What trains a backbone: ``erm``, or ``partial(with_memory, config=...)``."""


class Cut(NamedTuple):
    """A batch cut in two, by scores of its edges.

    Shape:
        - ``batch``: the PyG batch; ``nodes`` ``(N, W)``: what is read of its nodes.
        - ``scores`` ``(E,)``: of its edges; ``high`` ``(E,)`` of bool: which are kept.
    """

    batch: Any
    nodes: Tensor
    scores: Tensor
    high: Tensor

    @property
    def kept(self) -> Any:
        """What the edges that are kept span; each counts ``sigmoid(score)``."""
        weight = self.scores.sigmoid()
        return cut_out(self.batch, self.nodes, self.high, weight, edgeless=True)

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
        return Cut(batch, hidden if self.reads == "hidden" else batch.x, scores, high)

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


def choosing(backbone: BackboneFactory, share: float, reads: Reads) -> BackboneFactory:
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

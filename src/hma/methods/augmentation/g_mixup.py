"""G-Mixup: new training graphs, drawn from mixtures of two classes' graphons."""

from typing import NamedTuple, final

import torch
from torch import Tensor

from hma.data import Batch, GraphStore, Mixed, Split, Task
from hma.data.graph.store import DegreeFeatures, Packed, joined
from hma.errors import UserError
from hma.methods.augmentation.changed_graphs import expect_graphs
from hma.methods.augmentation.graphon import LaidGraphs, class_graphons, drawn, together
from hma.methods.augmentation.row_mixing import RowMixing, between
from hma.methods.learner import Learner, Method
from hma.methods.wrapping import WrappedModule
from hma.targets import Classes

AT_ONCE = 128
"""Graphs whose features are made at a time, where all edges are looked at."""


class Settings(NamedTuple):
    """What G-Mixup is asked for.

    Args:
        share: New graphs for each training graph.
        groups: Lots of new graphs; those of one lot are of the same two classes and mixture.
        mixing: Least and most that the first class counts.
    """

    share: float
    groups: int
    mixing: tuple[float, float]


class NewGraphs(NamedTuple):
    """Graphs that were drawn, and their labels ``(K,)``: the first counts ``share``."""

    graphs: LaidGraphs
    first: Tensor
    second: Tensor
    share: Tensor


class WithNewGraphs:
    """A split with graphs of our own after its own graphs, which have two labels each.

    As label of a new graph stands the one that counts more.

    Args:
        split: The real graphs; their features are degrees alone.
        new: The others.
    """

    def __init__(self, split: Split, new: NewGraphs) -> None:
        self.split = split
        nodes, edges, edge_index = new.graphs
        keys = {"edge_index": Packed(edge_index, edges, beside=True, step=nodes)}
        self.store = GraphStore(nodes, keys)
        leading = new.share >= 0.5
        own = torch.where(leading, new.first, new.second).to(split.labels)
        other = torch.where(leading, new.second, new.first).to(split.labels)
        counts = torch.where(leading, new.share, 1 - new.share)
        self.labels = torch.cat([split.labels, own])
        self.other = torch.cat([split.labels, other])
        self.share = torch.cat([torch.ones(len(split)), counts])

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the graphs at ``places``; real ones as the split gives them."""
        real = places < len(self.split)
        batch = self.split.batch(places[real], epoch)
        weight = batch.weight
        if weight is not None:
            weight = weight.new_ones(len(places)).masked_scatter(real, weight)
        if not bool(real.all()):
            new = self.store.cut(places[~real] - len(self.split))
            turn = torch.where(real, real.cumsum(0) - 1, real.sum() + (~real).cumsum(0) - 1)
            batch = batch._replace(x=joined(batch.x, new, turn))
        mixed = Mixed(self.other[places], self.share[places])
        return Batch(batch.x, self.labels[places], places, weight, mixed=mixed)


@final
class GMixup(RowMixing):
    """Train on graphs of the task and on new ones, which no memory keeps.

    Args:
        inner: Learner to wrap.
        task: What from; for messages.
        settings: What is asked for.
    """

    def __init__(self, inner: Learner, task: Task, settings: Settings) -> None:
        self.task_name, self.settings = task.name, settings
        said = ", ".join(f"{name}={value}" for name, value in settings._asdict().items())
        super().__init__(inner, WrappedModule(inner.module, f"GMixup, {said}"))

    def training_split(self, train: Split, seed: int) -> Split:
        """Return the graphs that the inner learner trains on, and new ones after them."""
        split = super().training_split(train, seed)
        if int(len(split) * self.settings.share) == 0:
            return split
        graphs = laid_graphs(split, self.task_name)
        return WithNewGraphs(split, new_graphs(graphs, split.labels, self.settings, seed))


def new_graphs(graphs: LaidGraphs, labels: Tensor, settings: Settings, seed: int) -> NewGraphs:
    """Draw graphs between classes, ``share * graphs`` in equal lots, rounded down.

    Args:
        graphs: The training graphs, of two classes or more.
        labels: Their class ids ``(G,)``.
        settings: How many, and how mixed.
        seed: Decides classes, mixtures and graphs.
    """
    by_class = class_graphons(graphs, labels)
    classes = torch.tensor(list(by_class))
    generator = torch.Generator().manual_seed(seed)
    low, high = settings.mixing
    total = int(len(labels) * settings.share)
    groups = min(settings.groups, total)
    shares = low + (high - low) * torch.rand(groups, generator=generator)
    each = total // groups
    lots, pairs = [], []
    for share in shares.tolist():
        pair = classes[torch.randperm(len(classes), generator=generator)[:2]]
        first, second = (by_class[label] for label in pair.tolist())
        lots.append(drawn(between(first, second, torch.tensor(share)), each, generator))
        pairs.append(pair)
    one, other = torch.stack(pairs).repeat_interleave(each, dim=0).unbind(dim=1)
    return NewGraphs(together(lots), one, other, shares.repeat_interleave(each))


def laid_graphs(split: Split, name: str) -> LaidGraphs:
    """Return all graphs of a split, or say why none can be drawn that are like them."""
    parts = []
    for places in torch.split(torch.arange(len(split)), AT_ONCE):
        batch = split.batch(places)
        _expect_plain(batch, name)
        graphs = batch.x
        edges = torch.bincount(graphs.batch[graphs.edge_index[0]], minlength=len(places))
        within = graphs.edge_index - torch.repeat_interleave(graphs.ptr[:-1], edges)
        parts.append(LaidGraphs(graphs.ptr.diff(), edges, within))
    if len(torch.unique(split.labels)) < 2:
        raise UserError(f"the training graphs of {name!r} are all of one class; G-Mixup needs two")
    return together(parts)


def _expect_plain(batch: Batch, name: str) -> None:
    graphs = batch.x
    features = getattr(graphs, "degree_features", None)
    if not isinstance(features, DegreeFeatures) or features.columns != graphs.x.shape[1]:
        raise UserError(
            f"the node features of {name!r} must be degrees alone: G-Mixup draws edges, and nodes "
            "without labels or attributes; use drop_edge, drop_node or subgraph"
        )
    if "edge_attr" in graphs:
        raise UserError(f"the edges of {name!r} must have no features; leave edge_labels out")
    if batch.environment is not None or batch.mixed is not None:
        held = "environments" if batch.mixed is None else "new graphs already"
        raise UserError(
            f"the training rows of {name!r} must be plain graphs for G-Mixup, got some with {held}"
        )


def g_mixup(
    method: Method,
    *,
    share: float = 0.15,
    groups: int = 10,
    mixing: tuple[float, float] = (0.005, 0.01),
) -> Method:
    """Return ``method`` trained on new graphs too, drawn between the graphons of two classes.

    Args:
        method: Method to wrap.
        share: New graphs for each training graph; 0 makes none.
        groups: Lots of new graphs: each has two classes and a mixture of its own.
        mixing: Least and most that the first of the two classes counts, from 0 to 1.
    """
    if not 0 <= share <= 10:
        raise UserError(f"share must be from 0 to 10 new graphs for each, got {share}")
    if not isinstance(groups, int) or isinstance(groups, bool) or groups < 1:
        raise UserError(f"groups must be a whole number of at least 1, got {groups!r}")
    if len(mixing) != 2 or not 0 <= mixing[0] <= mixing[1] <= 1:
        raise UserError(f"mixing must be two numbers from 0 to 1, the least first, got {mixing}")
    settings = Settings(share, groups, (mixing[0], mixing[1]))

    def build(task: Task, seed: int) -> GMixup:
        expect_graphs(task)
        if not isinstance(task.target, Classes):
            raise UserError(
                f"labels of {task.name!r} must be classes for G-Mixup, got {task.target.kind!r}"
            )
        return GMixup(method(task, seed), task, settings)

    return build

"""A task: what is to be learned, from which rows, and what counts as success. Knows no model."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from hma.metrics import metric_for
from hma.options.preparation import Kind
from hma.targets import Classes, Target

AT_ONCE = 256


class Mixed(NamedTuple):
    """Second labels of rows that stand between two: ``share * own label + (1 - share) * y``.

    Shape:
        - ``y``: as the target has it; ``share`` ``(B,)``: 1 for a row that has one label only.
    """

    y: Tensor
    share: Tensor

    @property
    def made(self) -> Tensor:
        """Which rows have two labels, ``(B,)``: no real ones, so no memory keeps them."""
        return self.share < 1

    def to(self, device: torch.device | str) -> "Mixed":
        """Return the same on ``device``."""
        return Mixed(self.y.to(device), self.share.to(device))


class Batch(NamedTuple):
    """Rows of a split, ready for a backbone.

    Shape:
        - ``x``: whatever the backbone takes; ``y``: as the target has it, ``(B,)`` or ``(B, T)``.
        - ``ids``: ``(B,)``.
        - ``weight`` ``(B,)``: weight of each row in the loss; None for 1.
        - ``environment`` ``(B,)``: which training environment a row is from; None for one.
        - ``features`` ``(B, F)``: what a frozen backbone makes of the rows, where that is known
          beforehand; ``x`` is then None.
        - ``mixed``: second labels, where a method trains on rows between two; None for none.
    """

    x: Any
    y: Tensor
    ids: Tensor
    weight: Tensor | None = None
    environment: Tensor | None = None
    features: Tensor | None = None
    mixed: Mixed | None = None

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on ``device``; ``x`` is a dict of tensors or has ``.to`` itself."""
        return Batch(*(_move(part, device) for part in self))


def _move(part: Any, device: torch.device | str) -> Any:
    if isinstance(part, dict):
        return {name: value.to(device) for name, value in part.items()}
    return None if part is None else part.to(device)


def tensors_of(x: Any) -> Iterator[Tensor]:
    """Yield the tensors inside a batch's ``x``: a tensor, a mapping, or a PyG batch."""
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, Mapping):
        for name in sorted(x):
            yield from tensors_of(x[name])
    elif isinstance(x, list | tuple):
        for item in x:
            yield from tensors_of(item)
    elif hasattr(x, "to_dict"):
        yield from tensors_of(x.to_dict())


class Split(Protocol):
    """Rows that are read by place; the place of a row is its sample id."""

    labels: Tensor
    """Labels of all rows: class ids ``(N,)``, or what the task's target takes, ``(N, ...)``."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the rows at ``places`` ``(B,)``, in that order.

        A split that augments gives with ``epoch`` the rows as training sees them then. Such a row
        depends on its place, the split's seed and ``epoch`` alone: not on its batch, nor on what
        was asked for before, so a resumed run sees what an uninterrupted one sees.

        Args:
            places: Which rows.
            epoch: Pass over the data, from 0; None for the rows as they are.
        """


class InMemory:
    """A split held as tensors, cut without collating: ``x`` is a tensor or a dict of tensors.

    Args:
        x: Inputs, first axis ``N``.
        labels: Class ids ``(N,)``.
        environment: Training environment of each row ``(N,)``, if there are several.
        weight: Weight of each row in the loss ``(N,)``; None for 1.

    Example:
        >>> split = InMemory(torch.arange(6.0).view(3, 2), labels=torch.tensor([0, 1, 1]))
        >>> split.batch(torch.tensor([2, 0])).x.tolist()
        [[4.0, 5.0], [0.0, 1.0]]
    """

    def __init__(
        self,
        x: Tensor | dict[str, Tensor],
        labels: Tensor,
        environment: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> None:
        self.x = x
        self.labels = labels
        self.environment = environment
        self.weight = weight

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the rows at ``places``, the same in every epoch."""
        if isinstance(self.x, dict):
            x: Any = {name: value[places] for name, value in self.x.items()}
        else:
            x = self.x[places]
        weight = None if self.weight is None else self.weight[places]
        environment = None if self.environment is None else self.environment[places]
        return Batch(x, self.labels[places], places, weight, environment)


@dataclass(frozen=True)
class Task:
    """Everything a method needs to know about a problem.

    Args:
        name: Short name, as printed in tables.
        kind: What a row is.
        classes: Names of the classes in the order of their ids, of several yes/no labels, or of
            the one number: as many as the target has outputs.
        shape: Shape of one row as a backbone sees it: ``(features,)``, ``(channels, height,
            width)``, ``(node features,)``, with ``(..., edge features)`` where edges have any, or
            ``(tokens,)``. Graphs whose nodes and edges hold integer codes: how many values each
            column of a node's codes has, a 0, and how many each column of an edge's has.
        train, validation: Splits to learn from and to select by.
        tests: One or more named test splits.
        metric: What is reported and selected by; the target's first if not given.
        facts: How the splits came about, in JSON values; goes into the record.
        target: What a label is; one of ``classes`` if not given.
    """

    name: str
    kind: Kind
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    train: Split
    validation: Split
    tests: Mapping[str, Split]
    metric: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    target: Target = None  # type: ignore[assignment]  # always set below

    def __post_init__(self) -> None:
        if self.target is None:
            object.__setattr__(self, "target", Classes(max(len(self.classes), 1)))
        object.__setattr__(self, "metric", metric_for(self.target, self.metric).name)

    def with_validation_trained(self) -> "Task":
        """Return the task with its validation rows after the training rows, and none held out."""
        none = Part(self.validation, torch.empty(0, dtype=torch.long))
        return replace(self, train=Joined(self.train, self.validation), validation=none)


class Part:
    """Some rows of a split, in their order; sample ids count within the part.

    Args:
        split: The whole.
        chosen: Places of the rows to keep, ``(N,)``.
    """

    def __init__(self, split: Split, chosen: Tensor) -> None:
        self.split = split
        self.chosen = chosen
        self.labels = split.labels[chosen]

    def __len__(self) -> int:
        return len(self.chosen)

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the rows at ``places`` of the part, augmented if the whole is."""
        return self.split.batch(self.chosen[places], epoch)._replace(ids=places)


class Joined:
    """The rows of one split, then those of another; sample ids count on.

    Args:
        first: Their places stay.
        second: The others.

    Example:
        >>> one = InMemory(torch.zeros(2, 1), torch.tensor([0, 1]))
        >>> two = InMemory(torch.ones(1, 1), torch.tensor([1]))
        >>> both = Joined(one, two)
        >>> both.labels.tolist(), both.batch(torch.tensor([2, 0])).x.tolist()
        ([0, 1, 1], [[1.0], [0.0]])
    """

    def __init__(self, first: Split, second: Split) -> None:
        self.first, self.second = first, second
        self.labels = torch.cat([first.labels, second.labels])

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the rows at ``places``, each augmented if its own split is."""
        later = places >= len(self.first)
        one = self.first.batch(places[~later], epoch) if not bool(later.all()) else None
        two = None
        if one is None or bool(later.any()):
            two = self.second.batch(places[later] - len(self.first), epoch)
        if one is None or two is None:
            own = one or two
            assert own is not None
            return own._replace(ids=places)
        order = torch.cat([torch.nonzero(~later)[:, 0], torch.nonzero(later)[:, 0]]).argsort()
        return Batch(
            x=_joined(one.x, two.x, order),
            y=torch.cat([one.y, two.y])[order],
            ids=places,
            weight=_joined(*_both(one, two, "weight", 1.0), order),
            environment=_joined(*_both(one, two, "environment", 0), order),
            features=_joined(one.features, two.features, order),
        )


def _both(one: Batch, two: Batch, name: str, usual: float) -> tuple[Tensor | None, Tensor | None]:
    """Return what two batches hold, ``usual`` for each row of one that holds nothing."""
    parts: list[Tensor | None] = [getattr(one, name), getattr(two, name)]
    known = next((part for part in parts if part is not None), None)
    if known is not None:
        for place, batch in enumerate((one, two)):
            if parts[place] is None:
                parts[place] = torch.full((len(batch.y),), usual, dtype=known.dtype)
    return parts[0], parts[1]


def _joined(one: Any, two: Any, order: Tensor) -> Any:
    """Return the rows of two batches in one, in this order."""
    if one is None:
        return None
    if isinstance(one, Tensor):
        return torch.cat([one, two])[order]
    if isinstance(one, Mapping):  # tokens, padded to the longest row of a batch
        longest = {name: max(one[name].shape[-1], two[name].shape[-1]) for name in one}
        return {
            name: torch.cat([_padded(x[name], longest[name]) for x in (one, two)])[order]
            for name in one
        }
    graphs = [*one.to_data_list(), *two.to_data_list()]
    return type(one).from_data_list([graphs[place] for place in order.tolist()])


def _padded(values: Tensor, longest: int) -> Tensor:
    return pad(values, (0, longest - values.shape[-1])) if values.dim() > 1 else values


def limited(task: Task, rows: int | None, *, seed: int) -> Task:
    """Return ``task`` with at most ``rows`` rows in every split, chosen by seed.

    Args:
        task: The whole.
        rows: Most rows of a split; None changes nothing.
        seed: Decides which rows stay; they stay in their order.

    Example:
        >>> from hma.data.task import InMemory
        >>> split = InMemory(torch.arange(9.0)[:, None], labels=torch.arange(9) % 3)
        >>> task = Task("nine", "table", ("a", "b", "c"), (1,), split, split, {"test": split})
        >>> small = limited(task, 4, seed=0)
        >>> len(small.train), len(small.tests["test"]), small.facts["limited to"]
        (4, 4, 4)
    """
    if rows is None:
        return task
    generator = torch.Generator().manual_seed(seed)

    def part(split: Split) -> Split:
        if len(split) <= rows:
            return split
        chosen = torch.randperm(len(split), generator=generator)[:rows].sort().values
        return Part(split, chosen)

    return replace(
        task,
        train=part(task.train),
        validation=part(task.validation),
        tests={name: part(split) for name, split in task.tests.items()},
        facts={**task.facts, "limited to": rows},
    )


def content_hashes(x: Any) -> Tensor:
    """Return a hash of each row of a batch, ``(B,)``: equal rows have equal hashes.

    Args:
        x: What a backbone takes: a tensor, tensors by name with an ``attention_mask`` over padding,
            or a batch of graphs.

    Example:
        >>> one, two, three = content_hashes(torch.tensor([[1.0, 0.0], [2.0, 0.0], [1.0, -0.0]]))
        >>> bool(one == three), bool(one == two)
        (True, False)
    """
    hashes = []
    for row in _rows(x):
        digest = hashlib.blake2b(digest_size=8)
        for part in row:
            plain = part + 0.0 if part.is_floating_point() else part  # -0.0 is 0.0
            digest.update(f"{tuple(part.shape)}".encode() + plain.contiguous().numpy().tobytes())
        hashes.append(int.from_bytes(digest.digest(), "little", signed=True))
    return torch.tensor(hashes, dtype=torch.long)


def _rows(x: Any) -> Iterator[list[Tensor]]:
    if isinstance(x, Tensor):
        yield from ([row] for row in x.cpu())
    elif isinstance(x, Mapping):
        names = sorted(x)
        real = x.get("attention_mask")
        for place in range(len(x[names[0]])):
            rows = [x[name][place].cpu() for name in names]
            yield rows if real is None else [row[real[place].cpu().bool()] for row in rows]
    else:
        yield from _graphs(x)


def _graphs(batch: Any) -> Iterator[list[Tensor]]:
    """Yield nodes, edges and edge features of each graph of a batch."""
    nodes: list[int] = batch.ptr.diff().tolist()
    edges = torch.bincount(batch.batch[batch.edge_index[0]], minlength=len(nodes)).tolist()
    parts = [batch.x.split(nodes), batch.edge_index.split(edges, dim=1)]
    if batch.get("edge_attr") is not None:
        parts.append(batch.edge_attr.split(edges))
    for first, (own, ends, *more) in zip(batch.ptr[:-1], zip(*parts, strict=True), strict=True):
        yield [own, ends - first, *more]


def split_hashes(split: Split) -> Tensor:
    """Return the hash of each row of a split, ``(N,)``."""
    found = [torch.empty(0, dtype=torch.long)]
    if len(split):
        places = torch.split(torch.arange(len(split)), AT_ONCE)
        found = [content_hashes(split.batch(some).x) for some in places]
    return torch.cat(found)

"""Features of a frozen backbone, made once and kept on disk."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hma.backbones.frozen import Frozen
from hma.data import Batch, Split, Task, tensors_of
from hma.errors import UserError
from hma.io.tensor_files import FEATURE_FORMAT, Tensors, add_to_hash, read_features, write_features
from hma.methods.learner import Learner, Tick

PROBED_ROWS, PROBED_EPOCHS = 16, 3
PARTS = ("features", "weight", "environment")
Known = Callable[[], Tensors | None]
"""Features of all rows that were made elsewhere, such as ``train/features``; None for none."""


def cache_features(
    task: Task,
    backbone: nn.Module,
    folder: Path,
    *,
    batch_size: int = 256,
    tick: Tick | None = None,
    known: Known | None = None,
) -> Task:
    """Return ``task`` with the backbone's features in place of its rows.

    The features are those of eval mode, in the number format of the weights. A learner with the
    same frozen backbone trains on them as on the rows themselves, and afterwards takes rows as
    before. They are kept in ``folder`` under a name made of the backbone's weights and of the
    data, so that another run finds them; a damaged file is made again.

    Args:
        task: Rows of any kind; those of training must look the same in every epoch.
        backbone: The learner's backbone, inside :class:`hma.backbones.Frozen`.
        folder: Where the features are kept; made if needed.
        batch_size: Rows that are encoded at a time.
        tick: Called with the rows that are encoded and with all of them, now and then.
        known: Asked for features that were made elsewhere where ``folder`` has none; they are
            taken if they are what the backbone makes of some of the rows.

    Example:
        >>> from tempfile import mkdtemp
        >>> from hma.backbones import mlp
        >>> from hma.data.sets.digits import digits
        >>> backbone = Frozen(mlp(in_features=64, hidden=(16,)))
        >>> known = cache_features(digits(seed=0), backbone, Path(mkdtemp()))
        >>> batch = known.train.batch(torch.tensor([3, 5]))
        >>> rows = digits(seed=0).train.batch(batch.ids)
        >>> torch.allclose(batch.features, backbone(rows.x), atol=1e-6)
        True
    """
    if not isinstance(backbone, Frozen):
        raise UserError(
            f"only features that never change can be kept, and {type(backbone).__name__} may "
            "train; wrap it in hma.backbones.Frozen"
        )
    if augments(task.train):
        raise UserError(
            f"the training rows of {task.name!r} look different in every epoch, so their features "
            "cannot be kept; turn the augmentation off or encode the rows in every step"
        )
    key = _key(task, backbone)
    shapes = {f"{n}/features": (len(s), backbone.feature_dim) for n, s in _splits(task).items()}
    tensors = read_features(folder, key, shapes)
    if tensors is None:
        tensors = known() if known is not None else None
        if tensors is None or not _confirm(tensors, task, backbone):
            tensors = _encode_task(task, backbone, batch_size, tick or _ignore)
        write_features(folder, key, tensors)
    if backbone.wants_statistics and len(task.train):
        backbone.take_statistics(tensors["train/features"])
    tensors = _standardise(tensors, backbone)
    splits = {name: _split(name, split, tensors) for name, split in _splits(task).items()}
    about = {"width": backbone.feature_dim, "key": key}
    return replace(
        task,
        train=splits["train"],
        validation=splits["validation"],
        tests={name: splits[f"test {name}"] for name in task.tests},
        facts={**task.facts, "features": about},
    )


def with_known_features(
    task: Task,
    learner: Learner,
    folder: Path,
    *,
    batch_size: int = 256,
    tick: Tick | None = None,
    known: Known | None = None,
) -> Task:
    """Return the task of :func:`cache_features` where the learner can use it, else ``task``.

    That is where its backbone is frozen and training sees the same rows in every epoch.

    Args:
        task: Rows of any kind.
        learner: What is to be trained.
        folder: Where the features are kept.
        batch_size: Rows that are encoded at a time.
        tick: Called with the rows that are encoded and with all of them, now and then.
        known: Features that were made elsewhere, see :func:`cache_features`.
    """
    backbone = getattr(learner.module, "backbone", None)
    if isinstance(backbone, Frozen) and not augments(task.train):
        return cache_features(task, backbone, folder, batch_size=batch_size, tick=tick, known=known)
    if isinstance(backbone, Frozen) and backbone.wants_statistics:
        made = _encode_split(task.train, backbone, batch_size, lambda done: None)
        backbone.take_statistics(made["features"])
    return task


def encode_once(
    split: Split, learners: Sequence[Learner], *, batch_size: int = 256, tick: Tick | None = None
) -> Split:
    """Return ``split`` with features in place of rows, in memory, where all learners can use them.

    That is where their backbones are frozen and have the same weights; else ``split`` itself.

    Args:
        split: Rows that are looked at more than once.
        learners: What looks at them.
        batch_size: Rows that are encoded at a time.
        tick: Called with the rows that are encoded and with all of them.
    """
    backbones = [getattr(learner.module, "backbone", None) for learner in learners]
    first = backbones[0]
    if not isinstance(first, Frozen) or not all(
        _have_same_weights(first, other) for other in backbones[1:]
    ):
        return split
    done = partial(_tell, tick or _ignore, 0, len(split))
    made = _encode_split(split, first, batch_size, done)
    return _KnownFeatures(split.labels, _standardise(made, first))


def _have_same_weights(first: Frozen, other: nn.Module | None) -> bool:
    if not isinstance(other, Frozen) or repr(first) != repr(other):
        return False
    one, two = first.state_dict(), other.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def augments(split: Split) -> bool:
    """Tell whether training sees other rows in ``split`` from epoch to epoch.

    A split may say so itself, in ``augment``; otherwise some rows are looked at for some epochs.
    """
    if not len(split):
        return False
    said = getattr(split, "augment", None)
    if isinstance(said, bool):
        return said
    places = _choose_probes(split)
    plain = list(tensors_of(split.batch(places).x))
    for epoch in range(PROBED_EPOCHS):
        seen = list(tensors_of(split.batch(places, epoch).x))
        if len(seen) != len(plain) or not all(map(torch.equal, seen, plain)):
            return True
    return False


# ------------------------------------------------------------------------- what a name is made of


def _key(task: Task, backbone: Frozen) -> str:
    """Return a hash of weights and rows; of rows whose source is known by hash, some are read."""
    digest = hashlib.sha256(f"format {FEATURE_FORMAT}\n{backbone!r}\n".encode())
    for name, value in backbone.encoder.state_dict(prefix="encoder.").items():
        add_to_hash(digest, name, value)
    known = "fingerprint" in task.facts
    about = [task.name, task.kind, task.classes, task.shape, dict(task.facts)]
    digest.update(json.dumps(about, sort_keys=True, default=str).encode())
    for name, split in _splits(task).items():
        add_to_hash(digest, f"labels of {name}", split.labels)
        rows = _choose_probes(split) if known else torch.arange(len(split))
        for places in torch.split(rows, 256) if len(rows) else ():
            for tensor in tensors_of(split.batch(places).x):
                add_to_hash(digest, name, tensor)
    return digest.hexdigest()


def _choose_probes(split: Split) -> Tensor:
    count = min(len(split), PROBED_ROWS)
    return torch.linspace(0, max(len(split) - 1, 0), count, dtype=torch.float64).long()


# ---------------------------------------------------------------------------- making and keeping


def _splits(task: Task) -> dict[str, Split]:
    tests = {f"test {name}": split for name, split in task.tests.items()}
    return {"train": task.train, "validation": task.validation} | tests


def _encode_task(task: Task, backbone: Frozen, batch_size: int, tick: Tick) -> Tensors:
    """Return the encoder's features of every split, with what else a batch holds beside labels."""
    splits = _splits(task)
    total, before = sum(map(len, splits.values())), 0
    found: Tensors = {}
    for name, split in splits.items():
        done = partial(_tell, tick, before, total)
        made = _encode_split(split, backbone, batch_size, done)
        found |= {f"{name}/{part}": values for part, values in made.items()}
        before += len(split)
    return found


def _confirm(tensors: Tensors, task: Task, backbone: Frozen) -> bool:
    """Tell whether features are those that the backbone makes, of some rows of every split."""
    for name, split in _splits(task).items():
        made = tensors.get(f"{name}/features")
        if made is None or made.shape != (len(split), backbone.feature_dim):
            return False
        if not len(split):
            continue
        some = _choose_probes(split)
        batch = split.batch(some)
        if batch.weight is not None or batch.environment is not None:
            return False  # these belong to the split, and are not made by a backbone
        held = next(chain(backbone.parameters(), backbone.buffers()), torch.empty(0))
        own = backbone.encode(batch.to(held.device).x).cpu()
        if not torch.allclose(own, made[some], rtol=1e-3, atol=1e-4 * float(own.abs().max())):
            return False
    return True


def _tell(tick: Tick, before: int, total: int, done: int) -> None:
    tick(before + done, total)


def _encode_split(
    split: Split, backbone: Frozen, batch_size: int, done: Callable[[int], None]
) -> Tensors:
    held = next(chain(backbone.parameters(), backbone.buffers()), torch.empty(0))
    parts: dict[str, list[Tensor]] = {part: [] for part in PARTS}
    for places in torch.split(torch.arange(len(split)), batch_size) if len(split) else ():
        batch = split.batch(places)
        parts["features"].append(backbone.encode(batch.to(held.device).x).cpu())
        for part, value in (("weight", batch.weight), ("environment", batch.environment)):
            if value is not None:
                parts[part].append(value)
        done(int(places[-1]) + 1)
    parts["features"].append(torch.empty(0, backbone.feature_dim, dtype=held.dtype))
    return {part: torch.cat(rows) for part, rows in parts.items() if rows}


def _standardise(tensors: Tensors, backbone: Frozen) -> Tensors:
    """Return encoder's features as the backbone gives them."""
    held = next(chain(backbone.parameters(), backbone.buffers()), torch.empty(0))
    return {
        name: backbone.standardise(values.to(held.device)).cpu() if "features" in name else values
        for name, values in tensors.items()
    }


def _ignore(done: int, total: int) -> None:
    pass


class _KnownFeatures:
    """A split whose rows are features that the backbone made before."""

    def __init__(self, labels: Tensor, parts: Tensors) -> None:
        self.labels = labels
        self.parts = parts

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the rows at ``places``, the same in every epoch."""
        parts: dict[str, Any] = {name: values[places] for name, values in self.parts.items()}
        return Batch(None, self.labels[places], places, **parts)


def _split(name: str, split: Split, tensors: Tensors) -> _KnownFeatures:
    found = {part: tensors[f"{name}/{part}"] for part in PARTS if f"{name}/{part}" in tensors}
    return _KnownFeatures(split.labels, found)

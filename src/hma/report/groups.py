"""What rows are counted by: classes, or what the slots of another target stand for."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from hma.targets import Number, SoftClasses, Target, YesNo

Label = int | float | list[float]


def group_names(target: Target, names: Sequence[str]) -> tuple[str, ...]:
    """Return the name of each prototype of ``target``.

    Example:
        >>> group_names(YesNo(2), ["toxic", "soluble"])
        ('toxic: no', 'toxic: yes', 'soluble: no', 'soluble: yes')
        >>> group_names(Number(10.0, 2.0), ["price"])[2]
        'price about 10'
    """
    if isinstance(target, YesNo):
        return tuple(f"{name}: {said}" for name in names for said in ("no", "yes"))
    if isinstance(target, Number):
        middles = target.given(target.prototypes()).tolist()
        return tuple(f"{names[0]} about {middle:.3g}" for middle in middles)
    return tuple(names)


def membership(target: Target, y: Tensor) -> Tensor:
    """Return how far each label belongs to each group, ``(N, ...) -> (N, P)`` in float64.

    Labels are given as users give them; one that is unknown belongs to none.
    """
    y = y.detach().cpu()
    if len(y) == 0:
        return torch.zeros(0, len(target.prototypes()), dtype=torch.float64)
    unknown = y.isnan() if y.is_floating_point() else y < 0
    unknown = unknown.flatten(1).all(dim=1) if y.dim() > 1 else unknown
    known = target.membership(target.check(y, len(y), ignore=unknown))
    return torch.where(unknown[:, None], 0, known).double()


def belongs(target: Target, y: Tensor) -> Tensor:
    """Tell which groups each label belongs to most, ``(N, ...) -> (N, P)``.

    Example:
        >>> belongs(YesNo(2), torch.tensor([[1.0, float("nan")]])).tolist()
        [[False, True, False, False]]
    """
    shares = membership(target, y)
    return (shares > 0) & (shares == shares.amax(dim=1, keepdim=True))


def label_text(target: Target, names: Sequence[str], label: Label) -> str:
    """Return the label of a row in words, empty where it is unknown.

    Example:
        >>> label_text(YesNo(3), ["a", "b", "c"], [1.0, 0.0, float("nan")])
        'yes to a, no to b'
    """
    if isinstance(label, list) and isinstance(target, SoftClasses):
        shares = [(name, share) for name, share in zip(names, label, strict=True) if share > 0]
        return ", ".join(f"{name} {share:.0%}" for name, share in shares)
    if isinstance(label, list):
        pairs = zip(names, label, strict=True)
        known = [(name, value) for name, value in pairs if not math.isnan(value)]
        return ", ".join(f"{'yes' if value else 'no'} to {name}" for name, value in known)
    if isinstance(target, Number):
        return "" if math.isnan(label) else f"{label:.4g}"
    return names[int(label)] if label >= 0 else ""

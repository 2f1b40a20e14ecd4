"""Rows that many tables share."""

from collections.abc import Mapping
from typing import Any

from hma.attention.config import ABLATIONS, HMAConfig
from hma.methods import Method, with_memory
from hma.methods.learner import BackboneFactory
from hma.tables.table import Measure, Row

WORDS = {
    "param": "the two blocks without memory and without neighbours",
    "rma": "real memory",
    "abd": "attention between datapoints",
    "abd+syn": "attention between datapoints and synthetic memory",
    "abd+rma": "attention between datapoints and real memory",
    "hma": "real and synthetic memory",
}


def memory_row(
    ablation: str,
    *,
    recipe: Mapping[str, Any] | None = None,
    search: Mapping[str, tuple[Any, ...]] | None = None,
    measure: Measure | None = None,
    anchors: int = 0,
    **config: Any,
) -> Row:
    """Return an HMA row of the paper's tables; fields that the ablation fixes are left out.

    Args:
        ablation: As :meth:`hma.HMAConfig.ablation` takes it.
        recipe: Fields of the recipe that are this row's own.
        search: What may be searched.
        measure: What else than scores is measured.
        anchors: Training rows of the context 'anchors', where rows see their batch.
        config: Fields of :class:`hma.HMAConfig`.

    Example:
        >>> memory_row("abd+syn", queue_size=256, slots_per_class=8).settings
        {'ablation': 'abd+syn', 'slots_per_class': 8}
    """
    fixed = ABLATIONS[ablation]
    free = {name: value for name, value in config.items() if name not in fixed}
    searched = {name: values for name, values in (search or {}).items() if name not in fixed}
    if anchors and fixed.get("batch_attention", True):
        free = {"anchors": anchors} | free
    return Row(
        build=_with_memory,
        settings={"ablation": ablation} | free,
        recipe=recipe or {},
        search=searched,
        what=WORDS[ablation],
        measure=measure,
    )


def _with_memory(
    backbone: BackboneFactory, *, ablation: str, anchors: int = 0, **config: Any
) -> Method:
    return with_memory(backbone, HMAConfig.ablation(ablation, **config), anchors=anchors)

"""The kinds of data: how each is fitted, kept, and what to say of rows without labels."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hma.data.graph.preparation import GraphPreparation, fit_graphs
from hma.data.image.preparation import ImagePreparation, fit_images
from hma.data.options import PreparationOptions
from hma.data.preparation import FORMAT, Preparation
from hma.data.source import Source
from hma.data.table.preparation import TablePreparation, fit_table
from hma.data.task import Kind
from hma.data.text.preparation import TextPreparation, fit_texts
from hma.errors import UserError
from hma.targets import Target

Fit = Callable[[Source, Sequence[int], tuple[str, ...], Target, PreparationOptions], Preparation]


class KindOfData(NamedTuple):
    """What is special about a kind."""

    fit: Fit
    """Learns a preparation from rows of a source."""
    preparation: type[Preparation]
    """What ``fit`` returns."""
    unlabelled: str
    """How labels are added to such data."""


KINDS: dict[Kind, KindOfData] = {
    "table": KindOfData(fit_table, TablePreparation, "name the column of the labels with --target"),
    "image": KindOfData(
        fit_images,
        ImagePreparation,
        "put the images into one folder for each class, or add y to the .npz",
    ),
    "graph": KindOfData(fit_graphs, GraphPreparation, "add NAME_graph_labels.txt"),
    "text": KindOfData(fit_texts, TextPreparation, 'add "label" to every line'),
}


def preparation_from_json(values: Any) -> Preparation:
    """Return the preparation that ``to_json`` wrote.

    Args:
        values: What ``to_json`` returned, or ``json.loads`` of it.
    """
    if not isinstance(values, dict):
        raise UserError("the preparation is damaged: it is no JSON object; train again")
    if values.get("format") != FORMAT:
        raise UserError(
            f"the preparation has format {values.get('format')!r}, this version of hma reads "
            f"{FORMAT}; train again, or use the version that wrote it"
        )
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise UserError(f"the preparation is for data of an unknown kind, {kind!r}; train again")
    try:
        return KINDS[kind].preparation.from_json(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise UserError(f"the preparation is damaged: {error}; train again") from error

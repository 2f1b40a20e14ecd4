"""The kinds of data, and a preparation of any of them read back."""

from typing import Any

from hma.data.graph.preparation import GraphPreparation
from hma.data.image.preparation import ImagePreparation
from hma.data.preparation import FORMAT, Preparation
from hma.data.table.preparation import TablePreparation
from hma.data.task import Kind
from hma.data.text.preparation import TextPreparation
from hma.errors import UserError

KINDS: dict[Kind, type[Preparation]] = {
    "table": TablePreparation,
    "image": ImagePreparation,
    "graph": GraphPreparation,
    "text": TextPreparation,
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
        return KINDS[kind].from_json(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise UserError(f"the preparation is damaged: {error}; train again") from error

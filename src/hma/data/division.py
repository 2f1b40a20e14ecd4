"""Which rows of a source are trained, validated and tested on, and how that came about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from hma.data.graph.shift import ShiftedGraphs
from hma.data.label_kinds import LABEL_KINDS
from hma.data.labels import listed
from hma.data.source import Source
from hma.data.splitting import by_group, by_time, stratified
from hma.data.table.columns import texts
from hma.data.table.dates import moments
from hma.data.table.files import TableRows
from hma.errors import UserError

Places = dict[str, list[int]]


@dataclass(frozen=True, kw_only=True)
class Division:
    """How the rows of a source are divided.

    Args:
        shares: Share of the rows for "validation" and "test"; a split without one is not drawn.
        group: Column of a table whose equal values stay in one split.
        time: Column of a table that orders the rows: the earliest train, the latest test.
        shift: What training and test graphs differ in; it has shares of its own.
    """

    shares: Mapping[str, float]
    group: str | None = None
    time: str | None = None
    shift: str | None = None

    def __post_init__(self) -> None:
        ways = [name for name in ("group", "time", "shift") if getattr(self, name) is not None]
        if len(ways) > 1:
            raise UserError(
                f"rows are divided by {' or by '.join(ways)}, not by both; leave one out"
            )
        if ways and not self.shares:
            raise UserError(
                "all splits are given, so group, time and shift have no say; leave them out"
            )
        if self.shift is not None and len(self.shares) < 2:
            raise UserError(
                "shift decides validation and test together; leave the one that is given out"
            )

    def places(self, source: Source, strata: Tensor, rows: Sequence[int], seed: int) -> Places:
        """Return the rows of each split.

        Args:
            source: Where they are.
            strata: Class of each of ``rows``, ``(N,)``.
            rows: Places of the rows to be divided.
            seed: Decides what is left to chance.
        """
        if not self.shares:
            return {"train": list(rows)}
        share = self._as_validation()
        if self.group is not None:
            found = by_group(strata, _groups(source, self.group, rows), seed, **share)
        elif self.shift is not None:
            found = ShiftedGraphs.of(source, self.shift).places(strata, rows, seed)
        elif self.time is not None:
            found = by_time(_times(source, self.time, rows), seed, **share)
        else:
            found = stratified(strata, seed, **share)
        if "validation" not in self.shares:
            found["test"] = found.pop("validation")
        return {name: [rows[place] for place in places] for name, places in found.items()}

    def _as_validation(self) -> dict[str, float]:
        """Return the shares; one that is alone takes the place of validation."""
        if "validation" in self.shares:
            return {"validation": self.shares["validation"], "test": self.shares.get("test", 0.0)}
        (share,) = self.shares.values()
        if not 0 < share < 1:
            raise UserError(f"test must be a share above 0 and below 1, or 0, got {share}")
        return {"validation": share, "test": 0.0}

    def facts(self, source: Source, places: Places) -> dict[str, Any]:
        """Say in JSON values how the rows were divided."""
        share = {"train": 1 - sum(self.shares.values()), **self.shares}
        shares = ", ".join(f"{100 * share[name]:g}% {name}" for name in places)
        if not self.shares:
            return {"split": "as given"}
        if self.shift is not None:
            return ShiftedGraphs.of(source, self.shift).facts(places)
        if self.group is not None:
            table = _table(source, "group", self.group)
            count = {n: table.frame[self.group].iloc[rows].nunique() for n, rows in places.items()}
            said = f"every value of {self.group!r} wholly in one split, about stratified, by seed"
            return {"split": f"{said}: {shares}", "groups": {"column": self.group, **count}}
        if self.time is not None:
            column = _table(source, "time", self.time).frame[self.time]
            when = moments(self.time, column, np.arange(len(column)))
            ends = {
                name: [str(column.iloc[rows[int(when[rows].argmin())]]),
                       str(column.iloc[rows[int(when[rows].argmax())]])]
                for name, rows in places.items()
            }  # fmt: skip
            said = f"by {self.time!r}, the earliest rows train and the latest test: {shares}"
            return {"split": said, "time": {"column": self.time, **ends}}
        return {"split": LABEL_KINDS[source.label_kind].divided.format(shares=shares)}


def _table(source: Source, option: str, name: str) -> TableRows:
    """Return the source as a table that has a column ``name`` besides its labels."""
    if source.kind != "table":
        raise UserError(
            f"{option} is for tables, got {name!r} with {source.name}; leave it out, or give the "
            "splits as files or folders"
        )
    table = cast("TableRows", source)
    table.expect_columns(option, (name,))
    return table


def _groups(source: Source, name: str, rows: Sequence[int]) -> Tensor:
    """Return the id of the group of each row."""
    table = _table(source, "group", name)
    column = table.frame[name].iloc[list(rows)]
    missing = column.isna().to_numpy().nonzero()[0]
    if len(missing):
        raise UserError(
            f"group column {name!r} of {table.name} has no value in {len(missing)} of {len(rows)} "
            f"rows, first in row {listed([rows[place] for place in missing])} (counted from 0); "
            "fill them in or remove these rows"
        )
    _, ids = np.unique(np.array(texts(column)), return_inverse=True)
    if ids.max() == 0:
        raise UserError(
            f"group column {name!r} of {table.name} has the same value in all rows, so they cannot "
            "be divided; name another column, or leave group out"
        )
    return torch.from_numpy(ids).long()


def _times(source: Source, name: str, rows: Sequence[int]) -> Any:
    """Return the time of each row as a number."""
    table = _table(source, "time", name)
    return moments(name, table.frame[name].iloc[list(rows)], np.asarray(rows))

"""Which rows a memory is to forget, whether any are left, and what of them stays in weights."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hma.data.labels import listed
from hma.data.table.files import TableRows
from hma.errors import UserError
from hma.memory.keyed_rows import KeyedRows
from hma.report.numbers import counted
from hma.report.run.groups import belongs, group_names
from hma.runs.candidates import MEMORY, PLAIN, title
from hma.runs.folder import Run
from hma.runs.remembered import RememberedRows, cells_of
from hma.runs.row_conditions import Conditions, rows_where
from hma.runs.training_data import place_of
from hma.runs.version import MOST_ID
from hma.targets import Classes, SoftClasses


def chosen_ids(
    run: Run,
    store: KeyedRows,
    *,
    ids: Sequence[int] | None = None,
    where: Conditions | None = None,
    label: str | None = None,
) -> tuple[Tensor, str]:
    """Return the sample ids of the rows that are meant, and what was meant in words.

    Args:
        run: The run.
        store: What its memory holds.
        ids: Sample ids.
        where: A condition on the columns of a table.
        label: Name of a class.
    """
    if sum(one is not None for one in (ids, where, label)) != 1:
        raise UserError("give one of --ids, --where and --class, which say what to forget")
    if ids is not None:
        found, said = _given(run, store, ids), f"ids {listed(list(ids))}"
    elif where is not None:
        found, said = _where(run, store, where), where.text
    else:
        found, said = ids_of_class(run, store, label or ""), f"class {label}"
    if not len(found):
        raise UserError(f"no row of the memory is meant by {said}; nothing was changed")
    return found, said


def _given(run: Run, store: KeyedRows, ids: Sequence[int]) -> Tensor:
    given = sorted(set(ids))
    beyond = [id for id in given if not 0 <= id < MOST_ID]  # more than any row has, or a tensor
    wanted = torch.tensor([id for id in given if id not in beyond], dtype=torch.long)
    absent = [*wanted[store.find(wanted) < 0].tolist(), *beyond]
    if absent:
        raise UserError(
            f"--ids names {listed(absent)}, which the memory does not hold; hma memory "
            f"{run.folder} lists its {counted(len(store.rows().ids), 'row')} with their ids"
        )
    return wanted


def _where(run: Run, store: KeyedRows, conditions: Conditions) -> Tensor:
    if run.preparation.kind != "table":
        raise UserError(
            f"--where is for tables, and {run.folder} was trained on rows of the kind "
            f"{run.preparation.kind!r}; give --ids, which hma memory {run.folder} lists, or --class"
        )
    remembered = RememberedRows(run)
    samples: list[int] = store.rows().ids.tolist()
    trained = [sample for sample in samples if sample not in remembered.taught]
    found: list[int] = []
    if trained:
        training = remembered.training
        if not isinstance(training, TableRows):
            raise UserError(
                f"--where needs the columns of {run.options.source}, which is not there or not "
                "what it was; put it back, or give --ids or --class"
            )
        places = [place_of(run, training, sample) for sample in trained]
        found += [trained[place] for place in rows_where(conditions, cells_of(training, places))]
    taught = run.living.rows
    if len(taught):
        found += [int(taught.ids[place]) for place in rows_where(conditions, taught.cells)]
    return torch.tensor(found, dtype=torch.long)


def ids_of_class(run: Run, store: KeyedRows, label: str) -> Tensor:
    """Return the sample ids of the rows of a class; of soft labels, where it is the likeliest."""
    target, names = run.preparation.target, run.preparation.classes
    if not isinstance(target, Classes | SoftClasses):
        raise UserError(
            f"--class is for classes, and {run.folder} learned labels of the kind "
            f"{target.kind!r}; give --ids or --where"
        )
    if label not in names:
        raise UserError(f"--class must be one of {listed(names)}, got {label!r}")
    held = store.rows()
    return held.ids[belongs(target, target.given(held.labels))[:, names.index(label)]]


def expect_rows_left(run: Run, store: KeyedRows, gone: Tensor) -> None:
    """Raise where the memory, or a class that it knows, would be left without a row."""
    held, target = store.rows(), run.preparation.target
    stays = ~torch.isin(held.ids, gone)
    if not bool(stays.any()):
        raise UserError(
            f"this would take all {counted(len(stays), 'row')} out of the memory of {run.folder}, "
            "and the head would answer alone; pass --yes to do it"
        )
    if not isinstance(target, Classes | SoftClasses):
        return
    of = belongs(target, target.given(held.labels))
    lost = torch.nonzero(of.any(dim=0) & ~of[stays].any(dim=0))[:, 0].tolist()
    if lost:
        names = group_names(target, run.preparation.classes)
        raise UserError(
            f"this would take the last row of {listed([names[place] for place in lost])} out of "
            f"the memory of {run.folder}; pass --yes to do it"
        )


def what_remains(run: Run, gone: Tensor) -> str:
    """Say what of forgotten rows is left in the weights of a run."""
    trained = int((gone < len(run.places.get("train", []))).sum())
    if not trained:
        return "nothing, since no weight was learned from rows that were taught"
    parts = ["its head", "the keys of the memory and what its vote counts"]
    if not run.options.frozen_backbone:
        parts.insert(0, "the backbone")
    mixed = run.deployed.counted
    target = run.preparation.target
    others = [title(which, target) for which in mixed if which not in (MEMORY, PLAIN)]
    if PLAIN in mixed:
        others.insert(0, title(PLAIN, target))
    if others:
        parts.append(f"what answers beside it ({', '.join(others)})")
    rows = counted(trained, "training row")
    return (
        f"{rows} no longer vote, but what was learned from them remains in the weights: "
        f"{', '.join(parts)}; train again without them to be rid of that"
    )

"""The end of a run: weights and record, written whole."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from hma.training.folder import RunFolder
from hma.training.identity import Identity
from hma.training.kept_weights import write_weights
from hma.training.provenance import git_commit, versions
from hma.training.record import EpochResult, Record, Scores
from hma.training.stopwatch import Stopwatch

if TYPE_CHECKING:
    from lightning.fabric import Fabric


@dataclass(frozen=True)
class Outcome:
    """What a run came to; as in its record."""

    epochs: list[EpochResult]
    selected_epoch: int
    selection_rule: str
    tests: dict[str, Scores]
    measures: dict[str, Any]
    packages: tuple[str, ...] = ()
    """What its numbers depend on beside what those of all runs do."""


def conclude(
    module: nn.Module,
    run: Identity,
    outcome: Outcome,
    *,
    watch: Stopwatch,
    home: RunFolder | None,
    fabric: "Fabric",
) -> Record:
    """Write the weights, then the record that names them; every process must call.

    Args:
        module: Holds the weights that were tested.
        run: Which run it was.
        outcome: What it came to.
        watch: What it took.
        home: Where the files go; None for nowhere.
        fabric: Where it was computed.
    """
    writes = home is not None and fabric.is_global_zero
    sha256 = write_weights(home.weights, module) if home is not None and writes else None
    record = Record(
        name=str(run["resolved"].get("name", run["task"]["name"])),
        seed=run["seed"],
        setup={name: run[name] for name in ("task", "method", "recipe")},
        resolved=run["resolved"],
        git_commit=git_commit(),
        versions=dict(versions(*outcome.packages)),
        data_fingerprint=run["task"]["data_fingerprint"],
        epochs=outcome.epochs,
        selected_epoch=outcome.selected_epoch,
        selection_rule=outcome.selection_rule,
        tests=outcome.tests,
        weights_sha256=fabric.broadcast(sha256),
        seconds=watch.seconds,
        epoch_seconds=watch.epoch_seconds,
        peak_memory_bytes=watch.peak_memory_bytes,
        measures=outcome.measures,
    )
    if home is not None and writes:
        record.write(home.record)
        home.checkpoints.clear()
    fabric.barrier()
    return record

"""``python -m benchmarks.memory_size``: what memories of 10³ to 10⁶ rows cost; one of 10⁶ in use.

Every measurement has a process of its own, so that the peak of its memory is its own. Features are
given, as those of a frozen encoder; keys are those that a new read has, or learned where said.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import hma
from benchmarks.machine import this_machine
from hma.io.files import atomic_write
from hma.memory.blocks import in_blocks
from hma.memory.rows import KeyedRows, MemoryRows
from hma.vote.search import BestRows, IndexedRows

SIZES, QUICK_SIZES = (1_000, 10_000, 100_000, 1_000_000), (1_000, 3_000)
WIDTH, CLASSES, CLOUDS, WITHIN = 256, 10, 200, 24
"""Features, classes, clouds that rows lie in, and directions in which a cloud reaches."""
K, QUERIES, REPEATS = 64, 64, 20
JUDGED = 32
"""Queries whose nearest rows are sought by sorting all distances."""
HELD_OUT = 2_000
BLOCK = 65_536
READS: dict[str, Callable[[], BestRows | IndexedRows | None]] = {
    "all rows": lambda: None,
    "k best, exact": lambda: BestRows(K),
    "k best, index": lambda: IndexedRows(K),
}
Value = str | int | float | None


# --------------------------------------------------------------------------------------- data


class Clouds:
    """Rows in curved clouds, each of one class, in far fewer directions than there are features."""

    def __init__(self) -> None:
        draw = np.random.default_rng(0)
        self.centres = 1.5 * draw.standard_normal((CLOUDS, WITHIN), dtype=np.float32)
        self.spread = draw.standard_normal((WITHIN, WIDTH), dtype=np.float32) / 5

    def rows(self, count: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return features ``(count, F)`` and class ids."""
        draw = np.random.default_rng(seed)
        cloud = draw.integers(CLOUDS, size=count)
        inside = self.centres[cloud] + draw.standard_normal((count, WITHIN), dtype=np.float32)
        noise = draw.standard_normal((count, WIDTH), dtype=np.float32)
        return np.tanh(inside @ self.spread) + np.float32(0.1) * noise, cloud % CLASSES

    def written(self, count: int, path: Path) -> NDArray[np.int64]:
        """Write the features of ``count`` rows to a file, block by block, and return class ids."""
        file = np.lib.format.open_memmap(path, "w+", np.float32, (count, WIDTH))
        labels = np.empty(count, np.int64)
        for number, first in enumerate(range(0, count, BLOCK)):
            part = slice(first, min(first + BLOCK, count))
            file[part], labels[part] = self.rows(part.stop - first, seed=number + 1)
        file.flush()
        return labels


def new_model() -> hma.VotingMemory:
    """Return a model whose features are given."""
    torch.manual_seed(0)
    return hma.VotingMemory(nn.Identity(), CLASSES, feature_dim=WIDTH).eval()


# ----------------------------------------------------------------------------------- one size


@torch.no_grad()
def measured(read: str, rows: int, folder: Path) -> dict[str, Value]:
    """Return what one way to read a memory of so many rows costs."""
    data, model = Clouds(), new_model()
    assert model.real is not None
    assert isinstance(model.real.queue, KeyedRows)
    model.vote.share.fill_(0.5)
    labels = data.written(rows, folder / "features.npy")
    features = torch.from_numpy(np.load(folder / "features.npy", mmap_mode="c"))
    model.real.queue.take(MemoryRows(features, torch.from_numpy(labels), torch.arange(rows)))
    queries = torch.from_numpy(data.rows(QUERIES, seed=0)[0])
    model.real.nearest = READS[read]()
    begun = time.perf_counter()
    model.classify(queries[:1])
    first = time.perf_counter() - begun
    found: dict[str, Value] = {
        "rows": rows,
        "read": read,
        "first_answer_s": first,
        "one_query_ms": 1000 * _median(lambda i: model.classify(queries[i : i + 1])),
        "of_64_queries_ms": 1000 / 64 * _median(lambda i: model.classify(queries[:64]), 5),
        "peak_MiB": peak(),
        "recall": None,
    }
    if model.real.nearest is not None:
        found["recall"] = _recall(model, queries[:JUDGED])
    return found


def _median(call: Callable[[int], object], repeats: int = REPEATS) -> float:
    taken = []
    for number in range(repeats):
        begun = time.perf_counter()
        call(number)
        taken.append(time.perf_counter() - begun)
    return float(np.median(taken))


def _recall(model: hma.VotingMemory, queries: Tensor) -> float:
    """Return which share of the ``k`` nearest rows is found; distances sorted in float64."""
    assert model.real is not None
    read = model.trace(queries).real
    assert read is not None
    assert read.places is not None
    keys, asked = in_blocks(model.vote.keys, model.real.queue.features), model.vote.keys(queries)
    hits = []
    for query, row in zip(asked.double(), read.places[0], strict=True):
        apart = torch.cat(
            [(part.double() - query).square().sum(1) for part in torch.split(keys, BLOCK)]
        )
        bound = apart.kthvalue(K).values
        hits.append(float((apart[row] <= bound * (1 + 1e-6)).double().mean()))
    return float(np.mean(hits))


def peak() -> float:
    """Return the most memory that this process has had resident, mapped files too; Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) / 1024


# ------------------------------------------------------------------------- trained and served


def trained(rows: int, folder: Path) -> list[dict[str, Value]]:
    """Learn the keys of so many rows on disk and save the model; return what each step took."""
    steps, data = _Steps("train"), Clouds()
    labels = torch.from_numpy(data.written(rows, folder / "features.npy"))
    steps.add("features written to a file, 65,536 rows at a time")
    features = torch.from_numpy(np.load(folder / "features.npy", mmap_mode="c"))
    model = new_model()
    assert model.real is not None
    model.real.nearest = IndexedRows(K)
    parts = torch.split(torch.arange(rows), BLOCK)
    x, y = data.rows(HELD_OUT, seed=0)
    found = model.learn_memory(
        ((features[one[0] : one[-1] + 1], labels[one]) for one in parts),
        [(torch.from_numpy(x), torch.from_numpy(y))],
    )
    share, kept = found["memory_share"], found["key_steps"]
    steps.add(f"keys learned, the best after {kept:,} steps; the memory counts {share:.0%}")
    hma.save(model, folder / "model")
    steps.add("model saved")
    model.real.nearest.save(folder / "model")
    steps.add("index saved")
    return steps.rows


@torch.no_grad()
def served(rows: int, folder: Path) -> list[dict[str, Value]]:
    """Load the model, predict, remember and forget; return what each step took."""
    steps, data = _Steps("serve"), Clouds()
    model = hma.load(folder / "model", nn.Identity())
    assert model.real is not None
    model.real.nearest = IndexedRows.load(folder / "model", K)
    steps.add("model and index loaded")
    x, y = (torch.from_numpy(one) for one in data.rows(1000, seed=-1 % 2**32))
    model.classify(x[:1])
    steps.add("first prediction, keys of all rows made")
    for one in x[:200]:
        model.classify(one[None])
    steps.add("200 predictions, one by one")
    right = float((model.classify(x).argmax(dim=1) == y).double().mean())
    steps.add(f"1,000 predictions at once, {right:.1%} right")
    hma.explain(model, features=x[:2])
    steps.add("2 rows explained")
    model.remember(None, y[:1], features=x[:1], ids=torch.tensor([rows]))
    near = hma.explain(model, features=x[:1]).top(0, k=2)
    assert rows in [source.sample for source in near]
    steps.add("a row remembered, and found when its prediction was explained")
    gone = model.forget(torch.arange(100))
    model.classify(x[:1])
    steps.add(f"{gone} rows forgotten, and a prediction")
    return steps.rows


class _Steps:
    """What was done, how long it took, and the peak of the memory until then."""

    def __init__(self, process: str) -> None:
        self.process, self.rows = process, list[dict[str, Value]]()
        self.begun = time.perf_counter()

    def add(self, what: str) -> None:
        """Note that something is done, and say so."""
        taken, most = time.perf_counter() - self.begun, peak()
        row: dict[str, Value] = {"process": self.process, "step": what}
        self.rows.append(row | {"seconds": taken, "peak_MiB": most})
        print(
            f"{self.process}: {what}, {taken:.1f} s, {most:,.0f} MiB", file=sys.stderr, flush=True
        )
        self.begun = time.perf_counter()


# ------------------------------------------------------------------------------------ command


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every size, then use the largest, and write the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_size", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: a check, not a record")
    parser.add_argument("-o", "--output", type=Path, default=Path("memory-size.json"))
    parser.add_argument("--overwrite", action="store_true", help="replace an existing record")
    parser.add_argument("--part", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.part is not None:
        what, rows, folder = given.part[0], int(given.part[1]), Path(given.part[2])
        whole = {"train": trained, "serve": served}
        made = whole[what](rows, folder) if what in whole else [measured(what, rows, folder)]
        print(json.dumps(made))
        return
    if given.output.exists() and not given.overwrite:
        parser.error(f"{given.output} exists already; pass --overwrite or another --output")
    sizes = QUICK_SIZES if given.quick else SIZES
    record = {
        "machine": asdict(this_machine()),
        "threads": torch.get_num_threads(),
        "quick": given.quick,
        "features": WIDTH,
        "k": K,
    }
    with TemporaryDirectory() as place:
        used = [row for what in ("train", "serve") for row in _part(what, sizes[-1], place)]
    reads: list[dict[str, Value]] = []
    for rows in sizes:
        for read in READS:
            with TemporaryDirectory() as place:
                reads += _part(read, rows, place)
            print(reads[-1], flush=True)
    with atomic_write(given.output) as temporary:
        values = record | {"reads": reads, "used_rows": sizes[-1], "used": used}
        temporary.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n")
    print(f"wrote {given.output}")


def _part(what: str, rows: int, folder: str) -> list[dict[str, Value]]:
    command = [sys.executable, "-m", "benchmarks.memory_size", "--part", what, str(rows), folder]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: list[dict[str, Value]] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()

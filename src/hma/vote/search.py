"""Which stored rows a query reads: the nearest ones, searched exactly or through an index."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import ref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.checks import expect_whole
from hma.errors import UserError
from hma.extras import needed
from hma.io.files import atomic_write, file_sha256
from hma.io.json_files import read_json, write_json
from hma.io.tensor_files import read_tensors, write_tensors
from hma.memory.blocks import MOST_SCORES, blocks
from hma.memory.projected import Projected

Hashes = NDArray[np.uint64]
FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
"""Odd numbers of splitmix64, which spread bits."""


def hash_rows(rows: Tensor) -> Hashes:
    """Return a number for each row, ``(N, K)`` to ``(N,)``; copies of a row get their own.

    Args:
        rows: Of float32, on the CPU. The second row that is the same counts as its first copy.

    Example:
        >>> import torch
        >>> first = hash_rows(torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
        >>> second = hash_rows(torch.tensor([[3.0, 4.0], [1.0, 2.0]]))
        >>> (first[:2] == second[::-1]).tolist(), len(set(first.tolist()))
        ([True, True], 3)
    """
    plain = rows.detach().contiguous().numpy()
    weights = _spread_bits(np.arange(1, plain.shape[1] + 1, dtype=np.uint64)) | np.uint64(1)
    hashes = np.empty(len(plain), np.uint64)
    for part in blocks(len(plain)):
        bits = plain[part].view(np.uint32).astype(np.uint64)
        hashes[part] = (_spread_bits(bits + weights) * weights).sum(axis=1, dtype=np.uint64)
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.flatnonzero(first)
    copies = np.arange(len(ordered)) - np.repeat(starts, np.diff([*starts, len(ordered)]))
    hashes[order] = np.where(copies == 0, ordered, _spread_bits(ordered + copies.astype(np.uint64)))
    return hashes


def find_hashes(hashes: Hashes, among: Hashes) -> NDArray[np.int64]:
    """Return where each number is ``among`` others; -1 where it is not."""
    if not len(among):
        return np.full(len(hashes), -1)
    order = np.argsort(among, kind="stable")
    at = np.searchsorted(among[order], hashes).clip(max=len(among) - 1)
    places: NDArray[np.int64] = order[at]
    return np.where(among[places] == hashes, places, -1)


def _spread_bits(values: Hashes) -> Hashes:
    values = values * FIRST
    values = (values ^ (values >> np.uint64(29))) * SECOND
    return values ^ (values >> np.uint64(32))


# ------------------------------------------------------------------------------------------ exactly


@dataclass(frozen=True)
class BestRows:
    """The ``k`` rows with the largest scores, searched exactly, one block of rows at a time.

    Memory stays flat however many rows there are. With ``k`` of at least the number of rows the
    read is the full one.

    Args:
        k: Rows that each query reads, for each head.
        block: Rows that are scored at once.

    Example:
        >>> keys = torch.tensor([[[0.0], [3.0], [1.0], [2.0]]])  # one head, four rows
        >>> BestRows(k=2, block=3)(torch.ones(1, 1, 1), Projected(keys, keys))
        tensor([[[1, 3]]])
    """

    k: int
    block: int = 65536

    def __post_init__(self) -> None:
        expect_whole("k", self.k, least=1)
        expect_whole("block", self.block, least=1)

    @torch.no_grad()
    def __call__(self, queries: Tensor, memory: Projected) -> Tensor | None:
        """Return the places of the best rows, ``(H, B, K)``, best first; None for all rows."""
        if self.k >= memory.keys.shape[1]:
            return None
        alike = memory.bias is None or memory.bias.dim() == 1
        at_once = max(1, MOST_SCORES // min(self.block, memory.keys.shape[1]))
        size = at_once if alike else queries.shape[1]
        parts = [self._best(some, memory) for some in torch.split(queries, size, dim=1)]
        return torch.cat(parts, dim=1)

    def _best(self, queries: Tensor, memory: Projected) -> Tensor:
        heads, count = queries.shape[:2]
        best = queries.new_empty(heads, count, 0)  # (H, B, up to K)
        places = torch.empty(heads, count, 0, dtype=torch.long, device=queries.device)
        for first in range(0, memory.keys.shape[1], self.block):
            part = slice(first, first + self.block)
            bias = None if memory.bias is None else memory.bias[..., part]
            scores = Projected(memory.keys[:, part], memory.values[:, part], bias).scores(queries)
            found = scores.topk(min(self.k, scores.shape[-1]), dim=-1)
            best = torch.cat([best, found.values], dim=-1)
            places = torch.cat([places, found.indices + first], dim=-1)
            kept = best.topk(min(self.k, best.shape[-1]), dim=-1)
            best, places = kept.values, places.gather(-1, kept.indices)
        return places


# --------------------------------------------------------------------------------- through an index


PROBES = 16
"""Cells that a query looks into."""
ROWS_TO_LEARN_A_CELL, ROUNDS = 64, 10
"""Rows that the centre of a cell is learned from, and rounds of k-means."""
SAME = 0.5
"""Share of the rows that must be in an index for it to be brought up to date, not built again."""
FILES = {"index": "index.faiss", "rows": "index-rows.safetensors"}
MANIFEST = "index.json"
SHAPE = {"schema": int, "probes": int, "sha256": dict[str, str]}


class IndexedRows:
    """The ``k`` rows that lie nearest, sought in the cells next to a query: an inverted file.

    Rows are parted into cells by k-means, about as many cells as a cell has rows; a query looks at
    the rows of some cells alone. It may miss a row of the ``k`` that lies in another cell. For
    memories that vote by distance; needs ``faiss-cpu`` (extra ``index``).

    It knows the rows it was built of by a number for each. Rows that came or went since are added
    and taken out when it is asked next; where most are others, because keys were learned again or
    it belongs to another memory, it is built again, with a warning.

    Args:
        k: Rows that each query reads.
        probes: Cells that a query looks into: the more, the slower, and the fewer are missed.

    Example:
        >>> index = IndexedRows(k=64)  # model.real.nearest = index
        >>> index.k, index.probes
        (64, 16)
    """

    def __init__(self, k: int, probes: int = PROBES) -> None:
        expect_whole("k", k, least=1)
        expect_whole("probes", probes, least=1)
        self.k, self.probes = k, probes
        self._cells: Any = None
        self._hashes: Hashes = np.empty(0, np.uint64)
        """Of the rows in the index, by their number there."""
        self._place: NDArray[np.int64] = np.empty(0, np.int64)
        """Where a row of the index lies in the memory; -1 for one that went."""
        self._seen: tuple[ref[Tensor], ref[Tensor]] | None = None
        self._sharpness = 1.0
        self._lock = Lock()

    @torch.no_grad()
    def __call__(self, queries: Tensor, memory: Projected) -> Tensor | None:
        """Return the places of the nearest rows, ``(1, B, K)``, the nearest first; None for all."""
        if len(memory.keys) != 1 or memory.bias is None:
            raise UserError(
                "IndexedRows finds rows that vote by distance, and needs hma.VotingMemory, got "
                f"attention with {len(memory.keys)} heads; take hma.vote.search.BestRows"
            )
        if self.k >= memory.keys.shape[1]:
            return None
        with self._lock:  # others may ask meanwhile
            self._follow(memory)
            if self.k >= self._cells.ntotal:
                return None
            keys = (queries[0] / (2 * self._sharpness)).float().cpu().contiguous().numpy()
            places = self._place[self._found(keys)]
        return torch.from_numpy(places)[None].to(queries.device)

    def _found(self, keys: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the numbers of the nearest rows in the index, ``(B, K)``."""
        found, probes = np.full((len(keys), self.k), -1), self.probes
        missing, cells = np.arange(len(keys)), self._cells
        while len(missing):  # cells may hold fewer rows than are wanted
            cells.nprobe = min(probes, cells.nlist)
            found[missing] = cells.search(keys[missing], self.k)[1]
            if cells.nprobe == cells.nlist:
                break  # nothing is near to NaN, whose answer is NaN whatever it reads
            missing, probes = np.flatnonzero((found < 0).any(axis=1)), 4 * probes
        return found.clip(min=0)

    def __reduce__(self) -> tuple[type["IndexedRows"], tuple[int, int]]:
        """Return how to make a copy, which is built anew when it is asked."""
        return IndexedRows, (self.k, self.probes)

    # ------------------------------------------------------------ the rows of the memory

    def _follow(self, memory: Projected) -> None:
        """Let the index hold the rows that the memory holds now."""
        if self._seen is not None:
            keys, bias = (held() for held in self._seen)
            if keys is memory.keys and bias is memory.bias:
                return
        rows = memory.keys[0].float().cpu()
        there = _find_visible(memory)
        hashes = hash_rows(rows)[there]
        at = find_hashes(self._hashes, hashes)
        at[self._place < 0] = -1
        kept = int((at >= 0).sum())
        if self._cells is None or kept < SAME * max(len(hashes), 1):
            if self._cells is not None:
                warnings.warn(
                    f"the index does not match the rows of the memory: {kept} of {len(hashes)} are "
                    "in it; it is built again",
                    stacklevel=4,
                )
            whole = len(there) == len(rows)  # then nothing is copied
            self._build(rows.numpy() if whole else rows.numpy()[there], there, hashes)
        else:
            self._update(rows, there, hashes, at)
        assert memory.bias is not None
        self._seen = ref(memory.keys), ref(memory.bias)  # not the keys: they may be others soon
        self._sharpness = _find_sharpness(memory, there[:256])

    def _build(self, keys: NDArray[np.float32], there: NDArray[np.int64], hashes: Hashes) -> None:
        faiss = needed("faiss", "an index of the memory", extra="index")
        self._cells = None
        count = len(keys)
        cells = max(1, round(count**0.5))
        coarse = faiss.IndexFlatL2(keys.shape[1])
        index = faiss.IndexIVFFlat(coarse, keys.shape[1], cells, faiss.METRIC_L2)
        index.cp.niter, index.cp.min_points_per_centroid = ROUNDS, 1
        draw = np.random.default_rng(0)
        some = draw.choice(count, min(count, ROWS_TO_LEARN_A_CELL * cells), replace=False)
        index.train(keys[np.sort(some)])
        index.add_with_ids(keys, np.arange(count))
        self._cells, self._hashes, self._place = index, hashes, there

    def _update(
        self, keys: Tensor, there: NDArray[np.int64], hashes: Hashes, at: NDArray[np.int64]
    ) -> None:
        """Take rows that went out of the index, add those that came, and see where all lie."""
        gone = np.flatnonzero((at < 0) & (self._place >= 0))
        if len(gone):
            self._cells.remove_ids(gone)
        self._place = np.where(at >= 0, there[at], -1)
        new = np.ones(len(there), bool)
        new[at[at >= 0]] = False
        if new.any():
            numbers = np.arange(len(self._place), len(self._place) + int(new.sum()))
            self._cells.add_with_ids(keys[torch.from_numpy(there[new])].numpy(), numbers)
            self._place = np.concatenate([self._place, there[new]])
            self._hashes = np.concatenate([self._hashes, hashes[new]])

    # -------------------------------------------------------------------------- on disk

    def save(self, folder: str | Path) -> None:
        """Keep the index in ``folder``, such as that of the model; it need not fit for ever."""
        if self._cells is None:
            raise UserError("there is no index to save yet; ask the model for a prediction first")
        faiss = needed("faiss", "an index of the memory", extra="index")
        where = Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        with atomic_write(where / FILES["index"]) as temporary:
            faiss.write_index(self._cells, str(temporary))
            written = file_sha256(temporary)
        rows = {"hashes": self._hashes.view(np.int64), "places": self._place}
        tensors = {name: torch.from_numpy(one) for name, one in rows.items()}
        sha256 = {"index": written, "rows": write_tensors(where / FILES["rows"], tensors)}
        write_json(where / MANIFEST, {"schema": 1, "probes": self.probes, "sha256": sha256})

    @classmethod
    def load(cls, folder: str | Path, k: int, probes: int | None = None) -> "IndexedRows":
        """Return an index that was saved; one that is missing or damaged is built when asked first.

        Args:
            folder: Where :meth:`save` put it.
            k: Rows that each query reads.
            probes: Cells that a query looks into; as it was saved if not given.
        """
        index, where = cls(k, probes or PROBES), Path(folder)
        try:
            index._read(where, probes)
        except UserError as error:
            warnings.warn(f"{error}; the index is built again", stacklevel=2)
        return index

    def _read(self, where: Path, probes: int | None) -> None:
        faiss = needed("faiss", "an index of the memory", extra="index")
        again = "it is made again"
        about = read_json(where / MANIFEST, SHAPE, remedy=again)
        sha256 = about["sha256"]
        rows = read_tensors(where / FILES["rows"], sha256=sha256.get("rows"), remedy=again)
        path = where / FILES["index"]
        if not path.exists() or file_sha256(path) != sha256.get("index"):
            raise UserError(f"{path} is missing or damaged")
        self._cells = faiss.read_index(str(path))
        self._hashes = rows["hashes"].numpy().view(np.uint64).copy()
        self._place = rows["places"].numpy().copy()
        self.probes = probes or about["probes"]


def _find_visible(memory: Projected) -> NDArray[np.int64]:
    """Return the places that hold a row, ``(N,)``."""
    assert memory.bias is not None
    seen = memory.bias if memory.bias.dim() == 1 else memory.bias.amax(dim=0)
    return (seen > -torch.inf).nonzero()[:, 0].cpu().numpy()


def _find_sharpness(memory: Projected, places: NDArray[np.int64]) -> float:
    """Return what squared distances are multiplied with: minus a bias over a squared length."""
    assert memory.bias is not None
    lengths = memory.keys[0, places].double().square().sum()
    value = -float(memory.bias[..., places].double().sum() / lengths)
    return value if value > 0 else 1.0  # of keys without a length any will do

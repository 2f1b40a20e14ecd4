"""Reading the nearest rows through an index, so that a query does not look at every row."""

import warnings
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import ref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.errors import UserError
from hma.extras import needed
from hma.io.files import file_sha256, written_whole
from hma.io.json_files import Default, read_json, write_json
from hma.io.tensor_files import read_tensors, write_tensors
from hma.memory.projected import Projected
from hma.memory.row_hashes import Hashes, found_at, row_hashes

PROBES = 16
"""Cells that a query looks into."""
ROWS_TO_LEARN_A_CELL, ROUNDS = 64, 10
"""Rows that the centre of a cell is learned from, and rounds of k-means."""
SAME = 0.5
"""Share of the rows that must be in an index for it to be brought up to date, not built again."""
FILES = {"index": "index.faiss", "rows": "index-rows.safetensors"}
MANIFEST = "index.json"
SHAPE = {"schema": int, "probes": Default(int, PROBES), "sha256": dict[str, str]}


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
        for name, value in (("k", k), ("probes", probes)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
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
        there = _visible(memory)
        hashes = row_hashes(rows)[there]
        at = found_at(self._hashes, hashes)
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
        self._sharpness = _sharpness(memory, there[:256])

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
        with written_whole(where / FILES["index"]) as temporary:
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


def _visible(memory: Projected) -> NDArray[np.int64]:
    """Return the places that hold a row, ``(N,)``."""
    assert memory.bias is not None
    seen = memory.bias if memory.bias.dim() == 1 else memory.bias.amax(dim=0)
    return (seen > -torch.inf).nonzero()[:, 0].cpu().numpy()


def _sharpness(memory: Projected, places: NDArray[np.int64]) -> float:
    """Return what squared distances are multiplied with: minus a bias over a squared length."""
    assert memory.bias is not None
    lengths = memory.keys[0, places].double().square().sum()
    value = -float(memory.bias[..., places].double().sum() / lengths)
    return value if value > 0 else 1.0  # of keys without a length any will do

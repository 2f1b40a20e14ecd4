"""Data sets of sentences as graphs: where their files lie and how their authors split them."""

from dataclasses import dataclass

from hma.data.division import by_class
from hma.data.graph.sentences import SentenceGraphs, SentiGraphFolder
from hma.data.labels import class_names, encode
from hma.data.prepared import Prepared, prepare, prepare_splits
from hma.data.sets.named_set import NamedSet, SetRequest
from hma.data.storage import MissingDataError, data_folder

ADDRESS = "https://github.com/divelab/DIG"
HELD_OUT = 0.1
SPLITS = {"train": "train", "validation": "dev", "test": "test"}


@dataclass(frozen=True)
class SentenceSet:
    """A data set of sentences.

    Args:
        name: As a user writes it.
        folder: Below the data folder, with ``train.jsonl``, ``test.jsonl`` and perhaps
            ``dev.jsonl`` inside.
        archive: Name of DIG's archive of it, which is used instead where it is there.
    """

    name: str
    folder: str
    archive: str

    def to_named_set(self) -> NamedSet:
        """Return the set as users find it."""
        return NamedSet(
            (self.name, f"{self.name}:ENCODER"),
            rf"{self.name}(:(?P<encoder>.+))?",
            self._prepare,
            self.source,
        )

    def source(self, request: SetRequest) -> SentenceGraphs | SentiGraphFolder:
        """Return all sentences pooled, those of the training split first.

        The archive has features and edges of its own; naming an encoder leaves it out.
        """
        root, encoder = data_folder(request.data_root), request.groups.get("encoder")
        raw, folder = root / self.archive / "raw", root / self.folder
        if encoder is None and raw.is_dir():
            return SentiGraphFolder(raw, self.archive)
        files = {split: folder / f"{stem}.jsonl" for split, stem in SPLITS.items()}
        files = {s: file for s, file in files.items() if s != "validation" or file.exists()}
        missing = [file for file in files.values() if not file.exists()]
        if missing:
            raise MissingDataError(
                f"{self.name} is missing: looked for {missing[0]}, lines of "
                '{"tokens": [...], "heads": [...], "label": ...}, and for the archive '
                f"{self.archive} of {ADDRESS} in {raw}; put one of them there, or name another "
                "folder with --data-root or HMA_DATA"
            )
        return SentenceGraphs(self.name, files, encoder, request.told)

    def _prepare(self, request: SetRequest) -> Prepared:
        """Return the authors' splits; a tenth of the training rows validates if no split does."""
        source = self.source(request)
        if not {"train", "test"} <= set(source.places):
            return prepare(source, seed=request.seed, options=request.options)
        labels = source.labels or []
        classes = class_names(labels)
        places = {split: list(rows) for split, rows in source.places.items()}
        said = "the authors' training, validation and test sentences"
        if "validation" not in places:
            own = encode([labels[row] for row in places["train"]], classes)
            drawn = by_class(own, request.seed, validation=HELD_OUT, test=0.0)
            places |= {split: [places["train"][n] for n in rows] for split, rows in drawn.items()}
            said = (
                f"{HELD_OUT:.0%} of the training sentences for validation, by class and seed; the "
                "authors' test sentences"
            )
        return prepare_splits(
            source,
            {split: places[split] for split in SPLITS},
            classes=classes,
            seed=request.seed,
            facts={"split": said, "seed": request.seed},
            options=request.options,
        )


GRAPH_SST5 = SentenceSet(name="graph-sst5", folder="text/sst5", archive="Graph-SST5")
GRAPH_TWITTER = SentenceSet(name="graph-twitter", folder="text/twitter", archive="Graph-Twitter")
SETS = (GRAPH_SST5.to_named_set(), GRAPH_TWITTER.to_named_set())

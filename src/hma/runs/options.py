"""Everything that decides a run, as it is written into ``run.json``."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from torch import nn

from hma.attention.config import HMAConfig
from hma.backbones.by_name import backbone_for, images_wanted, text_vector_of
from hma.backbones.named_backbone import Described, Pool
from hma.data import Aim, PreparationOptions, Shift, is_builtin
from hma.errors import UserError, reason, wrong_choice
from hma.io.files import explain_write_errors, is_empty, remove_abandoned
from hma.io.json_files import dataclass_from_json, read_json, write_json
from hma.training import Recipe
from hma.training.identity import differences
from hma.vote.config import VoteConfig

OPTIONS = "run.json"
SCHEMA = 3
"""Version of the layout of a run folder."""
REMEDY = "train again in a new folder"
SEVERAL = "several_seeds"
"""Marks the options of a folder that holds a run for each of several seeds."""


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """What is learned, from which rows, and how they are split."""

    target: tuple[str, ...] = ()
    """Column of the labels, for CSV and Parquet; several columns are yes/no labels."""
    task: Aim | None = None
    """classes, regression for a number, or soft for shares of classes, a column each; by default
    classes, or yes/no labels if several columns are given."""
    text: str | None = None
    """CSV and Parquet: a column of sentences to learn from, with --backbone hf:FOLDER; the other
    columns are left out."""
    encoding: str | None = None
    """CSV and .jsonl: how the characters are written, such as latin-1; UTF-8 if not given. Later
    commands read their files alike."""
    validation: float | str = 0.15
    """Share of the rows to select the epoch by, or a file or folder of such rows; data that comes
    in splits has its own."""
    test: float | str = 0.2
    """Share of the rows to test on, 0 for none, or a file or folder of such rows; data that comes
    in splits has its own."""
    group: str | None = None
    """Tables: a column whose equal values stay in one split, such as a patient; it is not learned
    from."""
    time: str | None = None
    """Tables: a column of dates or numbers by which the earliest rows train and the latest test."""
    shift: Shift | None = None
    """Graphs: train on small ones and test on large (size), train on sparse ones and test on dense
    (degree), or the reverse of that; by percentiles, in place of the shares."""
    skip_missing_labels: bool = False
    """Leave out rows without a label, and count them."""
    skip_bad_files: bool = False
    """Leave out images that cannot be read, and count them."""
    data_root: str | None = None
    """Folder of built-in data; $HMA_DATA or the cache folder if not given."""


@dataclass(frozen=True, kw_only=True)
class BackboneOptions:
    """What makes features of the rows."""

    backbone: str | None = None
    """binned-mlp, mlp, cnn, resnet18, gin, gcn, timm:NAME, vit:NAME (can be tuned in part) or
    hf:NAME_OR_DIR; fits the data if not given."""
    weights: str | None = None
    """Local file with weights for the backbone."""
    frozen_backbone: bool = False
    """Train memory and head only."""
    standard_features: bool = True
    """Bring features of a frozen backbone to mean 0, all together to variance 1, over the training
    rows."""
    tuning: Literal["full", "part"] = "full"
    """For vit:NAME: train all of it, or its CLS token and prompts alone, without a momentum
    encoder."""
    prompts: Literal["first", "deep"] | None = None
    """For vit:NAME: 5 learned tokens from the first block on, or new ones for every block."""
    pooling: Pool | None = None
    """For hf:NAME_OR_DIR: the mean of a text's tokens, the first one, or the largest value of each
    feature; by default as its folder says, or the mean."""
    normalize: bool | None = None
    """For hf:NAME_OR_DIR: bring the vector of a text to length 1; by default as its modules.json
    says."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(DataOptions, BackboneOptions):
    """What was asked for: data, backbone, memory, recipe, seed; paths are made absolute."""

    source: str
    """A path, or the name of built-in data."""
    config: HMAConfig | VoteConfig = field(default_factory=VoteConfig)
    """Which memory, and its sizes."""
    recipe: Recipe = field(default_factory=Recipe)
    """How to train."""
    preparation: PreparationOptions = field(default_factory=PreparationOptions)
    """Choices about the input."""
    seed: int = 0
    """Decides splits, first weights and order of the rows."""

    def __post_init__(self) -> None:
        """Cut texts with the tokenizer of the encoder; a partly tuned one has no slow copy."""
        changed: dict[str, Any] = {}
        for name in ("weights", "data_root", "source", "validation", "test"):
            value = getattr(self, name)
            if isinstance(value, str) and (name != "source" or not is_builtin(value)):
                changed[name] = str(Path(getattr(self, name)).expanduser().absolute())
        if self.tuning == "part" and isinstance(self.config, HMAConfig):
            changed["config"] = replace(self.config, momentum=0.0)
        if (self.backbone or "").startswith("hf:"):
            encoder = _from_root((self.backbone or "").removeprefix("hf:"))
            changed["backbone"] = f"hf:{encoder}"
            encoder = _from_root(self.preparation.encoder or encoder)
            changed["preparation"] = replace(self.preparation, encoder=encoder)
        for name, value in changed.items():
            object.__setattr__(self, name, value)

    def backbone_factory(self, weights: str | None = None) -> Callable[[Described], nn.Module]:
        """Return what builds the backbone, from ``weights`` if a file is given."""
        assert self.backbone is not None
        return backbone_for(
            self.backbone,
            weights=weights,
            frozen=self.frozen_backbone,
            standardised=self.frozen_backbone and self.standard_features,
            tuning=self.tuning,
            prompts=self.prompts,
            pooling=self.pooling,
            normalize=self.normalize,
        )

    def as_weights_want(self) -> Self:
        """Return the options with what the backbone's weights want, wherever nothing was asked.

        That is how images are resized and normalised, but for built-in data, which is prepared
        as its authors do; and how a text becomes one vector.
        """
        if self.backbone is None:
            return self
        given, wanted = self.preparation, None
        asked = "measured" if is_builtin(self.source) or self.weights is None else "weights"
        if (given.transform or asked) == "weights":
            wanted = images_wanted(self.backbone)
        if wanted is not None:
            missing = {k: v for k, v in wanted._asdict().items() if not getattr(given, k)}
            given = replace(given, transform="weights", **missing)
        vector = text_vector_of(self.backbone, self.pooling, self.normalize)
        pooling, normalize = vector or (self.pooling, self.normalize)
        return replace(self, preparation=given, pooling=pooling, normalize=normalize)

    def to_json(self) -> dict[str, Any]:
        """Return the options as JSON values."""
        target = self.target[0] if len(self.target) == 1 else list(self.target) or None
        return {"schema": SCHEMA, "memory": self.memory} | asdict(self) | {"target": target}

    @property
    def memory(self) -> Literal["vote", "hma"]:
        """Short name of the memory."""
        return "hma" if isinstance(self.config, HMAConfig) else "vote"

    @classmethod
    def read(cls, path: Path, *, several: bool = False) -> Self:
        """Read what :meth:`write` wrote, with the same ``several``."""
        values = read_json(path, {"schema": int}, sealed=True, remedy=REMEDY)
        schema = values.pop("schema")
        if schema != SCHEMA:
            raise UserError(
                f"{path} was written by another version of hma (schema {schema}, this one reads "
                f"{SCHEMA}); use that version, or train again"
            )
        if values.pop(SEVERAL, False) != several:
            held = f"several runs; give one of them, such as {path.parent / 'seed-0'}, or --seeds"
            raise UserError(
                f"{path.parent} holds {'a single run; give another folder' if several else held}"
            )
        columns = values.get("target")
        values["target"] = [columns] if isinstance(columns, str) else columns or []
        try:
            kinds: dict[str, type[HMAConfig | VoteConfig]] = {"vote": VoteConfig, "hma": HMAConfig}
            if (memory := values.pop("memory", None)) not in kinds:
                raise ValueError(wrong_choice("memory", memory, tuple(kinds)))
            config = dataclass_from_json(kinds[memory], values.pop("config", {}), where="config")
            found = replace(dataclass_from_json(cls, values), config=config)
            if found.backbone is None and not several:
                raise ValueError("it names no backbone")
            return found
        except ValueError as error:
            raise UserError(f"{path} is damaged: {reason(error)}; {REMEDY}") from error

    def write(self, path: Path, *, several: bool = False) -> None:
        """Write the options, sealed; those of several seeds as they were asked for."""
        write_json(path, self.to_json() | ({SEVERAL: True} if several else {}), sealed=True)


def claim(folder: Path, options: RunOptions, *, several: bool = False) -> None:
    """Make ``folder`` that of ``options``, or refuse it if it holds something else."""
    path = folder / OPTIONS
    if path.exists():
        remove_abandoned(folder, below=True)
        held = RunOptions.read(path, several=several)
        if differing := differences(held.to_json(), options.to_json()):
            raise UserError(
                f"{folder} holds a run with other options: {'; '.join(differing)}. Give the same "
                "options to continue it, or another folder with --output"
            )
        return
    if folder.exists() and not is_empty(folder):
        raise UserError(f"{folder} is not empty and no run of hma; give another --output")
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    options.write(path, several=several)


def _from_root(encoder: str) -> str:
    """Return the folder of an encoder from the root on; a name in the local cache stays."""
    folder = Path(encoder).expanduser()
    return str(folder.resolve()) if folder.is_dir() else encoder

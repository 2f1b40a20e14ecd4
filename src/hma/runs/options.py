"""Everything that decides a run, as it is written into ``run.json``."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

from torch import nn

from hma.attention.config import HMAConfig
from hma.backbones.by_name import backbone_for, images_wanted, text_vector_of
from hma.backbones.named_backbone import Described
from hma.data import PreparationOptions, is_builtin
from hma.errors import UserError, reason, wrong_choice
from hma.io.files import explain_write_errors, is_empty, remove_abandoned
from hma.io.json_files import dataclass_from_json, read_json, write_json
from hma.options.run import BackboneOptions, DataOptions, Refit
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
    refit: Refit = "auto"
    """Whether candidates are fitted again on training and validation rows once validation chose
    their settings; a run that has begun says yes or no."""

    def __post_init__(self) -> None:
        """Cut texts with the tokenizer of the encoder; a partly tuned one has no slow copy."""
        if self.refit not in get_args(Refit):
            raise UserError(wrong_choice("refit", self.refit, get_args(Refit)))
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
        values.setdefault("refit", "no")  # runs of before there was a choice
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
        raise UserError(f"{folder} is not empty and is not a run; give another --output")
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    options.write(path, several=several)


def _from_root(encoder: str) -> str:
    """Return the folder of an encoder from the root on; a name in the local cache stays."""
    folder = Path(encoder).expanduser()
    return str(folder.resolve()) if folder.is_dir() else encoder

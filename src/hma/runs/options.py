"""Everything that decides a run, as it is written into ``run.json``."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from torch import nn

from hma.backbones.by_name import backbone_for
from hma.backbones.named_backbone import Described
from hma.config import HMAConfig
from hma.data import PreparationOptions
from hma.errors import UserError
from hma.json_files import dataclass_from_json, read_json, write_json
from hma.training import Recipe

SCHEMA = 2
"""Version of the layout of a run folder."""
REMEDY = "train again in a new folder"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What was asked for: data, backbone, memory, recipe, seed."""

    source: str
    """A path, made absolute, or the name of built-in data."""
    target: str | None = None
    """Column of the labels, for tables."""
    backbone: str | None = None
    """As ``hma.backbones.by_name.backbone_for`` takes it; None for the default of the data."""
    weights: str | None = None
    """File with weights for the backbone."""
    frozen_backbone: bool = False
    """Whether the backbone stays as it is."""
    tuning: Literal["full", "part"] = "full"
    """Which part of ``vit:NAME`` trains."""
    prompts: Literal["first", "deep"] | None = None
    """Which learned tokens ``vit:NAME`` has besides."""
    config: HMAConfig = field(default_factory=HMAConfig)
    """Sizes of the memories."""
    recipe: Recipe = field(default_factory=Recipe)
    """How to train."""
    preparation: PreparationOptions = field(default_factory=PreparationOptions)
    """Choices about the input."""
    seed: int = 0
    """Decides splits, first weights and order of the rows."""
    validation: float = 0.15
    """Share of the rows to select by."""
    test: float = 0.2
    """Share of the rows to test on."""
    skip_bad_files: bool = False
    """Whether unreadable images are left out."""
    data_root: str | None = None
    """Where built-in data is."""

    def __post_init__(self) -> None:
        """Cut texts with the tokenizer of the encoder; a partly tuned one has no slow copy.

        The encoder's folder is made absolute, so that the run can be used from anywhere.
        """
        if self.tuning == "part":
            object.__setattr__(self, "config", replace(self.config, momentum=0.0))
        if (self.backbone or "").startswith("hf:"):
            encoder = _absolute((self.backbone or "").removeprefix("hf:"))
            object.__setattr__(self, "backbone", f"hf:{encoder}")
            encoder = _absolute(self.preparation.encoder or encoder)
            object.__setattr__(self, "preparation", replace(self.preparation, encoder=encoder))

    def backbone_factory(self, weights: str | None = None) -> Callable[[Described], nn.Module]:
        """Return what builds the backbone, from ``weights`` if a file is given."""
        assert self.backbone is not None
        return backbone_for(
            self.backbone,
            weights=weights,
            frozen=self.frozen_backbone,
            tuning=self.tuning,
            prompts=self.prompts,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the options as JSON values."""
        return {"schema": SCHEMA} | asdict(self)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what :meth:`write` wrote."""
        values = read_json(path, {"schema": int}, remedy=REMEDY)
        schema = values.pop("schema")
        if schema != SCHEMA:
            raise UserError(
                f"{path} was written by another version of hma (schema {schema}, this one reads "
                f"{SCHEMA}); use that version, or train again"
            )
        try:
            return dataclass_from_json(cls, values)
        except ValueError as error:
            why = " ".join(str(error).split())
            raise UserError(f"{path} is damaged: {why}; {REMEDY}") from error

    def write(self, path: Path) -> None:
        """Write the options, sealed."""
        write_json(path, self.to_json(), sealed=True)


def _absolute(encoder: str) -> str:
    """Return the folder of an encoder from the root on; a name in the local cache stays."""
    folder = Path(encoder)
    return str(folder.resolve()) if folder.is_dir() else encoder

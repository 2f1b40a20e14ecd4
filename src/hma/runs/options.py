"""Everything that decides a run, as it is written into ``run.json``."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self

from torch import nn

from hma.backbones.by_name import Described, backbone_for
from hma.config import HMAConfig
from hma.data import PreparationOptions
from hma.errors import UserError
from hma.training import Recipe

SCHEMA = 2
"""Version of the layout of a run folder."""


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
        """Cut texts with the tokenizer of the encoder; a partly tuned one has no slow copy."""
        if self.tuning == "part":
            object.__setattr__(self, "config", replace(self.config, momentum=0.0))
        if (self.backbone or "").startswith("hf:") and self.preparation.encoder is None:
            encoder = (self.backbone or "").removeprefix("hf:")
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
    def from_json(cls, values: dict[str, Any], where: Path) -> Self:
        """Build options from what :meth:`to_json` returned; ``where`` is named in errors."""
        schema = values.get("schema")
        if schema != SCHEMA:
            raise UserError(
                f"{where} was written by another version of hma (schema {schema!r}, this one reads "
                f"{SCHEMA}); use that version, or train again"
            )
        names = {option.name for option in fields(cls)}
        if names != set(values) - {"schema"}:
            raise UserError(f"{where} is damaged: its fields are not those of a run; train again")
        plain = {name: values[name] for name in names}
        preparation = dict(plain["preparation"])
        preparation["categorical"] = tuple(preparation["categorical"])
        return cls(
            **plain
            | {
                "config": HMAConfig.from_dict(plain["config"]),
                "recipe": Recipe.from_json(plain["recipe"]),
                "preparation": PreparationOptions(**preparation),
            }
        )

    def differences(self, other: "RunOptions") -> list[str]:
        """Say which options differ, each with both values."""
        mine, theirs = _flat(self.to_json()), _flat(other.to_json())
        return [
            f"{name} was {mine[name]!r}, now {theirs[name]!r}"
            for name in mine
            if mine[name] != theirs[name]
        ]


def _flat(values: dict[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        inner = f"{path}{name}"
        found |= _flat(value, f"{inner}.") if isinstance(value, dict) else {inner: value}
    return found

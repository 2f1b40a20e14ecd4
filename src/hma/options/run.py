"""Options of a run that say which rows are learned from, what reads them, and who answers."""

from dataclasses import dataclass
from typing import Literal

Aim = Literal["classes", "regression", "soft"]
"""What a user may ask to be learned; several columns without a word about it are yes/no labels."""
Shift = Literal["size", "degree", "degree-reversed"]
"""Small graphs train and large ones test; sparse ones train and dense ones test; or the reverse."""
Refit = Literal["auto", "yes", "no"]
"""Whether every candidate is fitted again on all rows; auto does so where that is cheap."""
Pool = Literal["mean", "cls", "max"]
"""How the tokens of a text become one vector."""
Which = Literal[
    "mixture", "memory", "plain", "logistic", "neighbours", "kernel", "boosting", "param"
]
"""Who answers: one of the candidates, or all of them together."""


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

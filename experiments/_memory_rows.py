"""Rows of the suites that ask whether a memory helps: its designs, and what needs no network."""

from dataclasses import asdict, replace
from typing import Any, cast

from hma import MemoryModel, methods
from hma.attention.config import HMAConfig
from hma.data import Task
from hma.methods import Learner, Method, erm
from hma.methods.learner import BackboneFactory
from hma.methods.simple import boosting, kernel, logistic, neighbours
from hma.metrics import recorded
from hma.paper.rivals import (
    cache,
    catboost,
    forest,
    lightgbm,
    prototypes,
    real_mlp,
    support_vectors,
    tabm,
    xgboost,
    xrfm,
)
from hma.paper.table import Row
from hma.questions.audit import AUDIT
from hma.training.evaluation import audit_split
from hma.vote.config import VoteConfig

from ._vote import PLAIN

MEASURED = "54d3a106"
"""Commit at which variants of the vote were measured that left the package."""
PERMUTATIONS = 3
"""Of the labels of stored rows, for each test split."""


def with_memory(backbone: BackboneFactory, *, config: dict[str, Any]) -> Method:
    """Return a memory on the backbone; a row is answered alone, as a deployed model does."""
    kind = VoteConfig if "memory_size" in config else HMAConfig
    return methods.with_memory(backbone, kind.from_dict(config), alone=True)


def audited(learner: Learner, task: Task) -> dict[str, Any]:
    """Return what the memory loses with other labels, without rows, without slots, by test split.

    A row is asked alone, as a deployed model answers. Of a model that has no memory there is
    nothing to measure; intervals are left to the seeds.
    """
    model = cast("MemoryModel", learner.module)
    metrics = [metric.name for metric in recorded(task.target)]
    found = {
        name: audit_split(
            model, split, context="alone", metrics=metrics, repeats=PERMUTATIONS, resamples=0
        ).to_json()
        for name, split in task.tests.items()
    }
    return {AUDIT: found} if any(one["changes"] for one in found.values()) else {}


def memory(what: str, config: HMAConfig | VoteConfig) -> Row:
    """Return a row with memory; records hold every field of its config."""
    settings = {"config": asdict(config)}
    return Row(build=with_memory, settings=settings, what=what, measure=audited)


def retired(what: str, **fields: Any) -> Row:
    """Return a variant of the vote that lost and left the package, with its records."""
    return Row(retired=MEASURED, settings={"config": asdict(PLAIN) | fields}, what=what)


ROWS = {
    "ERM": Row(build=erm, what="the backbone and a linear head"),
    "PARAM": memory(
        "the paper's two blocks without memory and without neighbours", HMAConfig.ablation("param")
    ),
    "HMA": memory("the paper's memories: attention by dot product", HMAConfig()),
    "plain-vote": memory(
        "nearest stored rows vote for their labels beside the head, keys from the inputs", PLAIN
    ),
    "VotingMemory": memory(
        "the same rows also say what is solved for, by keys and by the inputs", VoteConfig()
    ),
    "kNN": Row(build=neighbours, what="nearest neighbours, fitted at once"),
    "logistic": Row(build=logistic, what="logistic regression, fitted at once"),
    "prototypes": Row(build=prototypes, what="class means, centred and normalised"),
    "cache": Row(build=cache, what="a linear layer and a cache of stored rows (Tip-Adapter)"),
    "kernel": Row(build=kernel, what="kernel ridge regression, fitted at once"),
    "forest": Row(build=forest, what="random forest, fitted at once"),
    "boosting": Row(build=boosting, what="gradient boosting, fitted at once"),
}
OF_TABLES = {
    "SVM": Row(build=support_vectors, what="support vectors with Gaussian bumps, fitted at once"),
    "CatBoost": Row(build=catboost, what="CatBoost with its defaults"),
    "XGBoost": Row(build=xgboost, what="XGBoost with its defaults"),
    "LightGBM": Row(build=lightgbm, what="LightGBM with its defaults"),
    "RealMLP": Row(build=real_mlp, what="RealMLP-TD of pytabkit with its defaults"),
    "TabM": Row(build=tabm, what="TabM of pytabkit with its defaults"),
    "xRFM": Row(build=xrfm, what="xRFM with its defaults"),
}
"""What people use on tables today; all but the first need the extra ``rivals``."""

SWITCHES = {
    "ERM": ROWS["ERM"],
    "plain-vote": ROWS["plain-vote"],
    "vote-features": memory(
        "keys from the features that the head reads", replace(PLAIN, key_view="features")
    ),
    "vote-added": retired(
        "keys learn with the backbone, the vote is added to the logits", vote="added"
    ),
    "vote-gated": retired("added through a gate that starts at zero", vote="gated"),
    "vote-values": retired(
        "rows add to the features of the head besides", vote="gated", values=True
    ),
    "vote-alone": retired("the vote without the head", vote="alone"),
    "vote-self": memory(
        "rows may read their own copy while keys learn", replace(PLAIN, leave_self_out=False)
    ),
    "vote-512": memory("the last 512 rows instead of all", replace(PLAIN, memory_size=512)),
    "vote-slots": memory(
        "learned rows beside the stored ones, started by k-means",
        replace(PLAIN, slots_per_class=4, slot_init="kmeans"),
    ),
}
"""The memory that is the default, and with one thing changed at a time."""
NAMES_OF_ROWS = {"plain-vote": "HMA", "HMA": "HMA-paper"}
"""What records of M1 and M2 say."""
NAMES_OF_SWITCHES = {
    "plain-vote": "HMA",
    **{name: name.replace("vote-", "HMA-") for name in SWITCHES if name.startswith("vote-")},
}
"""What records of M1-switches say."""

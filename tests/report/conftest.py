"""A small run made up in memory: a model with memories, its answers, its records."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from PIL import Image
from report_parts import change_part
from torch import Tensor, nn

from hma import HMA, HMAConfig
from hma.report.run_facts import RunFacts, TrainingRows
from hma.report.run_report import MEMORY, PLAIN, RunReport
from hma.report.scoring import Answers
from hma.report.summary import summarise

CLASSES = ("cat", "dog", "eel")


@dataclass(frozen=True)
class MadeUp:
    """A model, the rows it was shown, and what it and a plain backbone said of test rows."""

    model: HMA
    train_x: Tensor
    test_x: Tensor
    about: dict[str, Any]
    answers: Answers
    memory_record: dict[str, Any]
    plain_record: dict[str, Any]
    rows: TrainingRows

    def report(self, **changes: Any) -> RunReport:
        """Collect the run, with few resamples."""
        given: dict[str, Any] = {
            "model": self.model,
            "records": {PLAIN: self.plain_record, MEMORY: self.memory_record},
            "tests": {"test": self.answers},
            "training_rows": self.rows,
            "batch_size": 16,
            "resamples": 50,
        }
        return summarise(RunFacts(**(self.about | given | changes)))


def record_of(seed: int = 0, contexts: tuple[str, ...] = ("batch", "alone")) -> dict[str, Any]:
    """Return a record as JSON values, with an epoch whose loss is not a number."""
    epochs = [
        {
            "epoch": e,
            "train_loss": None if e == 1 else 1.0 / (e + 1),
            "validation": {c: {"accuracy": 0.5 + 0.1 * e, "auroc": 0.6} for c in contexts},
            "lr": 0.001,
        }
        for e in range(4)
    ]
    return {
        "schema": 1,
        "name": "made up",
        "seed": seed,
        "setup": {"method": {"trained_weights": 1234}, "recipe": {"lr": 0.001}},
        "resolved": {"source": "made/up.csv", "hma": {"queue_size": 8}},
        "git_commit": "abc123",
        "versions": {"hma": "0.1.0", "torch": "2.13.0"},
        "data_fingerprint": "f" * 64,
        "epochs": epochs,
        "selected_epoch": 2,
        "selection_rule": "best validation accuracy",
        "tests": {},
        "seconds": 75.0,
        "epoch_seconds": [0.5, 0.25, 0.25, 0.5],
        "peak_memory_bytes": 2**28,
    }


def made_up(
    config: HMAConfig | None = None, classes: tuple[str, ...] = CLASSES, one_logit: bool = False
) -> MadeUp:
    """Return a run of a linear backbone on noise."""
    torch.manual_seed(3)
    count = len(classes)
    config = config or HMAConfig(queue_size=12, slots_per_class=3, label_dim=4, num_heads=2)
    model = HMA(nn.Linear(5, 8), 1 if one_logit else count, config, feature_dim=8).eval()
    train_x, train_y = torch.randn(20, 5), (torch.arange(20) % 4).clamp(max=count - 1)
    test_x, test_y = torch.randn(40, 5), torch.arange(40) % count
    model.remember(train_x, train_y, ids=torch.arange(20))
    contexts = ("batch", "alone") if config.batch_attention else ("alone",)
    with torch.no_grad():
        features = model.backbone(test_x)
        said = {}
        for context in contexts:
            model.context = context
            said[context] = torch.cat([model.classify(part) for part in features.split(16)])
        model.context = contexts[0]
        plain = torch.randn(40, 1 if one_logit else count)
    return MadeUp(
        model=model,
        train_x=train_x,
        test_x=test_x,
        about={
            "title": "made up",
            "kind": "image",
            "classes": classes,
            "splits": {"train": train_y, "test": test_y},
            "facts": {"split": "by hand", "nested": {"seed": 0}},
        },
        answers=Answers(labels=test_y, memory=said, plain={"alone": plain}, features=features),
        memory_record=record_of(contexts=contexts),
        plain_record=record_of(contexts=("alone",)),
        rows=TrainingRows(
            describe=lambda place: f"row {place}",
            thumbnail=lambda place: Image.new("RGB", (9, 9), (place % 256, 0, 0)),
            places=[100 + i for i in range(20)],
            features=lambda ids: model.backbone(train_x[ids]),
        ),
    )


@pytest.fixture(scope="session")
def run() -> MadeUp:
    """Return the run most tests look at."""
    return made_up()


@pytest.fixture(scope="session")
def report(run: MadeUp) -> RunReport:
    """Return its report."""
    return run.report()


@pytest.fixture(scope="session")
def make() -> Any:
    """Return the function that makes up a run."""
    return made_up


@pytest.fixture(scope="session")
def with_labels(report: RunReport) -> Any:
    """Return a function that renames the classes of the report."""

    def renamed(*labels: str) -> RunReport:
        shown = zip(report.parts["examples"].by_class, labels, strict=True)
        by_class = tuple(one._replace(label=label) for one, label in shown)
        changed = change_part(report, "examples", by_class=by_class)
        return replace(changed, classes=labels, groups=labels)

    return renamed

"""Hundreds of damaged files, always the same ones: each is read, or refused in one line."""

import json
import os
import random
import shutil
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import hma
from hma.attention.config import HMAConfig
from hma.backbones import mlp
from hma.data import open_source, prepare
from hma.errors import UserError
from hma.estimator import MemoryClassifier
from hma.io.json_files import SEAL, write_json
from hma.methods import with_memory
from hma.options.config import ConfigError
from hma.paper.packed_records import PackedRecords
from hma.runs.answers import evaluate
from hma.runs.deployment import MEMORY, PLAIN
from hma.runs.folder import Run
from hma.runs.living import LivingMemory
from hma.runs.options import RunOptions
from hma.runs.source import source_from
from hma.runs.train import train
from hma.training import Interrupted, Recipe, Record, fit
from hma.training.checkpoints import Checkpoints
from hma.training.progress import SilentProgress

RECIPE = Recipe(epochs=2, batch_size=16, checkpoint_every_steps=2)
SMALL = HMAConfig(queue_size=8, slots_per_class=1, label_dim=4, num_heads=1, dropout=0.0)
STRANGE = [None, True, -1, 0, 3.5, 1e308, 10**12, 10**30, "x", "", [], {}, [[]], {"a": 1}, "\ud800"]
Damage = Callable[[random.Random, Path], None]


# ------------------------------------------------------------------------------------ the damage


def flipped(draw, path):
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 4, 40])):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def cut(draw, path):
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data))])


def spliced(draw, path):
    data = path.read_bytes()
    first, last = sorted(draw.randrange(len(data)) for _ in range(2))
    between = draw.choice([b"", data[first:last] * 2, draw.randbytes(9), b"\xff\xfe", b"\0" * 9])
    path.write_bytes(data[:first] + between + data[last:])


def something_else(draw, path):
    contents = [b"", b"[" * 5000 + b"]" * 5000, b'"\\ud800"', b"\xff" * 99, b"{}", b"null", b"[1]"]
    path.write_bytes(draw.choice([*contents, b"PK\x03\x04nothing", b"\x1f\x8b\x08nothing"]))


def no_file(draw, path):
    path.unlink()
    if draw.random() < 0.5:
        path.mkdir()
    else:
        os.mkfifo(path)


def another_value(draw, path):
    """Change one value of a JSON file, and its seal with it: only the shape can tell."""
    values = json.loads(path.read_text(encoding="utf-8"))
    sealed = isinstance(values, dict) and values.pop(SEAL, None) is not None
    place, inner = values, values
    while isinstance(inner, dict | list) and inner and draw.random() < 0.9:
        place = inner
        name = draw.choice(list(place)) if isinstance(place, dict) else draw.randrange(len(place))
        inner = place[name]
    if inner is not values:
        if draw.random() < 0.3 and isinstance(place, dict):
            del place[name]
        else:
            place[name] = draw.choice(STRANGE)
    path.write_text(json.dumps(values))
    if sealed:
        write_json(path, values, sealed=True)


BYTES: list[Damage] = [flipped, cut, spliced, something_else, no_file]
JSON: list[Damage] = [*BYTES, another_value, another_value, another_value]


# ---------------------------------------------------------------------------- what is damaged


@dataclass(frozen=True)
class Case:
    """A kind of file.

    Args:
        make: Fills a folder.
        use: Reads it, as a user would.
        files: Which of its files are damaged in turn.
        rounds: How often each of them.
        damage: How.
    """

    make: Callable[[Path], object]
    use: Callable[[Path], object]
    files: str
    rounds: int = 40
    damage: tuple[Damage, ...] = tuple(JSON)


def rows(folder):
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    y = draw.integers(2, size=40)
    np.savez(folder / "rows.npz", x=draw.normal(size=(40, 3)) + y[:, None], y=y)
    return folder / "rows.npz"


def options_in(folder):
    return RunOptions(source=str(folder / "data" / "rows.npz"), config=SMALL, recipe=RECIPE)


def make_run(folder):
    rows(folder / "data")
    train(options_in(folder), folder / "run", accelerator="cpu", progress=SilentProgress())


def use_run(folder):
    run = Run.open(folder / "run")
    run.record(MEMORY)
    assert isinstance(run.places, dict)
    evaluate(run, source_from(options_in(folder)))
    run.learner(PLAIN)


def make_versions(folder):
    rows(folder / "data")
    options = RunOptions(source=str(folder / "data" / "rows.npz"), recipe=RECIPE)
    train(options, folder / "run", compare=False, progress=SilentProgress())
    memory = LivingMemory.open(folder / "run")
    for number in (0.1, 0.2):
        draw = np.random.default_rng(3)
        more = folder / "data" / "more.npz"
        np.savez(more, x=draw.normal(size=(3, 3)) + number, y=np.arange(3) % 2)
        memory.remember(str(more))
    memory.forget(ids=[0], scored=False)
    memory.restore(1, scored=False)


def use_versions(folder):
    memory = LivingMemory.open(folder / "run")
    memory.history()
    memory.rows()
    memory.forget(ids=[1], scored=False)


def backbone():
    torch.manual_seed(0)
    return nn.Linear(3, 8)


def make_model(folder):
    hma.save(hma.HMA(backbone(), 3, SMALL, feature_dim=8), folder / "model")


def make_vote(folder):
    model = hma.VotingMemory(backbone(), 3, hma.VoteConfig(key_dim=4), feature_dim=8).eval()
    model.remember(torch.randn(6, 3), torch.arange(6) % 3)
    hma.save(model, folder / "model")


def use_model(folder):
    hma.load(folder / "model", backbone())(torch.zeros(2, 3))


def make_estimator(folder):
    draw = np.random.default_rng(0)
    model = MemoryClassifier(max_epochs=1, hidden=(8,), memory_size=8, random_state=0)
    model.fit(draw.normal(size=(40, 3)), draw.integers(2, size=40))
    model.save(folder / "classifier")


def use_estimator(folder):
    MemoryClassifier.load(folder / "classifier").predict(np.zeros((2, 3)))


def learner_and_task(folder):
    options = options_in(folder)
    task = prepare(source_from(options), seed=0, validation=0.15, test=0.2).task
    return with_memory(lambda task: mlp(3, hidden=(8,)), SMALL)(task, 0), task


def make_checkpoints(folder):
    rows(folder / "data")
    learner, task = learner_and_task(folder)
    steps = []

    def stop(batch, after=learner.after_step):
        after(batch)
        steps.append(1)
        if len(steps) == 3:
            raise Interrupted("stopped", 2)

    learner.after_step = stop
    with pytest.raises(Interrupted):
        fit(learner, task, RECIPE, seed=0, folder=folder / "fit", progress=SilentProgress())
    assert Checkpoints(folder / "fit" / "checkpoints").steps()


def use_checkpoints(folder):
    learner, task = learner_and_task(folder)
    fit(learner, task, RECIPE, seed=0, folder=folder / "fit", progress=SilentProgress())


def make_record(folder):
    packed = PackedRecords(Path(__file__).parents[2] / "results", "T4")
    Record.from_json(packed.values(min(packed.cells()))).write(folder / "record.json")


def make_csv(folder):
    lines = [f"{place % 7},{'red' if place % 3 else 'blue'},{place % 2}" for place in range(60)]
    (folder / "rows.csv").write_text("a,colour,label\n" + "\n".join(lines) + "\n")


def make_jsonl(folder):
    values = ({"text": f"word{place % 5} and", "label": place % 2} for place in range(60))
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, values)) + "\n")


def use_jsonl(folder):
    source = open_source(str(folder / "rows.jsonl"), target="label", seed=0)
    source.fingerprint()
    assert [source.describe(place) for place in range(len(source))]


def make_images(folder):
    draw = np.random.default_rng(0)
    for place in range(24):
        (folder / "images" / str(place % 2)).mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(draw.integers(256, size=(8, 8, 3), dtype=np.uint8))
        ending = "png" if place % 4 < 2 else "jpg"
        picture.save(folder / "images" / str(place % 2) / f"{place}.{ending}")


def make_graphs(folder):
    graphs = 24
    content = {
        "A": [f"{2 * g + a}, {2 * g + b}" for g in range(graphs) for a, b in ((1, 2), (2, 1))],
        "graph_indicator": [g + 1 for g in range(graphs) for _ in range(2)],
        "graph_labels": [g % 2 for g in range(graphs)],
        "node_labels": [g % 3 for g in range(graphs) for _ in range(2)],
    }
    (folder / "TOY").mkdir()
    for name, lines in content.items():
        (folder / "TOY" / f"TOY_{name}.txt").write_text("\n".join(map(str, lines)) + "\n")


def opened(name, target=None):
    """Return what makes a task of ``name`` and looks at every row of it."""

    def use(folder):
        source = open_source(str(folder / name), target=target, seed=0)
        task = prepare(source, seed=0, validation=0.2, test=0.2).task
        for split in (task.train, task.validation, *task.tests.values()):
            split.batch(torch.arange(len(split)))

    return use


CASES = {
    "run": Case(make_run, use_run, "run/*.json", rounds=10),
    "its records": Case(make_run, use_run, "run/*/record.json", rounds=15),
    "its weights": Case(make_run, use_run, "run/plain/weights.safetensors", 15, tuple(BYTES)),
    "versions": Case(make_versions, use_versions, "run/memory/versions/1/*.json", rounds=25),
    "its pointer": Case(make_versions, use_versions, "run/memory/current.json", rounds=25),
    "record": Case(make_record, lambda folder: Record.read(folder / "record.json"), "record.json"),
    "model": Case(make_model, use_model, "model/hma.json", rounds=80),
    "vote": Case(make_vote, use_model, "model/hma.json", rounds=80),
    "weights": Case(make_model, use_model, "model/*.safetensors", 30, tuple(BYTES)),
    "classifier": Case(make_estimator, use_estimator, "classifier/estimator.json", rounds=80),
    "checkpoint": Case(make_checkpoints, use_checkpoints, "fit/checkpoints/*.json", rounds=15),
    "its tensors": Case(
        make_checkpoints, use_checkpoints, "fit/checkpoints/*.safetensors", 8, tuple(BYTES)
    ),
    "csv": Case(make_csv, opened("rows.csv", "label"), "rows.csv", 60, tuple(BYTES)),
    "jsonl": Case(make_jsonl, use_jsonl, "rows.jsonl", 60, tuple(BYTES)),
    "npz": Case(rows, opened("rows.npz"), "rows.npz", 80, tuple(BYTES)),
    "images": Case(make_images, opened("images"), "images/0/[02].*", 30, tuple(BYTES)),
    "graphs": Case(make_graphs, opened("TOY"), "TOY/*.txt", 10, tuple(BYTES)),
}


# ------------------------------------------------------------------------------------- the test


def put_back(folder, kept):
    shutil.rmtree(folder)
    shutil.copytree(kept, folder)


def outcome(case, folder):
    """Return what was said of a damaged folder, None if it could be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.use(folder)
    except (UserError, ConfigError) as error:
        return str(error)
    except Exception:
        return traceback.format_exc()
    return None


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_file_is_read_or_refused_in_one_line(name, tmp_path):
    case, draw = CASES[name], random.Random(name)
    folder, kept = tmp_path / "here", tmp_path / "kept"
    folder.mkdir()
    case.make(folder)
    shutil.copytree(folder, kept)
    paths = sorted(path.relative_to(folder) for path in folder.glob(case.files))
    assert paths
    for path in paths:
        for place in range(case.rounds):
            damage = draw.choice(case.damage)
            damage(draw, folder / path)
            said = outcome(case, folder)
            assert said is None or "\n" not in said, f"{path}, {damage.__name__} {place}: {said}"
            put_back(folder, kept)

"""A checkpoint comes back bit for bit, or with an error that says what is wrong and where."""

import copy
import errno
import hashlib
import json
import os
import pickle
import resource
import struct
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from read_designs import READS, opened
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import cross_entropy

import hma.io.tensor_files
from hma import HMA, CheckpointError, HMAConfig, load, save
from hma.errors import UserError
from hma.io.checkpoint import is_saved
from hma.targets import Number, SoftClasses, YesNo

WIDTH, CLASSES = 8, 3
CONTEXTS = ("batch", "alone", "anchors")
SMALL = {"label_dim": 4, "queue_size": 6, "slots_per_class": 2, "num_heads": 2, "momentum": 0.9}
X = torch.sin(torch.arange(15.0)).view(3, 5)
Y = torch.tensor([0, 1, 2])


def new_backbone(width=WIDTH):
    return nn.Sequential(nn.Linear(5, width), nn.Tanh())


class Tied(nn.Module):
    """Two layers of one weight, as in a language model's embedding and output."""

    def __init__(self, tied=True):
        super().__init__()
        self.enter = nn.Linear(5, WIDTH)
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        if tied:
            self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(torch.tanh(self.enter(x)))))


def filled(backbone=None, seed=0, **changes):
    torch.manual_seed(seed)
    config = HMAConfig(**SMALL | changes)
    model = HMA(backbone or new_backbone(), CLASSES, config, feature_dim=WIDTH)
    for count in (4, 5):
        model.remember(
            torch.randn(count, 5), torch.arange(count) % CLASSES, ids=torch.arange(count)
        )
    model.set_anchors(torch.randn(4, 5))
    return model.eval()


def assert_same_state(left, right):
    assert left.state_dict().keys() == right.state_dict().keys()
    for name, value in left.state_dict().items():
        assert torch.equal(value, right.state_dict()[name]), name


def logits_in_every_context(model):
    found, usual = [], model.context
    for context in CONTEXTS:
        model.context = context
        found.append(model(X))
    model.context = usual
    return torch.stack(found)


def files_of(folder):
    """Return the files of a checkpoint; the one that a save holds it by stays beside them."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def manifest_of(folder):
    return json.loads((folder / "hma.json").read_text())


def weights_of(folder):
    return folder / manifest_of(folder)["weights"]


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "checkpoint"
    save(filled(), folder)
    return folder


# ---------------------------------------------------------------------- round trip


@pytest.mark.parametrize("queue_labels", ["live", "frozen"])
def test_a_loaded_model_gives_the_same_bits_in_every_context(tmp_path, queue_labels):
    model = filled(queue_labels=queue_labels)
    save(model, tmp_path)
    loaded = load(tmp_path, new_backbone())
    assert_same_state(loaded, model)
    assert torch.equal(logits_in_every_context(loaded), logits_in_every_context(model))


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("context", CONTEXTS)
def test_context_frozen_flag_and_configuration_come_back(tmp_path, context, frozen):
    model = filled(scale="token", top_k=4)
    model.context = context
    model.freeze_memory(frozen)
    save(model, tmp_path)
    loaded = load(tmp_path, new_backbone())
    assert loaded.context == context
    assert loaded.memory_frozen is frozen
    assert loaded.config == HMAConfig(**SMALL, scale="token", top_k=4, context=context)
    assert not loaded.training
    assert torch.equal(loaded(X), model(X))


@pytest.mark.parametrize("design", READS)
def test_every_way_to_read_comes_back(tmp_path, design):
    model = opened(filled(**READS[design]))
    for part in model.buffers():
        if part.shape == (8, 6):
            part += 1  # a drawn direction is state, not a constant of the program
    save(model, tmp_path)
    loaded = load(tmp_path, new_backbone())
    assert loaded.config == model.config
    for context in CONTEXTS:
        model.context = loaded.context = context
        assert torch.equal(loaded(X), model(X))


@pytest.mark.parametrize("row", ["rma", "abd", "abd+syn", "abd+rma", "hma", "param"])
def test_every_ablation_comes_back(tmp_path, row):
    shared = {"num_heads": 2, "dropout": 0.0}
    model = HMA(new_backbone(), CLASSES, HMAConfig.ablation(row, **shared), feature_dim=WIDTH)
    model.remember(X, Y)
    save(model.eval(), tmp_path)
    assert torch.equal(load(tmp_path, new_backbone())(X), model(X))


def test_a_loaded_model_trains_on_as_the_saved_one_would(checkpoint):
    states = []
    for model in (filled(), load(checkpoint, new_backbone())):
        model.train()
        optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.1)
        torch.manual_seed(1)  # of the dropout
        for _ in range(3):
            optimizer.zero_grad()
            cross_entropy(model(X), Y).backward()
            optimizer.step()
            model.remember(X, Y)
        states.append(model)
    assert_same_state(*states)


def test_tied_weights_come_back_tied(tmp_path):
    model = filled(Tied())
    save(model, tmp_path)
    loaded = load(tmp_path, Tied())
    assert torch.equal(loaded(X), model(X))
    assert loaded.backbone.second.weight is loaded.backbone.first.weight
    assert torch.equal(load(tmp_path, Tied(tied=False))(X), model(X))


def test_a_frozen_backbone_loads_into_one_that_trains_and_gets_a_momentum_encoder(tmp_path):
    model = filled(new_backbone().requires_grad_(False))
    assert model.momentum_encoder is None
    save(model, tmp_path)
    loaded = load(tmp_path, new_backbone())
    assert torch.equal(logits_in_every_context(loaded), logits_in_every_context(model))
    slow = loaded.momentum_encoder.encoder
    assert torch.equal(slow(X), model.backbone(X))
    assert not any(parameter.requires_grad for parameter in slow.parameters())


def test_a_trained_backbone_loads_into_a_frozen_one_without_its_momentum_encoder(checkpoint):
    loaded = load(checkpoint, new_backbone().requires_grad_(False))
    assert loaded.momentum_encoder is None
    assert not any(parameter.requires_grad for parameter in loaded.backbone.parameters())
    assert torch.equal(logits_in_every_context(loaded), logits_in_every_context(filled()))


# ----------------------------------------------------------------------- no pickle


def test_the_files_are_a_json_object_and_safetensors_to_the_last_byte(checkpoint):
    weights = weights_of(checkpoint)
    assert files_of(checkpoint).keys() == {"hma.json", weights.name}
    content = weights.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    spans = sorted(entry["data_offsets"] for entry in header.values())
    assert spans[0][0] == 0
    assert all(left[1] == right[0] for left, right in pairwise(spans))
    assert 8 + length + spans[-1][1] == len(content)


def test_saving_and_loading_never_pickle(tmp_path, monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("pickle was used")

    for name in ("load", "loads", "dump", "dumps", "Unpickler", "Pickler"):
        monkeypatch.setattr(pickle, name, forbidden)
    monkeypatch.setattr(torch, "load", forbidden)
    monkeypatch.setattr(torch, "save", forbidden)
    model = filled()
    save(model, tmp_path)
    assert torch.equal(load(tmp_path, new_backbone())(X), model(X))


def test_a_state_that_would_need_pickle_is_refused_by_name(tmp_path):
    class Counting(nn.Linear):
        def get_extra_state(self):
            return {"calls": 3}

        def set_extra_state(self, state):
            pass

    model = filled(Counting(5, WIDTH))
    with pytest.raises(UserError, match=r"backbone\._extra_state holds a dict, and only"):
        save(model, tmp_path)
    assert files_of(tmp_path) == {}


def test_a_wrapped_model_is_refused_before_anything_is_written(tmp_path):
    wrapped = torch.compile(filled(), backend="eager")
    with pytest.raises(TypeError, match=r"got OptimizedModule; .* `\._orig_mod` of a compiled one"):
        save(wrapped, tmp_path)
    assert files_of(tmp_path) == {}


# --------------------------------------------------------------------- overwriting


def test_an_existing_checkpoint_is_not_overwritten_unasked(checkpoint):
    before = files_of(checkpoint)
    with pytest.raises(FileExistsError, match=r"hma\.json exists already; pass overwrite=True"):
        save(filled(seed=1), checkpoint)
    assert files_of(checkpoint) == before


def test_overwriting_leaves_the_new_checkpoint_and_nothing_of_the_old(checkpoint):
    old, model = weights_of(checkpoint), filled(seed=1)
    save(model, checkpoint, overwrite=True)
    assert files_of(checkpoint).keys() == {"hma.json", weights_of(checkpoint).name}
    assert not old.exists()
    assert torch.equal(load(checkpoint, new_backbone())(X), model(X))


def full_disk(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def half_of_the_weights(tensors, path, about):
    Path(path).write_bytes(b"\0" * 1000)
    full_disk()


def half_of_the_manifest(path, data):
    with open(path, "wb") as file:
        file.write(data[: len(data) // 2])
    full_disk()


@pytest.mark.parametrize(
    ("owner", "name", "failing"),
    [
        (hma.io.tensor_files, "save_file", full_disk),
        (hma.io.tensor_files, "save_file", half_of_the_weights),
        (os, "fsync", full_disk),
        (Path, "replace", full_disk),
        (Path, "write_bytes", full_disk),
        (Path, "write_bytes", half_of_the_manifest),
    ],
    ids=[
        "no weights",
        "half weights",
        "not on disk",
        "not renamed",
        "no manifest",
        "half manifest",
    ],
)
def test_a_full_disk_leaves_the_old_checkpoint(checkpoint, monkeypatch, owner, name, failing):
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing)
        with pytest.raises(UserError, match="No space left on device"):
            save(filled(seed=1), checkpoint, overwrite=True)
    assert torch.equal(load(checkpoint, new_backbone())(X), filled()(X))
    assert len(files_of(checkpoint)) == 2, "half-written files stay"
    save(filled(seed=1), checkpoint, overwrite=True)
    assert len(files_of(checkpoint)) == 2


KILLS = """
import json, os, random, signal, sys, time
import torch

torch.set_num_threads(1)
from safetensors.torch import load_file, save_file
from torch import nn
from hma import HMA, HMAConfig, load, save

folder, wanted = sys.argv[1], int(sys.argv[2])
config = HMAConfig(label_dim=4, queue_size=300, slots_per_class=2, num_heads=2)


def stamped(number):
    model = HMA(nn.Linear(5, 64), 3, config, feature_dim=64)
    with torch.no_grad():
        for value in (*model.parameters(), model.real.queue.features):
            value.fill_(number)
    return model


def loaded():
    '''Return the one number that fills the whole checkpoint.'''
    model = load(folder, nn.Linear(5, 64))
    values = (*model.parameters(), model.real.queue.features)
    (number,) = {value for tensor in values for value in tensor.unique().tolist()}
    return int(number)


def in_a_child(work):
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return child


def save_until_killed():
    for number in range(loaded() + 1, 10**6):
        save(stamped(number), folder, overwrite=True)


def save_and_die_at(step):
    model, seen = stamped(loaded() + 1), 0
    touches = {"open", "os.rename", "os.remove", "os.chmod", "os.mkdir", "os.rmdir", "os.scandir"}

    def audit(event, arguments):
        nonlocal seen
        if event in touches and folder in str(arguments[0]):
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)
    save(model, folder, overwrite=True)


save(stamped(0), folder)
random.seed(0)
at_random, at_steps, before = [], [], loaded()
for _ in range(wanted):
    child = in_a_child(save_until_killed)
    time.sleep(random.uniform(0.02, 0.15))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    at_random.append(loaded())
for step in range(1, 100):
    before = loaded()
    status = os.waitpid(in_a_child(lambda: save_and_die_at(step)), 0)[1]
    at_steps.append(loaded() - before)
    if not os.WIFSIGNALED(status):
        break
save(stamped(7), folder, overwrite=True)
print(json.dumps({"random": at_random, "steps": at_steps, "files": len(os.listdir(folder))}))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """What a fresh process found after each kill -9 of a child that was saving."""
    folder = tmp_path_factory.mktemp("killed") / "checkpoint"
    program = [sys.executable, "-c", KILLS, str(folder), "10"]
    run = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_a_process_killed_at_any_time_leaves_one_whole_checkpoint(killed):
    assert len(killed["random"]) == 10
    assert killed["random"] == sorted(killed["random"])


def test_a_process_killed_at_any_step_leaves_the_old_checkpoint_until_it_leaves_the_new(killed):
    *dying, finished = killed["steps"]
    assert len(dying) > 5
    assert finished == 1
    assert dying == sorted(dying)
    assert set(dying) == {0, 1}


def test_the_next_save_clears_away_what_killed_ones_left(killed):
    assert killed["files"] == 3  # the third is the one that a save holds the folder by


# ---------------------------------------------------------------- what cannot be loaded


def flipped_byte(folder):
    content = bytearray(weights_of(folder).read_bytes())
    content[-5] ^= 1
    weights_of(folder).write_bytes(content)


def truncated(folder):
    os.truncate(weights_of(folder), weights_of(folder).stat().st_size // 2)


def missing_weights(folder):
    weights_of(folder).unlink()


def cut_manifest(folder):
    text = (folder / "hma.json").read_text()
    (folder / "hma.json").write_text(text[: len(text) // 2])


def binary_manifest(folder):
    (folder / "hma.json").write_bytes(b"\xff\xfe\x00")


def foreign_json(folder):
    (folder / "hma.json").write_text('["a", "list"]')


def foreign_folder(folder):
    (folder / "hma.json").rename(folder / "config.json")


def manifest_with(**fields):
    def change(folder):
        (folder / "hma.json").write_text(json.dumps(manifest_of(folder) | fields))

    return change


def config_with(**fields):
    def change(folder):
        manifest_with(config=manifest_of(folder)["config"] | fields)(folder)

    return change


def classes(count):
    return manifest_with(target={"kind": "classes", "count": count})


DAMAGE = [
    (
        flipped_byte,
        r"model-\w+\.safetensors is damaged: its content does not match",
    ),
    (truncated, r"model-\w+\.safetensors is damaged: its content does not match"),
    (missing_weights, r"model-\w+\.safetensors does not exist; restore it from a copy"),
    (cut_manifest, r"hma\.json is damaged: .*; restore it from a copy"),
    (binary_manifest, r"hma\.json is damaged: .*; restore it from a copy"),
    (foreign_json, r"hma\.json is damaged: it must be an object"),
    (foreign_folder, r"checkpoint is no checkpoint of hma: it has no hma\.json"),
    (manifest_with(format=1), r"hma\.json has format 1, this hma reads format 2"),
    (manifest_with(weights="../x"), r"hma\.json names weights outside its folder: '\.\./x'"),
    (manifest_with(weights="/etc/passwd"), r"names weights outside its folder: '/etc/passwd'"),
    (manifest_with(weights=".."), r"hma\.json names weights outside its folder: '\.\.'"),
    (manifest_with(weights=""), r"hma\.json names weights outside its folder: ''"),
    (manifest_with(weights=None), r"hma\.json is damaged: weights must be text, got None"),
    (manifest_with(feature_dim="3"), r"hma\.json is damaged: feature_dim must be a whole number"),
    (manifest_with(config=[]), r"hma\.json is damaged: config must be an object, got \[\]"),
    (manifest_with(memory="votes"), r"hma\.json is damaged: memory must be one of 'vote', 'hma'"),
    (
        manifest_with(memory="vote"),
        r"checkpoint cannot be loaded: VoteConfig cannot run: .*queue_size",
    ),
    (manifest_with(target=None), r"hma\.json is damaged: target must be an object, got None"),
    (classes(0), r"checkpoint cannot be loaded: num_classes must be at least 1"),
    (classes(4), r"head\.bias has shape \(3,\) in the file, \(4,\) in"),
    (config_with(queue_size=200_000_000), r"queue\.labels has shape \(6,\) .* \(200000000,\)"),
    (config_with(queue_size=2**60), r"checkpoint (cannot be loaded|does not fit)"),
    (config_with(queue_sise=9), r"field must be one of .*, got 'queue_sise'; .* 'queue_size'\?"),
    (config_with(queue_size="9"), r"queue_size must be a whole number, got '9'"),
    (config_with(queue_size=9), r"real\.queue\.labels has shape \(6,\) in the .*, \(9,\) in"),
    (config_with(slots_per_class=0), r"synthetic\.slots is not part of this model"),
    (config_with(label_dim=5, num_heads=1), r"table\.weight has shape \(4, 4\) .*, \(4, 5\) in"),
]
NAMES = (
    *("flipped byte", "truncated", "no weights", "cut manifest", "binary manifest", "a list"),
    *("foreign folder", "format", "../x", "absolute", "parent", "empty name", "null name"),
    *(
        "text for a number",
        "list for a config",
        "another memory",
        "the other memory",
        "no target",
        "no classes",
        "more classes",
        "12 GB",
        "exabytes",
    ),
    "unknown field",
    *("wrong type", "queue_size", "slots_per_class", "label_dim"),
)


@pytest.mark.parametrize(("damage", "message"), DAMAGE, ids=NAMES)
def test_a_bad_checkpoint_is_named_and_leaves_the_backbone_untouched(checkpoint, damage, message):
    damage(checkpoint)
    backbone = new_backbone()
    before = copy.deepcopy(backbone.state_dict())
    with pytest.raises(CheckpointError, match=message):
        load(checkpoint, backbone)
    assert backbone.training
    for name, value in backbone.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_backbone_of_another_width_is_refused_with_every_differing_tensor(checkpoint):
    backbone = new_backbone(width=9)
    before = copy.deepcopy(backbone.state_dict())
    with pytest.raises(CheckpointError) as raised:
        load(checkpoint, backbone)
    shapes = "has shape {} in the file, {} in this model"
    assert str(raised.value) == f"{checkpoint} does not fit this backbone: " + "; ".join(
        [
            "backbone.0.weight " + shapes.format("(8, 5)", "(9, 5)"),
            "backbone.0.bias " + shapes.format("(8,)", "(9,)"),
            "momentum_encoder.encoder.0.weight " + shapes.format("(8, 5)", "(9, 5)"),
            "momentum_encoder.encoder.0.bias " + shapes.format("(8,)", "(9,)"),
        ]
    )
    for name, value in backbone.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_backbone_of_other_layers_is_refused_with_what_is_missing_and_what_is_too_much(
    checkpoint,
):
    with pytest.raises(CheckpointError) as raised:
        load(checkpoint, nn.Linear(5, WIDTH).requires_grad_(False))
    assert "backbone.weight is missing from the file; " in str(raised.value)
    assert "backbone.0.weight is not part of this model" in str(raised.value)


@pytest.mark.parametrize("name", ["nowhere", "a file"])
def test_what_is_no_folder_is_no_checkpoint(tmp_path, name):
    (tmp_path / "a file").write_text("text")
    with pytest.raises(CheckpointError, match=f"{name} is no checkpoint of hma: it has no hma"):
        load(tmp_path / name, new_backbone())


def test_a_checkpoint_of_safetensors_that_are_none_is_named(checkpoint):
    weights_of(checkpoint).write_bytes(b"\x80\x04nonsense")
    digest = hashlib.sha256(weights_of(checkpoint).read_bytes()).hexdigest()
    manifest_with(sha256=digest)(checkpoint)
    with pytest.raises(CheckpointError, match=r"safetensors is damaged: .*header"):
        load(checkpoint, new_backbone())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_comes_back_in_the_number_format_it_was_saved_in(dtype, tmp_path):
    config = hma.HMAConfig(queue_size=4, slots_per_class=1, label_dim=4)
    model = hma.HMA(nn.Linear(3, 8), 3, config, feature_dim=8).to(dtype).eval()
    model.remember(torch.randn(3, 3, dtype=dtype), torch.tensor([0, 1, 2]))
    hma.save(model, tmp_path)
    x = torch.randn(2, 3, dtype=dtype)
    loaded = hma.load(tmp_path, nn.Linear(3, 8))
    torch.testing.assert_close(loaded(x), model(x), rtol=0, atol=0)


# -------------------------------------------------------------------------- several at once


def test_saves_and_loads_at_once_leave_a_whole_checkpoint_and_see_nothing_else(checkpoint):
    models = [filled(seed=seed) for seed in range(3)]
    expected = [model(X) for model in [filled(), *models]]
    problems, done = [], threading.Event()

    def saving(model):
        try:
            for _ in range(8):
                save(model, checkpoint, overwrite=True)
        except Exception as error:
            problems.append(error)

    def loading():
        try:
            while not done.is_set():
                found = load(checkpoint, new_backbone())(X)
                assert any(torch.equal(found, one) for one in expected)
        except Exception as error:
            problems.append(error)

    savers = [threading.Thread(target=saving, args=[model]) for model in models]
    loaders = [threading.Thread(target=loading) for _ in range(2)]
    for thread in [*savers, *loaders]:
        thread.start()
    for thread in savers:
        thread.join()
    done.set()
    for thread in loaders:
        thread.join()
    assert problems == []
    assert len(files_of(checkpoint)) == 2
    assert any(torch.equal(load(checkpoint, new_backbone())(X), one) for one in expected[1:])


def test_a_checkpoint_larger_than_its_file_is_refused_before_memory_is_taken(checkpoint):
    config_with(queue_size=200_000_000)(checkpoint)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match="has shape"):
        load(checkpoint, new_backbone())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_a_pipe_in_place_of_a_file_is_refused(checkpoint):
    weights = weights_of(checkpoint)
    weights.unlink()
    os.mkfifo(weights)
    with pytest.raises(CheckpointError, match="is no regular file"):
        load(checkpoint, new_backbone())
    (checkpoint / "hma.json").unlink()
    (checkpoint / "hma.json").symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match="is no regular file"):
        load(checkpoint, new_backbone())
    with pytest.raises(CheckpointError, match="is no checkpoint of hma"):
        load("/dev/zero", new_backbone())


# ---------------------------------------------------------------------------------- targets


@pytest.mark.parametrize("target", [SoftClasses(3), YesNo(4), Number(2.0, 5.0)], ids=str)
def test_the_target_comes_back(tmp_path, target):
    config = HMAConfig(**SMALL)
    model = HMA(new_backbone(), config=config, target=target, feature_dim=WIDTH).eval()
    save(model, tmp_path)
    loaded = load(tmp_path, new_backbone())
    assert loaded.target == target
    assert torch.equal(loaded(X), model(X))


class MyNumber(Number):
    """A target that this package does not know."""

    kind = "mine"


def test_a_target_of_ones_own_is_given_to_load(tmp_path):
    model = HMA(new_backbone(), config=HMAConfig(**SMALL), target=MyNumber(), feature_dim=WIDTH)
    save(model.eval(), tmp_path)
    with pytest.raises(CheckpointError, match=r"the target must be one of .*, got 'mine'"):
        load(tmp_path, new_backbone())
    with pytest.raises(CheckpointError, match="target must be the one that was saved"):
        load(tmp_path, new_backbone(), target=MyNumber(1.0, 2.0))
    loaded = load(tmp_path, new_backbone(), target=MyNumber())
    assert type(loaded.target) is MyNumber
    assert torch.equal(loaded(X), model(X))


# ---------------------------------------------------------------------- weights that are on disk


@pytest.mark.parametrize("part", ["", "backbone."])
@pytest.mark.parametrize("links", [True, False])
def test_weights_that_are_on_disk_are_linked_and_the_rest_is_written(
    tmp_path, monkeypatch, part, links
):
    model, stored = filled(), tmp_path / "weights.safetensors"
    held = {n: v for n, v in model.state_dict().items() if not part or not n.startswith(part)}
    save_file(held, stored)
    if not links:
        monkeypatch.setattr(os, "link", lambda *paths: (_ for _ in ()).throw(OSError("no links")))
    save(model, tmp_path / "model", stored=stored)
    (linked,) = (tmp_path / "model").glob("*-stored.safetensors")
    assert os.path.samefile(linked, stored) == links
    written = [path for path in (tmp_path / "model").glob("*.safetensors") if path != linked]
    assert {name for path in written for name in load_file(path)} == (
        model.state_dict().keys() - held.keys()
    )
    assert_same_state(load(tmp_path / "model", new_backbone()), model)
    stored.unlink()  # the model does not need it any more
    assert is_saved(model, tmp_path / "model")
    save(model, tmp_path / "model", overwrite=True)
    assert len(files_of(tmp_path / "model")) == 2


def test_other_weights_on_disk_are_not_linked(tmp_path):
    model, stored = filled(), tmp_path / "weights.safetensors"
    save_file({n: v + 1 for n, v in model.state_dict().items()}, stored)
    save(model, tmp_path / "model", stored=stored)
    assert_same_state(load(tmp_path / "model", new_backbone()), model)
    assert not list((tmp_path / "model").glob("*-stored.safetensors"))


@pytest.mark.parametrize("damage", ["gone", "changed", "outside"])
def test_a_second_file_of_weights_is_checked_as_the_first(tmp_path, damage):
    model, stored = filled(), tmp_path / "weights.safetensors"
    save_file({"head.bias": model.head.bias.detach()}, stored)
    folder = tmp_path / "model"
    save(model, folder, stored=stored)
    (name,) = manifest_of(folder)["more"]
    if damage == "gone":
        (folder / name).unlink()
    elif damage == "changed":
        data = bytearray((folder / name).read_bytes())
        data[-1] ^= 1
        (folder / name).write_bytes(data)
    else:
        values = manifest_of(folder) | {"more": {"../x.safetensors": "0" * 64}}
        (folder / "hma.json").write_text(json.dumps(values))
    said = {"gone": "does not exist", "changed": "does not match its recorded hash",
            "outside": "outside its folder: '../x.safetensors'"}  # fmt: skip
    with pytest.raises(CheckpointError, match=said[damage]):
        load(folder, new_backbone())

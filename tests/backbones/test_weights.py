"""Reading weights: what a file may hold, what is refused, and that nothing pickled runs."""

import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import hma
from hma.backbones import cnn, mlp
from hma.backbones.weights import load_weights, read_weights
from hma.errors import UserError
from hma.methods.erm import Classifier


def same(left, right):
    assert list(left) == list(right)
    for name, value in left.items():
        torch.testing.assert_close(value, right[name], rtol=0, atol=0)


@pytest.mark.parametrize("suffix", ["pth", "pt", "bin", "pth.tar", "safetensors"])
def test_every_format_gives_back_the_tensors_that_were_saved(suffix, tmp_path):
    state, path = mlp(4, hidden=(3,)).state_dict(), tmp_path / f"file.{suffix}"
    save_file(state, path) if suffix == "safetensors" else torch.save(state, path)
    same(dict(sorted(read_weights(path).items())), dict(sorted(state.items())))


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state, "optimizer": {"lr": 0.1}},
        lambda state: {f"module.{name}": value for name, value in state.items()},
        lambda state: {f"module._orig_mod.{name}": value for name, value in state.items()},
        lambda state: {
            **{f"backbone.{name}": value for name, value in state.items()},
            "head.weight": torch.zeros(2, 3),
            "momentum_encoder.encoder.layers.0.weight": torch.zeros(3, 4),
        },
    ],
    ids=["state_dict", "model", "parallel", "compiled", "hma"],
)
def test_the_wrappings_of_training_scripts_are_taken_off(wrapped, tmp_path):
    state, path = dict(mlp(4, hidden=(3,)).state_dict()), tmp_path / "file.pth"
    torch.save(wrapped(state), path)
    same(read_weights(path), state)


def test_a_saved_memory_or_plain_classifier_gives_its_backbone_to_the_next(tmp_path):
    config = hma.HMAConfig(label_dim=8, queue_size=4)
    model = hma.HMA(mlp(4, hidden=(8,)), 2, config)
    hma.save(model, tmp_path / "memory")
    plain = Classifier(mlp(4, hidden=(8,)), 2)
    save_file(plain.state_dict(), tmp_path / "plain.safetensors")
    (memory_file,) = (tmp_path / "memory").glob("*.safetensors")
    for trained, path in ((model, memory_file), (plain, tmp_path / "plain.safetensors")):
        fresh = mlp(4, hidden=(8,))
        load_weights(fresh, read_weights(path), path, "mlp")
        same(fresh.state_dict(), trained.backbone.state_dict())


class Trap:
    def __reduce__(self):
        return (exec, ("raise SystemExit('code from the file ran')",))


def test_code_in_a_pickled_file_never_runs(tmp_path):
    path = tmp_path / "file.pth"
    torch.save({"weight": torch.zeros(1), "trap": Trap()}, path)
    with pytest.raises(
        UserError, match=r"holds more than tensors, or is damaged, and is not unpick"
    ):
        read_weights(path)
    path.write_bytes(pickle.dumps(Trap(), protocol=2))
    with pytest.raises(UserError, match=r"holds more than tensors|cannot be read"):
        read_weights(path)


@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
@pytest.mark.parametrize("content", [b"", b"nonsense", None], ids=["empty", "nonsense", "cut"])
def test_a_damaged_file_is_named(suffix, content, tmp_path):
    path, state = tmp_path / f"file.{suffix}", mlp(40).state_dict()
    save_file(state, path) if suffix == "safetensors" else torch.save(state, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(UserError, match=str(path)) as error:
        read_weights(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([torch.zeros(1)], "holds no named tensors; save the state dict"),
        ({}, "holds no named tensors"),
        (torch.zeros(3), "holds no named tensors"),
        ({"a": torch.zeros(1), "epoch": 3, "lr": 0.1}, r"no tensors: epoch, lr; save"),
    ],
)
def test_a_file_without_named_tensors_is_refused(content, message, tmp_path):
    path = tmp_path / "file.pt"
    torch.save(content, path)
    with pytest.raises(UserError, match=message):
        read_weights(path)


def test_other_kinds_of_files_and_folders_are_refused(tmp_path):
    (tmp_path / "weights.npz").touch()
    with pytest.raises(UserError, match=r"must end in \.safetensors, .*got .*npz; save the state"):
        read_weights(tmp_path / "weights.npz")
    with pytest.raises(UserError, match="is a folder"):
        read_weights(tmp_path)


def test_a_classifier_in_the_file_is_left_out(tmp_path):
    saved, fresh = cnn(1), cnn(1)
    extra = {
        "head.weight": torch.zeros(2, 128),
        "fc.bias": torch.zeros(2),
        "classifier.0.w": torch.zeros(1),
    }
    load_weights(fresh, dict(saved.state_dict()) | extra, tmp_path, "cnn")
    same(fresh.state_dict(), saved.state_dict())


def test_a_backbone_with_a_part_called_head_still_wants_its_weights(tmp_path):
    backbone = nn.ModuleDict({"body": nn.Linear(2, 2), "head": nn.Linear(2, 2)})
    state = {name: torch.ones_like(value) for name, value in backbone.state_dict().items()}
    load_weights(backbone, state, tmp_path, "mine")
    assert backbone["head"].weight.eq(1).all()
    del state["head.bias"]
    with pytest.raises(
        UserError, match=r"does not fit mine: 1 missing from the file \(head\.bias\)"
    ):
        load_weights(backbone, state, tmp_path, "mine")


def test_what_differs_is_counted_and_the_first_names_are_shown_and_nothing_is_loaded(tmp_path):
    backbone = mlp(4, hidden=(3, 3, 3))
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    state = dict(mlp(5, hidden=(3,)).state_dict()) | {"other": torch.zeros(1)}
    message = (
        r"file\.pth does not fit mlp: 4 missing from the file \(layers\.3\.weight, "
        r"layers\.3\.bias, layers\.6\.weight, \.\.\.\); 1 not part of it \(other\); "
        r"1 of another shape \(layers\.0\.weight is \(3, 5\) in the file and \(3, 4\) here\)$"
    )
    with pytest.raises(UserError, match=message):
        load_weights(backbone, state, tmp_path / "file.pth", "mlp")
    same(backbone.state_dict(), before)

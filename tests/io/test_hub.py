"""The verbs of the Hugging Face hub, on local folders and on a cache, with no network."""

import os
import shutil
import socket
import sys
from fnmatch import fnmatch
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from hma import HMA, CheckpointError, HMAConfig

WIDTH, CLASSES = 8, 3
COMMIT = "0123456789abcdef0123456789abcdef01234567"
X = torch.sin(torch.arange(15.0)).view(3, 5)


def new_backbone():
    return nn.Sequential(nn.Linear(5, WIDTH), nn.Tanh())


@pytest.fixture
def model():
    config = HMAConfig(label_dim=4, queue_size=6, slots_per_class=2, num_heads=2, context="alone")
    model = HMA(new_backbone(), CLASSES, config, feature_dim=WIDTH)
    model.remember(torch.randn(4, 5), torch.tensor([0, 1, 2, 0]))
    model.eval().freeze_memory()
    return model


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", forbidden)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def no_hub(monkeypatch):
    """A machine without the hub's package."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)


@pytest.fixture
def hub():
    return pytest.importorskip("huggingface_hub", reason="pip install 'hma-torch[hub]'")


def assert_same_model(loaded, model):
    assert torch.equal(loaded(X), model(X))
    assert loaded.config == model.config
    assert loaded.memory_frozen is model.memory_frozen
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


# ------------------------------------------------------------------------ folders


def test_what_save_pretrained_wrote_comes_back_without_the_hubs_package(model, tmp_path, no_hub):
    model.save_pretrained(tmp_path / "model")
    assert_same_model(HMA.from_pretrained(tmp_path / "model", new_backbone()), model)
    assert_same_model(HMA.from_pretrained(str(tmp_path / "model"), new_backbone()), model)


def test_save_pretrained_overwrites_only_when_asked(model, tmp_path):
    model.save_pretrained(tmp_path)
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        model.save_pretrained(tmp_path)
    with torch.no_grad():
        model.head.bias.add_(1)
    model.save_pretrained(tmp_path, overwrite=True)
    assert_same_model(HMA.from_pretrained(tmp_path, new_backbone()), model)


def test_a_folder_that_is_no_checkpoint_is_not_looked_for_on_the_hub(tmp_path):
    with pytest.raises(CheckpointError, match="is no checkpoint of hma"):
        HMA.from_pretrained(tmp_path, new_backbone())


def test_a_folder_that_does_not_exist_names_both_ways_on_without_the_hubs_package(no_hub):
    wanted = (
        r"name must be a directory, got 'owner/nothing', which does not exist; "
        r"to load from the hub instead: pip install .*\[hub\]'"
    )
    with pytest.raises(FileNotFoundError, match=wanted):
        HMA.from_pretrained("owner/nothing", new_backbone())


# -------------------------------------------------------------------- repositories


@pytest.fixture
def cache(model, tmp_path):
    """The hub's cache after a download: files under their commit, which ``main`` names."""
    repository = tmp_path / "cache" / "models--owner--digits"
    model.save_pretrained(repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return tmp_path / "cache"


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_a_downloaded_repository_is_found_by_name_and_revision(hub, model, cache, revision):
    loaded = HMA.from_pretrained(
        "owner/digits",
        new_backbone(),
        revision=revision,
        cache_dir=cache,
        local_files_only=True,
    )
    assert_same_model(loaded, model)


def test_a_repository_that_was_never_downloaded_is_named(hub, tmp_path):
    with pytest.raises(hub.errors.LocalEntryNotFoundError, match="snapshot"):
        HMA.from_pretrained(
            "owner/nothing", new_backbone(), cache_dir=tmp_path, local_files_only=True
        )


# ------------------------------------------------------------------------ uploading


@pytest.fixture
def uploads(hub, monkeypatch, tmp_path):
    """What would have been sent to the hub, call by call."""
    calls = []

    class RecordingApi:
        def __init__(self, **arguments):
            calls.append(("api", arguments))

        def create_repo(self, repo_id, **arguments):
            calls.append(("create", {"repo_id": repo_id} | arguments))

        def upload_folder(self, *, folder_path, **arguments):
            shutil.copytree(folder_path, tmp_path / "uploaded", dirs_exist_ok=True)
            names = sorted(os.listdir(folder_path))
            calls.append(("upload", {"names": names} | arguments))
            return SimpleNamespace(commit_url="https://hub.example/owner/digits/commit/1")

    monkeypatch.setattr(hub, "HfApi", RecordingApi)
    return calls


def test_push_to_hub_uploads_a_checkpoint_and_returns_the_address_of_the_commit(
    model, uploads, tmp_path
):
    address = model.push_to_hub("owner/digits", private=True)
    assert address == "https://hub.example/owner/digits/commit/1"
    (_, _), (_, created), (_, uploaded) = uploads
    assert created == {"repo_id": "owner/digits", "private": True, "exist_ok": True}
    manifest, weights = uploaded["names"]
    assert manifest == "hma.json"
    assert weights.endswith(".safetensors")
    assert_same_model(HMA.from_pretrained(tmp_path / "uploaded", new_backbone()), model)


def test_a_card_is_pushed_with_the_name_of_the_repository_where_it_is_asked_for(
    model, uploads, tmp_path
):
    model.push_to_hub("owner/digits", card=True)
    assert "README.md" in uploads[-1][1]["names"]
    text = (tmp_path / "uploaded" / "README.md").read_text()
    assert "# owner/digits" in text
    assert 'hma.load(snapshot_download("owner/digits"), backbone)' in text


def test_a_second_push_removes_the_weights_of_the_first(hub, model, uploads):
    model.push_to_hub("owner/digits")
    weights = uploads[-1][1]["names"][1]
    model.push_to_hub("owner/digits")
    again = uploads[-1][1]
    assert weights not in again["names"]
    assert fnmatch(weights, again["delete_patterns"])
    assert not fnmatch("README.md", again["delete_patterns"])


def test_push_to_hub_hands_on_a_token_and_what_describes_the_commit(model, uploads):
    model.push_to_hub("owner/digits", token="secret", commit_message="first")
    (_, api), (_, created), (_, uploaded) = uploads
    assert api == {"token": "secret"}
    assert "token" not in created | uploaded
    assert uploaded["commit_message"] == "first"


def test_push_to_hub_without_the_hubs_package_names_what_to_install(model, no_hub):
    with pytest.raises(ImportError, match=r"push_to_hub needs: pip install .*\[hub\]'"):
        model.push_to_hub("owner/digits")

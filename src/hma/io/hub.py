"""``save_pretrained`` and ``from_pretrained``, as people know them from the Hugging Face hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hma.extras import install_command
from hma.io.files import LOCK

if TYPE_CHECKING:
    from torch import nn

    from hma.io.card import ModelCard
    from hma.model import MemoryModel


class HubMixin:
    """Adds the verbs of the hub to a model; local folders work without the hub's package."""

    def save_pretrained(
        self, directory: str | Path, *, overwrite: bool = False, card: "bool | ModelCard" = False
    ) -> None:
        """Write the model into ``directory``, as :func:`hma.save` does."""
        from hma.io.checkpoint import save

        save(cast("MemoryModel", self), directory, overwrite=overwrite, card=card)

    @classmethod
    def from_pretrained(
        cls, name: str | Path, backbone: "nn.Module", **download: Any
    ) -> "MemoryModel":
        """Load a model from a directory, or from a repository on the hub.

        Args:
            name: A directory written by :meth:`save_pretrained`, or ``owner/repository``.
            backbone: A module of the same architecture as the saved one.
            download: Arguments of ``huggingface_hub.snapshot_download``, such as ``revision``.
        """
        from hma.io.checkpoint import load

        if Path(name).is_dir():
            return load(name, backbone)
        try:
            from huggingface_hub import snapshot_download
        except ImportError as error:
            raise FileNotFoundError(
                f"name must be a directory, got {str(name)!r}, which does not exist; to load from "
                f"the hub instead: {install_command('hub')}"
            ) from error
        return load(snapshot_download(str(name), **download), backbone)

    def push_to_hub(
        self,
        repository: str,
        *,
        private: bool = False,
        card: "bool | ModelCard" = False,
        **upload: Any,
    ) -> str:
        """Upload the model to ``owner/repository`` and return the address of the commit.

        Args:
            repository: Where to; made if needed.
            private: Whether a new one is for its owner alone.
            card: Also upload a model card, which replaces one that is there; as in
                :func:`hma.save`.
            upload: Arguments of ``HfApi.upload_folder``, and ``token``.
        """
        from tempfile import TemporaryDirectory

        from hma.io.card import CARD, card_text

        text = card_text(cast("MemoryModel", self), card, repository, hub=True)
        try:
            from huggingface_hub import HfApi
        except ImportError as error:
            raise ImportError(f"push_to_hub needs: {install_command('hub')}") from error
        api = HfApi(token=upload.pop("token", None))
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            (Path(folder) / LOCK).unlink()  # nobody else saves there
            if text:
                (Path(folder) / CARD).write_text(text, encoding="utf-8")
            api.create_repo(repository, private=private, exist_ok=True)
            # each save names its weights anew, so those of the last push would stay for ever
            upload = {"delete_patterns": "model-*.safetensors"} | upload
            commit = api.upload_folder(repo_id=repository, folder_path=folder, **upload)
        return str(commit.commit_url)

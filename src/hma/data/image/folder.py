"""Folders of pictures: one folder per class, or one flat folder to predict."""

from collections.abc import Iterator
from pathlib import Path

from hma.data.image.files import MEMORY_LIMIT, ImageFiles
from hma.errors import UserError

ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff",
           ".webp")  # fmt: skip


SPLITS = {
    "train": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
}
"""Names of folders, and the splits that lie in them."""


class ImageFolder(ImageFiles):
    """Pictures in class-named folders, or, without labels, in one flat folder.

    Args:
        path: The folder.
        skip_bad_files: Decode every file now and leave out those that cannot be read.
        memory_limit: Bytes of decoded pixels kept.
    """

    def __init__(
        self, path: Path, *, skip_bad_files: bool = False, memory_limit: int = MEMORY_LIMIT
    ) -> None:
        super().__init__(
            path.resolve().name,
            path,
            _found(path),
            skip_bad_files=skip_bad_files,
            memory_limit=memory_limit,
        )


def split_folders(path: Path) -> dict[str, Path]:
    """Return the folder of each split where a folder holds train and others; else nothing.

    A folder ``train`` with images right in it is that of a class.
    """
    folders = sorted(folder for folder in path.iterdir() if _is_folder(folder))
    named = [(SPLITS.get(folder.name.lower()), folder) for folder in folders]
    found = {name: folder for name, folder in named if name is not None}
    if "train" not in found or len(found) == 1 or images_in(found["train"]):
        return {}
    for name, folder in named:
        if found.get(name or "") != folder:
            raise UserError(
                f"{folder} is one too many: beside train there may be one of val, valid and "
                "validation, and test; move it elsewhere"
            )
        if name != "train" and images_in(folder):
            raise UserError(
                f"{folder} holds images without classes ({images_in(folder)[0].name}), so it is no "
                "split; move it elsewhere, and give it to hma predict later"
            )
    return dict(sorted(found.items(), key=lambda one: list(SPLITS.values()).index(one[0])))


def _found(path: Path) -> list[tuple[Path, str | None]]:
    """Return every image below a folder with the name of its class, None in a flat folder."""
    flat = images_in(path)
    folders = sorted(folder for folder in path.iterdir() if _is_folder(folder))
    inside = {folder: images_in(folder) for folder in folders}
    deeper = next((deep for folder in folders for deep in _folders_of_images(folder)), None)
    if deeper is not None:
        raise UserError(
            f"{deeper} holds images too deep inside {path}; give the folder whose folders are "
            f"named after the classes, such as {deeper.parent}"
        )
    if flat and any(inside.values()):
        raise UserError(
            f"{path} holds both images ({flat[0].name}) and folders of images; put every image "
            "into the folder of its class, or none"
        )
    if flat:
        return [(file, None) for file in flat]
    if not any(inside.values()):
        raise UserError(
            f"{path} holds no images ({', '.join(ENDINGS)}); give a folder with one folder of "
            "images for each class, or, to predict, a folder of images"
        )
    odd = [folder for folder in folders if not _is_text(folder.name)]
    if odd:
        raise UserError(f"{path} has a folder whose name is no UTF-8, {odd[0].name!a}; rename it")
    empty = [folder for folder in folders if not inside[folder]]
    if empty:
        raise UserError(
            f"{empty[0]} holds no images, as one of {len(empty)} such folders; add images of that "
            "class or remove the folder"
        )
    return [(file, folder.name) for folder in folders for file in inside[folder]]


def images_in(folder: Path) -> list[Path]:
    """Return the pictures in a folder, by name."""
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() in ENDINGS and not file.name.startswith(".") and file.is_file()
    )


def _folders_of_images(folder: Path) -> Iterator[Path]:
    return (deep for deep in sorted(folder.iterdir()) if _is_folder(deep) and images_in(deep))


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_folder(folder: Path) -> bool:
    return folder.is_dir() and not folder.name.startswith((".", "__MACOSX"))

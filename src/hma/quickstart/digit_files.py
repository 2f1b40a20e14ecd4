"""scikit-learn's digits as ``.npz`` files, such as a user has: what steps train on and teach."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hma.data import Source, open_source
from hma.data.sets.digits import digit_images
from hma.io.files import atomic_write

BYTES = 255


def digits_as_bytes() -> tuple[Tensor, Tensor]:
    """Return the images ``(1797, 8, 8)`` as bytes, and their digits."""
    images, labels = digit_images()
    return (images[:, 0] * BYTES).round().to(torch.uint8), labels


def digit_file(path: Path, images: Tensor, labels: Tensor) -> Path:
    """Write images and labels, whole or not at all; a file that is there stays as it is."""
    if not path.exists():
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.savez(file, x=images.numpy(), y=labels.numpy())
    return path


def opened(path: Path) -> Source:
    """Open what :func:`digit_file` wrote."""
    return open_source(str(path))

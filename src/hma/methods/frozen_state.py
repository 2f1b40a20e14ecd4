"""The state of a module without what its frozen encoders hold, which training never changes."""

import hashlib
from collections.abc import Mapping

from torch import Tensor, nn

from hma.backbones.frozen import Frozen
from hma.io.tensor_files import add_to_hash


def frozen_state(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of frozen encoders inside ``module``, under its names for them."""
    found: dict[str, Tensor] = {}
    for name, part in module.named_modules():
        if isinstance(part, Frozen):
            found |= part.encoder.state_dict(prefix=f"{name}.encoder." if name else "encoder.")
    return found


def changing_state(module: nn.Module) -> dict[str, Tensor]:
    """Return all the other tensors of ``module``."""
    still = frozen_state(module)
    return {name: value for name, value in module.state_dict().items() if name not in still}


def load_changing_state(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load what :func:`changing_state` returned; tensors of frozen encoders may be there too."""
    missing, unexpected = module.load_state_dict(tensors, strict=False)
    lost = set(missing) - frozen_state(module).keys()
    if lost or unexpected:
        raise RuntimeError(f"missing {sorted(lost)}, not part of the module {sorted(unexpected)}")


def frozen_sha256(module: nn.Module) -> str | None:
    """Return a hash of the frozen encoders inside ``module``; None where there are none."""
    still = frozen_state(module)
    if not still:
        return None
    digest = hashlib.sha256()
    for name in sorted(still):
        add_to_hash(digest, name, still[name])
    return digest.hexdigest()

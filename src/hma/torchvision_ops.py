"""Make ``import torchvision`` work beside a CPU build of torch.

Some torchvision wheels carry compiled operators that only load beside the matching GPU build of
torch. Beside a CPU build torchvision then fails while it is imported, because it registers shape
rules for operators nobody declared, and timm and transformers fail with it. Declaring those
operators, without any code behind them, is enough for everything written in Python (datasets,
transforms, models); calling a compiled operator still raises torchvision's own clear error.
"""

import importlib
import sys

import torch

MISSING_OPERATOR = "operator torchvision::nms does not exist"
SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

# the declarations last as long as the object that made them
_declared: list[torch.library.Library] = []


def ensure_torchvision() -> None:
    """Import torchvision, first declaring the operators a CPU build of torch leaves it without.

    Call it before importing torchvision, timm or transformers. It does nothing where torchvision
    is healthy or already imported.

    Example, not run as a doctest because a repair lasts as long as the process::

        ensure_torchvision()
        import timm
    """
    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        raise ImportError(
            "torchvision is not installed; it comes with the vision extra: "
            "pip install 'hma-torch[vision]'",
            name="torchvision",
        ) from error
    except RuntimeError as error:
        if MISSING_OPERATOR not in str(error):
            raise
        _declare_operators()
        _forget_half_imported()
        importlib.import_module("torchvision")


def _declare_operators() -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for schema in SCHEMAS:
        library.define(schema)  # type: ignore[no-untyped-call]
    _declared.append(library)


def _forget_half_imported() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]

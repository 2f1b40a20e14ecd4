"""A fitted estimator in a folder: JSON beside what ``hma.save`` writes; never pickle."""

import re
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.preprocessing import StandardScaler

from hma.data.table.columns import NumberColumn, column_from_json
from hma.errors import UserError
from hma.estimator.inputs import PreparedColumns
from hma.estimator.linear_part import LinearPart
from hma.estimator.options import backbone_of, device_of
from hma.io.checkpoint import FORMAT, CheckpointError, hold_for_saving, read_description
from hma.io.checkpoint import load as load_model
from hma.io.checkpoint import save as save_model
from hma.io.files import FileError
from hma.io.json_files import RESTORE, finite_or_none, none_to_nan, write_json
from hma.io.tensor_files import read_tensors, write_tensors

if TYPE_CHECKING:
    from hma.estimator.estimators import TableEstimator

DESCRIPTION, BESIDE = "estimator.json", "beside.safetensors"
MODEL = re.compile(r"model-[0-9a-f]{16}")
DAMAGED = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError)
"""What values that no estimator wrote raise."""
SCALER = ("mean_", "var_", "scale_")
SHAPE = {
    "format": int,
    "options": dict,
    "classes": {"dtype": str, "names": list},
    "features": int,
    "feature_names": list[str] | None,
    "columns": list[dict[str, Any]],
    "scaler": dict[str, list[float] | float] | None,
    "seed": int,
    "n_iter": int,
    "rows_seen": int,
    "loss_curve": list[float | None],
    "validation_curve": list[float | None],
    "model": str,
    "beside": str,
}


def save(classifier: "TableEstimator", folder: Path, *, overwrite: bool) -> None:
    """Write a fitted classifier; a crash at any moment leaves the one that was there before.

    The model goes into a folder of a new name, and the description that names it is replaced
    last.
    """
    description = _describe(classifier)
    with hold_for_saving(folder, [DESCRIPTION], overwrite):
        model = folder / f"model-{token_hex(8)}"
        try:
            save_model(deepcopy(classifier.model_).float(), model)
            sha256 = write_tensors(model / BESIDE, _beside(classifier))
            written = {"model": model.name, "beside": sha256}
            write_json(folder / DESCRIPTION, description | written, sealed=True)
        except BaseException:
            rmtree(model, ignore_errors=True)
            raise
        for old in folder.iterdir():
            if MODEL.fullmatch(old.name) and old != model:
                rmtree(old)


def load(kind: "type[TableEstimator]", folder: Path, device: Any) -> "TableEstimator":
    """Return a classifier of class ``kind``, as :func:`save` wrote it."""
    description = _read(folder)
    while True:
        try:
            return _load(kind, folder, description, device)
        except CheckpointError:  # by a save that went on meanwhile, or for good
            before, description = description, _read(folder)
            if before == description:
                raise


def _load(
    kind: "type[TableEstimator]", folder: Path, description: dict[str, Any], device: Any
) -> "TableEstimator":
    has_classes = bool(description["classes"]["names"])
    if has_classes != issubclass(kind, ClassifierMixin):
        raise CheckpointError(
            f"{folder} holds {'a classifier' if has_classes else 'a regressor'}, which "
            f"{kind.__name__} is not; load it with the estimator that saved it"
        )
    try:
        options = _options_from_json(description["options"])
        if device is not None:
            options["device"] = device
        classifier = kind(**options)
        _restore(classifier, description)
        assert classifier.inputs_ is not None
        backbone = backbone_of(None, classifier.hidden, classifier.inputs_.width)
    except UserError:
        raise
    except DAMAGED as error:
        why = " ".join(f"{type(error).__name__} {error}".split())
        raise CheckpointError(f"{folder / DESCRIPTION} is damaged: {why}; {RESTORE}") from error
    model = load_model(folder / description["model"], backbone)
    classes = len(getattr(classifier, "classes_", [0]))
    if model.num_classes != classes:
        raise CheckpointError(
            f"{folder / DESCRIPTION} is damaged: it has {classes} classes, the "
            f"model beside it {model.num_classes}; restore both from a copy"
        )
    _restore_beside(classifier, folder / description["model"] / BESIDE, description["beside"])
    classifier._serve(model.to(classifier._device))
    return classifier


def _beside(classifier: "TableEstimator") -> dict[str, torch.Tensor]:
    """Return what belongs to an estimator besides its model: the linear part, the rows' ids."""
    known = classifier._first_ids
    digests = np.frombuffer(b"".join(known), dtype=np.uint8).reshape(len(known), -1)
    found = {"digests": torch.tensor(digests), "ids": torch.tensor([*known.values()])}
    return found if classifier.linear_ is None else found | classifier.linear_._asdict()


def _restore_beside(classifier: "TableEstimator", path: Path, sha256: str) -> None:
    try:
        found = read_tensors(path, sha256=sha256)
    except FileError as error:
        raise CheckpointError(str(error)) from error
    digests, ids = found.pop("digests"), found.pop("ids")
    rows = (bytes(digest) for digest in digests.numpy())
    classifier._first_ids = dict(zip(rows, ids.tolist(), strict=True))
    classifier.linear_ = LinearPart(**found) if found else None


def _describe(classifier: "TableEstimator") -> dict[str, Any]:
    if classifier.backbone is not None:
        raise UserError(
            "save writes a classifier on the built-in MLP, and this one has a backbone of its own, "
            "whose code is not saved; use hma.save(classifier.model_, directory), or pickle"
        )
    names = getattr(classifier, "feature_names_in_", None)
    assert classifier.inputs_ is not None
    columns, scaler = classifier.inputs_.columns, classifier.inputs_.scaler
    return {
        "format": FORMAT,
        "options": _options_to_json(classifier.get_params(deep=False)),
        "classes": _classes_to_json(getattr(classifier, "classes_", np.empty(0))),
        "features": classifier.n_features_in_,
        "feature_names": None if names is None else names.tolist(),
        "columns": [column.to_json() for column in columns],
        "scaler": None if scaler is None else _scaler_to_json(scaler),
        "seed": classifier._seed,
        "n_iter": classifier.n_iter_,
        "rows_seen": classifier.rows_seen_,
        "loss_curve": finite_or_none(classifier.loss_curve_),
        "validation_curve": finite_or_none(classifier.validation_curve_),
    }


def _restore(classifier: "TableEstimator", description: dict[str, Any]) -> None:
    kind, names = description["classes"]["dtype"], description["classes"]["names"]
    if names:
        classifier.classes_ = np.array(names, dtype=kind)
    classifier.n_features_in_ = int(description["features"])
    if description["feature_names"] is not None:
        classifier.feature_names_in_ = np.array(description["feature_names"], dtype=object)
    columns = tuple(map(column_from_json, description["columns"]))
    if len(columns) != classifier.n_features_in_:
        raise ValueError(f"it has {len(columns)} columns for {classifier.n_features_in_} features")
    own = sum(isinstance(column, NumberColumn) for column in columns)
    scaler = description["scaler"]
    classifier.inputs_ = PreparedColumns(
        columns, None if scaler is None else _scaler_from_json(scaler, own)
    )
    classifier._device = device_of(classifier.device)
    classifier._optimizer = None
    classifier._seed = int(description["seed"])
    classifier.n_iter_ = int(description["n_iter"])
    classifier.rows_seen_ = int(description["rows_seen"])
    classifier.loss_curve_ = none_to_nan(description["loss_curve"])
    classifier.validation_curve_ = none_to_nan(description["validation_curve"])


def _scaler_to_json(scaler: StandardScaler) -> dict[str, Any]:
    if not hasattr(scaler, "mean_"):  # there are no numbers
        return {}
    seen = np.asarray(scaler.n_samples_seen_).tolist()
    return {name: getattr(scaler, name).tolist() for name in SCALER} | {"n_samples_seen_": seen}


def _scaler_from_json(values: dict[str, Any], features: int) -> StandardScaler:
    scaler = StandardScaler()
    if features == 0 and not values:
        return scaler
    for name in (*SCALER, "n_samples_seen_"):
        setattr(scaler, name, np.array(values[name]))
    if {len(getattr(scaler, name)) for name in SCALER} != {features}:
        raise ValueError(f"the scaler must have {features} features")
    scaler.n_features_in_ = features
    return scaler


def _classes_to_json(classes: NDArray[Any]) -> dict[str, Any]:
    names = classes.tolist()
    strange = [name for name in names if not isinstance(name, str | int | float)]
    if strange:
        raise UserError(
            f"classes must be text or numbers to be saved, got {strange[0]!r} of type "
            f"{type(strange[0]).__name__}; fit with y.astype(str)"
        )
    return {"dtype": "O" if classes.dtype == object else classes.dtype.str, "names": names}


def _options_to_json(options: dict[str, Any]) -> dict[str, Any]:
    plain = {name: _plain(name, value) for name, value in options.items() if name != "backbone"}
    if isinstance(options.get("class_weight"), Mapping):  # JSON knows no keys but text
        pairs = options["class_weight"].items()
        plain["class_weight"] = [[_plain("class_weight", part) for part in pair] for pair in pairs]
    return plain


def _options_from_json(options: dict[str, Any]) -> dict[str, Any]:
    options = dict(options)
    if isinstance(options["hidden"], list):
        options["hidden"] = tuple(options["hidden"])
    if isinstance(options.get("class_weight"), list):
        options["class_weight"] = dict(options["class_weight"])
    return options


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [_plain(name, part) for part in value]
    if isinstance(value, torch.device):
        return str(value)
    if value is None or isinstance(value, str | int | float | Mapping):
        return value
    raise UserError(
        f"{name} must be a number, text or None to be saved, got {value!r}; "
        f"change it with set_params({name}=...) first"
    )


def _read(folder: Path) -> dict[str, Any]:
    target = folder / DESCRIPTION
    absent = (
        f"{folder} holds no estimator: it has no {DESCRIPTION}; name a folder that "
        "MemoryClassifier.save or MemoryRegressor.save wrote"
    )
    description = read_description(target, SHAPE, absent=absent, sealed=True)
    if not MODEL.fullmatch(description["model"]):
        raise CheckpointError(f"{target} is damaged: it names no model; {RESTORE}")
    return description

"""HMA as a scikit-learn classifier and regressor; importing them needs scikit-learn."""

try:
    from hma.estimator.estimators import MemoryClassifier, MemoryRegressor
except ModuleNotFoundError as error:
    if error.name != "sklearn":
        raise
    raise ModuleNotFoundError(
        "MemoryClassifier and MemoryRegressor need scikit-learn: pip install 'scikit-learn>=1.6'",
        name=error.name,
    ) from error

__all__ = ["MemoryClassifier", "MemoryRegressor"]

"""HMA as a scikit-learn classifier; importing it needs scikit-learn."""

try:
    from hma.estimator.classifier import HMAClassifier
except ModuleNotFoundError as error:
    if error.name != "sklearn":
        raise
    raise ModuleNotFoundError(
        "HMAClassifier needs scikit-learn: pip install 'scikit-learn>=1.6'", name=error.name
    ) from error

__all__ = ["HMAClassifier"]

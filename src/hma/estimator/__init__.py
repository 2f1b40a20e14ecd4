"""HMA as a scikit-learn classifier; importing it needs scikit-learn."""

from hma.estimator.classifier import HMAClassifier

__all__ = ["HMAClassifier"]

"""scikit-learn's own checks of an estimator, each a test; none is expected to fail."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from hma.estimator import HMAClassifier


@parametrize_with_checks([HMAClassifier()])
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)

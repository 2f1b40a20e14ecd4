"""scikit-learn's own checks of an estimator, each a test; none is expected to fail."""

from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from hma.estimator import MemoryClassifier, MemoryRegressor

SMALL = {"hidden": (32,), "max_epochs": 15}


@parametrize_with_checks([MemoryClassifier(**SMALL), MemoryRegressor(**SMALL)])
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)


def test_scikit_learn_checks_weights_and_partial_fit_too():
    names = {check.func.__name__ for _, check in estimator_checks_generator(MemoryClassifier())}
    assert {
        "check_sample_weight_equivalence_on_dense_data",
        "check_all_zero_sample_weights_error",
        "check_class_weight_classifiers",
        "check_estimators_partial_fit_n_features",
        "check_methods_subset_invariance",
    } <= names

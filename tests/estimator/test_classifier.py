"""What a fitted classifier does: weights, repeatability, labels, columns, parts, explanations."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from torch import nn

from hma.errors import UserError
from hma.estimator import MemoryClassifier
from hma.questions.row_order import OrderedRowsWarning

IRIS, SPECIES = load_iris(return_X_y=True)
FEW = {"max_epochs": 3, "random_state": 0}


@pytest.fixture(scope="module")
def fitted():
    """Trained on every second flower."""
    return MemoryClassifier(random_state=0).fit(IRIS[::2], SPECIES[::2])


# ------------------------------------------------------------------ weights


def repeated_and_weighted(seed):
    random = np.random.default_rng(seed)
    x, y = random.normal(size=(24, 3)), np.arange(24) % 3
    weight = random.integers(0, 4, size=24)
    weight[:6] = 2  # every class twice at least
    order = random.permutation(24)
    return (x.repeat(weight, axis=0), y.repeat(weight)), (x[order], y[order], weight[order]), x


@pytest.mark.parametrize(
    "options",
    [{}, {"class_weight": "balanced"}, {"early_stopping": True, "validation_fraction": 0.3}],
    ids=str,
)
def test_a_weight_is_a_number_of_repetitions(options):
    repeated, weighted, x = repeated_and_weighted(seed=1)
    one = MemoryClassifier(**FEW, **options).fit(*repeated)
    other = MemoryClassifier(**FEW, **options).fit(*weighted)
    np.testing.assert_array_equal(one.predict_proba(x), other.predict_proba(x))


def test_a_row_of_weight_zero_leaves_no_trace():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(20, 2)), np.arange(20) % 2
    x[::5] *= 1e6  # would show in the standardisation
    y[::5] = 7  # and as a class
    weight = np.ones(20)
    weight[::5] = 0
    with_zeros = MemoryClassifier(**FEW).fit(x, y, sample_weight=weight)
    without = MemoryClassifier(**FEW).fit(x[weight > 0], y[weight > 0])
    assert with_zeros.classes_.tolist() == [0, 1]
    np.testing.assert_array_equal(with_zeros.predict_proba(x), without.predict_proba(x))
    assert not set(with_zeros.model_.memory_state().ids.tolist()) & set(range(0, 20, 5))


def test_weights_count_across_batches_not_only_within_them():
    x, y = np.repeat(np.arange(4.0), 2)[:, None], np.tile([0, 1], 4)
    model = MemoryClassifier(batch_size=1, max_epochs=20, dropout=0.0, random_state=0)
    model.fit(x, y, sample_weight=np.where(y == 0, 9.0, 1.0))
    assert (model.predict_proba(x)[:, 0] > 0.75).all()


def test_balanced_classes_find_the_rare_class():
    random = np.random.default_rng(0)
    y = (np.arange(200) % 20 == 0).astype(int)
    x = random.normal(size=(200, 2)) + y[:, None]
    recall = {
        weight: MemoryClassifier(max_epochs=6, class_weight=weight, random_state=0)
        .fit(x, y)
        .predict(x)[y == 1]
        .mean()
        for weight in (None, "balanced")
    }
    assert recall["balanced"] >= recall[None] + 0.3


# ------------------------------------------------------------------ repeatability


def test_the_same_seed_gives_the_same_model_bit_by_bit_and_leaves_torch_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one = MemoryClassifier(**FEW).fit(IRIS, SPECIES)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    other = MemoryClassifier(**FEW).fit(IRIS, SPECIES)
    for name, value in one.model_.state_dict().items():
        assert torch.equal(value, other.model_.state_dict()[name]), name
    third = MemoryClassifier(max_epochs=3, random_state=1).fit(IRIS, SPECIES)
    assert not torch.equal(third.model_.head.weight, one.model_.head.weight)


def test_every_epoch_has_an_order_of_its_own(monkeypatch):
    orders = []
    shuffle = torch.randperm

    def noted(count, **options):
        orders.append(shuffle(count, **options).tolist())
        return torch.tensor(orders[-1])

    monkeypatch.setattr(torch, "randperm", noted)
    MemoryClassifier(**FEW).fit(IRIS[::10], SPECIES[::10])
    epochs = orders[:3]  # then come those in which keys are learned
    assert len({tuple(order) for order in epochs}) == 3


def test_a_row_alone_is_predicted_as_in_a_batch(fitted):
    together = fitted.predict_proba(IRIS)
    alone = np.concatenate([fitted.predict_proba(row[None]) for row in IRIS[::7]])
    np.testing.assert_allclose(alone, together[::7], rtol=0, atol=1e-12)


def test_context_batch_lets_a_row_see_its_neighbours():
    model = MemoryClassifier(memory="hma", context="batch", **FEW).fit(IRIS, SPECIES)
    order = np.random.default_rng(0).permutation(len(IRIS))
    alone = model.predict_proba(IRIS[order[:1]])
    assert not np.allclose(model.predict_proba(IRIS[order])[:1], alone, rtol=0, atol=1e-6)
    with pytest.warns(OrderedRowsWarning, match="these rows come in an order") as noted:
        model.predict(IRIS)  # setosa, then versicolor, then virginica
    assert [Path(one.filename).name for one in noted] == ["estimators.py"]
    assert MemoryClassifier().context == "alone"


# ------------------------------------------------------------------ labels and columns


@pytest.mark.parametrize("kind", [object, "U", "series", "category"])
def test_text_labels_come_back_as_text(kind):
    names = np.array(["setosa", "versicolor", "virginica"])[SPECIES]
    if kind in ("series", "category"):
        y = pd.Series(names) if kind == "series" else pd.Series(names, dtype="category")
    else:
        y = names.astype(kind)
    model = MemoryClassifier(**FEW).fit(IRIS, y)
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert set(model.predict(IRIS)) <= set(names)
    numbers = MemoryClassifier(**FEW).fit(IRIS, SPECIES)
    np.testing.assert_array_equal(model.predict_proba(IRIS), numbers.predict_proba(IRIS))


def test_one_class_is_refused():
    with pytest.raises(UserError, match=r"y must hold at least 2 classes, got only one class: \[1"):
        MemoryClassifier().fit(IRIS, np.ones(150))


def test_predicting_before_fitting_is_scikit_learns_error():
    with pytest.raises(NotFittedError):
        MemoryClassifier().predict(IRIS)


# ------------------------------------------------------------------ the parts


@pytest.mark.parametrize("ablation", ["rma", "abd", "abd+syn", "abd+rma", "hma", "param"])
def test_every_ablation_learns_with_its_own_parts(ablation):
    context = "batch" if ablation.startswith("abd") else "alone"
    options = {"memory": "hma", "max_epochs": 20, "random_state": 0}
    model = MemoryClassifier(ablation=ablation, context=context, **options)
    model.fit(IRIS, SPECIES)
    config = model.model_.config
    assert config.has_real_memory == (ablation in ("rma", "abd+rma", "hma"))
    assert (config.slots_per_class > 0) == (ablation in ("abd+syn", "hma"))
    assert config.batch_attention == (ablation not in ("rma", "param"))
    order = np.random.default_rng(0).permutation(len(IRIS))
    assert model.score(IRIS[order], SPECIES[order]) > 0.8


def test_label_dim_is_rounded_up_until_the_heads_fit():
    options = {"memory": "hma", "hidden": (8, 10), "label_dim": 5, "num_heads": 6}
    model = MemoryClassifier(**options, **FEW).fit(IRIS, SPECIES)
    assert model.model_.config.label_dim == 8  # 10 + 8 = 3 * 6
    assert model.label_dim == 5


def test_a_given_module_is_copied_and_a_factory_is_called():
    module = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.BatchNorm1d(12))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = MemoryClassifier(module, max_epochs=20, random_state=0).fit(IRIS, SPECIES)
    assert model.score(IRIS, SPECIES) > 0.85
    assert model.model_.feature_dim == 12
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    asked = []

    def factory(inputs):
        asked.append(inputs)
        return nn.Sequential(nn.Linear(inputs, 6), nn.Tanh())

    one = MemoryClassifier(factory, **FEW).fit(IRIS, SPECIES).predict_proba(IRIS)
    other = MemoryClassifier(factory, **FEW).fit(IRIS, SPECIES).predict_proba(IRIS)
    assert asked == [4, 4, 4, 4]  # each with some rows held out, then with all
    np.testing.assert_array_equal(one, other)


def test_by_default_probabilities_are_calibrated_and_iris_is_not_stopped_early():
    x, y = load_breast_cancer(return_X_y=True)
    model = MemoryClassifier(random_state=0).fit(x[::2], y[::2])
    assert log_loss(y[1::2], model.predict_proba(x[1::2])) < 0.15  # 0.28 without held-out rows
    assert MemoryClassifier(random_state=0).fit(IRIS[::2], SPECIES[::2]).validation_curve_ == []
    model = MemoryClassifier(random_state=0).fit(IRIS, SPECIES)
    assert len(model.validation_curve_) > 20
    assert model.score(IRIS, SPECIES) > 0.93


def test_early_stopping_stops_and_keeps_the_best_epoch(monkeypatch):
    import hma.estimator.learning as learning

    scripted, states = iter([3.0, 1.0, 2.0, 2.0, 2.0, 0.0]), []

    def scripted_loss(model, rows, batch_size):
        states.append(model.head.weight.detach().clone())
        return next(scripted)

    monkeypatch.setattr(learning, "mean_loss", scripted_loss)
    options = {"batch_size": 2, "refit": False}  # 60 steps in an epoch
    model = MemoryClassifier(early_stopping=True, patience=3, random_state=0, **options)
    model.fit(IRIS, SPECIES)
    assert model.n_iter_ == 5
    assert model.validation_curve_ == [3.0, 1.0, 2.0, 2.0, 2.0]
    ratio = model.model_.head.weight.float() / states[1]  # the temperature divides all of it
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio))


def test_verbose_prints_a_line_per_epoch(capsys):
    MemoryClassifier(verbose=True, early_stopping=True, **FEW).fit(IRIS, SPECIES)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": loss ")[0] for line in lines] == [
        *(f"epoch {epoch}" for epoch in (1, 2, 3)),
        *["all rows"] * 3,
    ]
    assert ", validation " in lines[2]


# ------------------------------------------------------------------ explanations


def test_shares_sum_to_one_and_ids_are_training_rows(fitted):
    found = fitted.explain(IRIS[1::30])
    shares = found.itself + found.queue.sum(1) + found.batch.sum(1) + found.slots.sum(1)
    torch.testing.assert_close((shares + found.linear).float(), torch.ones(5))
    assert float(found.linear.sum()) == 0
    classes = SPECIES[::2][found.queue_ids.numpy()]  # ids are places in the training rows
    np.testing.assert_array_equal(fitted.classes_[found.queue_classes.numpy()], classes)
    assert set(found.queue_ids.tolist()) == set(range(75))
    wanted = fitted.predict_proba(IRIS[1::30])
    np.testing.assert_allclose(found.probabilities, wanted, atol=1e-6)
    np.testing.assert_allclose(found.exact.whole, wanted, atol=1e-5)
    mixed = MemoryClassifier(linear=True, **FEW).fit(IRIS[::2], SPECIES[::2])
    found = mixed.explain(IRIS[1::30])
    assert float(found.linear[0]) == pytest.approx(float(mixed.linear_.share))
    np.testing.assert_allclose(found.exact.whole, mixed.predict_proba(IRIS[1::30]), atol=1e-5)


def test_what_is_remembered_of_a_row_is_made_from_that_row(fitted):
    memory = fitted.model_.memory_state()
    x = fitted.inputs_.scaler.transform(IRIS[::2][memory.ids])
    features = fitted.model_.backbone(torch.tensor(x))
    torch.testing.assert_close(memory.features, features, rtol=1e-4, atol=1e-5)
    assert sorted(memory.ids.tolist()) == list(range(75))


# ------------------------------------------------------------------ a little at a time


def test_partial_fit_over_chunks_learns_classes_it_was_told_of():
    x, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], np.array(["malignant", "benign"])[y[order]]
    model = MemoryClassifier(random_state=0)
    for _ in range(3):
        for chunk in np.array_split(np.arange(400), 8):
            model.partial_fit(x[chunk], y[chunk], classes=["malignant", "benign"])
    assert model.score(x[400:], y[400:]) >= 0.93
    assert model.n_iter_ == 24
    assert model.rows_seen_ == 1200
    ids = model.model_.memory_state().ids.numpy()
    assert sorted(ids) == list(range(400))  # a row that comes again is the same row
    np.testing.assert_array_equal(
        model.classes_[model.model_.memory_state().labels.numpy()], y[ids]
    )


def test_partial_fit_remembers_a_class_it_has_not_yet_seen():
    model = MemoryClassifier(random_state=0)
    model.partial_fit(IRIS[:60], SPECIES[:60], classes=[0, 1, 2])  # no row of class 2
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.predict_proba(IRIS).shape == (150, 3)
    model.partial_fit(IRIS[100:], SPECIES[100:])


def test_two_calls_of_partial_fit_are_two_epochs_of_fit_at_one_rate(monkeypatch):
    import hma.estimator.learning as learning

    monkeypatch.setattr(
        learning, "learning_rate", lambda recipe, per_epoch, steps: lambda step: recipe.lr
    )
    options = {"standardize": False, "random_state": 0, "early_stopping": False, "linear": False}
    options |= {"memory": "hma"}  # the default memory learns its keys after fit's last epoch
    whole = MemoryClassifier(max_epochs=2, **options).fit(IRIS, SPECIES)
    parts = MemoryClassifier(**options)
    for _ in range(2):
        parts.partial_fit(IRIS, SPECIES, classes=[0, 1, 2])
    np.testing.assert_array_equal(parts.predict_proba(IRIS), whole.predict_proba(IRIS))
    assert parts.loss_curve_ == whole.loss_curve_


def test_standardisation_goes_on_over_chunks():
    model = MemoryClassifier(random_state=0)
    for rows in (slice(0, 40), slice(40, 150)):
        model.partial_fit(IRIS[rows], SPECIES[rows], classes=[0, 1, 2])
    np.testing.assert_allclose(model.inputs_.scaler.mean_, IRIS.mean(axis=0))
    np.testing.assert_allclose(model.inputs_.scaler.var_, IRIS.var(axis=0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda model: model.partial_fit(IRIS, SPECIES),
            "classes must be given in the first call of partial_fit",
        ),
        (
            lambda model: model.partial_fit(IRIS, SPECIES, classes=[0, 1]),
            r"y holds \[2\], which are not among the classes \[0, 1\]",
        ),
        (
            lambda model: model.partial_fit(IRIS, SPECIES, classes=[0, 1, 2]).partial_fit(
                IRIS, SPECIES, classes=[0, 1, 2, 3]
            ),
            r"classes must stay those of the first call, \[0, 1, 2\], got \[0, 1, 2, 3\]",
        ),
        (
            lambda model: model.set_params(class_weight="balanced").partial_fit(
                IRIS, SPECIES, classes=[0, 1, 2]
            ),
            "class_weight='balanced' is not known; pass a dict",
        ),
        (
            lambda model: model.set_params(early_stopping=True).partial_fit(
                IRIS, SPECIES, classes=[0, 1, 2]
            ),
            "partial_fit sees some rows at a time; set early_stopping=False",
        ),
    ],
)
def test_partial_fit_refuses_what_it_cannot_know(call, message):
    with pytest.raises(UserError, match=message):
        call(MemoryClassifier())

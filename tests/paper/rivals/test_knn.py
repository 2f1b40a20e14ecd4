"""Mixing with stored neighbours, against scikit-learn and a loop in float64."""

import math
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors
from training_cases import (
    EVERYTHING,
    MEMORY,
    Noisy,
    Plain,
    interrupted_at,
    quietly,
    rows,
    small_task,
)

from hma.data import InMemory
from hma.errors import UserError
from hma.methods import erm, with_memory
from hma.methods.simple.simple_row import mix_classes
from hma.paper.rivals import batchformer, irm, knn, random_environments
from hma.paper.rivals.knn import mix_in_neighbours, nearest
from hma.targets import Number, SoftClasses, YesNo
from hma.training import Interrupted
from hma.training.identity import identity

PLAIN = erm(lambda task: Plain(task.shape[0]))
NOISY = erm(lambda task: Noisy(task.shape[0]))
SHORT = replace(EVERYTHING, epochs=2, patience=None, balance="none")


def by_scikit_learn(queries, keys, labels, num_classes, neighbours, temperature):
    count = min(neighbours, len(keys))
    search = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(keys.double().numpy())
    distances, places = search.kneighbors(queries.double().numpy())
    found = np.zeros((len(queries), num_classes))
    for row, (apart, near) in enumerate(zip(distances, places, strict=True)):
        weights = np.exp(-(apart**2 - apart.min() ** 2) / temperature)
        for weight, place in zip(weights / weights.sum(), near, strict=True):
            found[row, int(labels[place])] += weight
    return found


def neighbour_probabilities(queries, keys, labels, num_classes, **options):
    places, weights = nearest(queries, keys, **options)
    return weights.new_zeros(len(queries), num_classes).scatter_add(1, labels[places], weights)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 9),
    st.integers(1, 30),
    st.integers(1, 12),
    st.sampled_from([0.3, 1.0, 20.0]),
    st.integers(0, 2**31),
)
def test_probabilities_by_neighbours_are_those_of_scikit_learn(
    queries, keys, neighbours, temperature, seed
):
    generator = torch.Generator().manual_seed(seed)
    asked = torch.randn(queries, 4, generator=generator, dtype=torch.float64)
    stored = torch.randn(keys, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (keys,), generator=generator)
    options = {"num_classes": 3, "neighbours": neighbours, "temperature": temperature}
    found = neighbour_probabilities(asked, stored, labels, **options)
    expected = by_scikit_learn(asked, stored, labels, **options) if queries else found.numpy()
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)


def test_many_queries_are_answered_in_turns(monkeypatch):
    asked, stored, labels = torch.randn(23, 3), torch.randn(50, 3), torch.randint(4, (50,))
    options = {"num_classes": 4, "neighbours": 5, "temperature": 1.0}
    at_once = neighbour_probabilities(asked, stored, labels, **options)
    monkeypatch.setattr(import_module("hma.methods.simple.neighbours"), "DISTANCES_AT_ONCE", 200)
    torch.testing.assert_close(neighbour_probabilities(asked, stored, labels, **options), at_once)


def test_features_far_from_zero_find_the_same_neighbours():
    generator = torch.Generator().manual_seed(0)
    asked, stored = (torch.randn(n, 4, generator=generator) + 3000 for n in (20, 60))
    labels = torch.randint(3, (60,), generator=generator)
    options = {"num_classes": 3, "neighbours": 5, "temperature": 1.0}
    found = neighbour_probabilities(asked, stored, labels, **options)
    expected = by_scikit_learn(asked.double() - 3000, stored.double() - 3000, labels, **options)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-2)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.9])
def test_mixing_is_the_weighted_mean_of_the_probabilities(share):
    logits, other = torch.randn(6, 3).double(), torch.rand(6, 3).double()
    other = other / other.sum(dim=1, keepdim=True)
    other[0] = torch.tensor([1.0, 0.0, 0.0])
    expected = share * other + (1 - share) * logits.softmax(dim=1)
    torch.testing.assert_close(mix_classes(logits, other, share).exp(), expected)


def test_mixing_one_logit_gives_the_log_odds():
    logits, yes = torch.randn(6, 1).double(), torch.rand(6, 1).double()
    found = mix_classes(logits, torch.cat([1 - yes, yes], dim=1), 0.3)
    assert found.shape == (6, 1)
    torch.testing.assert_close(found.sigmoid(), 0.3 * yes + 0.7 * logits.sigmoid())


def test_neighbours_of_each_kind_of_label_vote_by_their_weights():
    weights = torch.tensor([[0.5, 0.3, 0.2]]).double()

    def mixed(target, logits, labels):
        logits = torch.tensor([logits]).double()
        return mix_in_neighbours(logits, torch.tensor([labels]), weights, 0.4, target)

    found = mixed(SoftClasses(2), [0.0, 0.0], [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    torch.testing.assert_close(found.exp(), torch.tensor([[0.6 * 0.5 + 0.4 * 0.65, 0.44]]).double())
    no, yes, unknown = 0.0, 1.0, math.nan
    labels = [[yes, yes, unknown], [no, unknown, unknown], [yes, no, unknown]]
    found = mixed(YesNo(3), [0.0, 0.0, 7.0], labels)
    expected = torch.tensor([[0.3 + 0.4 * 0.7, 0.3 + 0.4 * 0.5 / 0.7]]).double()
    torch.testing.assert_close(found[:, :2].sigmoid(), expected)
    assert found[0, 2] == 7.0  # no neighbour knows the third label
    found = mixed(Number(5.0, 2.0), [1.0], [1.0, 2.0, -1.0])
    torch.testing.assert_close(found, torch.tensor([[0.6 + 0.4 * (0.5 + 0.6 - 0.2)]]).double())


def trained(method, task, recipe=SHORT, **options):
    learner = method(task, 0)
    return learner, quietly(learner, task, recipe, **options)


def test_a_prediction_is_that_of_a_loop_over_the_stored_features():
    task = small_task()
    options = {"neighbours": 7, "temperature": 3.0}
    learner, _ = trained(knn(PLAIN, share=0.4, **options), task)
    batch = task.tests["near"].batch(torch.arange(50))
    store, model = learner.module.store, learner.module.inner
    with torch.no_grad():
        found, logits = learner.predict(batch), model(batch.x)
        features = model.backbone(batch.x)
    near = by_scikit_learn(features, store.features, store.labels, 3, **options)
    expected = np.log(0.4 * near + 0.6 * logits.double().softmax(dim=1).numpy())
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-4)
    torch.testing.assert_close(found.exp().sum(dim=1), torch.ones(50))


def test_the_store_holds_every_training_row_once_after_an_epoch():
    task = small_task()
    learner, _ = trained(knn(PLAIN), task, replace(SHORT, selection="last"))
    store = learner.module.store
    assert sorted(store.ids.tolist()) == list(range(90))
    assert torch.equal(store.labels, task.train.labels[store.ids])


def test_stored_are_the_features_of_the_step_and_the_backbone_runs_once():
    task = small_task()
    learner = knn(NOISY, store=20)(task, 0)
    calls = []
    backbone = learner.module.inner.backbone
    handle = backbone.register_forward_hook(lambda *seen: calls.append(seen[-1]))
    for first in (0, 16):
        batch = task.train.batch(torch.arange(first, first + 16))
        learner.loss(batch).backward()
        learner.after_step(batch)
    handle.remove()
    assert len(calls) == 2
    assert not backbone._forward_hooks
    held = learner.module.store.rows()
    assert held.ids.tolist() == list(range(12, 32))
    assert torch.equal(held.features, torch.cat(calls).detach()[12:])
    assert not held.features.requires_grad


def test_training_is_that_of_the_method_inside():
    task, recipe = small_task(), replace(SHORT, selection="last")
    outer, found = trained(knn(NOISY), task, recipe)
    inner, expected = trained(NOISY, task, recipe)
    assert [e["train_loss"] for e in found.epochs] == [e["train_loss"] for e in expected.epochs]
    states = (outer.module.inner.state_dict(), inner.module.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[1])


def test_with_no_share_the_scores_are_those_of_the_method_inside():
    task = small_task()
    found, expected = (trained(method, task)[1] for method in (knn(NOISY, share=0.0), NOISY))
    for metric, score in expected.tests["near"]["alone"].items():
        assert found.tests["near"]["alone"][metric] == pytest.approx(score, rel=1e-5)


def test_an_empty_store_leaves_the_answer_to_the_model():
    task = small_task()
    learner = knn(PLAIN)(task, 0)
    learner.module.eval()
    batch = task.train.batch(torch.arange(5))
    assert torch.equal(learner.predict(batch), learner.module.inner(batch.x))


def test_a_store_with_fewer_rows_than_neighbours_uses_all_of_them():
    task = small_task()
    learner = knn(PLAIN, neighbours=10, share=0.5)(task, 0)
    batch = task.train.batch(torch.arange(4))
    learner.loss(batch)
    learner.after_step(batch)
    learner.module.eval()
    found = learner.predict(batch).detach()
    features = learner.module.inner.backbone(batch.x).detach()
    near = by_scikit_learn(features, features, batch.y, 3, 4, 1.0)
    model = learner.module.inner(batch.x).detach().double().softmax(dim=1).numpy()
    np.testing.assert_allclose(found.exp().numpy(), (near + model) / 2, atol=1e-5)


@pytest.mark.parametrize("inner", ["hma", "irm", "batchformer", "in irm"])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_neighbours_compose_with_other_methods(inner, precision):
    task = random_environments(small_task())
    memories = with_memory(lambda task: Noisy(task.shape[0]), MEMORY)
    method = {
        "hma": knn(memories),
        "irm": knn(irm(memories, weight=2.0)),
        "batchformer": knn(batchformer(lambda task: Noisy(task.shape[0]))),
        "in irm": irm(knn(memories), weight=2.0),
    }[inner]
    recipe = replace(SHORT, selection="last", epochs=8, precision=precision)
    learner, record = trained(method, task, recipe)
    outer = learner.inner if inner == "in irm" else learner
    store = outer._own.store
    assert int(store.written) == 8 * 90
    assert record.tests["near"][learner.contexts[0]]["accuracy"] > 0.5


def test_an_interrupted_run_ends_the_same(tmp_path):
    task, method = small_task(), knn(NOISY, neighbours=3, store=37)
    expected = trained(method, task, folder=tmp_path / "whole")[1]
    with pytest.raises(Interrupted):
        quietly(interrupted_at(method(task, 0), 4), task, SHORT, folder=tmp_path / "parts")
    found = quietly(method(task, 9), task, SHORT, folder=tmp_path / "parts")
    assert found.repeatable() == expected.repeatable()


def test_one_logit_predicts_one_column():
    base = rows(60, seed=1, classes=2)
    split = InMemory(base.x, base.labels)
    task = small_task(classes=("yes",), train=split, validation=split, tests={"same": split})
    learner, record = trained(knn(PLAIN, share=0.5), task, replace(SHORT, epochs=15))
    assert learner.predict(split.batch(torch.arange(3))).shape == (3, 1)
    assert record.tests["same"]["alone"]["accuracy"] > 0.75


def test_other_settings_are_another_run():
    task = small_task()
    methods = [knn(PLAIN), knn(PLAIN, share=0.5), knn(PLAIN, neighbours=3), knn(PLAIN, store=9)]
    found = {
        identity(method(task, 0), task, SHORT, 0, None)["method"]["architecture"]
        for method in [*methods, knn(PLAIN, temperature=2.0)]
    }
    assert len(found) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"neighbours": 0}, "neighbours must be a whole number of at least 1, got 0"),
        ({"store": 0}, "store must be a whole number of at least 1, got 0"),
        ({"share": 1.0}, "share must be at least 0 and below 1, got 1.0"),
        ({"share": -0.1}, "share must be at least 0 and below 1, got -0.1"),
        ({"temperature": 0.0}, "temperature must be finite and above 0, got 0.0"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(UserError, match=message):
        knn(PLAIN, **options)


def test_a_method_without_a_backbone_is_refused():
    def method(task, seed):
        learner = PLAIN(task, seed)
        learner.module = torch.nn.Linear(6, 3)
        return learner

    with pytest.raises(UserError, match=r"module with a backbone .* got Linear"):
        knn(method)(small_task(), 0)


def test_after_step_without_a_step_says_so():
    task = small_task()
    with pytest.raises(RuntimeError, match=r"call loss\(batch\) first"):
        knn(PLAIN)(task, 0).after_step(task.train.batch(torch.arange(2)))

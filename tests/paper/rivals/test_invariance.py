"""Penalties on environments, against numpy, autograd and loops, and the methods made of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
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

from hma.backbones import mlp
from hma.data import InMemory
from hma.data.sets.mnist import colored_mnist
from hma.errors import UserError
from hma.methods import erm, with_memory
from hma.paper.rivals import ib_irm, irm, random_environments, vrex
from hma.paper.rivals.invariance import (
    by_environment,
    feature_variance,
    gradient_penalty,
    mean_risk,
    risk_variance,
    row_gradients,
)
from hma.targets import Classes, Number, SoftClasses, YesNo
from hma.training import Interrupted, Recipe
from hma.training.identity import identity


def drawn(environment: list[int], classes: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = len(environment)
    logits = 2 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(max(classes, 2), (rows,), generator=generator)
    weight = torch.rand(rows, generator=generator, dtype=torch.float64) + 0.1
    return logits, labels, weight


def members_of(environment: list[int]) -> dict[int, list[int]]:
    return {e: [i for i, own in enumerate(environment) if own == e] for e in set(environment)}


def risk_of(logits: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    """The weighted cross entropy of some rows, one after the other."""
    total = 0
    for row, label, own in zip(logits, labels, weight, strict=True):
        if len(row) == 1:
            loss = binary_cross_entropy_with_logits(row[0], label.double())
        else:
            loss = cross_entropy(row[None], label[None])
        total = total + own * loss
    return total / weight.sum()


def gradient_by_autograd(logits: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    factor = torch.ones((), dtype=torch.float64, requires_grad=True)
    risk = risk_of(factor * logits, labels, weight)
    return torch.autograd.grad(risk, factor, create_graph=True)[0]


def penalty_by_autograd(logits, labels, weight, environment) -> Tensor:
    found = []
    for places in members_of(environment).values():
        if len(places) < 2:
            continue
        one, other = (
            gradient_by_autograd(logits[half], labels[half], weight[half])
            for half in (places[::2], places[1::2])
        )
        found.append(one * other)
    return sum(found) / max(len(found), 1) + 0 * logits.sum()


ENVIRONMENTS = st.lists(st.integers(-3, 4), min_size=1, max_size=24)


@settings(max_examples=40, deadline=None)
@given(ENVIRONMENTS, st.sampled_from([1, 2, 5]), st.booleans())
def test_the_gradient_penalty_and_its_gradient_are_those_of_autograd(environment, classes, even):
    logits, labels, weight = drawn(environment, classes)
    weight = torch.ones_like(weight) if even else weight
    logits.requires_grad_()
    rows = by_environment(torch.tensor(environment), None if even else weight, torch.float64)
    found = gradient_penalty(row_gradients(logits, labels, Classes(logits.shape[1])), rows)
    expected = penalty_by_autograd(logits, labels, weight, environment)
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad(value, logits)[0] for value in (found, expected)]
    torch.testing.assert_close(grads[0], grads[1])


@settings(max_examples=40, deadline=None)
@given(ENVIRONMENTS, st.sampled_from([1, 3]))
def test_risk_and_variance_are_those_of_numpy(environment, classes):
    logits, labels, weight = drawn(environment, classes)
    rows = by_environment(torch.tensor(environment), weight, torch.float64)
    groups = members_of(environment).values()
    risks = [float(risk_of(logits[g], labels[g], weight[g])) for g in groups]
    losses = Classes(logits.shape[1]).loss(logits, labels)
    assert float(mean_risk(losses, rows)) == pytest.approx(np.mean(risks))
    large = [risk for risk, group in zip(risks, groups, strict=True) if len(group) > 1]
    expected = np.var(large) if large else 0.0
    assert float(risk_variance(losses, rows)) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(ENVIRONMENTS)
def test_the_variance_of_features_is_that_of_numpy(environment):
    features = torch.randn(len(environment), 3, dtype=torch.float64)
    rows = by_environment(torch.tensor(environment), None, torch.float64)
    each = [
        np.var(features[places].numpy(), axis=0, ddof=1).mean()
        for places in members_of(environment).values()
        if len(places) > 1
    ]
    assert float(feature_variance(features, rows)) == pytest.approx(np.mean(each) if each else 0.0)


@pytest.mark.parametrize(
    "target", [Classes(1), Classes(2), Classes(4), SoftClasses(3), YesNo(2), Number(1.0, 2.0)]
)
def test_the_gradient_by_the_factor_is_that_of_a_difference_quotient(target):
    logits, labels, _ = drawn([0] * 6, target.outputs)
    if not isinstance(target, Classes):
        labels = target.prototypes()[torch.arange(6) % 2].double()
    step = 1e-6
    high, low = (target.loss(logits * factor, labels) for factor in (1 + step, 1 - step))
    torch.testing.assert_close(
        row_gradients(logits, labels, target), (high - low) / (2 * step), rtol=1e-6, atol=1e-8
    )


def test_the_product_of_halves_is_unbiased_where_the_square_is_not():
    generator = torch.Generator().manual_seed(0)
    logits, labels, _ = drawn([0] * 400, classes=3)
    gradients = row_gradients(logits, labels, Classes(logits.shape[1]))
    truth = float(gradients.mean()) ** 2
    products, squares = [], []
    for _ in range(4000):
        places = torch.randint(len(gradients), (8,), generator=generator)
        rows = by_environment(torch.zeros(8), None, torch.float64)
        products.append(float(gradient_penalty(gradients[places], rows)))
        squares.append(float(gradients[places].mean()) ** 2)
    noise = np.std(products) / np.sqrt(len(products))
    assert abs(np.mean(products) - truth) < 4 * noise
    assert np.mean(squares) - truth > 10 * noise


def test_rows_without_weight_change_nothing():
    environment = [0, 0, 1, 1, 0, 1, 2, 2]
    logits, labels, weight = drawn(environment, classes=3)
    weight[[4, 5]] = 0
    kept = [0, 1, 2, 3, 6, 7]

    def measures(places):
        rows = by_environment(torch.tensor(environment)[places], weight[places], torch.float64)
        losses = Classes(3).loss(logits[places], labels[places])
        gradients = row_gradients(logits[places], labels[places], Classes(3))
        return torch.stack(
            [
                mean_risk(losses, rows),
                risk_variance(losses, rows),
                gradient_penalty(gradients, rows),
            ]
        )

    torch.testing.assert_close(measures(range(8)), measures(kept))


def test_an_environment_without_any_weight_is_not_there():
    environment = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    logits, labels, weight = drawn([0] * 8, classes=2)
    weight[4:] = 0
    rows = by_environment(environment, weight, torch.float64)
    losses = Classes(logits.shape[1]).loss(logits, labels)
    alone = risk_of(logits[:4], labels[:4], weight[:4])
    torch.testing.assert_close(mean_risk(losses, rows), alone)
    assert float(risk_variance(losses, rows)) == 0
    expected = penalty_by_autograd(logits[:4], labels[:4], weight[:4], [0] * 4)
    torch.testing.assert_close(
        gradient_penalty(row_gradients(logits, labels, Classes(logits.shape[1])), rows), expected
    )


def test_a_batch_of_no_rows_has_no_penalty():
    rows = by_environment(torch.empty(0, dtype=torch.long), None, torch.float32)
    assert float(gradient_penalty(torch.empty(0), rows)) == 0


PLAIN = erm(lambda task: Plain(task.shape[0]))
NOISY = erm(lambda task: Noisy(task.shape[0]))
MEMORIES = with_memory(lambda task: Noisy(task.shape[0]), MEMORY)


def divided_task(count: int = 2, **changes):
    return random_environments(small_task(**changes), count=count, seed=3)


def first_batch(task, count: int = 20):
    return task.train.batch(torch.arange(count))


def logits_and_risks(learner, batch):
    logits = learner.predict(batch)
    groups = [batch.environment == e for e in batch.environment.unique()]
    return logits, torch.stack([cross_entropy(logits[g], batch.y[g]) for g in groups])


def penalty_of_batch(logits, batch):
    found = []
    for environment in batch.environment.unique():
        (places,) = torch.where(batch.environment == environment)
        product = 1.0
        for half in (places[::2], places[1::2]):
            factor = torch.ones((), requires_grad=True)
            risk = cross_entropy(factor * logits[half], batch.y[half])
            product = product * torch.autograd.grad(risk, factor, create_graph=True)[0]
        found.append(product)
    return torch.stack(found).mean()


def after_steps(learner, count: int):
    for _ in range(count):
        learner.after_step(None)
    return learner


@pytest.mark.parametrize(
    ("weight", "warmup", "done", "counts", "divisor"),
    [(50, 3, 2, 1, 1), (50, 3, 3, 50, 50), (0.5, 0, 0, 0.5, 1), (0, 0, 9, 0, 1)],
)
def test_irm_adds_the_penalty_to_the_mean_risk_and_divides_by_a_large_weight(
    weight, warmup, done, counts, divisor
):
    task = divided_task(count=3)
    learner = after_steps(irm(PLAIN, weight=weight, warmup_steps=warmup)(task, 0), done)
    batch = first_batch(task)
    logits, risks = logits_and_risks(learner, batch)
    expected = (risks.mean() + counts * penalty_of_batch(logits, batch)) / divisor
    torch.testing.assert_close(learner.loss(batch), expected)


def test_vrex_adds_the_variance_of_the_risks_and_its_gradient_flows():
    task = divided_task(count=3)
    learner = vrex(PLAIN, weight=7.0)(task, 0)
    batch = first_batch(task)
    _, risks = logits_and_risks(learner, batch)
    values = risks.detach().double().numpy()
    loss = learner.loss(batch)
    assert loss.item() == pytest.approx((values.mean() + 7 * np.var(values)) / 7, rel=1e-5)
    expected = (risks.mean() + 7 * (risks - risks.mean()).square().mean()) / 7
    head = learner.module.inner.head.weight
    found, by_hand = (torch.autograd.grad(value, head)[0] for value in (loss, expected))
    torch.testing.assert_close(found, by_hand)


@pytest.mark.parametrize(("done", "counts"), [(0, 0.0), (2, 0.3)])
def test_ib_irm_adds_the_variance_of_the_features_within_environments(done, counts):
    task = divided_task()
    batch = first_batch(task)
    learners = [
        after_steps(method(task, 0), done)
        for method in (
            ib_irm(PLAIN, weight=2.0, bottleneck=0.3, warmup_steps=2),
            irm(PLAIN, weight=2.0, warmup_steps=2),
        )
    ]
    features = learners[0].module.inner.backbone(batch.x).detach()
    each = [features[batch.environment == e].var(dim=0).mean() for e in (0, 1)]
    divisor = 2.0 if done >= 2 else 1.0
    found, plain = (learner.loss(batch) for learner in learners)
    torch.testing.assert_close(found - plain, counts * torch.stack(each).mean() / divisor)


def test_the_bottleneck_runs_the_backbone_once_and_leaves_no_hook():
    task = divided_task()
    learner = ib_irm(PLAIN, weight=2.0, bottleneck=0.3)(task, 0)
    calls = []
    backbone = learner.module.inner.backbone
    handle = backbone.register_forward_hook(lambda *_: calls.append(1))
    learner.loss(first_batch(task)).backward()
    handle.remove()
    assert len(calls) == 1
    assert not backbone._forward_hooks


@pytest.mark.parametrize("name", ["irm", "vrex", "ib_irm"])
@pytest.mark.parametrize("inner", [PLAIN, MEMORIES], ids=["erm", "hma"])
def test_a_penalised_method_predicts_like_the_one_inside(name, inner):
    task = divided_task()
    make = {"irm": irm, "vrex": vrex, "ib_irm": ib_irm}[name]
    options = {"bottleneck": 0.1} if name == "ib_irm" else {}
    outer, plain = make(inner, weight=3.0, **options)(task, 4), inner(task, 4)
    assert outer.contexts == plain.contexts
    for learner in (outer, plain):
        learner.module.eval()
    for context in plain.contexts:
        outer.use(context)
        plain.use(context)
        batch = task.validation.batch(torch.arange(9))
        assert torch.equal(outer.predict(batch), plain.predict(batch))


def test_the_memory_of_the_inner_method_is_written():
    task = divided_task()
    learner = irm(MEMORIES, weight=3.0)(task, 0)
    record = quietly(learner, task, replace(EVERYTHING, epochs=1, patience=None))
    state = learner.inner.model.memory_state()
    assert len(state.labels) == MEMORY.queue_size
    assert learner.module.config is learner.inner.model.config
    assert record.setup["method"]["config"]["queue_size"] == MEMORY.queue_size


@pytest.mark.parametrize("inner", [NOISY, MEMORIES], ids=["erm", "hma"])
def test_a_run_interrupted_before_and_after_the_warm_up_ends_the_same(tmp_path, inner):
    task = divided_task()
    recipe = replace(EVERYTHING, epochs=4, patience=None, balance="none")
    method = irm(inner, weight=20.0, warmup_steps=11)
    expected = quietly(method(task, 0), task, recipe, folder=tmp_path / "whole")
    for call in (7, 8):  # steps 8 and 16 of 24: on either side of the eleventh
        with pytest.raises(Interrupted):
            quietly(interrupted_at(method(task, 0), call), task, recipe, folder=tmp_path / "parts")
    learner = method(task, 5)
    found = quietly(learner, task, recipe, folder=tmp_path / "parts")
    assert found.repeatable() == expected.repeatable()
    selected = min(found.selected_epoch + 1, 4) * 6
    assert int(learner.module.steps) == selected
    never = irm(inner, weight=20.0, warmup_steps=24)(task, 0)
    assert quietly(never, task, recipe).epochs != expected.epochs, "the warm-up must matter"


def test_another_weight_is_another_run(tmp_path):
    task = divided_task()
    recipe = replace(EVERYTHING, epochs=1, patience=None)
    runs = [
        identity(method(task, 0), task, recipe, 0, None)["method"]["architecture"]
        for method in (
            irm(PLAIN, weight=1.0),
            irm(PLAIN, weight=2.0),
            irm(PLAIN, weight=1.0, warmup_steps=1),
            vrex(PLAIN, weight=1.0),
            ib_irm(PLAIN, weight=1.0, bottleneck=0.5),
        )
    ]
    assert len(set(runs)) == len(runs)


def test_the_forward_pass_goes_through_what_the_loop_put_around_the_module():
    calls = []

    def around(x, *known):
        calls.append(x)
        return own.output(x, *known)

    task = divided_task()
    learner = irm(irm(MEMORIES, weight=1.0), weight=2.0)(task, 0)
    own, learner.run = learner.module, around
    batch = first_batch(task)
    learner.loss(batch).backward()
    learner.predict(batch)
    learner.after_step(batch)
    assert len(calls) == 2
    assert int(own.steps) == int(own.inner.steps) == 1


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_penalties_train_in_every_number_format(precision):
    task = divided_task()
    recipe = replace(EVERYTHING, epochs=6, patience=None, precision=precision)
    learner = ib_irm(MEMORIES, weight=5.0, bottleneck=0.01, warmup_steps=10)(task, 0)
    record = quietly(learner, task, recipe)
    assert record.tests["near"]["batch"]["accuracy"] > 0.5


@pytest.mark.data
@pytest.mark.slow
def test_on_colored_mnist_irm_is_not_misled_by_the_colour_and_erm_is(data_root):
    task = colored_mnist(0, flips=(0.2, 0.1), size=14, data_root=data_root).task
    recipe = Recipe(
        steps=500, batch_size=512, selection="last", evaluate_every=9, eval_batch_size=1000
    )
    plain = erm(lambda task: mlp(2 * 14 * 14))
    means = []
    for method in (plain, irm(plain, weight=1e4, warmup_steps=200)):
        tests = quietly(method(task, 0), task, recipe).tests.values()
        means.append(np.mean([scores["alone"]["accuracy"] for scores in tests]))
    assert means[0] < 0.5 < means[1]  # a coin has 0.5


def test_one_logit_trains_as_two_classes():
    base = rows(60, seed=1, classes=2)
    split = InMemory(base.x, base.labels, environment=torch.arange(60) % 2)
    task = small_task(classes=("yes",), train=split, validation=split, tests={"same": split})
    learner = irm(PLAIN, weight=2.0)(task, 0)
    record = quietly(learner, task, replace(EVERYTHING, epochs=20, patience=None))
    assert record.tests["same"]["alone"]["accuracy"] > 0.7


def test_rows_without_environment_are_refused_with_the_name_of_the_task():
    task = small_task()
    with pytest.raises(UserError, match=r"'clouds' have no environment; give .*random_env"):
        quietly(irm(PLAIN, weight=1.0)(task, 0), task, EVERYTHING)


def test_a_single_environment_is_refused():
    split = InMemory(torch.zeros(4, 6), torch.zeros(4).long(), environment=torch.ones(4))
    with pytest.raises(UserError, match=r"'clouds' are all of one environment"):
        vrex(PLAIN, weight=1.0)(small_task(train=split), 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": -1.0}, "weight must be finite and at least 0, got -1.0"),
        ({"weight": float("nan")}, "weight must be finite and at least 0, got nan"),
        ({"weight": 1.0, "bottleneck": -0.1}, "bottleneck must be finite and at least 0, got -0.1"),
        ({"weight": 1.0, "warmup_steps": -1}, "warmup_steps must be a whole number .* got -1"),
        ({"weight": 1.0, "warmup_steps": 0.5}, "warmup_steps must be a whole number .* got 0.5"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(UserError, match=message):
        ib_irm(PLAIN, **{"bottleneck": 0.1} | options)


def test_random_environments_are_of_equal_size_and_known_by_their_seed():
    task = small_task()
    one, same, other = (random_environments(task, count=4, seed=seed) for seed in (1, 1, 2))
    everything = torch.arange(len(task.train))
    found = [made.train.batch(everything).environment for made in (one, same, other)]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert sorted(found[0].bincount().tolist()) == [22, 22, 23, 23]
    places = torch.tensor([5, 0, 7])
    batch = one.train.batch(places)
    assert torch.equal(batch.environment, found[0][places])
    assert torch.equal(batch.x, task.train.batch(places).x)
    assert one.facts["environments"] == "4, at random by seed 1"


def test_random_environments_leave_augmentation_as_it_is():
    class Growing(InMemory):
        def batch(self, places, epoch=None):
            batch = super().batch(places)
            return batch._replace(x=batch.x + (epoch or 0))

    base = rows(10, seed=1)
    task = random_environments(small_task(train=Growing(base.x, base.labels)))
    batch = task.train.batch(torch.arange(4), epoch=2)
    assert torch.equal(batch.x, base.x[:4] + 2)
    assert torch.equal(batch.environment, task.train.environment[:4])


@pytest.mark.parametrize("count", [1, 91])
def test_random_environments_need_a_row_each(count):
    with pytest.raises(UserError, match=rf"count must be from 2 to .* 90, got {count}"):
        random_environments(small_task(), count=count)

"""Methods on subgraphs around ERM and HMA: what is trained, written, resumed and refused."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from training_cases import MEMORY, interrupted_at, quietly

from hma.backbones import GIN, mlp
from hma.data import Task
from hma.data.sets.spurious_motif import spurious_motif
from hma.errors import UserError
from hma.methods import erm, with_memory
from hma.paper.rivals import (
    asap,
    batchformer,
    ciga,
    dir_,
    edge_scores,
    ib_irm,
    irm,
    random_environments,
    vrex,
)
from hma.targets import Number, YesNo
from hma.training import Interrupted, Recipe
from hma.training.identity import identity
from hma.vote.config import VoteConfig

pytest.importorskip("torch_geometric", reason="needs the graph extra", exc_type=ImportError)

PAPER = partial(with_memory, config=replace(MEMORY, queue_size=20))
MIXED = partial(with_memory, config=VoteConfig())
METHODS = {
    "asap": partial(asap, share=0.4),
    "ciga": partial(ciga, contrast=0.5),
    "cigav2": partial(ciga, contrast=0.5, spurious=1.0, reads="raw"),
    "released": partial(ciga, contrast=0.5, spurious=1.0, contrasts="chosen", drift=True),
    "dir": partial(dir_, weight=0.1, variance=4.0),
}
RECIPE = Recipe(epochs=2, batch_size=9, lr=3e-3)


def encoder(task):
    return GIN(task.shape[0], width=16, num_layers=2, dropout=0.2)


@pytest.fixture(scope="module")
def task():
    return spurious_motif(0, 0.9, train=30, validation=12, test=9).task


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("inner", [erm, PAPER, MIXED], ids=["erm", "paper", "mixed"])
def test_a_run_that_was_interrupted_ends_as_if_undisturbed(tmp_path, task, name, inner):
    method = METHODS[name](encoder, inner)
    whole = method(task, 0)
    expected = quietly(whole, task, RECIPE, folder=tmp_path / "whole")
    with pytest.raises(Interrupted):
        quietly(interrupted_at(method(task, 0), 5), task, RECIPE, folder=tmp_path / "parts")
    learner = method(task, 5)
    found = quietly(learner, task, RECIPE, folder=tmp_path / "parts")
    assert found.repeatable() == expected.repeatable()
    for key, value in whole.module.state_dict().items():
        assert torch.equal(learner.module.state_dict()[key], value), key
    model = learner.module if name == "asap" else learner.module.inner
    assert set(expected.tests["unbiased"]) == set(learner.contexts)
    if inner is PAPER:
        assert len(model.memory_state().labels) == 20
        assert model.momentum_encoder is not None
    if inner is MIXED:
        assert len(model.memory_state().labels) == 30


@pytest.mark.parametrize("name", METHODS)
def test_a_method_on_subgraphs_answers_like_the_one_inside(task, name):
    learner = METHODS[name](encoder, PAPER)(task, 1)
    quietly(learner, task, replace(RECIPE, epochs=1))
    learner.module.eval()
    batch = task.validation.batch(torch.arange(6))
    model = learner.module if name == "asap" else learner.module.inner
    for context in learner.contexts:
        learner.use(context)
        assert torch.equal(learner.predict(batch), model(batch.x))
    assert edge_scores(learner, batch).shape == batch.x.edge_index.shape[1:]


def test_a_penalty_goes_around_and_inside(task):
    divided = random_environments(task, seed=1)
    inside = ciga(encoder, lambda backbone: irm(erm(backbone), weight=3.0), contrast=0.5)
    around = irm(ciga(encoder, contrast=0.5), weight=3.0)
    for method in (inside, around):
        record = quietly(method(divided, 0), divided, RECIPE)
        assert 0 <= record.tests["larger"]["alone"]["accuracy"] <= 1


@pytest.mark.parametrize("make", [irm, vrex, partial(ib_irm, bottleneck=0.1)])
def test_penalties_train_on_graphs_with_random_halves(task, make):
    divided = random_environments(task, seed=3)
    assert torch.bincount(divided.train.environment).tolist() == [15, 15]
    record = quietly(make(erm(encoder), weight=10.0)(divided, 0), divided, RECIPE)
    assert len(record.epochs) == 2


@pytest.mark.parametrize("make", [irm, vrex, partial(ib_irm, bottleneck=0.1)])
def test_an_environment_of_one_graph_enters_the_risk_alone(task, make):
    divided = random_environments(task)
    divided.train.environment[:] = 0
    divided.train.environment[7] = 1
    learner = make(erm(encoder), weight=0.5)(divided, 0)
    learner.module.eval()
    batch = divided.train.batch(torch.arange(12))
    losses = learner.target.loss(learner.predict(batch), batch.y)
    others = torch.arange(12) != 7
    risk = (losses[others].mean() + losses[7]) / 2
    found = learner.loss(batch)
    assert torch.isfinite(found)
    if make is vrex:  # one environment large enough is no two to differ
        torch.testing.assert_close(found, risk)
    found.backward()


def test_yes_no_labels_and_one_logit_train(task):
    labels = (task.train.labels == 1).float()[:, None]
    labels[::5] = torch.nan
    for target, y in ((YesNo(1), labels), (None, (task.train.labels == 1).long())):
        changed = {}
        for name in ("train", "validation"):
            split = getattr(task, name)
            made = type(split)(split.store, split.rows, y[: len(split)])
            changed[name] = made
        own = replace(
            task, classes=("house",), metric="", target=target, tests={}, **changed
        )  # fmt: skip
        for name in ("cigav2", "dir"):
            learner = METHODS[name](encoder)(own, 0)
            loss = learner.loss(own.train.batch(torch.arange(10)))
            loss.backward()
            assert torch.isfinite(loss)


def test_every_share_and_a_batch_of_one_graph_train(task):
    for share in (1, 1.0, 1e-6):
        for make in (dir_, partial(ciga, spurious=1.0)):
            learner = make(encoder, share=share)(task, 0)
            loss = learner.loss(task.train.batch(torch.tensor([3])))
            loss.backward()
            assert torch.isfinite(loss)


def test_every_setting_is_part_of_a_runs_identity(task):
    methods = [
        ciga(encoder), ciga(encoder, contrast=2.0), ciga(encoder, spurious=1.0),
        ciga(encoder, share=0.3), ciga(encoder, spurious=2.0), dir_(encoder),
        dir_(encoder, weight=1.0), dir_(encoder, variance=1.0), asap(encoder),
        ciga(encoder, contrasts="chosen"), ciga(encoder, drift=True), ciga(encoder, head="linear"),
        asap(encoder, share=0.3), asap(encoder, dropout=0.1),
    ]  # fmt: skip
    found = [
        identity(method(task, 0), task, RECIPE, 0, None)["method"]["architecture"]
        for method in methods
    ]
    assert len(set(found)) == len(methods)


@pytest.mark.parametrize("make", [asap, ciga, dir_])
@pytest.mark.parametrize("share", [0, 0.0, -0.5, 1.01, float("nan"), True, "half"])
def test_a_share_that_keeps_nothing_or_too_much_is_refused(make, share):
    with pytest.raises(UserError, match=r"share must be above 0 and at most 1, .* got"):
        make(encoder, share=share)


def test_what_cannot_be_built_is_said_in_one_line(task):
    with pytest.raises(UserError, match="contrast must be finite and at least 0, got -1"):
        ciga(encoder, contrast=-1)
    with pytest.raises(UserError, match="variance must be finite and at least 0, got nan"):
        dir_(encoder, variance=float("nan"))
    with pytest.raises(UserError, match="dropout must be at least 0 and below 1, got 1"):
        asap(encoder, dropout=1)
    with pytest.raises(UserError, match=r"nodes\(batch\), as hma.backbones.GIN does, got MLP"):
        ciga(lambda task: mlp(4))(task, 0)
    with pytest.raises(UserError, match="an encoder of width 16 was asked for, got one of 4"):
        dir_(lambda task: GIN(4, width=16))(task, 0)
    with pytest.raises(UserError, match="got Erm without it; give erm, or partial"):
        ciga(encoder, lambda backbone: erm(encoder))(task, 0)
    learner = dir_(encoder, batchformer)(task, 0)
    with pytest.raises(UserError, match="got 20 for 10 from WithBatchFormer"):
        learner.loss(task.train.batch(torch.arange(10)))
    numbers = Task(
        "sizes", "graph", ("size",), task.shape, task.train, task.validation, {}, target=Number()
    )
    with pytest.raises(UserError, match="'sizes' has numbers; set contrast=0"):
        ciga(encoder)(numbers, 0)
    with pytest.raises(UserError, match=r"has codes at its edges; set reads='raw'"):
        ciga(encoder)(replace(task, shape=(4, 0, 2)), 0)
    with pytest.raises(UserError, match="reads must be one of 'hidden', 'raw', got 'hiden'; did"):
        ciga(encoder, reads="hiden")
    with pytest.raises(UserError, match="head must be one of 'hidden', 'linear', got 'hiden'; did"):
        ciga(encoder, head="hiden")
    with pytest.raises(UserError, match="contrasts must be one of 'predicted', 'chosen', got 'all"):
        ciga(encoder, contrasts="all")


@pytest.mark.parametrize("name", METHODS)
def test_every_number_format_trains(task, name):
    learner = METHODS[name](encoder)(task, 0)
    record = quietly(learner, task, replace(RECIPE, epochs=1, precision="bf16-mixed"))
    assert all(torch.isfinite(value).all() for value in learner.module.state_dict().values())
    assert record.epochs

"""Manifold-Mixup and G-Mixup: their losses against the formula, and what a memory is given."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("torch_geometric", reason="needs the graph extra", exc_type=ImportError)

from graph_cases import WIDTH, gin, graph_task, laid_split, random_split
from torch.nn.functional import cross_entropy, one_hot
from torch_geometric.data import Batch as GraphBatch
from torch_geometric.data import Data
from torch_geometric.nn import global_mean_pool
from training_cases import EVERYTHING, MEMORY, Noisy, Plain, interrupted_at, quietly, small_task

from hma.attention.config import HMAConfig
from hma.backbones import GIN
from hma.data import Batch, Graphs, InMemory, Mixed
from hma.data.task import limited
from hma.errors import UserError
from hma.methods import erm, with_memory
from hma.paper.rivals import (
    batchformer,
    drop_edge,
    g_mixup,
    irm,
    knn,
    manifold_mixup,
    random_environments,
)
from hma.targets import Number
from hma.training import Interrupted
from hma.training.identity import identity
from hma.vote.config import VoteConfig

PLAIN, MEMORIES = erm(gin), with_memory(gin, MEMORY)
TABLE = erm(lambda task: Plain(task.shape[0]))
SHORT = replace(EVERYTHING, epochs=3, patience=None, balance="none")
HALF = {"share": 0.5, "mixing": (0.2, 0.4)}
MIXING = {"manifold": manifold_mixup, "g_mixup": lambda method: g_mixup(method, **HALF)}


def soft(labels, classes=2):
    return one_hot(labels, classes).float()


# -------------------------------------------------------------------------- Manifold-Mixup


def test_manifold_mixup_is_the_cross_entropy_of_mixed_features_with_soft_labels():
    task = small_task()
    learner = manifold_mixup(TABLE)(task, 0)
    learner.module.train()
    batch = task.train.batch(torch.arange(20))
    torch.manual_seed(5)
    loss = learner.loss(batch)
    torch.manual_seed(5)
    partners = torch.randperm(20)
    share = float(torch.distributions.Beta(1.0, 1.0).sample())
    inner = learner.inner.module
    features = inner.backbone(batch.x)
    logits = inner.head(share * features + (1 - share) * features[partners])
    labels = share * soft(batch.y, 3) + (1 - share) * soft(batch.y[partners], 3)
    torch.testing.assert_close(loss, cross_entropy(logits, labels))
    assert 0.01 < share < 0.99


@pytest.mark.parametrize("project", [True, False])
def test_of_graphs_what_the_pool_gives_is_mixed(project):
    task = graph_task()
    method = manifold_mixup(erm(lambda task: GIN(task.shape[0], width=8, project=project)))
    learner = method(task, 0)
    batch = task.train.batch(torch.arange(9))
    output = learner.forward(batch)
    drawn, inner = learner.module.drawn, learner.inner.module
    network = inner.backbone
    pooled = global_mean_pool(network.nodes(batch.x), batch.x.batch)
    hidden = drawn.share * pooled + (1 - drawn.share) * pooled[drawn.partners]
    features = network.project(hidden) if project else hidden
    torch.testing.assert_close(output.logits, inner.head(features))
    torch.testing.assert_close(output.features, network(batch.x))


def test_shares_follow_the_beta_distribution():
    learner = manifold_mixup(TABLE, alpha=0.5)(small_task(), 0)
    batch = small_task().train.batch(torch.arange(2))
    shares = []
    for _ in range(400):
        learner.loss(batch)
        shares.append(float(learner.module.drawn.share))
    expected = torch.distributions.Beta(0.5, 0.5)
    assert torch.tensor(shares).mean() == pytest.approx(0.5, abs=0.08)
    assert torch.tensor(shares).var() == pytest.approx(float(expected.variance), abs=0.03)


@pytest.mark.parametrize("inner", [TABLE, with_memory(lambda task: Noisy(6), MEMORY)])
def test_outside_training_nothing_is_mixed(inner):
    task = small_task()
    outer, plain = manifold_mixup(inner)(task, 0), inner(task, 0)
    batch = task.validation.batch(torch.arange(9))
    for learner in (outer, plain):
        learner.module.eval()
    assert torch.equal(outer.predict(batch), plain.predict(batch))
    torch.testing.assert_close(outer.loss(batch), plain.loss(batch), rtol=0, atol=0)


@pytest.mark.parametrize(
    "config",
    [MEMORY, HMAConfig(label_dim=8, queue_size=40, slots_per_class=2, momentum=0.0)],
    ids=["momentum", "features of the step"],
)
def test_a_memory_is_given_features_and_labels_of_the_rows_themselves(config):
    task = small_task()
    learner = manifold_mixup(with_memory(lambda task: Plain(6), config))(task, 0)
    batch = task.train.batch(torch.arange(12))
    features = learner.inner.model.backbone(batch.x).detach()
    learner.loss(batch)
    learner.after_step(batch)
    state = learner.inner.model.memory_state()
    torch.testing.assert_close(state.features[:12], features)
    assert torch.equal(state.labels[:12], batch.y)


def test_neighbours_are_given_features_of_the_rows_themselves():
    task = small_task()
    learner = knn(manifold_mixup(TABLE), neighbours=3)(task, 0)
    batch = task.train.batch(torch.arange(12))
    features = learner.inner.inner.module.backbone(batch.x).detach()
    learner.loss(batch)
    learner.after_step(batch)
    torch.testing.assert_close(learner.module.store.features[:12], features)


def test_numbers_and_weights_are_mixed_too():
    y = torch.linspace(-1, 1, 20)
    split = InMemory(torch.randn(20, 6), y, weight=torch.arange(20.0))
    task = small_task(
        classes=("n",), target=Number(), train=split, validation=split, tests={"s": split}
    )
    learner = manifold_mixup(TABLE)(task, 0)
    batch = split.batch(torch.arange(20))
    output = learner.forward(batch)
    drawn = learner.module.drawn
    errors = [(output.logits[:, 0] - labels) ** 2 for labels in (y, y[drawn.partners])]
    each = drawn.share * errors[0] + (1 - drawn.share) * errors[1]
    expected = (each * batch.weight).sum() / batch.weight.sum()
    torch.testing.assert_close(learner.loss_of(output, batch), expected)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("inf"), float("nan")])
def test_a_wrong_alpha_is_refused(alpha):
    with pytest.raises(UserError, match=rf"alpha must be finite and above 0, got {alpha}"):
        manifold_mixup(TABLE, alpha=alpha)


@pytest.mark.parametrize(
    "inner", [batchformer(lambda task: Plain(6)), irm(TABLE, weight=1.0)], ids=["two", "penalty"]
)
def test_a_method_with_a_loss_of_its_own_is_refused(inner):
    task = random_environments(small_task())
    with pytest.raises(UserError, match=r"which has a loss of its own; put the mixing inside it"):
        manifold_mixup(inner)(task, 0)


def test_a_penalty_goes_around_mixed_features():
    task = random_environments(small_task())
    record = quietly(irm(manifold_mixup(TABLE), weight=1.0)(task, 0), task, SHORT)
    assert len(record.epochs) == 3


# --------------------------------------------------------------------------------- G-Mixup


def extended(task, **options):
    learner = g_mixup(PLAIN, **HALF | options)(task, 0)
    return learner, learner.training_split(task.train, 0)


def test_new_graphs_stand_after_the_real_ones_with_two_labels():
    task = graph_task(rows=60)
    _, split = extended(task)
    assert len(split) == 60 + 30
    assert torch.equal(split.labels[:60], task.train.labels)
    batch = split.batch(torch.arange(90))
    assert torch.equal(batch.mixed.made, torch.arange(90) >= 60)
    assert ((batch.mixed.share[60:] >= 0.6) & (batch.mixed.share[60:] <= 0.8)).all()
    assert (batch.y[60:] != batch.mixed.y[60:]).all()
    assert batch.x.num_graphs == 90
    assert torch.equal(batch.ids, torch.arange(90))


def test_a_batch_of_real_and_new_graphs_is_what_pyg_collates():
    task = graph_task(rows=40)
    _, split = extended(task)
    places = torch.tensor([43, 2, 59, 41, 17, 3])
    alone = []
    for place in places.tolist():
        one = split.batch(torch.tensor([place])).x
        alone.append(Data(x=one.x, edge_index=one.edge_index))
        degrees = torch.bincount(one.edge_index[0], minlength=len(one.x)).clamp(max=WIDTH - 1)
        assert torch.equal(one.x, one_hot(degrees, WIDTH).float())
    expected, found = GraphBatch.from_data_list(alone), split.batch(places)
    for key in ("x", "edge_index", "batch", "ptr"):
        assert torch.equal(found.x[key], expected[key]), key
    real = split.batch(torch.tensor([2, 17])).x
    assert torch.equal(real.edge_index, task.train.batch(torch.tensor([2, 17])).x.edge_index)


def test_the_loss_is_the_cross_entropy_of_soft_labels():
    task = graph_task(rows=40, classes=3)
    learner, split = extended(task)
    learner.module.eval()
    batch = split.batch(torch.arange(30, 60))
    share = batch.mixed.share[:, None]
    labels = share * soft(batch.y, 3) + (1 - share) * soft(batch.mixed.y, 3)
    expected = cross_entropy(learner.predict(batch), labels)
    torch.testing.assert_close(learner.loss(batch), expected)
    plain = split.batch(torch.arange(9))
    bare = plain._replace(mixed=None)
    assert torch.equal(learner.loss(plain), learner.inner.loss(bare))


def test_one_logit_learns_soft_labels_too():
    task = graph_task(classes=1, train=random_split(40, seed=1))
    learner, split = extended(task)
    learner.module.eval()
    batch = split.batch(torch.arange(60))
    share = batch.mixed.share
    positive = share * batch.y + (1 - share) * batch.mixed.y
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        learner.predict(batch)[:, 0], positive
    )
    torch.testing.assert_close(learner.loss(batch), expected)


def test_no_memory_keeps_a_new_graph():
    task = graph_task(rows=30)
    for method in (g_mixup(MEMORIES, **HALF), g_mixup(knn(PLAIN), **HALF)):
        learner = method(task, 0)
        quietly(learner, task, SHORT)
        inner = learner.inner
        ids = inner.model.memory_state().ids if hasattr(inner, "model") else inner.module.store.ids
        assert len(ids) >= 30
        assert int(ids.max()) < 30
        assert set(ids[ids >= 0].tolist()) == set(range(30))


def test_a_memory_with_a_row_a_sample_holds_the_training_graphs_and_no_others():
    task = graph_task(rows=30)
    config = VoteConfig(slots_per_class=2)
    learner = g_mixup(with_memory(gin, config), **HALF)(task, 0)
    quietly(learner, task, SHORT)
    assert sorted(learner.inner.model.memory_state().ids.tolist()) == list(range(30))


def test_what_goes_around_new_graphs_changes_them_and_what_is_inside_does_not():
    task = graph_task(rows=40)
    places = torch.arange(40, 60)
    _, plain = extended(task)
    edges = plain.batch(places, epoch=0).x.num_edges
    around = drop_edge(g_mixup(PLAIN, **HALF), share=0.5)(task, 0).training_split(task.train, 0)
    assert around.batch(places, epoch=0).x.num_edges < 0.7 * edges
    inside = g_mixup(drop_edge(PLAIN, share=0.5), **HALF)(task, 0).training_split(task.train, 0)
    assert inside.batch(places, epoch=0).x.num_edges == edges
    real = torch.arange(40)
    left = inside.batch(real, epoch=0).x.num_edges
    assert left < 0.7 * task.train.batch(real).x.num_edges


@pytest.mark.parametrize("inside", ["manifold", "g_mixup"])
def test_both_mixtures_of_one_row_are_counted(inside):
    task = graph_task(rows=40)
    outer = "g_mixup" if inside == "manifold" else "manifold"
    learner = MIXING[outer](MIXING[inside](PLAIN))(task, 0)
    mixing = learner.inner.module if inside == "manifold" else learner.module
    batch = learner.training_split(task.train, 0).batch(torch.arange(30, 60))
    output = learner.forward(batch)
    share = batch.mixed.share[:, None]
    own = share * soft(batch.y) + (1 - share) * soft(batch.mixed.y)
    drawn = mixing.drawn
    labels = drawn.share * own + (1 - drawn.share) * own[drawn.partners]
    torch.testing.assert_close(learner.loss_of(output, batch), cross_entropy(output.logits, labels))


@pytest.mark.parametrize("inner", [PLAIN, MEMORIES], ids=["erm", "hma"])
@pytest.mark.parametrize("name", MIXING)
def test_an_interrupted_run_ends_the_same(tmp_path, name, inner):
    task = graph_task()
    method = MIXING[name](inner)
    expected = quietly(method(task, 0), task, SHORT, folder=tmp_path / "whole")
    with pytest.raises(Interrupted):
        quietly(interrupted_at(method(task, 0), 5), task, SHORT, folder=tmp_path / "parts")
    found = quietly(method(task, 7), task, SHORT, folder=tmp_path / "parts")
    assert found.repeatable() == expected.repeatable()
    assert quietly(inner(task, 0), task, SHORT).epochs != expected.epochs, "mixing must matter"


@pytest.mark.parametrize("inner", [PLAIN, MEMORIES], ids=["erm", "hma"])
def test_a_share_of_nothing_is_the_method_inside_bit_for_bit(inner):
    task = graph_task()
    expected, found = (
        quietly(method(task, 0), task, SHORT) for method in (inner, g_mixup(inner, share=0.0))
    )
    assert found.epochs == expected.epochs
    assert found.tests == expected.tests


def test_classes_are_balanced_by_the_label_that_counts_more():
    task = graph_task(rows=30)
    record = quietly(g_mixup(PLAIN, **HALF)(task, 0), task, replace(SHORT, balance="loss"))
    assert len(record.epochs) == 3


def test_other_settings_are_another_run():
    task = graph_task()
    methods = (
        g_mixup(PLAIN),
        g_mixup(PLAIN, share=0.3),
        g_mixup(PLAIN, groups=3),
        g_mixup(PLAIN, mixing=(0.1, 0.2)),
        manifold_mixup(PLAIN),
        manifold_mixup(PLAIN, alpha=0.5),
    )
    runs = {identity(m(task, 0), task, SHORT, 0, None)["method"]["architecture"] for m in methods}
    assert len(runs) == len(methods)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": -0.1}, "share must be from 0 to 10 new graphs for each, got -0.1"),
        ({"share": float("nan")}, "share must be from 0 to 10 .* got nan"),
        ({"groups": 0}, "groups must be a whole number of at least 1, got 0"),
        ({"mixing": (0.2, 0.1)}, r"mixing must be two numbers from 0 to 1, .* got \(0.2, 0.1\)"),
        ({"mixing": (0.1,)}, r"mixing must be two numbers from 0 to 1, .* got \(0.1,\)"),
        ({"mixing": (0.0, 1.5)}, r"mixing must be two numbers from 0 to 1, .* got \(0.0, 1.5\)"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        g_mixup(PLAIN, **options)


def with_features():
    graph = Data(x=torch.rand(3, WIDTH), edge_index=torch.tensor([[0, 1], [1, 0]]))
    graphs = [graph.clone() for _ in range(8)]
    for place, one in enumerate(graphs):
        one.y = place % 2
    return Graphs.of(graphs)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (with_features(), r"node features of 'blobs' must be degrees alone.*use drop_edge"),
        (laid_split([(2, [(0, 1)])] * 20, [0] * 20), r"'blobs' are all of one class"),
    ],
)
def test_graphs_that_none_can_be_drawn_like_are_refused(train, message):
    task = graph_task(train=train)
    with pytest.raises(UserError, match=message):
        quietly(g_mixup(PLAIN, share=0.5)(task, 0), task, SHORT)


def test_rows_that_cannot_be_mixed_are_refused():
    with pytest.raises(UserError, match=r"'clouds' must be graphs .* or manifold_mixup"):
        g_mixup(PLAIN)(small_task(), 0)
    numbers = graph_task(classes=1, target=Number())
    with pytest.raises(UserError, match=r"'blobs' must be classes for G-Mixup, got 'number'"):
        g_mixup(PLAIN)(numbers, 0)
    task = random_environments(graph_task())
    with pytest.raises(UserError, match=r"plain graphs for G-Mixup, got some with environments"):
        quietly(g_mixup(PLAIN)(task, 0), task, SHORT)
    task = graph_task()
    with pytest.raises(UserError, match=r"got some with new graphs already"):
        quietly(g_mixup(g_mixup(PLAIN))(task, 0), task, SHORT)


def test_second_labels_move_with_their_batch():
    mixed = Mixed(torch.tensor([1, 0]), torch.tensor([0.5, 1.0]))
    batch = Batch(torch.zeros(2, 1), torch.tensor([0, 0]), torch.arange(2), mixed=mixed)
    assert batch.to("meta").mixed.share.device.type == "meta"
    assert mixed.made.tolist() == [True, False]


def test_parts_of_a_task_are_changed_and_mixed_too():
    task = limited(graph_task(), 20, seed=0)
    learner = drop_edge(g_mixup(PLAIN, **HALF))(task, 0)
    split = learner.training_split(task.train, 0)
    assert len(split) == 30
    assert len(quietly(learner, task, SHORT).epochs) == 3

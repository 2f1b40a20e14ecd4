"""The audit against models that are really changed, and against scores counted by hand."""

import copy
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from read_designs import READS
from torch import nn

import hma
from hma.memory.rows import MemoryRows
from hma.metrics import scores
from hma.options.config import ConfigError
from hma.questions.audit import Audit, Change
from hma.vote.search import BestRows

CLASSES = 3


def data(rows, width=6, classes=CLASSES, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (rows,), generator=generator)
    x = torch.randn(rows, width, generator=generator)
    x[torch.arange(rows), y] += 2.0
    return x, y


def model_of(config, width=6, **target):
    torch.manual_seed(1)
    target = target or {"num_classes": CLASSES}
    make = hma.HMA if isinstance(config, hma.HMAConfig) else hma.VotingMemory
    return make(nn.Identity(), config=config, feature_dim=width, **target).eval()


def paper(**changes):
    small = {"queue_size": 30, "slots_per_class": 2, "label_dim": 6, "num_heads": 2}
    return hma.HMAConfig(**small | changes)


def remembered(config, rows=40):
    model = model_of(config)
    x, y = data(rows, seed=5)
    model.remember(x, y, ids=torch.arange(rows))
    with torch.no_grad():  # weights that make the memories matter
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape))
    if isinstance(model, hma.VotingMemory):
        model.vote.share.fill_(0.5)
    return model


class NearestDecides(nn.Module):
    """A place in the plane for each row, so far apart that the nearest stored row decides."""

    def forward(self, x):
        angle = x[:, 0] * (2 * math.pi / 8)
        return 50 * torch.stack([angle.cos(), angle.sin(), -angle.cos(), -angle.sin()], dim=1)


def decided_by_memory():
    """Return a model that answers with the label of the stored rows at the same place."""
    torch.manual_seed(0)
    config = hma.VoteConfig(key_dim=4)
    model = hma.VotingMemory(NearestDecides(), 2, config, feature_dim=4).eval()
    model.vote.share.fill_(1.0)
    with torch.no_grad():
        model.vote.to_keys.weight.copy_(torch.eye(4))
        model.vote.log_sharpness.fill_(4.0)
    places = torch.arange(8.0)[:, None]
    model.remember(places, torch.arange(8) % 2)
    x = torch.arange(8.0).repeat(50)[:, None]
    return model, x, torch.arange(8).repeat(50) % 2


CONFIGS = {
    "vote": hma.VoteConfig(),
    "vote with slots": hma.VoteConfig(slots_per_class=2),
    "paper": paper(),
    "frozen labels": paper(queue_labels="frozen"),
    "one read": paper(stages="one"),
    "one narrow linear read": paper(**READS["all"]),
}


def changed_labels(model, labels_of):
    other = copy.deepcopy(model)
    queue = other.real.queue
    queue.labels.copy_(queue.labels[labels_of])
    if queue.keeps_label_values:
        queue.label_values.copy_(queue.label_values[labels_of])
    return other


def asked_with(model, monkeypatch):
    """Return a list that fills with what other memories are asked for."""
    asked, own = [], type(model).memories_with
    monkeypatch.setattr(
        type(model), "memories_with", lambda self, **how: asked.append(how) or own(self, **how)
    )
    return asked


def test_a_memory_that_alone_decides_is_read():
    model, x, y = decided_by_memory()
    found = hma.audit(model, x, y, repeats=20)
    assert found.scores["accuracy"] == 1.0
    assert found.read
    permuted = found.changes["labels permuted"]["accuracy"]
    assert permuted.score == pytest.approx(0.5, abs=0.15)  # chance: 4 of 8 places are of each class
    assert permuted.low <= permuted.change <= permuted.high < 0
    assert found.verdict.startswith(
        f"used: permuted labels cost {-100 * permuted.change:.1f} points ("
    )
    emptied = found.changes["rows emptied"]["accuracy"]
    assert emptied.score == pytest.approx(0.5)  # one class for all


def test_a_memory_whose_vote_counts_nothing_is_not_read():
    model = model_of(hma.VoteConfig())
    x, y = data(50)
    model.remember(*data(40, seed=5), ids=torch.arange(40))
    assert model.memory_share == 0
    found = hma.audit(model, x, y)
    assert set(found.changes) == {"labels permuted", "rows emptied"}
    for changes in found.changes.values():
        for name, change in changes.items():
            assert change == Change(found.scores[name], 0.0, 0.0, 0.0)
    assert found.read is False
    assert found.verdict == "not used: permuting the labels of the rows changes nothing"


@pytest.mark.parametrize("name", CONFIGS)
def test_permuted_labels_are_those_of_a_model_whose_labels_were_permuted(name, monkeypatch):
    model = remembered(CONFIGS[name])
    x, y = data(50)
    asked = asked_with(model, monkeypatch)
    found = hma.audit(model, x, y, repeats=3, context="alone")
    orders = [how["labels_of"] for how in asked if "labels_of" in how]
    assert len(orders) == 3
    held = model.real.queue.order()
    after = []
    for labels_of in orders:
        assert sorted(labels_of[held].tolist()) == sorted(held.tolist())
        logits = changed_labels(model, labels_of)(x, context="alone")
        after.append(scores(logits.detach(), y))
    for metric in ("accuracy", "nll"):
        mean = np.mean([one[metric] for one in after])
        assert found.changes["labels permuted"][metric].score == pytest.approx(mean, abs=1e-6)
        as_it_is = scores(model(x, context="alone").detach(), y)[metric]
        assert found.scores[metric] == pytest.approx(as_it_is, abs=1e-6)
    assert len({one["nll"] for one in after}) == 3


@pytest.mark.parametrize("name", CONFIGS)
def test_emptied_rows_are_those_of_a_model_that_forgot(name):
    model = remembered(CONFIGS[name])
    x, y = data(50)
    found = hma.audit(model, x, y)
    empty = copy.deepcopy(model)
    empty.reset_memory()
    expected = scores(empty(x).detach(), y)["nll"]
    assert found.changes["rows emptied"]["nll"].score == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "config", [*(paper(**changes) for changes in READS.values()), hma.VoteConfig(slots_per_class=2)]
)
def test_removed_slots_are_those_of_a_model_without_slots(config):
    model = remembered(config)
    x, y = data(50)
    found = hma.audit(model, x, y).changes["slots removed"]["nll"]
    bare = model_of(replace(config, slots_per_class=0))
    state = {n: v for n, v in model.state_dict().items() if n != "synthetic.slots"}
    bare.load_state_dict(state)
    assert found.score == pytest.approx(scores(bare(x).detach(), y)["nll"], abs=1e-6)
    assert found.change != 0


def test_removed_neighbours_are_the_context_alone():
    model = remembered(paper())
    x, y = data(50)
    found = hma.audit(model, x, y, context="batch")
    expected = scores(model(x, context="alone").detach(), y)["nll"]
    assert found.changes["neighbours removed"]["nll"].score == pytest.approx(expected, abs=1e-6)
    assert found.scores["nll"] == pytest.approx(scores(model(x).detach(), y)["nll"], abs=1e-6)
    assert "rows shuffled" not in found.changes  # one batch: the order within it changes nothing
    alone = hma.audit(model, x, y, context="alone")
    assert alone.changes["neighbours added"]["nll"].score == pytest.approx(found.scores["nll"])
    assert "neighbours removed" not in alone.changes


def test_shuffled_rows_meet_others_in_batches_of_the_same_sizes(monkeypatch):
    model = remembered(paper())
    x, y = data(50)
    x, y = x[y.argsort()], y.sort().values
    sizes = [20, 20, 10]
    batches = list(zip(x.split(sizes), y.split(sizes), strict=True))
    seen, own = [], type(model).trace

    def trace(self, features, **how):
        seen.append(features)
        return own(self, features, **how)

    monkeypatch.setattr(type(model), "trace", trace)
    found = hma.audit(model, batches, repeats=2, context="batch")
    monkeypatch.undo()
    plain = torch.cat([model(part) for part, _ in batches]).detach()
    assert found.scores["nll"] == pytest.approx(scores(plain, y)["nll"], abs=1e-6)
    losses = []
    for first in (-6, -3):  # asked last, two orders of three batches each
        parts = seen[first : first + 3 or None]
        assert [len(part) for part in parts] == sizes
        features, logits = torch.cat(parts), torch.cat([model(part) for part in parts]).detach()
        where = (features[:, None] == x).all(dim=2).float().argmax(dim=1)
        assert sorted(where.tolist()) == list(range(50))
        losses.append(scores(logits, y[where])["nll"])
    shuffled = found.changes["rows shuffled"]["nll"]
    assert shuffled.score == pytest.approx(np.mean(losses), abs=1e-6)
    assert shuffled.change != 0
    alone = hma.audit(model, batches, repeats=2, context="alone").changes
    assert alone["neighbours added"]["nll"].score == pytest.approx(found.scores["nll"])
    assert alone["shuffled neighbours added"]["nll"].score == pytest.approx(shuffled.score)


def test_the_interval_is_the_paired_bootstrap_counted_by_hand():
    model = remembered(hma.VoteConfig())
    x, y = data(60)
    found = hma.audit(model, x, y, resamples=300, seed=7).changes["rows emptied"]["accuracy"]
    empty = copy.deepcopy(model)
    empty.reset_memory()
    right = (model(x).argmax(1) == y).double().numpy()
    then = (empty(x).argmax(1) == y).double().numpy()
    draw = np.random.default_rng(7)
    differences = []
    for rows in draw.integers(60, size=(300, 60)):
        differences.append(np.mean(then[rows]) - np.mean(right[rows]))
    assert found.change == pytest.approx(np.mean(then - right))
    assert [found.low, found.high] == pytest.approx(np.quantile(differences, [0.025, 0.975]))
    normal = 1.96 * np.std(then - right) / math.sqrt(60)
    assert (found.high - found.low) / 2 == pytest.approx(normal, rel=0.25)


def test_without_resamples_there_are_no_intervals():
    model, x, y = decided_by_memory()
    found = hma.audit(model, x, y, resamples=0)
    change = found.changes["labels permuted"]["accuracy"]
    assert (change.low, change.high) == (None, None)
    assert found.read is None
    assert "no interval was made" in found.verdict


# ------------------------------------------------------------------- nothing is left changed


def snapshot(model):
    state = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [part.training for part in model.modules()]
    return state, modes, model.context, model.memory_frozen, torch.get_rng_state()


def assert_same(before, after):
    assert before[0].keys() == after[0].keys()
    assert all(torch.equal(before[0][name], after[0][name]) for name in before[0])
    assert before[1:4] == after[1:4]
    assert torch.equal(before[4], after[4])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", CONFIGS)
def test_nothing_is_left_changed(name, training):
    model = remembered(CONFIGS[name]).train(training)
    model.backbone.eval()  # a mode of its own
    x, y = data(20)
    before = snapshot(model)
    first = hma.audit(model, x, y)
    assert_same(before, snapshot(model))
    assert hma.audit(model, x, y) == first


class DrawsAndBreaks(nn.Module):
    def forward(self, x):
        if len(x) == 3:
            raise OSError("a broken batch")
        return x + torch.rand(())


def test_nothing_is_left_changed_when_it_breaks_off():
    model = remembered(paper()).train()
    model.backbone = DrawsAndBreaks()
    x, y = data(9)
    before = snapshot(model)
    with pytest.raises(OSError, match="a broken batch"):
        hma.audit(model, [(x[:6], y[:6]), (x[6:], y[6:])])
    assert_same(before, snapshot(model))


def test_a_frozen_memory_is_audited_and_answers_as_before():
    model = remembered(hma.VoteConfig())
    x, y = data(20)
    free = hma.audit(model, x, y)
    model.freeze_memory()
    before = model(x)
    assert hma.audit(model, x, y) == free
    assert model.memory_frozen
    torch.testing.assert_close(model(x), before, rtol=0, atol=0)


# ------------------------------------------------------------------------ what may be asked


def test_what_a_model_does_not_have_is_left_out():
    x, y = data(20)
    assert set(hma.audit(model_of(hma.VoteConfig()), x, y).changes) == set()
    found = hma.audit(model_of(paper()), x, y)
    assert set(found.changes) == {"slots removed", "neighbours removed"}
    assert found.verdict == "not used: no row is stored"
    found = hma.audit(remembered(hma.VoteConfig()), x, y, context="batch")
    assert set(found.changes) == {"labels permuted", "rows emptied"}
    assert found.context == "alone"


def test_labels_that_are_all_the_same_cannot_be_permuted():
    model = model_of(hma.VoteConfig())
    x, y = data(20)
    model.remember(x, torch.ones(20, dtype=torch.long))
    found = hma.audit(model, x, y)
    assert set(found.changes) == {"rows emptied"}
    assert found.read is None
    assert found.verdict == "cannot be told: all stored rows have the same label"


def test_rows_with_ids_do_not_read_their_own_copy():
    model = remembered(hma.VoteConfig())
    x, y = data(12, seed=5)
    found = hma.audit(model, x, y, ids=torch.arange(12))
    logits = []
    for row in range(12):
        other = copy.deepcopy(model)
        assert other.forget(torch.tensor([row])) == 1
        logits.append(other(x[row : row + 1]).detach())
    expected = scores(torch.cat(logits), y)["nll"]
    assert found.scores["nll"] == pytest.approx(expected, abs=1e-5)
    assert hma.audit(model, x, y).scores["nll"] != found.scores["nll"]


@pytest.mark.parametrize("design", READS)
def test_rows_with_ids_do_not_attend_to_their_own_copy(design):
    model = remembered(paper(**READS[design]), rows=30)
    model.context = "alone"
    x, y = data(6, seed=5)
    found = hma.audit(model, x, y, ids=torch.arange(6))
    logits = []
    for row in range(6):
        other = copy.deepcopy(model)
        features, labels, ids, *_ = model.real.queue.rows()
        kept = ids != row
        other.real.queue.clear()
        other.real.queue.write(MemoryRows(features[kept], labels[kept], ids[kept]))
        logits.append(other(x[row : row + 1]).detach())
    expected = scores(torch.cat(logits), y)["nll"]
    assert found.scores["nll"] == pytest.approx(expected, abs=1e-5)
    assert hma.audit(model, x, y).scores["nll"] != found.scores["nll"]


def test_batches_are_taken_as_one():
    model = remembered(hma.VoteConfig())
    x, y = data(30)
    ids = torch.arange(30)
    whole = hma.audit(model, x, y, ids=ids)
    parts = [(x[:11], y[:11], ids[:11]), (x[11:], y[11:], ids[11:])]
    assert hma.audit(model, iter(parts)) == whole
    assert hma.audit(model, y=y, features=x, ids=ids) == whole
    plain = hma.audit(model, [(x[:11], y[:11]), [x[11:], y[11:]]])
    assert plain == hma.audit(model, x, y)


class OfDict(nn.Module):
    def forward(self, batch):
        return batch["tokens"].float()


def test_a_batch_may_be_a_dict():
    model = remembered(hma.VoteConfig())
    x, y = data(30)
    plain = hma.audit(model, x, y)
    model.backbone = OfDict()
    assert hma.audit(model, {"tokens": x}, y) == plain
    assert hma.audit(model, [({"tokens": x}, y)]) == plain


def test_a_batch_may_be_one_of_graphs():
    data_of = pytest.importorskip("torch_geometric.data")
    x, y = data(12)
    graphs = [data_of.Data(x=row.expand(n % 3 + 1, -1), y=y[n]) for n, row in enumerate(x)]
    model = remembered(hma.VoteConfig())
    plain = hma.audit(model, x, y)

    class First(nn.Module):
        def forward(self, batch):
            return batch.x[batch.ptr[:-1]]

    model.backbone = First()
    batch = data_of.Batch.from_data_list(graphs)
    assert hma.audit(model, batch, batch.y) == plain
    halves = [data_of.Batch.from_data_list(part) for part in (graphs[:5], graphs[5:])]
    assert hma.audit(model, ((half, half.y) for half in halves)) == plain


LABELS = {
    "one logit": (hma.targets.Classes(1), torch.arange(40) % 2, ["accuracy", "nll"]),
    "soft": (hma.targets.SoftClasses(3), torch.rand(40, 3), ["accuracy", "nll"]),
    "yes/no": (hma.targets.YesNo(2), torch.arange(80).reshape(40, 2) % 3 % 2, ["auroc", "nll"]),
    "number": (hma.targets.Number(1.0, 2.0), torch.arange(40.0), ["rmse", "r2"]),
}


@pytest.mark.parametrize("config", [hma.VoteConfig(slots_per_class=1), paper()])
@pytest.mark.parametrize("name", LABELS)
def test_every_kind_of_label_is_audited_by_its_own_metrics(name, config):
    target, y, metrics = LABELS[name]
    y = y / y.sum(dim=1, keepdim=True) if name == "soft" else y
    model = model_of(config, target=target)
    x, _ = data(40)
    model.remember(x[:20], y[:20], ids=torch.arange(20))
    found = hma.audit(model, x, y, context="alone", resamples=20)
    assert list(found.scores) == metrics
    expected = scores(model(x, context="alone").detach(), y, metrics, target=target)
    assert found.scores == pytest.approx(expected, abs=1e-5)
    assert {"labels permuted", "rows emptied", "slots removed"} <= set(found.changes)


def test_metrics_are_those_that_are_named_the_first_one_decides():
    model, x, y = decided_by_memory()
    found = hma.audit(model, x, y, metrics=["matthews", "accuracy"])
    assert list(found.scores) == ["matthews", "accuracy"]
    assert "points" not in found.verdict
    with pytest.raises(ValueError, match=r"metric must be one of 'accuracy'.* got 'rmse'"):
        hma.audit(model, x, y, metrics=["rmse"])


def test_mistakes_are_named():
    model = remembered(hma.VoteConfig())
    x, y = data(10)
    with pytest.raises(ValueError, match="y must hold class ids from 0 to 2, got 3"):
        hma.audit(model, x, y + 3 * (y == 0))
    with pytest.raises(ValueError, match=r"y must have shape \(10,\), got \(9,\)"):
        hma.audit(model, x, y[1:])
    with pytest.raises(ValueError, match="x must hold at least one row, got none"):
        hma.audit(model, x[:0], y[:0])
    with pytest.raises(ValueError, match="x must hold at least one row, got none"):
        hma.audit(model, [])
    with pytest.raises(TypeError, match=r"x must hold \(x, y\) or \(x, y, ids\)"):
        hma.audit(model, x)
    with pytest.raises(ValueError, match="repeats must be at least 1, got 0"):
        hma.audit(model, x, y, repeats=0)
    with pytest.raises(ValueError, match="y must be given beside features or ids"):
        hma.audit(model, features=x)
    with pytest.raises(ValueError, match="ids must be given for every batch or for none"):
        hma.audit(model, [(x, y, y), (x, y)])
    with pytest.raises(ConfigError, match="context must be one of"):
        hma.audit(model, x, y, context="bach")
    model.real.nearest = BestRows(3)
    with pytest.raises(ValueError, match=r"ids cannot be used where model\.real\.nearest"):
        hma.audit(model, x, y, ids=y)
    assert hma.audit(model, x, y).stored == 40


# ------------------------------------------------------------------------------ what it says


def said(change, emptied=None, **more):
    changes = {"labels permuted": {"accuracy": change, **more}}
    if emptied is not None:
        changes["rows emptied"] = {"accuracy": emptied}
    return Audit(200, 50, 0, "alone", 5, {"accuracy": 0.9}, changes)


def test_the_verdict_in_words():
    costs = Change(0.777, -0.123, -0.135, -0.11)
    unsure = Change(0.898, -0.002, -0.009, 0.004)
    loss = Change(0.33, 0.03, 0.02, 0.04)
    assert said(costs).verdict == "used: permuted labels cost 12.3 points (11.0 to 13.5)"
    assert said(Change(0.92, 0.02, 0.01, 0.03)).verdict == (
        "used, to its harm: permuted labels gain 2.0 points (1.0 to 3.0)"
    )
    assert said(unsure).verdict == (
        "not used: permuted labels cost 0.2 points (-0.4 to 0.9), which 200 rows cannot tell from "
        "nothing"
    )
    assert said(unsure, nll=loss).verdict == (
        "used, though accuracy does not show it: permuted labels cost 0.030 in log loss (0.020 to "
        "0.040)"
    )
    surer = said(unsure, nll=Change(0.29, -0.01, -0.02, -0.005))
    assert surer.read is False
    assert surer.verdict == said(unsure).verdict
    assert said(Change(0.9, 0.0, 0.0, 0.0), emptied=Change(0.85, -0.05, -0.07, -0.03)).verdict == (
        "not used: permuting the labels of the rows changes nothing; emptied it cost 5.0 points "
        "(3.0 to 7.0), so it acts as a constant"
    )


def test_the_text_is_a_table_with_a_line_for_each_change():
    text = str(said(Change(0.777, -0.123, -0.135, -0.11), emptied=Change(0.9, 0.0, 0.0, 0.0)))
    assert text.splitlines() == [
        "                 accuracy  change",
        "as it is         90.0",
        "labels permuted  77.7      -12.3 (-13.5 to -11.0)",
        "rows emptied     90.0      0.0 (0.0 to 0.0)",
        "200 rows asked in context 'alone'; 50 rows stored",
        "used: permuted labels cost 12.3 points (11.0 to 13.5)",
    ]


def test_an_audit_comes_back_from_json():
    found = hma.audit(remembered(paper()), *data(20), metrics=["accuracy", "auroc"], resamples=9)
    plain = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert Audit.from_json(plain) == found
    assert plain["verdict"] == found.verdict
    emptied = {"accuracy": {"score": 1.0}, "auroc": {"score": 1.0}}
    for broken, message in [
        ({}, "it lacks changes, context"),
        (plain | {"rows": "20"}, "rows must be a whole number, got '20'"),
        (plain | {"scores": {"luck": 0.5}}, "scores has a metric that is not known: 'luck'"),
        (plain | {"changes": {"rows emptied": {}}}, "it must be an object, got None"),
        (plain | {"changes": {"rows emptied": emptied}}, "it lacks change, high, low"),
    ]:
        with pytest.raises(ValueError, match=message):
            Audit.from_json(broken)
    undefined = hma.audit(remembered(paper()), *(part[:1] for part in data(20)), metrics=["auroc"])
    assert math.isnan(undefined.scores["auroc"])
    back = Audit.from_json(json.loads(json.dumps(undefined.to_json(), allow_nan=False)))
    assert math.isnan(back.scores["auroc"])

"""A memory learned after the backbone: what it answers, what it leaves alone, what decides."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from vote_by_hand import WIDTH

import hma
from hma import HMA, HMAConfig, VoteConfig, VotingMemory
from hma.backbones import binned_mlp
from hma.memory.rows import EncodedRows
from hma.targets import Classes
from hma.vote import learning
from hma.vote.learning import learn_memory
from hma.vote.views import TwoViews


def clouds(rows, seed=0, spread=0.3):
    """Return points around three centres, and which centre each belongs to."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(rows) % 3
    centres = torch.tensor([[0.0, 0, 2], [2, 0, 0], [0, 2, 0]])
    return centres[y] + spread * torch.randn(rows, 3, generator=draw), y


def model_of(target=None, seed=0, **config):
    torch.manual_seed(seed)
    config, target = VoteConfig(**{"key_dim": 4} | config), target or Classes(3)
    return VotingMemory(nn.Linear(3, WIDTH), config=config, target=target, feature_dim=WIDTH)


def encoded(model, x, y):
    with torch.no_grad():
        return EncodedRows(model.eval().backbone(x), y)


def test_while_the_backbone_trains_it_is_the_plain_backbone():
    model = model_of().train()
    x, y = clouds(12)
    with pytest.warns(UserWarning, match=r"call model.learn_memory\(batches, held_out\) once"):
        model.remember(x, y)
    model.remember(x, y)  # it is said once
    assert torch.equal(model(x), model.head(model.backbone(x)))
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == {"backbone.weight", "backbone.bias", "head.weight", "head.bias"}


def test_without_rows_the_head_answers_alone():
    model = model_of().eval()
    x, _ = clouds(5)
    expected = model.head(model.backbone(x)).softmax(dim=1)
    torch.testing.assert_close(model(x).softmax(dim=1), expected)


def test_learning_leaves_backbone_and_head_as_they_are_and_random_numbers_too():
    model = model_of()
    before = {
        n: v.clone()
        for n, v in model.state_dict().items()
        if not n.startswith(("vote", "real", "solved"))
    }
    state = torch.get_rng_state()
    learn_memory(model, encoded(model, *clouds(30)), encoded(model, *clouds(30, seed=1)))
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in before.items():
        assert torch.equal(model.state_dict()[name], value), name
    assert not any(weight.requires_grad for weight in model.vote.parameters())


def test_a_vote_that_is_right_where_the_head_knows_nothing_gets_the_answer():
    model = model_of()
    nn.init.zeros_(model.head.weight)
    found = model.learn_memory([clouds(60)], [clouds(30, seed=1)])
    x, y = clouds(60, seed=2)
    with torch.no_grad():
        assert (model.eval()(x).argmax(dim=1) == y).float().mean() > 0.9
    assert found["memory_share"] > 0.9
    assert found["validation_loss"] < 0.5


def test_a_vote_of_rows_with_random_labels_is_hardly_heard():
    model = model_of()
    x, y = clouds(300)
    with torch.no_grad():  # a head that knows the centres
        model.backbone.weight.zero_()[:3] = torch.eye(3)
        model.backbone.bias.zero_()
        model.head.weight.zero_()[torch.tensor([2, 0, 1]), :3] = 0
        model.head.weight[0, 2] = model.head.weight[1, 0] = model.head.weight[2, 1] = 5
        model.head.bias.zero_()
    held_out = clouds(200, seed=1)
    found = model.learn_memory([(x, y[torch.randperm(300)])], [held_out])
    assert found["memory_share"] < 0.1
    with torch.no_grad():
        plain = nn.functional.cross_entropy(model.head(model.backbone(held_out[0])), held_out[1])
    assert found["validation_loss"] < float(plain) + 0.05


def test_learning_again_is_learning_once():
    model = model_of()
    rows, held_out = encoded(model, *clouds(40)), encoded(model, *clouds(20, seed=1))
    learn_memory(model, rows, held_out, seed=3)
    once = {name: value.clone() for name, value in model.state_dict().items()}
    learn_memory(model, rows, held_out, seed=3)
    for name, value in model.state_dict().items():
        assert torch.equal(value, once[name]), name


def test_a_model_in_training_mode_weighs_the_vote_as_it_answers():
    found = {}
    for mode in (True, False):
        model = model_of(key_dropout=0.9).train(mode)
        found[mode] = model.learn_memory([clouds(30)], [clouds(20, seed=1)])
        assert model.training is model.vote.training is mode
    assert found[True] == found[False]


def test_rows_count_by_their_weight():
    model = model_of()
    x, y = clouds(60)
    wrong = torch.cat([y, (y + 1) % 3])
    rows = encoded(model, torch.cat([x, x + 0.01]), wrong)
    light = torch.cat([torch.ones(60), torch.full((60,), 1e-6)])
    held_out = encoded(model, *clouds(30, seed=1))._replace(weight=torch.ones(30))
    learn_memory(model, rows._replace(weight=light), held_out)
    assert 0.0 < float(model.vote.share) < 1.0
    assert all(bool(value.isfinite().all()) for value in model.vote.state_dict().values())


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 9), held=st.integers(0, 5), size=st.sampled_from([None, 0, 1, 4]))
def test_any_number_of_rows_is_learned_from(rows, held, size):
    slots = 1 if size == 0 else 0
    model = model_of(memory_size=size, slots_per_class=slots)
    held_out = [clouds(held, seed=1)] if held else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning, "LEAST_STEPS", 20)
        found = model.learn_memory([clouds(rows)], held_out)
    assert 0 <= found["memory_share"] <= 1
    assert math.isfinite(found.get("validation_loss", 0.0))
    assert bool(model.eval()(clouds(3)[0]).isfinite().all())


def test_no_rows_are_nothing_to_learn_from():
    with pytest.raises(ValueError, match="batches must hold at least one row, got none"):
        model_of().learn_memory([])


# -------------------------------------------------------------------------- two views


def seeing_with(key_encoder, **config):
    torch.manual_seed(0)
    config = VoteConfig(key_dim=4, **config)
    return VotingMemory(nn.Linear(3, WIDTH), 3, config, feature_dim=WIDTH, key_encoder=key_encoder)


class Raw(nn.Module):
    feature_dim = 3

    def forward(self, x):
        return x


def test_keys_come_from_the_key_encoder_and_logits_from_the_backbone(tmp_path):
    model = seeing_with(Raw())
    x, y = clouds(30)
    with torch.no_grad():
        model.backbone.backbone.weight.zero_()  # the head sees the same of every row
    found = model.learn_memory([(x, y)], [clouds(30, seed=1)])
    asked, truth = clouds(30, seed=2)
    with torch.no_grad():
        assert (model.eval()(asked).argmax(dim=1) == truth).float().mean() > 0.9
    assert found["memory_share"] > 0.9
    hma.save(model, tmp_path / "m")
    again = hma.load(tmp_path / "m", nn.Linear(3, WIDTH), key_encoder=Raw())
    assert torch.equal(again(asked), model(asked))
    with pytest.raises(hma.CheckpointError, match="key_encoder of width 3, here it has"):
        hma.load(tmp_path / "m", nn.Linear(3, WIDTH))


def test_a_key_encoder_must_say_its_width():
    with pytest.raises(ValueError, match="key_encoder must have an attribute num_features"):
        seeing_with(nn.Flatten())


def test_a_saved_model_of_the_paper_takes_no_key_encoder(tmp_path):
    hma.save(HMA(nn.Linear(3, 4), 3, HMAConfig(queue_size=4), feature_dim=4), tmp_path)
    with pytest.raises(hma.CheckpointError, match="key_encoder"):
        hma.load(tmp_path, nn.Linear(3, 4), key_encoder=Raw())


def test_a_table_backbone_offers_its_inputs_and_a_switch_takes_the_features_instead():
    x, _ = clouds(40)
    backbone = binned_mlp(3, hidden=(8, WIDTH))
    backbone.fit(x)
    model = VotingMemory(backbone, 3, VoteConfig(key_dim=4))
    assert isinstance(model.backbone, TwoViews)
    view = model.backbone(x)[:, WIDTH:]
    used = 3 + backbone.encode.used
    expected = nn.functional.layer_norm(backbone.encode(x), (used,))
    torch.testing.assert_close(view[:, :used], expected)
    assert not view[:, used:].any(), "bins that are not used are 0"
    alone = VotingMemory(backbone, 3, VoteConfig(key_dim=4, key_view="features"))
    assert alone.backbone is backbone


def test_a_fresh_table_model_takes_the_state_of_a_fitted_one(tmp_path):
    x, y = clouds(40)
    backbone = binned_mlp(3, hidden=(8, WIDTH))
    backbone.fit(x)
    model = VotingMemory(backbone, 3, VoteConfig(key_dim=4))
    model.learn_memory([(x, y)], [clouds(20, seed=1)])
    hma.save(model.eval(), tmp_path / "m")
    again = hma.load(tmp_path / "m", binned_mlp(3, hidden=(8, WIDTH)))
    asked = clouds(9, seed=2)[0]
    assert torch.equal(again(asked), model(asked))


def test_the_view_of_the_keys_is_not_made_while_the_backbone_trains():
    seen = []

    class Counting(nn.Flatten):
        feature_dim = 3

        def forward(self, x):
            seen.append(len(x))
            return super().forward(x)

    model = VotingMemory(nn.Linear(3, 4), 2, feature_dim=4, key_encoder=Counting())
    x, y = torch.randn(6, 3), torch.tensor([0, 1] * 3)
    logits = model(x)
    assert seen == []
    torch.testing.assert_close(logits, model.head(model.backbone.backbone(x)))
    model.learn_memory([(x, y)])
    model.eval()(x)
    assert seen == [6, 6]


# ------------------------------------------------------------------------ batches and labels


@pytest.mark.parametrize("wrong", ["batches", "held_out"])
@pytest.mark.parametrize("config", [{}, {"memory_size": 0, "slots_per_class": 2}])
def test_a_label_outside_the_classes_is_named_before_anything_is_forgotten(wrong, config):
    model = model_of(**config)
    if not config:
        model.eval().remember(*clouds(6))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = clouds(9)
    given = {"batches": [(x, y)], "held_out": [(x, y)]}
    given[wrong] = [(x, y), (x, torch.where(y == 1, 99, y))]
    rule = rf"{wrong}: y must hold class ids from 0 to 2, got 99; leave such rows out .* or add"
    with pytest.raises(ValueError, match=rule):
        model.learn_memory(**given)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


class OfDicts(nn.Module):
    """A backbone that takes a dict, and nothing else in it than its inputs."""

    feature_dim = WIDTH

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, WIDTH)

    def forward(self, x):
        assert set(x) == {"left", "right"}
        return self.layer(torch.cat([x["left"], x["right"]], dim=1))


@pytest.mark.parametrize("labels", ["y", "label", "labels"])
def test_batches_that_are_dicts_teach_what_tensors_teach(labels):
    x, y = clouds(30)
    held, held_y = clouds(12, seed=1)
    model = VotingMemory(OfDicts(), 3)
    plain = VotingMemory(nn.Linear(3, WIDTH), 3, feature_dim=WIDTH)
    plain.backbone.load_state_dict(model.backbone.layer.state_dict())
    plain.head.load_state_dict(model.head.state_dict())
    batches = [
        {"left": x[:20, :1], "right": x[:20, 1:], labels: y[:20]},
        ({"left": x[20:, :1], "right": x[20:, 1:]}, y[20:]),
    ]
    held_out = [{"left": held[:, :1], "right": held[:, 1:], labels: held_y}]
    found = model.learn_memory(batches, held_out)
    assert found == plain.learn_memory([(x, y)], [(held, held_y)])
    model.eval().remember({"left": x[:2, :1], "right": x[:2, 1:]}, y[:2])
    plain.eval().remember(x[:2], y[:2])
    with torch.no_grad():
        torch.testing.assert_close(
            model({"left": held[:, :1], "right": held[:, 1:]}), plain(held), rtol=0, atol=1e-6
        )
    audited = hma.audit(model, held_out, resamples=0, repeats=1)
    assert audited.rows == 12


def test_batches_of_graphs_bring_their_labels():
    geometric = pytest.importorskip("torch_geometric")
    x, y = clouds(30)
    none = torch.empty(2, 0, dtype=torch.long)
    graphs = [
        geometric.data.Data(x=row[None].expand(2, 3), y=label[None], edge_index=none)
        for row, label in zip(x, y, strict=True)
    ]

    class OfGraphs(nn.Linear):
        def forward(self, batch):
            return super().forward(geometric.nn.global_mean_pool(batch.x, batch.batch))

    model = VotingMemory(OfGraphs(3, WIDTH), 3, feature_dim=WIDTH)
    loader = geometric.loader.DataLoader(graphs, batch_size=8)
    model.learn_memory(loader, loader)
    assert model.memory_state().labels.tolist() == y.tolist()
    whole = next(iter(geometric.loader.DataLoader(graphs, batch_size=30)))
    model.eval().remember(whole, whole.y, ids=torch.arange(30))
    torch.testing.assert_close(model.memory_state().features, model.backbone(whole).detach())


@pytest.mark.parametrize(
    ("batch", "got"),
    [
        (torch.zeros(4, 3), "got Tensor; for one batch"),
        ({"left": 1, "right": 2}, "got a dict with 'left', 'right'"),
        ({"y": torch.zeros(1), "labels": torch.zeros(1)}, "got a dict with 'y', 'labels'"),
        ((torch.zeros(4, 3), [0, 1, 2, 0]), "got a tuple of Tensor, list"),
        ((torch.zeros(4, 3),), "got a tuple of Tensor"),
    ],
)
def test_a_batch_without_labels_is_named(batch, got):
    with pytest.raises(TypeError, match=rf"batches must hold \(x, y\) .*{got}"):
        model_of().learn_memory([batch])
    with pytest.raises(TypeError, match=rf"held_out must hold \(x, y\) .*{got}"):
        model_of().learn_memory([clouds(3)], [batch])

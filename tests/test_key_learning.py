"""A memory learned after the backbone: what it answers, what it leaves alone, what decides."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_voting import WIDTH, answer, labels_of, shares
from torch import nn

import hma
from hma import HMA, HMAConfig, key_learning
from hma.backbones import binned_mlp
from hma.encoded_rows import EncodedRows
from hma.key_learning import learn_memory
from hma.targets import Classes, Number, SoftClasses, YesNo
from hma.views import TwoViews

TARGETS = [Classes(3), Classes(1), SoftClasses(3), YesNo(2), Number(centre=5.0, scale=2.0)]


def clouds(rows, seed=0, spread=0.3):
    """Return points around three centres, and which centre each belongs to."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(rows) % 3
    centres = torch.tensor([[0.0, 0, 2], [2, 0, 0], [0, 2, 0]])
    return centres[y] + spread * torch.randn(rows, 3, generator=draw), y


def model_of(target=None, seed=0, **config):
    torch.manual_seed(seed)
    config = HMAConfig(**{"key_dim": 4} | config)
    return HMA(nn.Linear(3, WIDTH), config=config, target=target or Classes(3), feature_dim=WIDTH)


def encoded(model, x, y):
    with torch.no_grad():
        return EncodedRows(model.eval().backbone(x), y)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.kind} {target.outputs}")
@torch.no_grad()
def test_an_answer_is_the_mixture_of_head_and_vote(target):
    model = model_of(target).double().eval()
    x, y = torch.randn(12, 3).double(), labels_of(target, 12)
    model.remember(x, y, ids=torch.arange(12))
    model.vote.share.fill_(0.3)
    asked = torch.randn(4, 3).double()
    features, rows = model.backbone(asked), model.backbone(x)
    for query, said in zip(features, model(asked), strict=True):
        voted = answer(target, shares(model.vote, query, rows), y)
        one, other, both = (
            target.expected(z.reshape(1, -1)).double() for z in (model.head(query), voted, said)
        )
        torch.testing.assert_close(both, 0.7 * one + 0.3 * other, atol=1e-6, rtol=1e-6)


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
        n: v.clone() for n, v in model.state_dict().items() if not n.startswith(("vote", "real"))
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
    model = model_of(queue_size=size, slots_per_class=slots)
    held_out = [clouds(held, seed=1)] if held else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_learning, "LEAST_STEPS", 20)
        found = model.learn_memory([clouds(rows)], held_out)
    assert 0 <= found["memory_share"] <= 1
    assert math.isfinite(found.get("validation_loss", 0.0))
    assert bool(model.eval()(clouds(3)[0]).isfinite().all())


def test_memories_of_another_kind_say_that_they_learn_while_training():
    model = model_of(vote="added")
    with pytest.raises(ValueError, match="needs similarity='distance' and vote='mixed', got"):
        model.learn_memory([clouds(4)])
    with pytest.raises(ValueError, match="batches must hold at least one row, got none"):
        model_of().learn_memory([])


# -------------------------------------------------------------------------- two views


def seeing_with(key_encoder, **config):
    torch.manual_seed(0)
    config = HMAConfig(key_dim=4, **config)
    return HMA(nn.Linear(3, WIDTH), 3, config, feature_dim=WIDTH, key_encoder=key_encoder)


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


def test_a_key_encoder_must_say_its_width_and_the_paper_has_none():
    with pytest.raises(ValueError, match="key_encoder must have an attribute num_features"):
        seeing_with(nn.Flatten())
    with pytest.raises(hma.config.ConfigError, match="key_encoder needs similarity='distance'"):
        HMA(nn.Linear(3, 4), 3, HMAConfig.paper(), feature_dim=4, key_encoder=Raw())


def test_a_table_backbone_offers_its_inputs_and_a_switch_takes_the_features_instead():
    x, _ = clouds(40)
    backbone = binned_mlp(3, hidden=(8, WIDTH))
    backbone.fit(x)
    model = HMA(backbone, 3, HMAConfig(key_dim=4))
    assert isinstance(model.backbone, TwoViews)
    view = model.backbone(x)[:, WIDTH:]
    used = 3 + backbone.encode.used
    expected = nn.functional.layer_norm(backbone.encode(x), (used,))
    torch.testing.assert_close(view[:, :used], expected)
    assert not view[:, used:].any(), "bins that are not used are 0"
    alone = HMA(backbone, 3, HMAConfig(key_dim=4, key_view="features"))
    assert alone.backbone is backbone


def test_a_fresh_table_model_takes_the_state_of_a_fitted_one(tmp_path):
    x, y = clouds(40)
    backbone = binned_mlp(3, hidden=(8, WIDTH))
    backbone.fit(x)
    model = HMA(backbone, 3, HMAConfig(key_dim=4))
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

    model = HMA(nn.Linear(3, 4), 2, feature_dim=4, key_encoder=Counting())
    x, y = torch.randn(6, 3), torch.tensor([0, 1] * 3)
    logits = model(x)
    assert seen == []
    torch.testing.assert_close(logits, model.head(model.backbone.backbone(x)))
    model.learn_memory([(x, y)])
    model.eval()(x)
    assert seen == [6, 6]

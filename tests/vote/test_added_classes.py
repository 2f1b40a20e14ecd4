"""Classes that a model is taught by its memory alone."""

import pytest
import torch
from torch import nn
from torch.nn.functional import one_hot

import hma
from hma import HMA, ConfigError, HMAConfig, VoteConfig, VotingMemory
from hma.targets import Classes, Number, SoftClasses, YesNo
from hma.targets.target import NO_VOTE

WIDTH = 4
SURE = 0.02
"""Share of the memory beside a head that is sure of itself."""


def model_of(target=None, share=SURE, **config):
    """A model of three classes whose head is sure, and whose rows lie apart by class."""
    torch.manual_seed(0)
    target = target or Classes(3)
    config = VoteConfig(**{"key_dim": 4} | config)
    model = VotingMemory(nn.Identity(), config=config, target=target, feature_dim=WIDTH).eval()
    with torch.no_grad():
        model.vote.to_keys.weight.copy_(torch.eye(4))
        model.vote.log_sharpness.fill_(2.0)
        model.vote.share.fill_(share)
        model.head.weight.copy_(20 * torch.eye(4)[:3])
    model.remember(rows_of([0, 1, 2] * 4), torch.tensor([0, 1, 2] * 4), ids=torch.arange(12))
    return model


def rows_of(classes):
    """Rows near the corner of their class; the fourth is of a class nobody knows."""
    return 3 * one_hot(torch.tensor(classes), WIDTH) + 0.1 * torch.randn(len(classes), WIDTH)


@pytest.mark.parametrize("target", [Classes(3), SoftClasses(3)], ids=lambda t: t.kind)
@pytest.mark.parametrize("share", [SURE, 1.0])
@torch.no_grad()
def test_a_new_class_is_known_as_soon_as_it_is_remembered(target, share):
    model, old, new = model_of(target, share), rows_of([0, 1, 2]), rows_of([3] * 5)
    before = model(torch.cat([old, new])).softmax(dim=1)
    weights = {name: value.clone() for name, value in model.named_parameters()}
    assert model.add_classes(2) == range(3, 5)
    after = model(torch.cat([old, new]))
    assert after.isfinite().all()
    torch.testing.assert_close(after.softmax(dim=1)[:, :3], before, rtol=1e-6, atol=1e-7)
    assert float(after.softmax(dim=1)[:, 3:].max()) < 1e-30
    model.remember(new[:3], torch.full((3,), 3), ids=torch.arange(50, 53))
    said = model(torch.cat([old, new]))
    assert said.isfinite().all()
    assert said.argmax(dim=1).tolist() == [0, 1, 2, 3, 3, 3, 3, 3]
    assert float(said.softmax(dim=1)[3:, 3].min()) > 0.9  # whatever the sure head says
    assert weights.keys() == dict(model.named_parameters()).keys()
    assert all(torch.equal(weights[name], value) for name, value in model.named_parameters())
    assert model.forget(torch.arange(50, 53)) == 3
    torch.testing.assert_close(model(old).softmax(dim=1)[:, :3], before[:3])


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@torch.no_grad()
def test_the_head_is_heard_as_far_as_the_vote_is_not_for_a_class_it_does_not_know(share):
    """Against the formula: p = (1 - s)(1 - u) p_head + s v, and v itself of what was added."""
    model = model_of(share=share)
    model.add_classes(1)
    model.remember(rows_of([3, 3]), torch.tensor([3, 3]), ids=torch.tensor([20, 21]))
    model.vote.log_sharpness.fill_(-1.0)  # all rows have a say
    queries = torch.randn(5, WIDTH)
    found = hma.explain(model, queries)
    weights = found.exact.queue_weights.double()
    votes = weights @ one_hot(found.queue_classes, 4).double()
    even = torch.tensor([NO_VOTE / 3] * 3 + [0.0])
    vote = (votes + even) / (1 + NO_VOTE)
    head = torch.cat([model.head(queries).softmax(dim=1), torch.zeros(5, 1)], dim=1)
    wanted = (1 - share) * (1 - vote[:, 3:]) * head + share * vote
    wanted[:, 3] = vote[:, 3]
    near = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(model(queries).softmax(dim=1).double(), wanted, **near)
    torch.testing.assert_close(found.exact.whole.double(), wanted, **near)
    torch.testing.assert_close(found.itself + found.queue.sum(dim=1), torch.ones(5))
    assert 0.05 < float(vote[:, 3].max()) < 0.95


@pytest.mark.parametrize("target", [Classes(3), SoftClasses(3)], ids=lambda t: t.kind)
def test_a_model_with_added_classes_is_saved_and_loaded(target, tmp_path):
    model = model_of(target)
    model.add_classes(1)
    model.remember(rows_of([3, 3]), torch.tensor([3, 3]), ids=torch.tensor([20, 21]))
    hma.save(model, tmp_path)
    loaded = hma.load(tmp_path, nn.Identity())
    assert loaded.target == type(target)(4, added=1)
    x = rows_of([0, 1, 2, 3])
    torch.testing.assert_close(loaded(x), model(x), rtol=0, atol=0)
    loaded.add_classes(1)
    loaded.remember(-rows_of([3, 3]), torch.tensor([4, 4]), ids=torch.tensor([30, 31]))
    assert loaded(-rows_of([3])).argmax(dim=1).tolist() == [4]


def test_keys_may_be_learned_anew_and_the_head_is_not_blamed_for_what_it_does_not_know():
    model = model_of(share=0.5)
    model.add_classes(1)
    y = torch.arange(60) % 4
    x = rows_of(y.tolist())
    found = model.learn_memory([(x[:40], y[:40])], [(x[40:], y[40:])])
    assert model.eval()(x[40:]).argmax(dim=1).tolist() == y[40:].tolist()
    assert 0 < found["memory_share"] < 1
    assert found["validation_loss"] < 0.3


@pytest.mark.parametrize(
    ("target", "config", "says"),
    [
        (Classes(1), {}, "two classes or more, got one logit"),
        (YesNo(2), {}, "two classes or more, got the target 'yes/no'"),
        (Number(), {}, "two classes or more, got the target 'number'"),
        (Classes(3), {"slots_per_class": 1}, "need slots_per_class=0 and a real memory, got"),
        (Classes(3), {"memory_size": 0, "slots_per_class": 1}, "memory_size=0"),
    ],
)
def test_a_model_that_cannot_take_classes_says_why_in_one_line(target, config, says):
    config = VoteConfig(**config)
    model = VotingMemory(nn.Identity(), config=config, target=target, feature_dim=WIDTH)
    with pytest.raises(ConfigError, match=says) as error:
        model.add_classes(1)
    assert "\n" not in str(error.value)


def test_the_papers_design_and_a_frozen_memory_take_none_and_a_count_is_one_or_more():
    paper = HMA(nn.Identity(), 3, HMAConfig(label_dim=4), feature_dim=WIDTH)
    with pytest.raises(ConfigError, match=r"add_classes needs .*, got HMA; take hma\.Vot"):
        paper.add_classes(1)
    with pytest.raises(ConfigError, match="need a memory whose rows vote, got HMA; take hma"):
        HMA(nn.Identity(), config=paper.config, target=Classes(4, added=1), feature_dim=WIDTH)
    model = model_of()
    for count in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match=r"count must be at least 1 \(classes to add\)"):
            model.add_classes(count)
    model.freeze_memory()
    with pytest.raises(RuntimeError, match="the memory is frozen"):
        model.add_classes(1)


def test_what_was_saved_before_says_the_same_of_its_target():
    assert Classes(3).to_json() == {"kind": "classes", "count": 3}
    assert hma.targets.target_from_json(Classes(4, added=1).to_json()) == Classes(4, added=1)
    with pytest.raises(ValueError, match=r"count - added must be at least 2 .*, got 1"):
        Classes(3, added=2)

"""What every memory promises, of both designs."""

import pytest
import torch
from torch import nn

import hma
from hma import HMA, ConfigError, HMAConfig, MemoryModel, VoteConfig, VotingMemory

MEMORIES = {
    "hma": (HMA, HMAConfig(queue_size=5, slots_per_class=2, label_dim=4, num_heads=2)),
    "vote": (VotingMemory, VoteConfig(memory_size=5, slots_per_class=2, key_dim=4)),
}


@pytest.fixture(params=MEMORIES)
def small(request):
    """A model in eval mode, whose backbone is linear, and without rows."""
    make, config = MEMORIES[request.param]
    model = make(nn.Linear(3, 8), 3, config, feature_dim=8).double().eval()
    assert model.memory == request.param
    return model


def filled(model, rows=7):
    x, y = torch.randn(rows, 3).double(), torch.arange(rows) % 3
    model.remember(x, y, ids=torch.arange(rows))
    return model


@pytest.mark.parametrize("design", ["votes", "narrow"])
def test_beside_wide_features_a_memory_has_at_most_three_million_weights(design):
    if design == "votes":
        model = VotingMemory(nn.Identity(), 10, feature_dim=2048)
    else:
        model = HMA(nn.Identity(), 10, HMAConfig(width=256), feature_dim=2048)
    assert sum(p.numel() for p in model.parameters()) <= 3_000_000


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_dict_batch_reaches_the_backbone_untouched(memory):
    class TakesDict(nn.Module):
        feature_dim = 8

        def __init__(self):
            super().__init__()
            self.body = nn.Linear(3, 8)

        def forward(self, batch):
            return self.body(batch["x"])

    make, config = MEMORIES[memory]
    model = make(TakesDict(), 3, config).eval()
    batch = {"x": torch.randn(2, 3), "name": ["a", "b"]}
    assert model(batch).shape == (2, 3)
    model.remember(batch, torch.tensor([1, 2]))
    assert model.memory_state().labels.tolist() == [1, 2]


def test_remember_before_any_forward_and_an_empty_batch_are_fine(small):
    small.remember(torch.randn(2, 3).double(), torch.tensor([2, 0]), ids=torch.tensor([7, 9]))
    small.remember(torch.empty(0, 3).double(), torch.empty(0, dtype=torch.long))
    assert small(torch.empty(0, 3).double()).shape == (0, 3)
    assert small.memory_state().ids.tolist() == [7, 9]


def test_ignored_rows_may_carry_any_label(small):
    y, ignore = torch.tensor([2, -100, 1]), torch.tensor([False, True, False])
    small.remember(torch.randn(3, 3).double(), y, ignore=ignore)
    assert small.memory_state().labels.tolist() == [2, 1]


def test_a_frozen_memory_refuses_to_change_and_can_be_thawed(small):
    model = filled(small)
    model.freeze_memory()
    for change in (lambda: filled(model), model.reset_memory):
        with pytest.raises(RuntimeError, match=r"frozen; call model.freeze_memory\(False\)"):
            change()
    model.freeze_memory(False)
    model.reset_memory()
    assert len(model.memory_state().labels) == 0


def test_what_the_head_says_alone_is_the_answer_of_a_memory_that_says_nothing():
    vote = filled(VotingMemory(nn.Linear(3, 8), 3, feature_dim=8).double().eval())
    features = torch.randn(4, 8).double()
    said = vote.classify(features).softmax(dim=1)  # the share is 0 until it is learned
    torch.testing.assert_close(said, vote.head_logits(features).softmax(dim=1))
    narrow = HMAConfig(width=8, queue_size=5)  # its read is added to the token from 0 on
    paper = filled(HMA(nn.Linear(3, 8), 3, narrow, feature_dim=8).double().eval())
    torch.testing.assert_close(paper.classify(features), paper.head_logits(features))


@pytest.mark.parametrize(
    "question",
    [
        lambda model: model.forget(torch.tensor([1])),
        lambda model: model.add_classes(1),
        lambda model: model.expect_growing(),
        lambda model: hma.suspects(model),
        lambda model: hma.unfamiliarity(model, torch.zeros(1, 3).double()),
        lambda model: model.leave_one_out(torch.tensor([0])),
    ],
    ids=["forget", "add", "growing", "suspects", "unfamiliarity", "leave one out"],
)
def test_what_only_rows_that_vote_can_answer_names_the_class_that_can(question):
    make, config = MEMORIES["hma"]
    model = filled(make(nn.Linear(3, 8), 3, config, feature_dim=8).double().eval())
    with pytest.raises(ConfigError, match=r"got HMA; take hma\.VotingMemory") as caught:
        question(model)
    assert "\n" not in str(caught.value)
    assert (model.memory_share, model.tells_unfamiliar) == (None, False)


def test_one_training_loop_serves_both(small):
    """Rows of a step are stored by the design that reads them, and by no other."""
    x, y = torch.randn(4, 3).double(), torch.tensor([0, 1, 2, 0])
    small.train()
    output = small.output(x)
    torch.testing.assert_close(small.losses(output, y), small.target.loss(output.logits, y))
    small.after_step(x, y)
    assert (len(small.memory_state().labels) == 4) is small.keeps_rows_of_steps
    rows = small.encode_rows([(x, y)])
    found = small.after_training(lambda: rows, lambda: rows)
    assert ("memory_share" in found) is (not small.keeps_rows_of_steps)
    assert len(small.memory_state().labels) == 4


def test_a_memory_is_one_of_the_designs():
    with pytest.raises(TypeError, match="abstract"):
        MemoryModel(nn.Identity(), hma.targets.Classes(3), 4)

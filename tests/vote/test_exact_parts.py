"""What a prediction is made of, against the formula written out row by row."""

import pytest
import torch
from torch import nn
from vote_by_hand import TARGETS, WIDTH, labels_of, name_of

import hma
from hma import HMA, HMAConfig, VoteConfig, VotingMemory
from hma.targets import Classes
from hma.targets.target import NO_VOTE
from hma.vote.search import BestRows

SHARE = 0.3
NEAR = {"rtol": 1e-4, "atol": 1e-5}


def model_of(target, rows=12, views=False, share=SHARE, **config):
    torch.manual_seed(0)
    encoder = nn.Linear(3, 4) if views else None
    if encoder is not None:
        encoder.feature_dim = 4
    config = VoteConfig(**{"key_dim": 4} | config)
    model = VotingMemory(
        nn.Linear(3, WIDTH), config=config, target=target, feature_dim=WIDTH, key_encoder=encoder
    )
    with torch.no_grad():
        model.vote.share.fill_(share)
        if model.synthetic is not None:
            model.synthetic.slots.normal_()
    if rows:
        x = torch.randn(rows, 3)
        model.eval().remember(x, labels_of(target, rows), ids=torch.arange(10, 10 + rows))
    return model.eval()


CASES = {
    "all rows": {},
    "a bound": {"memory_size": 5},
    "slots": {"slots_per_class": 2},
    "slots alone": {"memory_size": 0, "slots_per_class": 2},
    "nothing": {"rows": 0},
    "two views": {"views": True},
    "the vote alone": {"share": 1.0},
    "an empty vote alone": {"share": 1.0, "rows": 0},
}


@pytest.mark.parametrize("nearest", [None, BestRows(k=3)], ids=["all", "nearest"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("target", TARGETS, ids=name_of)
@torch.no_grad()
def test_parts_sum_to_the_prediction(target, case, nearest):
    model, x = model_of(target, **CASES[case]), torch.randn(4, 3)
    if model.real is not None:
        model.real.nearest = nearest
    found = hma.explain(model, x)
    wanted = target.expected(model(x))
    torch.testing.assert_close(found.exact.whole, wanted, **NEAR)
    for row in range(4):
        rows, slots = found.exact.queue(row), found.exact.slots(row)
        assert rows.shape == (found.queue.shape[1], *wanted.shape[1:])
        parts = found.exact.head[row] + rows.sum(dim=0) + slots.sum(dim=0) + found.exact.even[row]
        torch.testing.assert_close(parts, wanted[row], **NEAR)
    shares = found.itself + found.queue.sum(dim=1) + found.slots.sum(dim=1)
    torch.testing.assert_close(shares, torch.ones(4))


@pytest.mark.parametrize("target", TARGETS, ids=name_of)
@torch.no_grad()
def test_a_row_puts_in_its_weight_of_its_label_and_the_head_the_rest(target):
    """Against a loop over rows in float64."""
    model, query = model_of(target), torch.randn(1, 3)
    found, queue = hma.explain(model, query), model.real.queue
    features = model.backbone(query)
    headed = target.expected(model.head_logits(features)).double()[0]
    torch.testing.assert_close(found.exact.head[0].double(), (1 - SHARE) * headed, **NEAR)
    key = model.vote.keys(features)[0].double()
    apart = [(key - one.double()).square().sum() for one in model.vote.keys(queue.features[:12])]
    weights = (-torch.stack(apart) * float(model.vote.sharpness)).softmax(dim=0)
    given = target.given(queue.labels[:12]).double()
    if isinstance(target, Classes):
        given = nn.functional.one_hot(given.long(), target.table_rows).double()
    known = (~given.isnan()).double()
    for row in range(12):
        total = sum(weights[other] * known[other] for other in range(12)) + NO_VOTE
        wanted = SHARE * weights[row] * given[row].nan_to_num() / total
        torch.testing.assert_close(found.exact.queue(0)[row].double(), wanted, **NEAR)
    torch.testing.assert_close(found.queue[0].double(), SHARE * weights, **NEAR)
    assert float(found.itself[0]) == pytest.approx(1 - SHARE, abs=1e-6)


def test_parts_that_do_not_add_up_are_not_shown_as_if_they_did():
    model = HMA(nn.Linear(3, WIDTH), 3, HMAConfig(label_dim=2), feature_dim=WIDTH).eval()
    model.remember(torch.randn(6, 3), torch.arange(6) % 3, ids=torch.arange(6))
    assert hma.explain(model, torch.randn(2, 3)).exact is None


@torch.no_grad()
def test_shares_have_one_number_format_whatever_the_models():
    model = model_of(Classes(3)).double()
    found = hma.explain(model, torch.randn(2, 3).double())
    shares = (found.itself, found.queue, found.batch, found.anchors, found.slots, found.linear)
    assert {part.dtype for part in shares} == {torch.float32}
    torch.testing.assert_close(found.exact.whole, found.probabilities, **NEAR)


@torch.no_grad()
def test_something_beside_the_network_has_its_share_and_the_parts_still_sum():
    model, x = model_of(Classes(3)), torch.randn(2, 3)
    before, linear = hma.explain(model, x), torch.randn(2, 3)
    found = before.beside(linear, 0.25, model.target)
    wanted = 0.75 * before.probabilities + 0.25 * linear.softmax(dim=1)
    torch.testing.assert_close(found.probabilities, wanted)
    torch.testing.assert_close(found.exact.whole, wanted, **NEAR)
    torch.testing.assert_close(found.exact.queue(1), 0.75 * before.exact.queue(1))
    assert "linear 25%" in str(found)
    assert [s.share for s in found.top(0, k=99) if s.kind == "linear"] == [0.25]

"""A memory of many rows answers as one of few does, without anything as large as all of it."""

import copy
import math
from importlib import import_module
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import hma
from hma import VoteConfig, VotingMemory
from hma.memory import blocks
from hma.memory.projected import LabelledRows, Projected
from hma.memory.rows import EncodedRows, KeyedRows, MemoryRows
from hma.targets import Classes, Number, SoftClasses, YesNo
from hma.vote.search import BestRows

WIDTH, ROWS = 6, 40
TARGETS = {
    "classes": Classes(3),
    "one logit": Classes(1),
    "soft": SoftClasses(3),
    "yes/no": YesNo(2),
    "number": Number(centre=0.0, scale=1.0),
}


def labels_of(target, count):
    if isinstance(target, SoftClasses):
        return torch.rand(count, 3).softmax(dim=1)
    if isinstance(target, YesNo):
        return torch.randint(2, (count, 2)).float()
    if isinstance(target, Number):
        return torch.randn(count)
    return torch.randint(max(target.count, 2), (count,))


def filled(target=None, rows=ROWS, **options):
    torch.manual_seed(0)
    target = target or Classes(3)
    model = VotingMemory(
        nn.Identity(), target=target, config=VoteConfig(**options), feature_dim=WIDTH
    )
    model = model.double().eval()
    model.vote.share.fill_(0.6)
    model.remember(
        torch.randn(rows, WIDTH).double(), labels_of(target, rows), ids=torch.arange(rows)
    )
    return model


@pytest.fixture
def small(monkeypatch):
    """Let 7 rows be looked at at once, so that 40 are many."""

    def use(at_once=7):
        monkeypatch.setattr(blocks, "AT_ONCE", at_once)

    return use


def by_hand(model, x, k):
    """Loop over queries and rows in float64; the ``k`` nearest vote."""
    vote, queue = model.vote, model.real.queue
    held = queue.order().tolist()
    keys, ballots = vote.keys(queue.features), model.target.ballots(queue.labels)
    found = []
    for query in vote.keys(x):
        apart = {r: float(vote.sharpness * (query - keys[r]).square().sum()) for r in held}
        near = sorted(held, key=lambda r: apart[r])[:k]
        weights = {r: math.exp(-apart[r]) for r in near}
        total = sum(weights.values()) + math.exp(-1000)
        found.append(sum(weights[r] / total * ballots[r] for r in near))
    voted = model.target.tally(torch.stack(found))
    share = model.vote.share
    return model.target.mix_logits([model.head_logits(x), voted], torch.stack([1 - share, share]))


@torch.no_grad()
@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("slots", [0, 2])
def test_blocks_answer_as_few_do(small, kind, slots):
    model, x = filled(TARGETS[kind], slots_per_class=slots), torch.randn(5, WIDTH).double()
    expected, explained = model(x), hma.explain(model, x)
    unfamiliar = hma.unfamiliarity(model, x)
    small()
    model.reproject()
    assert isinstance(model.memories().real, LabelledRows)
    torch.testing.assert_close(model(x), expected)
    found = hma.explain(model, x)
    for name in ("queue", "slots", "itself", "by_class", "probabilities"):
        torch.testing.assert_close(getattr(found, name), getattr(explained, name))
    assert found.queue_ids.tolist() == explained.queue_ids.tolist()
    torch.testing.assert_close(hma.unfamiliarity(model, x), unfamiliar)


@torch.no_grad()
def test_queries_are_parted_and_come_back_in_order(small, monkeypatch):
    model, x = filled(), torch.randn(11, WIDTH).double()
    expected, shares = model(x), model.trace(x).real.memory
    small()
    monkeypatch.setattr("hma.vote.read.MOST_SCORES", 3 * model.real.queue.size)
    model.reproject()
    torch.testing.assert_close(model(x), expected)
    torch.testing.assert_close(model.trace(x).real.memory, shares)
    assert model.trace(x, weights=False).real is None


@torch.no_grad()
@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    k=st.integers(1, 45),
    block=st.integers(1, 50),
    rows=st.integers(1, ROWS),
    at_once=st.sampled_from([3, 7, 65536]),
    copies=st.booleans(),
)
def test_the_k_best_rows_vote_and_no_others(k, block, rows, at_once, copies):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "AT_ONCE", at_once)
        model, x = filled(rows=rows), torch.randn(4, WIDTH).double()
        if copies:  # rows at the same place, with the same label: whoever is taken, it is the same
            model.remember(
                model.real.queue.features[:rows].clone(),
                model.real.queue.labels[:rows].clone(),
                ids=torch.arange(100, 100 + rows),
            )
        model.real.nearest = BestRows(k, block)
        torch.testing.assert_close(model(x), by_hand(model, x, k))


@torch.no_grad()
def test_as_many_as_there_are_is_the_full_read_to_the_last_bit(small):
    model, x = filled(), torch.randn(4, WIDTH).double()
    small()
    model.reproject()
    expected = model(x)
    for k in (model.real.queue.size, 1000):
        model.real.nearest = BestRows(k)
        assert torch.equal(model(x), expected)


@torch.no_grad()
def test_rows_hidden_of_each_query_are_hidden_of_many(small):
    model, x = filled(), torch.randn(3, WIDTH).double()
    hidden = torch.rand(3, model.real.queue.size) < 0.5
    expected = model.trace(x, memories=model.memories_with(hidden_rows=hidden)).logits
    small()
    memories = model.memories_with(hidden_rows=hidden)
    torch.testing.assert_close(model.trace(x, memories=memories).logits, expected)


@torch.no_grad()
def test_of_rows_hidden_of_each_query_the_nearest_others_are_read(small):
    model, x = filled(), torch.randn(3, WIDTH).double()
    model.real.nearest = BestRows(4)
    hidden = torch.rand(3, model.real.queue.size) < 0.5
    small()
    found = model.trace(x, memories=model.memories_with(hidden_rows=hidden)).logits
    for row in range(3):
        alone = model.memories_with(hidden_rows=hidden[row])
        one = model.trace(x[row : row + 1], memories=alone).logits
        torch.testing.assert_close(found[row : row + 1], one)


@torch.no_grad()
@pytest.mark.parametrize("nearest", [None, BestRows(5), BestRows(1000)])
def test_suspects_of_blocks_are_those_of_few(small, nearest):
    model = filled()
    model.real.nearest = nearest
    expected = hma.suspects(model)
    small()
    found = hma.suspects(model)
    torch.testing.assert_close(found.expected, expected.expected)
    assert found.against.tolist() == expected.against.tolist()


def test_ballots_of_blocks_are_never_made_for_all_of_them():
    seen = []

    rows = blocks.AT_ONCE + 10
    keys = torch.randn(1, rows, 2)
    memory = LabelledRows(
        Projected(keys, keys, torch.zeros(rows)), torch.zeros(rows).long(), Classes(3)
    )
    weights = torch.rand(1, 2, rows)
    expected = weights[0].double() @ memory.target.ballots(memory.labels).double()
    torch.testing.assert_close(memory.mix(weights)[0].double(), expected, rtol=1e-4, atol=1e-2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Classes, "ballots", lambda self, stored: seen.append(len(stored)) or
                      torch.zeros(len(stored), 3))  # fmt: skip
        memory.mix(weights)
        memory.at(torch.zeros(1, 2, 4).long())
    assert max(seen) <= blocks.AT_ONCE


# ------------------------------------------------------------------------------- learning, storing


def table(count, seed):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count, WIDTH, generator=draw)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def right_share(model):
    """Learn keys and return how many of other rows are answered right."""
    model.learn_memory([table(300, 0)], [table(100, 1)])
    x, y = table(400, 2)
    with torch.no_grad():
        return float((model.eval()(x).argmax(dim=1) == y).float().mean())


def test_keys_of_blocks_are_learned_as_those_of_few(small):
    config = VoteConfig(candidates=16, solved="none")  # many rows are not solved for
    few = VotingMemory(nn.Identity(), 2, config, feature_dim=WIDTH)
    many = copy.deepcopy(few)
    expected = right_share(few)
    small(64)
    assert right_share(many) > max(expected - 0.05, 0.65)


def test_held_out_rows_weigh_the_vote_that_answers():
    model = VotingMemory(nn.Identity(), 2, VoteConfig(candidates=16), feature_dim=WIDTH)
    model.real.nearest = BestRows(3)
    held_out = table(100, 1)
    found = model.learn_memory([table(200, 0)], [held_out])
    with torch.no_grad():
        loss = float(model.target.loss(model.eval()(held_out[0]), held_out[1]).mean())
    assert found["validation_loss"] == pytest.approx(loss, rel=1e-4)


def test_blocks_are_held_without_a_copy(small):
    small()
    model = VotingMemory(nn.Identity(), 2, VoteConfig(candidates=8), feature_dim=WIDTH)
    x, y = table(50, 0)
    hma.vote.learning.learn_memory(model, EncodedRows(x, y))
    assert model.real.queue.features.data_ptr() == x.data_ptr()
    model.forget(torch.tensor([3]))
    assert torch.equal(x, table(50, 0)[0])


@pytest.mark.parametrize("ids", [[0, 1, 1], [0, 1, 2]])
def test_rows_that_share_an_id_are_written_one_by_one(ids):
    store = KeyedRows(None, 1, Classes(2))
    rows = MemoryRows(torch.zeros(3, 1), torch.zeros(3).long(), torch.tensor(ids))
    assert store.take(rows) is (len(set(ids)) == 3)
    assert not KeyedRows(4, 1, Classes(2)).take(rows)


def test_a_memory_of_blocks_grows_by_an_eighth(small):
    small()
    model = filled(rows=80)
    model.real.queue.trim()
    model.remember(torch.randn(1, WIDTH).double(), torch.tensor([0]), ids=torch.tensor([500]))
    assert model.real.queue.size == 90


@torch.no_grad()
def test_rows_of_a_saved_model_stay_on_disk(small, tmp_path):
    model, x = filled(), torch.randn(4, WIDTH).double()
    model.real.queue.trim()
    expected = model(x)
    hma.save(model, tmp_path)
    small()
    loaded = hma.load(tmp_path, nn.Identity())
    torch.testing.assert_close(loaded(x), expected)
    (file,) = tmp_path.glob("model-*.safetensors")
    held = loaded.real.queue.features
    maps = Path("/proc/self/maps").read_text().splitlines()
    maps = [line for line in maps if file.name in line]
    spans = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps]
    assert any(first <= held.data_ptr() < last for first, last in spans)

    before = file.read_bytes()
    loaded.remember(torch.ones(1, WIDTH).double(), torch.tensor([1]), ids=torch.tensor([3]))
    assert torch.equal(loaded.real.queue.features[3], torch.ones(WIDTH).double())
    assert file.read_bytes() == before
    loaded.forget(torch.tensor([3]))
    hma.save(loaded, tmp_path, overwrite=True)
    torch.testing.assert_close(hma.load(tmp_path, nn.Identity())(x), loaded(x))


def test_loading_from_another_model_shares_no_rows(small):
    small()
    model, other = filled(), filled()
    other.load_state_dict(model.state_dict())
    assert other.real.queue.features.data_ptr() != model.real.queue.features.data_ptr()


def test_leaving_out_each_of_blocks_is_refused(monkeypatch):
    monkeypatch.setattr(import_module("hma.questions.contributions"), "MOST_ROWS", 10)
    with pytest.raises(ValueError, match=r"at most 10, got 64; take hma\.explain"):
        hma.contributions(filled(), torch.randn(1, WIDTH).double())

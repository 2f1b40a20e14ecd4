"""An index finds what an exact search finds, whatever came, went or was learned since."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from hma import VotingMemory, explain, suspects, unfamiliarity
from hma.errors import UserError
from hma.memory.projected import Projected
from hma.vote.search import FILES, BestRows, IndexedRows, find_hashes, hash_rows

pytest.importorskip("faiss")

WIDTH, ROWS, EVERY = 6, 300, 10_000
AGAIN = "the index does not match the rows of the memory"


def filled(rows=ROWS):
    torch.manual_seed(0)
    model = VotingMemory(nn.Identity(), 3, feature_dim=WIDTH).eval()
    model.vote.share.fill_(0.7)
    model.remember(torch.randn(rows, WIDTH), torch.randint(3, (rows,)), ids=torch.arange(rows))
    return model


def chosen(model, nearest, x):
    """Return the places that each query reads, as sets."""
    memory = model.memories().real
    return [set(row.tolist()) for row in nearest(model.vote.queries(model.vote.keys(x)), memory)[0]]


@torch.no_grad()
def assert_exact(model, index, x):
    assert chosen(model, index, x) == chosen(model, BestRows(index.k), x)


@torch.no_grad()
def test_an_index_that_looks_into_every_cell_misses_nothing():
    model, x = filled(), torch.randn(20, WIDTH)
    for k in (1, 7, ROWS - 1):
        assert_exact(model, IndexedRows(k, probes=EVERY), x)


@torch.no_grad()
def test_few_cells_find_most():
    model, x = filled(3000), torch.randn(50, WIDTH)
    near, best = chosen(model, IndexedRows(10), x), chosen(model, BestRows(10), x)
    assert np.mean([len(a & b) / 10 for a, b in zip(near, best, strict=True)]) > 0.9


@torch.no_grad()
def test_as_many_as_there_are_is_the_full_read():
    model, x = filled(), torch.randn(4, WIDTH)
    expected = model(x)
    for k in (ROWS, 10 * ROWS):
        model.real.nearest = IndexedRows(k)
        torch.testing.assert_close(model(x), expected)


@torch.no_grad()
def test_cells_with_too_few_rows_are_not_the_end():
    model, x = filled(), torch.randn(20, WIDTH)
    found = chosen(model, IndexedRows(ROWS - 1, probes=1), x)
    assert all(len(one) == ROWS - 1 for one in found)


@torch.no_grad()
def test_a_row_that_is_not_a_number_harms_no_other():
    model, x = filled(), torch.randn(3, WIDTH)
    model.real.nearest = IndexedRows(5)
    expected = model(x)
    x[1] = float("nan")
    found = model(x)
    assert found[1].isnan().all()
    torch.testing.assert_close(found[::2], expected[::2])


@torch.no_grad()
def test_rows_that_came_and_went_are_followed_without_building_again():
    model, x = filled(), torch.randn(20, WIDTH)
    index = IndexedRows(5, probes=EVERY)
    model.real.nearest = index
    model(x)
    cells = index._cells
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for ids in (torch.arange(5), torch.arange(100, 130)):
            model.forget(ids)
            assert_exact(model, index, x)
        model.remember(x, torch.zeros(20).long(), ids=torch.arange(1000, 1020))  # new
        assert_exact(model, index, x)
        model.remember(x[:3] + 1, torch.zeros(3).long(), ids=torch.arange(50, 53))  # moved
        assert_exact(model, index, x)
        model.forget(torch.arange(1000, 1020))
        assert_exact(model, index, x)
        model.remember(x, torch.zeros(20).long(), ids=torch.arange(1000, 1020))  # back again
        assert_exact(model, index, x)
    assert index._cells is cells


@torch.no_grad()
def test_rows_at_the_same_place_are_told_apart():
    model, x = filled(), torch.randn(10, WIDTH)
    model.remember(x[:1].expand(8, -1), torch.zeros(8).long(), ids=torch.arange(900, 908))
    index = IndexedRows(9, probes=EVERY)
    model.real.nearest = index
    assert chosen(model, index, x[:1])[0] >= set(range(ROWS, ROWS + 8))
    model.forget(torch.tensor([903, 905]))
    assert chosen(model, index, x[:1])[0] >= set(range(ROWS, ROWS + 6))
    assert_exact(model, index, x[1:])


@torch.no_grad()
def test_an_index_of_other_keys_is_built_again_with_a_message():
    model, x = filled(), torch.randn(10, WIDTH)
    index = IndexedRows(5, probes=EVERY)
    model.real.nearest = index
    model(x)
    model.vote.to_keys.weight.mul_(-0.3)
    with pytest.warns(UserWarning, match=AGAIN):
        model(x)
    assert_exact(model, index, x)


@torch.no_grad()
def test_the_sharpness_of_the_vote_changes_nothing():
    model, x = filled(), torch.randn(10, WIDTH)
    index = IndexedRows(5, probes=EVERY)
    expected = chosen(model, index, x)
    model.vote.log_sharpness.fill_(1.7)
    assert chosen(model, index, x) == expected


@torch.no_grad()
def test_an_index_survives_on_disk(tmp_path):
    model, x = filled(), torch.randn(10, WIDTH)
    index = model.real.nearest = IndexedRows(5, probes=EVERY)
    expected = model(x)
    index.save(tmp_path)
    model.real.nearest = IndexedRows.load(tmp_path, k=5)
    cells = model.real.nearest._cells
    assert torch.equal(model(x), expected)
    assert model.real.nearest._cells is cells
    assert model.real.nearest.probes == EVERY


@torch.no_grad()
def test_an_index_of_another_memory_is_built_again(tmp_path):
    model, x = filled(), torch.randn(10, WIDTH)
    index = model.real.nearest = IndexedRows(5, probes=EVERY)
    model(x)
    index.save(tmp_path)
    other = filled()
    other.reset_memory()
    other.remember(torch.randn(200, WIDTH), torch.randint(3, (200,)), ids=torch.arange(200))
    other.real.nearest = IndexedRows.load(tmp_path, k=5)
    with pytest.warns(UserWarning, match=AGAIN):
        other(x)
    assert_exact(other, other.real.nearest, x)


@torch.no_grad()
@pytest.mark.parametrize("harm", [*FILES.values(), "index.json", "missing"])
def test_a_damaged_index_is_built_again(tmp_path, harm):
    model, x = filled(), torch.randn(10, WIDTH)
    index = model.real.nearest = IndexedRows(5, probes=EVERY)
    expected = model(x)
    index.save(tmp_path)
    if harm == "missing":
        (tmp_path / FILES["index"]).unlink()
    else:
        (tmp_path / harm).write_bytes((tmp_path / harm).read_bytes()[:-9] + b"123456789")
    with pytest.warns(UserWarning, match="the index is built again"):
        model.real.nearest = IndexedRows.load(tmp_path, k=5, probes=EVERY)
    assert torch.equal(model(x), expected)


@torch.no_grad()
def test_explanations_suspects_and_strangers_read_through_the_index():
    model, x = filled(), torch.randn(5, WIDTH)
    model.real.nearest = BestRows(7)
    expected = explain(model, x), suspects(model), unfamiliarity(model, x)
    model.real.nearest = IndexedRows(7, probes=EVERY)
    torch.testing.assert_close(explain(model, x).queue, expected[0].queue)
    torch.testing.assert_close(suspects(model).expected, expected[1].expected)
    torch.testing.assert_close(unfamiliarity(model, x), expected[2])


@torch.no_grad()
def test_a_copy_of_a_model_builds_an_index_of_its_own():
    model, x = filled(), torch.randn(5, WIDTH)
    model.real.nearest = IndexedRows(7, probes=EVERY)
    expected, other = model(x), copy.deepcopy(model)
    other.forget(torch.arange(200))
    other(x)
    assert torch.equal(model(x), expected)


def test_attention_is_refused():
    keys = torch.randn(2, 9, 4)
    with pytest.raises(UserError, match=r"VotingMemory, got attention with 2 .*BestRows"):
        IndexedRows(3)(torch.randn(2, 1, 4), Projected(keys, keys, torch.zeros(9)))


@pytest.mark.parametrize(("field", "value"), [("k", 0), ("k", 2.5), ("probes", True)])
def test_sizes_that_cannot_be_are_named(field, value):
    with pytest.raises(ValueError, match=f"{field} must be a whole number of at least 1"):
        IndexedRows(**{"k": 1, field: value})


def test_nothing_to_save_is_said(tmp_path):
    with pytest.raises(UserError, match="there is no index to save yet"):
        IndexedRows(3).save(tmp_path)


def test_rows_have_numbers_by_what_they_hold():
    rows = torch.randn(2000, 5)
    rows[7:10] = rows[3]
    hashes = hash_rows(rows)
    assert len(set(hashes.tolist())) == 2000
    order = torch.randperm(2000)
    others = hash_rows(rows[order])
    assert set(others.tolist()) == set(hashes.tolist())
    places = find_hashes(hashes, others)
    assert torch.equal(rows[order][places], rows)
    assert find_hashes(hashes, others[:0]).tolist() == [-1] * 2000
    changed = rows.clone()
    changed[5, 2] += 1e-6
    assert (hash_rows(changed) != hashes).nonzero()[0].tolist() == [5]

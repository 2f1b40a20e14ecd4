"""Multilayer perceptrons, plain and of numbers cut into bins."""

import math
from importlib import import_module
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import hma
from hma.backbones import backbone_for
from hma.backbones.mlp import MLP, BinnedMLP, PiecewiseLinear, mlp
from hma.data import InMemory


def test_the_feature_is_the_last_hidden_activation():
    torch.manual_seed(0)
    backbone = mlp(in_features=12, hidden=(7, 5, 3)).double()
    inputs = torch.randn(4, 3, 2, 2).double()
    weights = list(backbone.parameters())
    expected = inputs.reshape(4, 12)
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        expected = torch.clamp(expected @ weight.T + bias, min=0)
    torch.testing.assert_close(backbone(inputs), expected)
    assert len(weights) == 2 * 3


def test_the_default_has_the_parameters_of_the_irm_network_without_its_last_layer():
    count = sum(parameter.numel() for parameter in mlp(in_features=2 * 14 * 14).parameters())
    assert count == (392 * 256 + 256) + (256 * 256 + 256)


def test_weights_start_xavier_uniform_and_biases_at_zero():
    torch.manual_seed(0)
    weight, bias, *_ = mlp(in_features=400, hidden=(200,)).parameters()
    bound = math.sqrt(6 / (400 + 200))
    assert weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.01)
    assert bias.count_nonzero() == 0


def test_dropout_acts_in_training_and_not_in_evaluation():
    torch.manual_seed(0)
    backbone = mlp(in_features=6, hidden=(1000,), dropout=0.5)
    inputs = torch.rand(1, 6)
    whole = backbone.eval()(inputs)
    kept = backbone.train()(inputs)
    positive = whole > 0
    share = (kept[positive] > 0).float().mean().item()
    assert share == pytest.approx(0.5, abs=0.1)
    survivors = kept > 0
    torch.testing.assert_close(kept[survivors], 2 * whole[survivors])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"in_features": 0}, "in_features must be at least 1, got 0"),
        ({"in_features": 4, "hidden": ()}, r"hidden must be one or more widths .* got \(\)"),
        ({"in_features": 4, "hidden": (8, 0)}, r"hidden must be .* got \(8, 0\)"),
        ({"in_features": 4, "dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
    ],
)
def test_an_impossible_argument_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        MLP(**arguments)


def test_an_input_of_the_wrong_size_names_in_features():
    with pytest.raises(ValueError, match=r"12 values per sample, got shape \(2, 3, 5\).*in_feat"):
        mlp(in_features=12)(torch.zeros(2, 3, 5))


def test_a_sample_without_a_batch_axis_is_refused():
    with pytest.raises(ValueError, match=r"got shape \(1,\)"):
        mlp(in_features=1)(torch.zeros(1))


def test_an_empty_batch_gives_no_features():
    assert mlp(in_features=12)(torch.zeros(0, 3, 4)).shape == (0, 256)


def edges_by_hand(values, bins=16):
    """Return values of the sorted column at even places, each once; none for two values."""
    if bins == 1:
        return []
    ordered = sorted(values)
    last = len(ordered) - 1
    edges = sorted({ordered[round(share * last / bins)] for share in range(bins + 1)})
    return edges if len(set(values)) > 2 and len(edges) > 2 else []


def most_bins(columns, bins):
    """Return as many bins a column as there are rows for all of them together."""
    while bins > 1:
        each = [edges_by_hand(values, bins) for values in columns]
        if sum(len(edges) - 1 for edges in each if edges) <= len(columns[0]):
            break
        bins -= 1
    return bins


def encoded_by_hand(row, columns, bins=16):
    """Return a row's numbers, none farther than 8 deviations, then its place in every bin."""
    bins = most_bins(columns, bins)
    numbers, places = [], []
    for number, values in zip(row, columns, strict=True):
        mean = math.fsum(values) / len(values)
        reach = 8 * math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
        near = min(max(number, mean - reach), mean + reach)
        numbers.append(near if len(set(values)) > 2 else number)
        edges = edges_by_hand(values, bins)
        for place, (left, right) in enumerate(pairwise(edges)):
            low = -1.0 if place == 0 else 0.0
            high = 2.0 if place == len(edges) - 2 else 1.0
            places.append(min(max((number - left) / (right - left), low), high))
    return numbers + places


def fitted(rows):
    encode = PiecewiseLinear(rows.shape[1]).double()
    encode.fit(rows)
    return encode


columns = st.lists(
    st.one_of(
        st.lists(st.sampled_from([0.0, 1.0]), min_size=7, max_size=7),
        st.lists(st.integers(-3, 3).map(float), min_size=7, max_size=7),
        st.lists(st.floats(-60000, 60000, width=16), min_size=7, max_size=7),
        st.floats(-100, 100, width=16).map(lambda value: [value] * 7),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(columns=columns, rows=st.integers(1, 7), data=st.data())
def test_an_encoded_row_is_that_of_the_formula(columns, rows, data):
    columns = [column[:rows] for column in columns]
    number = st.one_of(st.floats(-60000, 60000, width=16), *map(st.sampled_from, columns))
    row = [data.draw(number) for _ in columns]
    encode = fitted(torch.tensor(columns, dtype=torch.float64).T)
    (found,) = encode(torch.tensor([row], dtype=torch.float64))
    expected = torch.tensor(encoded_by_hand(row, columns), dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_column_of_many_numbers_has_sixteen_bins_between_its_quantiles():
    torch.manual_seed(0)
    rows = torch.randn(400, 2).double()
    encode = fitted(rows)
    assert encode.used == 32
    (found,) = encode(rows[:1])
    expected = encoded_by_hand(rows[0].tolist(), rows.T.tolist())
    torch.testing.assert_close(found, torch.tensor(expected).double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "values", [[3.0] * 9, [0.0, 1.0] * 5, [5.0], [1.0, 2.0]], ids=["constant", "two", "row", "few"]
)
def test_a_column_of_at_most_two_values_stays_as_it_is(values):
    encode = fitted(torch.tensor(values)[:, None])
    far = torch.tensor([[-1e9], [0.5], [1e9]]).double()
    torch.testing.assert_close(encode(far), far, rtol=0, atol=0)


def test_numbers_that_are_as_close_as_can_be_are_encoded_without_infinities():
    tiny = torch.tensor([0.0, 1e-45, 3e-45, 1.0])[:, None]
    encode = PiecewiseLinear(1)
    encode.fit(tiny)
    found = encode(torch.cat([tiny, torch.tensor([[3e38], [-3e38]])]))
    assert encode.used == 3
    assert found.isfinite().all()
    assert (found[:, 1:] >= -1).all()
    assert (found[:, 1:] <= 2).all()


def test_a_wide_table_has_fewer_bins_a_column_and_at_most_512_in_all():
    torch.manual_seed(0)
    rows = torch.randn(520, 70).double()
    encode = fitted(rows)
    assert encode.used == 7 * 70
    expected = torch.tensor(encoded_by_hand(rows[0].tolist(), rows.T.tolist(), bins=7)).double()
    torch.testing.assert_close(encode(rows[:1])[0], expected, rtol=1e-5, atol=1e-5)


def test_few_rows_have_no_more_bins_than_rows():
    torch.manual_seed(0)
    assert fitted(torch.randn(40, 5)).used == 8 * 5
    assert fitted(torch.randn(40, 21)).used == 0


def test_columns_of_two_values_leave_their_room_to_numbers():
    torch.manual_seed(0)
    rows = torch.cat([torch.randn(64, 3), torch.randint(2, (64, 100))], dim=1)
    assert fitted(rows).used == 3 * 16


def test_a_table_with_too_many_columns_for_bins_is_left_as_it_is_but_for_outliers():
    rows = torch.randn(8, 257).double()
    encode = fitted(rows)
    torch.testing.assert_close(encode(rows), rows, rtol=0, atol=0)
    assert encode(torch.full((1, 257), 1e9)).max() < 100


def test_fitting_again_forgets_the_edges_of_before():
    torch.manual_seed(0)
    first, second = torch.randn(50, 3), torch.randn(50, 3) * torch.tensor([1.0, 0.0, 2.0])
    encode = fitted(first)
    encode.fit(second)
    for name, value in fitted(second).state_dict().items():
        torch.testing.assert_close(encode.state_dict()[name], value, rtol=0, atol=0)
    assert encode.used == 32


def test_the_network_is_its_layers_over_the_encoded_row():
    torch.manual_seed(0)
    rows = torch.randn(40, 3).double()
    backbone = BinnedMLP(3, hidden=(7, 5)).double()
    backbone.fit(rows)
    first, second = backbone.first, backbone.rest[2]
    encoded = torch.tensor([encoded_by_hand(row, rows.T.tolist()) for row in rows.tolist()])
    weight = first.weight[:, : encoded.shape[1]]
    expected = (encoded.double() @ weight.T + first.bias).clamp(min=0)
    expected = (expected @ second.weight.T + second.bias).clamp(min=0)
    torch.testing.assert_close(backbone.eval()(rows), expected, rtol=1e-5, atol=1e-5)


def test_weights_start_xavier_uniform_for_the_inputs_in_use():
    torch.manual_seed(0)
    backbone = BinnedMLP(20, hidden=(200, 100))
    backbone.fit(torch.cat([torch.randn(100, 5), torch.ones(100, 15)], dim=1))
    used = 20 + 5 * 16
    inside, beyond = backbone.first.weight[:, :used], backbone.first.weight[:, used:]
    assert inside.abs().max() <= math.sqrt(6 / (used + 200))
    assert inside.std().item() == pytest.approx(math.sqrt(2 / (used + 200)), rel=0.02)
    assert backbone.rest[2].weight.std().item() == pytest.approx(math.sqrt(2 / 300), rel=0.02)
    assert not backbone.first.bias.any()
    assert not backbone.rest[2].bias.any()
    assert beyond.shape == (200, 20 + 20 * 16 - used)
    assert not beyond.any()


def table(rows):
    split = InMemory(rows, torch.zeros(len(rows), dtype=torch.long))
    return SimpleNamespace(name="mine", kind="table", shape=tuple(rows.shape[1:]), train=split)


def test_by_name_edges_come_from_the_training_rows():
    torch.manual_seed(0)
    rows = torch.randn(100, 3)
    encode = backbone_for("binned-mlp")(table(rows)).encode
    torch.testing.assert_close(encode.double()(rows.double()), fitted(rows)(rows.double()))


def test_many_training_rows_are_looked_at_in_even_steps(monkeypatch):
    monkeypatch.setattr(import_module("hma.backbones.mlp"), "MOST_ROWS", 10)
    rows = torch.arange(25.0)[:, None]
    encode = backbone_for("binned-mlp")(table(rows)).encode
    assert encode.start.tolist()[: encode.used] == rows[::3, 0].tolist()[:-1]


@pytest.mark.parametrize("rows", [torch.empty(0), None], ids=["no rows", "a shape alone"])
def test_without_rows_it_takes_the_edges_of_the_weights(rows):
    torch.manual_seed(0)
    values = torch.randn(60, 3)
    trained = backbone_for("binned-mlp")(table(values)).eval()
    bare = SimpleNamespace(name="mine", kind="table", shape=(3,))
    if rows is not None:
        bare.train = InMemory(rows, torch.empty(0, dtype=torch.long))
    opened = backbone_for("binned-mlp")(bare).eval()
    opened.load_state_dict(trained.state_dict())
    torch.testing.assert_close(opened(values), trained(values), rtol=0, atol=0)


def test_a_saved_model_is_loaded_into_a_backbone_that_has_seen_no_rows(tmp_path):
    torch.manual_seed(0)
    rows = torch.randn(60, 3)
    backbone = BinnedMLP(3, hidden=(8,))
    backbone.fit(rows)
    config = hma.HMAConfig(label_dim=8, queue_size=4, slots_per_class=1)
    model = hma.HMA(backbone, 2, config).eval()
    hma.save(model, tmp_path)
    loaded = hma.load(tmp_path, BinnedMLP(3, hidden=(8,)))
    torch.testing.assert_close(loaded(rows), model(rows), rtol=0, atol=0)
    assert loaded.momentum_encoder.encoder.encode.used == 48


def test_gradients_reach_every_layer():
    torch.manual_seed(0)
    backbone = BinnedMLP(3)
    rows = torch.randn(60, 3)
    backbone.fit(rows)
    backbone(rows).sum().backward()
    layers = [layer for layer in backbone.modules() if isinstance(layer, nn.Linear)]
    assert len(layers) == 2
    assert all(layer.weight.grad.any() for layer in layers)
    assert not backbone.first.weight.grad[:, 3 + 48 :].any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BinnedMLP(0), "in_features must be at least 1, got 0"),
        (lambda: BinnedMLP(4, hidden=()), r"hidden must be one or more widths .* got \(\)"),
        (lambda: BinnedMLP(4, dropout=1.0), "dropout must be at least 0 and below 1, got 1.0"),
        (lambda: BinnedMLP(4)(torch.zeros(2, 3)), r"inputs must have shape \(\*, 4\), got \(2, 3"),
        (lambda: BinnedMLP(4).fit(torch.zeros(2, 3)), r"rows must have shape \(\*, 4\), got \(2, "),
    ],
)
def test_a_wrong_argument_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_empty_batch_gives_no_binned_features():
    assert BinnedMLP(3)(torch.zeros(0, 3)).shape == (0, 128)

"""Bad input gets a clear error and changes nothing; text of users is made safe to show."""

import dataclasses

import pytest
import torch
from torch import nn

from hma import HMA, ConfigError, HMAConfig
from hma.errors import on_one_line, printable
from hma.targets import Classes

SMALL = HMAConfig(queue_size=4, slots_per_class=1, label_dim=4, check_finite=True)


def model_with_rows():
    model = HMA(nn.Linear(3, 8), 3, SMALL, feature_dim=8)
    model.remember(torch.randn(2, 3), torch.tensor([0, 1]))
    return model


X = torch.zeros(2, 3)
GOOD = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"y": torch.tensor([0, 3])}, ValueError, "class ids from 0 to 2, got 3"),
        ({"y": torch.tensor([-1, 0])}, ValueError, "class ids from 0 to 2, got -1"),
        ({"y": torch.tensor([0.0, 1.0])}, TypeError, "integer dtype, got torch.float32"),
        ({"y": torch.eye(3)[:2]}, TypeError, r"shape \(2, 3\); for soft labels build the model"),
        ({"y": torch.tensor([0])}, ValueError, r"y must have shape \(2,\), got \(1,\)"),
        ({"y": GOOD, "ignore": torch.tensor([0, 1])}, TypeError, "ignore must be of dtype"),
        ({"y": GOOD, "ignore": torch.tensor([True])}, ValueError, r"ignore must have shape \(2,\)"),
        ({"y": GOOD, "ids": torch.tensor([1])}, ValueError, r"ids must have shape \(2,\)"),
        ({"y": GOOD, "ids": torch.tensor([1.0, 2.0])}, TypeError, "ids must be of an integer"),
        (
            {"y": GOOD, "features": torch.zeros(2, 5)},
            ValueError,
            r"features must have shape \(\*, 8\)",
        ),
        (
            {"y": GOOD, "features": torch.full((2, 8), float("nan"))},
            ValueError,
            "features must be finite, got NaN or infinity in 2 of 2 rows, the first is row 0",
        ),
    ],
)
def test_a_bad_write_is_refused_and_leaves_everything_as_it_was(arguments, error, message):
    model = model_with_rows()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(error, match=message):
        model.remember(X, **arguments)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0, msg=name)


def test_labels_on_another_device_are_checked_without_waiting_for_it(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "_assert_async", lambda ok, text: asked.append((bool(ok), text)))

    class Elsewhere(torch.Tensor):
        device = torch.device("cuda")

    Classes(3).check(torch.tensor([0, 5]).as_subclass(Elsewhere), count=2)
    assert asked[0][0] is False
    assert "class ids from 0 to 2" in asked[0][1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_check_finite_names_the_row(bad):
    model = model_with_rows()
    features = torch.zeros(3, 8)
    features[1, 2] = bad
    with pytest.raises(ValueError, match="1 of 3 rows, the first is row 1"):
        model.classify(features)


def test_features_of_the_wrong_width_are_named():
    with pytest.raises(ValueError, match=r"features must have shape \(\*, 8\), got \(2, 7\)"):
        model_with_rows().classify(torch.zeros(2, 7))


def test_a_backbone_that_returns_no_tensor_is_named():
    class TwoOutputs(nn.Module):
        def forward(self, x):
            return x, x

    model = HMA(TwoOutputs(), 3, SMALL, feature_dim=8)
    with pytest.raises(TypeError, match="features must be a tensor, got tuple; wrap the backbone"):
        model(torch.zeros(2, 8))


def test_a_backbone_of_unknown_width_says_what_to_pass():
    with pytest.raises(ValueError, match="feature_dim must be given: Linear has neither"):
        HMA(nn.Linear(3, 8), 3)


def test_a_lazy_backbone_says_what_to_do():
    with pytest.raises(ValueError, match="'weight' is still lazy; run one batch"):
        HMA(nn.LazyLinear(8), 3, SMALL, feature_dim=8)


def test_heads_that_do_not_divide_the_token_come_with_a_width_that_fits():
    with pytest.raises(ConfigError, match=r"got 4 and 6 \+ 64 = 70; label_dim=66 would fit"):
        HMA(nn.Linear(3, 6), 3, HMAConfig(), feature_dim=6)
    HMA(nn.Linear(3, 6), 3, HMAConfig(label_dim=66), feature_dim=6)


@pytest.mark.parametrize(("classes", "width"), [(0, 8), (-1, 8), (3, 0)])
def test_impossible_sizes_are_refused(classes, width):
    with pytest.raises(ValueError, match="must be at least 1"):
        HMA(nn.Identity(), classes, SMALL, feature_dim=width)


def test_an_unknown_context_is_refused_with_a_guess():
    with pytest.raises(ConfigError, match="got 'alnoe'; did you mean 'alone'"):
        model_with_rows().context = "alnoe"


def test_unfreezing_after_building_warns_that_nothing_follows():
    model = HMA(nn.Linear(3, 8).requires_grad_(False), 3, SMALL, feature_dim=8)
    model.backbone.requires_grad_(True)
    with pytest.warns(UserWarning, match="no momentum encoder follows it"):
        model.remember(torch.randn(2, 3), torch.tensor([0, 1]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queue_size": 9}, "queue_size is 9 in the state, 4 in this model"),
        ({"slots_per_class": 2}, "slots_per_class is 2 in the state, 1 in this model"),
        ({"label_dim": 8}, "label_dim is 8 in the state, 4 in this model"),
    ],
    ids=str,
)
def test_a_state_of_other_sizes_names_the_fields(change, message):
    other = HMA(nn.Linear(3, 8), 3, dataclasses.replace(SMALL, **change), feature_dim=8)
    with pytest.raises(RuntimeError, match=message):
        model_with_rows().load_state_dict(other.state_dict())


def test_what_would_act_on_a_terminal_or_a_page_is_made_visible():
    assert (
        printable("a\x1b[31m\udc80\u202eb\nc\td\r\x7f")
        == "a\ufffd[31m\ufffd\ufffdb\nc\td\ufffd\ufffd"
    )


def test_letters_of_every_script_stay_as_they_are():
    text = "naïve 猫 👩‍🔬 שלום"
    assert printable(text) == text


def test_one_line_holds_no_break():
    assert on_one_line("a\n b\t\u2028c ") == "a b c"

"""A configuration of the paper's memory says everything that is wrong with it, at once."""

import pytest
from torch import nn

from hma import HMA, ConfigError, HMAConfig


def test_every_problem_is_listed_at_once():
    with pytest.raises(ConfigError) as caught:
        HMAConfig(num_heads=0, queue_size=-1, dropout=1.0, momentum=2, scale="hed", top_k=0)
    for line in [
        "num_heads must be at least 1, got 0",
        "queue_size must be at least 0, got -1",
        "dropout must be at least 0 and below 1, got 1.0",
        "momentum must be at least 0 and below 1, got 2",
        "scale must be one of 'head', 'token', got 'hed'; did you mean 'head'?",
        "top_k must be at least 1 or None, got 0",
    ]:
        assert line in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queue_size", 1.5),
        ("queue_size", True),
        ("queue_size", None),
        ("label_dim", "64"),
        ("dropout", "0.1"),
        ("batch_attention", 1),
        ("check_finite", None),
        ("top_k", 1.5),
    ],
)
def test_a_value_of_the_wrong_type_is_named(field, value):
    with pytest.raises(ConfigError, match=f"{field} must be"):
        HMAConfig(**{field: value})


def test_a_configuration_with_nothing_to_read_says_what_to_do():
    with pytest.raises(ConfigError, match="empty_reads='keep'"):
        HMAConfig(queue_size=0, slots_per_class=0, batch_attention=False)


def test_a_linear_read_has_no_largest_weights():
    with pytest.raises(ConfigError, match=r"attention='linear' .* got top_k=3; leave it out"):
        HMAConfig(attention="linear", top_k=3)


def test_heads_must_divide_the_width_that_is_read():
    config = HMAConfig(width=30, label_dim=3)
    with pytest.raises(ConfigError, match="divide width, got 4 and 30; width=32 would fit"):
        HMA(nn.Identity(), 2, config, feature_dim=64)
    HMA(nn.Identity(), 2, HMAConfig(width=32, label_dim=3), feature_dim=64)


def test_anchors_need_attention_between_datapoints():
    with pytest.raises(ConfigError, match="context='anchors' needs batch_attention=True"):
        HMAConfig(context="anchors", batch_attention=False)


@pytest.mark.parametrize(
    ("row", "queue", "slots", "neighbours"),
    [
        ("rma", 512, 0, False),
        ("abd", 0, 0, True),
        ("abd+syn", 0, 16, True),
        ("abd+rma", 512, 0, True),
        ("hma", 512, 16, True),
        ("param", 0, 0, False),
    ],
)
def test_rows_of_the_papers_tables(row, queue, slots, neighbours):
    config = HMAConfig.ablation(row)
    assert (config.queue_size, config.slots_per_class, config.batch_attention) == (
        queue,
        slots,
        neighbours,
    )


def test_an_ablation_takes_other_fields_but_not_those_that_make_it():
    assert HMAConfig.ablation("rma", queue_size=7).queue_size == 7
    with pytest.raises(ConfigError, match="the row 'rma' fixes slots_per_class=0"):
        HMAConfig.ablation("rma", slots_per_class=3)


def test_unknown_rows_and_fields_are_named_with_a_guess():
    with pytest.raises(ConfigError, match="did you mean 'abd\\+syn'"):
        HMAConfig.ablation("abd+sny")
    with pytest.raises(ConfigError, match="got 'queue_sise'; did you mean 'queue_size'"):
        HMAConfig.from_dict({"queue_sise": 3})

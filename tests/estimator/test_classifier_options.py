"""Options that cannot work are refused when training starts, by name, rule and value."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from torch import nn

from hma.errors import UserError
from hma.estimator import MemoryClassifier
from hma.estimator.options import config_of
from hma.options.config import ConfigError

IRIS, SPECIES = load_iris(return_X_y=True)


def seven(inputs):
    return 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_epochs": 0}, "max_epochs must be a whole number of at least 1, or None, got 0"),
        ({"batch_size": 2.5}, "batch_size must be a whole number of at least 1, got 2.5"),
        ({"patience": True}, "patience must be a whole number of at least 1, got True"),
        ({"learning_rate": -1.0}, "learning_rate must be a finite number above 0, got -1.0"),
        ({"learning_rate": np.inf}, "learning_rate must be a finite number above 0, got inf"),
        ({"validation_fraction": 1.0}, "validation_fraction must be between 0 and 1, got 1.0"),
        ({"standardize": "yes"}, "standardize must be True or False, got 'yes'"),
        ({"hidden": ()}, r"hidden must be one or more whole numbers of at least 1, got \(\)"),
        ({"hidden": (8, 0)}, "hidden must be one or more whole numbers"),
        ({"hidden": "64"}, "hidden must be one or more whole numbers"),
        ({"ablation": "hmm"}, "ablation must be one of .* got 'hmm'; did you mean 'hma'?"),
        ({"context": "anchors"}, "context must be one of 'alone', 'batch', got 'anchors'"),
        ({"memory": "near"}, "memory must be one of 'vote', 'hma', got 'near'"),
        ({"ablation": "rma"}, "has no ablation .* got ablation='rma'.* set memory='hma'"),
        ({"context": "batch"}, "answers each row alone, got .* context='batch'; set mem"),
        ({"linear": "no"}, "linear must be True or False, got 'no'"),
        ({"device": "abacus"}, "device must be one that torch can use, got 'abacus'"),
        ({"backbone": 7}, "backbone must be a torch module, or a function .* it is a int"),
        ({"backbone": seven}, "its return value is a int"),
        ({"backbone": nn.Flatten(0)}, r"backbone must map \(B, 4\) to features \(B, F\), got \(8"),
        (
            {"memory": "hma", "ablation": "param", "hidden": (8, 10)},
            "num_heads must divide the width of the features in the ablation 'param'.* 4 and 10",
        ),
    ],
    ids=lambda value: str(value).split(" at 0x")[0],
)
def test_an_option_that_cannot_work_is_refused_by_name(options, message):
    with pytest.raises(UserError, match=message):
        MemoryClassifier(**options).fit(IRIS, SPECIES)


def test_every_problem_of_training_is_listed_at_once():
    with pytest.raises(UserError, match=r"max_epochs.*; batch_size.*; learning_rate"):
        MemoryClassifier(max_epochs=0, batch_size=0, learning_rate=0).fit(IRIS, SPECIES)


def test_sizes_of_the_memories_are_checked_by_their_own_rules():
    with pytest.raises(ConfigError, match="memory_size must be at least 0 or None, got -1"):
        MemoryClassifier(memory_size=-1).fit(IRIS, SPECIES)


def test_numbers_of_numpy_are_numbers():
    model = MemoryClassifier(
        hidden=np.array([8, 8]),
        memory_size=np.int64(16),
        num_heads=np.int32(2),
        dropout=np.float32(0.25),
        max_epochs=np.int64(1),
        learning_rate=np.float64(1e-3),
    ).fit(IRIS, SPECIES)
    assert model.model_.config.memory_size == 16
    assert model.model_.head.in_features == 8


def test_a_loss_that_is_not_finite_stops_training_and_leaves_nothing_fitted():
    model = MemoryClassifier(learning_rate=1e30, random_state=0)
    with pytest.raises(UserError, match=r"training diverged: the loss is .* in epoch \d+; lower"):
        model.fit(IRIS, SPECIES)
    assert not hasattr(model, "model_")


@given(
    st.integers(1, 40),
    st.integers(0, 40),
    st.integers(1, 12),
    st.sampled_from(["rma", "abd", "abd+syn", "abd+rma", "hma"]),
)
def test_label_dim_grows_by_less_than_the_heads_and_fits(width, label_dim, heads, ablation):
    sizes = {"memory": "hma", "label_dim": label_dim, "num_heads": heads}
    config = config_of(MemoryClassifier(ablation=ablation, **sizes).get_params(), width)
    assert (width + config.label_dim) % heads == 0
    assert label_dim <= config.label_dim < label_dim + heads

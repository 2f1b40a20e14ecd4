"""What cannot vote says so where it is written down."""

import pytest

from hma import ConfigError, VoteConfig


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"memory_size": 0}, "memory_size and slots_per_class are both 0, so nobody votes"),
        ({"memory_size": -1}, "memory_size must be at least 0 or None, got -1"),
        ({"memory_size": 1.5}, "memory_size must be a whole number or None, got 1.5"),
        ({"key_dim": 0}, "key_dim must be at least 1, got 0"),
        ({"key_dropout": 1.0}, "key_dropout must be at least 0 and below 1, got 1.0"),
        ({"key_view": "input"}, "got 'input'; did you mean 'inputs'"),
        ({"candidates": 0}, "candidates must be at least 1 or None, got 0"),
        ({"candidates": -3}, "candidates must be at least 1 or None, got -3"),
        ({"leave_self_out": 1}, "leave_self_out must be True or False, got 1"),
        ({"slots_per_class": -1}, "slots_per_class must be at least 0, got -1"),
        ({"slot_init": "kmean"}, "got 'kmean'; did you mean 'kmeans'"),
    ],
)
def test_what_cannot_vote_is_said(fields, message):
    with pytest.raises(ConfigError, match=message):
        VoteConfig(**fields)


@pytest.mark.parametrize("name", ["context", "queue_size", "similarity", "vote"])
def test_fields_of_the_papers_memory_are_not_those_of_the_vote(name):
    with pytest.raises(ConfigError, match=f"field must be one of .*got '{name}'"):
        VoteConfig.from_dict({name: 1})

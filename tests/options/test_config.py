"""Configurations of both memories check themselves."""

import dataclasses
from typing import Literal, get_origin

import pytest

from hma import ConfigError, HMAConfig, VoteConfig

CONFIGS = [HMAConfig, VoteConfig]


@pytest.mark.parametrize("config", CONFIGS)
def test_every_field_that_is_a_number_has_a_rule(config):
    numbers = {
        field.name
        for field in dataclasses.fields(config)
        if field.type is not bool and get_origin(field.type) is not Literal
    }
    assert numbers == set(config.numbers)


@pytest.mark.parametrize("config", CONFIGS)
def test_a_configuration_cannot_be_changed(config):
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().slots_per_class = 3


@pytest.mark.parametrize("config", CONFIGS)
def test_a_configuration_comes_back_from_its_fields_and_an_unknown_one_is_named(config):
    values = dataclasses.asdict(config(slots_per_class=3))
    assert config.from_dict(values) == config(slots_per_class=3)
    with pytest.raises(ConfigError, match="got 'slots_pr_class'; did you mean 'slots_per_class'"):
        config.from_dict(values | {"slots_pr_class": 3})


@pytest.mark.parametrize("config", CONFIGS)
def test_problems_are_listed_under_the_name_of_the_class(config):
    with pytest.raises(ConfigError) as caught:
        config(slots_per_class=-1, slot_init="kmean", check_finite=0)
    title, *problems = str(caught.value).splitlines()
    assert title == f"{config.__name__} cannot run:"
    assert [problem.split()[1] for problem in problems] == [
        "check_finite",
        "slots_per_class",
        "slot_init",
    ]


def test_fields_of_the_vote_are_not_those_of_the_papers_memory():
    for name in ("similarity", "vote", "values", "memory_size", "key_dim", "candidates"):
        with pytest.raises(ConfigError, match=f"field must be one of .*got '{name}'"):
            HMAConfig.from_dict({name: 1})

"""Which stored runs are the one that is wanted, where configurations have gained fields since."""

from dataclasses import asdict

import pytest

from hma import HMAConfig
from hma.training.identity import MUST_SAY, differences

DESIGNS = {"votes": HMAConfig(), "paper": HMAConfig.paper()}


@pytest.mark.parametrize("design", DESIGNS)
def test_a_config_without_a_later_field_is_that_of_its_default(design):
    now = asdict(DESIGNS[design])
    said = MUST_SAY | {"num_heads", "key_view"}
    before = {name: now[name] for name in now if name in said}
    assert differences({"config": before}, {"config": now}) == []
    changed = {"config": now | {"num_heads": 8}}
    assert differences({"config": before}, changed) == ["config.num_heads was 4, is 8 now"]
    later = {"config": now | {"dropout": 0.5}}
    assert differences({"config": before}, later) == ["config.dropout was 0.1, is 0.5 now"]


@pytest.mark.parametrize("field", sorted(MUST_SAY - {"similarity", "queue_size", "vote"}))
def test_a_config_that_votes_must_say_what_it_voted_with(field):
    now = asdict(HMAConfig())
    before = {name: value for name, value in now.items() if name != field}
    assert len(differences({"config": before}, {"config": now})) == 1


def test_a_config_that_votes_and_names_no_view_made_its_keys_of_the_features():
    now = asdict(HMAConfig(key_view="features"))
    before = {name: value for name, value in now.items() if name != "key_view"}
    assert differences({"config": before}, {"config": now}) == []
    other = {"config": now | {"key_view": "inputs"}}
    said = ['config.key_view was "features", is "inputs" now']
    assert differences({"config": before}, other) == said

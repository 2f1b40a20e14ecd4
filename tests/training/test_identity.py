"""Which stored runs are the one that is wanted, where configurations have changed since."""

from dataclasses import asdict, fields

import pytest

from hma import HMAConfig, VoteConfig
from hma.training.identity import config_of_record, differences

VOTING = [field.name for field in fields(VoteConfig)]
PAPER = asdict(HMAConfig())
OF_BOTH = {
    **PAPER,
    **{name: value for name, value in asdict(VoteConfig()).items() if name != "memory_size"},
    "vote": "mixed",
    "values": False,
}
"""Fields of the one configuration that both memories had when records were committed."""
PAPER_THEN = OF_BOTH | {"similarity": "dot", "queue_size": 512, "slots_per_class": 16}
VOTE_THEN = OF_BOTH | {"similarity": "distance", "queue_size": None, "batch_attention": True}


def test_the_papers_config_without_a_later_field_is_that_of_its_default():
    before = {name: PAPER[name] for name in ("queue_size", "slots_per_class", "num_heads")}
    assert differences({"config": before}, {"config": PAPER}) == []
    changed = {"config": PAPER | {"num_heads": 8}}
    assert differences({"config": before}, changed) == ["config.num_heads was 4, is 8 now"]
    later = {"config": PAPER | {"dropout": 0.5}}
    assert differences({"config": before}, later) == ["config.dropout was 0.1, is 0.5 now"]


@pytest.mark.parametrize("field", VOTING[1:])
def test_a_config_that_votes_must_say_what_it_voted_with(field):
    now = asdict(VoteConfig())
    before = {name: value for name, value in now.items() if name != field}
    assert len(differences({"config": before}, {"config": now})) == 1


def test_a_config_of_one_memory_is_never_that_of_the_other():
    vote = asdict(VoteConfig())
    for found, wanted in ((PAPER, vote), (vote, PAPER), (PAPER_THEN, vote), (VOTE_THEN, PAPER)):
        assert differences({"config": found}, {"config": wanted})


@pytest.mark.parametrize(
    ("then", "now"), [(PAPER_THEN, HMAConfig()), (VOTE_THEN, VoteConfig())], ids=["hma", "vote"]
)
def test_a_record_of_the_time_of_one_config_for_both_is_read_by_the_fields_of_today(then, now):
    assert config_of_record(then) == asdict(now)
    assert config_of_record(asdict(now)) == asdict(now)
    assert differences({"config": then}, {"config": asdict(now)}) == []
    sizes = "memory_size" if isinstance(now, VoteConfig) else "queue_size"
    other = {"config": asdict(now) | {sizes: 8}}
    (said,) = differences({"config": then}, other)
    assert said.startswith(f"config.{sizes} was ")
    assert said.endswith(", is 8 now")


@pytest.mark.parametrize("retired", [{"vote": "added"}, {"vote": "gated", "values": True}])
def test_a_vote_that_left_the_package_is_never_taken_for_the_one_that_is_in_it(retired):
    now = asdict(VoteConfig())
    then = {"config": VOTE_THEN | retired}
    assert len(differences(then, {"config": now})) == len(retired)
    assert differences(then, {"config": now | retired}) == []
    assert differences({"config": VOTE_THEN}, {"config": now | retired})


def test_a_record_that_votes_and_names_no_view_made_its_keys_of_the_features():
    then = {name: value for name, value in VOTE_THEN.items() if name != "key_view"}
    now = asdict(VoteConfig(key_view="features"))
    assert differences({"config": then}, {"config": now}) == []
    said = ['config.key_view was "features", is "inputs" now']
    assert differences({"config": then}, {"config": asdict(VoteConfig())}) == said

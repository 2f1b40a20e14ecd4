"""A recipe that cannot run says everything that is wrong with it, at once."""

import pytest

from hma.options.config import ConfigError
from hma.training import Recipe


def test_all_problems_are_named_at_once():
    with pytest.raises(ConfigError) as caught:
        Recipe(
            epochs=0, lr=float("nan"), optimizer="adan", clip_norm=-1, patience=0, sgd_momentum=1
        )
    assert str(caught.value).splitlines() == [
        "Recipe cannot run:",
        "  - epochs must be at least 1 or None, got 0",
        "  - patience must be at least 1 or None, got 0",
        "  - lr must be above 0, got nan",
        "  - sgd_momentum must be at least 0 and below 1, got 1",
        "  - clip_norm must be above 0 or None, got -1",
        "  - optimizer must be one of 'adam', 'adamw', 'sgd', got 'adan'; did you mean 'adam'?",
    ]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("batch_size", 2.0, "batch_size must be a whole number, got 2.0"),
        ("steps", True, "steps must be a whole number or None, got True"),
        ("lr", "0.1", "lr must be a number, got '0.1'"),
        ("precision", "bf16-mixd", "got 'bf16-mixd'; did you mean 'bf16-mixed'"),
        ("drop_last", "no", "drop_last must be True or False, got 'no'"),
        ("evaluate_every_steps", 0, "evaluate_every_steps must be at least 1 or None, got 0"),
        ("balance", None, "balance must be one of 'none', 'loss', 'sampler', got None"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(field, value, message):
    with pytest.raises(ConfigError, match=message):
        Recipe(**{field: value})


def test_validation_goes_by_epochs_or_by_steps():
    with pytest.raises(ConfigError, match="evaluate_every must be 1 beside evaluate_every_steps"):
        Recipe(evaluate_every=2, evaluate_every_steps=30)


def test_a_recipe_survives_json_and_a_typo_in_it_does_not():
    recipe = Recipe(lr=0.02, schedule="step", patience=3, clip_norm=1)
    assert Recipe.from_json(recipe.to_json()) == recipe
    with pytest.raises(ConfigError, match="got 'pacience'; did you mean 'patience'"):
        Recipe.from_json({"pacience": 3})

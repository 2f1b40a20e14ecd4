"""The loss after calibration: no better temperature, and no worse than none."""

import torch
from torch.nn.functional import cross_entropy

from hma.metrics import METRICS, temperature_for
from hma.options.recipe import Recipe, UserRecipe
from hma.targets import Classes, Number
from hma.training.loop import selecting_metric


def test_it_is_the_mean_loss_of_the_cooled_logits():
    generator = torch.Generator().manual_seed(0)
    logits = 8 * torch.randn(300, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (300,), generator=generator)
    found = METRICS["calibrated_loss"].score(logits, labels, Classes(3))
    cooled = logits / temperature_for(logits, labels, Classes(3))
    assert found == float(cross_entropy(cooled, labels))
    assert found < METRICS["loss"].score(logits, labels, Classes(3))


def test_of_numbers_it_is_the_loss():
    outputs, labels = torch.randn(20, 1), torch.randn(20)
    both = (METRICS[name].score(outputs, labels, Number()) for name in ("calibrated_loss", "loss"))
    assert len(set(both)) == 1


def test_an_epoch_is_chosen_by_the_loss_that_its_deployed_weights_will_have():
    assert selecting_metric(None, UserRecipe()).name == "calibrated_loss"
    assert selecting_metric(None, Recipe(selection="loss")).name == "loss"

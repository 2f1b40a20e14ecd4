"""skorch against the loop written out by hand, and as scikit-learn uses it."""

import importlib.util
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from plain_training import (
    CLASSES,
    INPUTS,
    MOMENTUM,
    RATE,
    expect_same,
    follows,
    fresh_model,
    in_batches,
    rows,
    trained_by_hand,
)
from torch import nn

from hma.backbones import mlp
from hma.errors import UserError

if importlib.util.find_spec("skorch") is None:
    pytest.skip("needs skorch", allow_module_level=True)

from hma.adapters.skorch import MemoryModule, RememberCallback

skorch = importlib.import_module("skorch")  # after the adapter, which quietens its import


def net(kind=skorch.NeuralNetClassifier, **options):
    settings = {
        "module__backbone": partial(mlp, INPUTS, hidden=(16,)), "module__num_classes": CLASSES,
        "module__memory": "hma", "module__label_dim": 16, "module__queue_size": 20,
        "module__slots_per_class": 2,
        "module__momentum": MOMENTUM, "module__dropout": 0.0, "criterion": nn.CrossEntropyLoss,
        "optimizer": torch.optim.SGD, "lr": RATE, "batch_size": 8, "max_epochs": 2,
        "train_split": None, "verbose": 0, "callbacks": [("memory", RememberCallback())],
    }  # fmt: skip
    return kind(MemoryModule, **(settings | options))


def fitted(data, **options):
    torch.manual_seed(7)  # as fresh_model does
    return net(**options).fit(data[0], data[1])


def test_the_module_is_the_model_that_its_settings_describe():
    torch.manual_seed(7)
    built = net().initialize().module_.model
    expect_same(built, fresh_model())
    assert built.config == fresh_model().config


def test_every_batch_is_written_after_the_step_that_learned_from_it():
    data = rows(30)
    steps = [[batch] for batch in in_batches(data, 8)] * 2
    trained = fitted(data).module_.model
    expect_same(trained, trained_by_hand(steps))
    assert not follows(trained, trained_by_hand(steps, write="before"))


def test_slots_start_from_the_rows_of_every_fit_anew():
    data = rows(30)
    once = net(module__slot_init="class_means", max_epochs=1, lr=0.0).fit(*data)
    state = once.module_.model.memory_state()
    with torch.no_grad():
        features = once.module_.model.backbone(data[0])
    for slot, label in zip(state.slots, state.slot_classes.tolist(), strict=True):
        own = features[data[1] == label].mean(dim=0)
        assert (slot - own).norm() < 0.2 * features.std(dim=0).norm()
    assert not once.fit(*data).module_.model.synthetic.waits


def test_a_loss_that_the_criterion_cannot_see_is_refused():
    with pytest.raises(UserError, match=r"no contrastive loss; .*, got 0\.5"):
        net(module__contrastive=0.5).initialize()


def test_validation_batches_are_not_written():
    data = rows(32)
    from skorch.helper import predefined_split

    split = predefined_split(skorch.dataset.Dataset(*rows(11)))
    trained = fitted(data, train_split=split).module_.model
    expect_same(trained, trained_by_hand([[batch] for batch in in_batches(data, 8)] * 2))


class Accumulating(skorch.NeuralNetClassifier):
    """skorch's own recipe for gradient accumulation: the optimizer steps every second batch."""

    def initialize(self):
        self.batches_ = 0
        return super().initialize()

    def get_loss(self, *arguments, **options):
        return super().get_loss(*arguments, **options) / 2

    def train_step(self, batch, **options):
        step = self.train_step_single(batch, **options)
        self.batches_ += 1
        if self.batches_ % 2 == 0:
            self.optimizer_.step()
            self.optimizer_.zero_grad()
        return step


def test_accumulated_batches_wait_for_their_step_and_move_the_momentum_encoder_once():
    data = rows(32)
    batches = in_batches(data, 8)
    trained = fitted(data, kind=Accumulating).module_.model
    expect_same(trained, trained_by_hand([batches[:2], batches[2:]] * 2))


def test_partial_fit_goes_on_and_fit_begins_anew_with_a_fresh_backbone():
    data = rows(24)
    steps = [[batch] for batch in in_batches(data, 8)]
    trained = fitted(data, max_epochs=1)
    trained.partial_fit(*data)
    expect_same(trained.module_.model, trained_by_hand(steps * 2))
    torch.manual_seed(7)
    trained.fit(*data)
    expect_same(trained.module_.model, trained_by_hand(steps))


def test_an_interrupted_fit_stops_counting_steps():
    class Interrupted(skorch.NeuralNetClassifier):
        def train_step(self, *arguments, **options):
            raise KeyboardInterrupt

    stopped = fitted(rows(8), kind=Interrupted)
    assert not stopped.optimizer_._optimizer_step_post_hooks
    assert len(stopped.module_.model.memory_state().labels) == 0


def test_a_fitted_net_is_pickled_with_its_memory():
    x, y = rows(24)
    trained = fitted((x, y))
    again = pickle.loads(pickle.dumps(trained))
    np.testing.assert_allclose(again.predict_proba(x), trained.predict_proba(x), rtol=1e-6)
    expect_same(again.module_.model, trained.module_.model)


def test_a_grid_search_reaches_the_settings_of_the_memory():
    from sklearn.model_selection import GridSearchCV

    x, y = rows(60)
    search = GridSearchCV(
        net(max_epochs=8, module__context="alone"),
        {"module__queue_size": [0, 16], "module__slots_per_class": [2]}, cv=2, refit=True,
    )  # fmt: skip
    search.fit(x.numpy(), y.numpy())
    best = search.best_estimator_.module_.model.config
    assert best.queue_size == search.best_params_["module__queue_size"]
    assert best.slots_per_class == search.best_params_["module__slots_per_class"]
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_score_ > 0.5  # a third by chance


def test_rows_that_are_dicts_reach_the_backbone_and_the_memory_as_dicts():
    class Summed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.feature_dim = mlp(INPUTS, hidden=(16,)), 16

        def forward(self, parts):
            return self.layer(parts["left"] + parts["right"])

    (x, y), options = rows(24), {"module__backbone": Summed}
    torch.manual_seed(7)
    trained = net(**options).fit({"left": x / 2, "right": x / 2}, y).module_.model
    expected = trained_by_hand([[batch] for batch in in_batches((x, y), 8)] * 2)
    assert trained.memory_state().labels.tolist() == expected.memory_state().labels.tolist()
    torch.testing.assert_close(trained.memory_state().features, expected.memory_state().features)


def test_the_default_criterion_of_skorch_is_refused_because_it_takes_no_logits():
    with pytest.raises(UserError, match="got NLLLoss, skorch's default; pass criterion=torch"):
        fitted(rows(16), criterion=nn.NLLLoss)


def test_a_backbone_that_is_already_built_is_refused():
    with pytest.raises(UserError, match="a function that builds one, got a MLP; a second fit"):
        MemoryModule(mlp(4), 2)


def test_an_unknown_setting_suggests_the_right_one():
    with pytest.raises(ValueError, match="did you mean 'queue_size'"):
        fitted(rows(16), module__queue_sise=3)
    with pytest.raises(UserError, match="memory must be one of 'vote', 'hma', got 'dot'"):
        fitted(rows(16), module__memory="dot")

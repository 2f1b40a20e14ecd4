"""The Hugging Face Trainer against the loop written out by hand."""

import importlib.util
from dataclasses import replace

import pytest
import torch
from plain_training import (
    RATE,
    expect_same,
    follows,
    fresh_model,
    in_batches,
    rows,
    trained_by_hand,
)
from torch import nn
from torch.utils.data import Dataset

from hma import HMA
from hma.errors import UserError

if (
    importlib.util.find_spec("transformers") is None
    or importlib.util.find_spec("accelerate") is None
):
    pytest.skip("needs transformers and accelerate", allow_module_level=True)

from hma.adapters.transformers import ForTrainer, RememberCallback

transformers = importlib.import_module("transformers")  # after the adapter repaired torchvision

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")


class Rows(Dataset):
    """Rows as the Trainer wants them: dicts, here with a column the model has no use for."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data[1])

    def __getitem__(self, place):
        x, y = self.data
        return {"pixel_values": x[place], "label": y[place], "place": place}


class Recording(transformers.Trainer):
    """Notes the batches that it trains on."""

    def training_step(self, model, inputs, *rest):
        self.trained_on.append((inputs["pixel_values"].clone(), inputs["labels"].clone()))
        return super().training_step(model, inputs, *rest)


def wrapped(**options):
    return ForTrainer(fresh_model(), inputs=lambda batch: batch["pixel_values"], **options)


def trainer(model, data, folder, *callbacks, kind=Recording, keyword=None, **options):
    arguments = transformers.TrainingArguments(
        **{
            "output_dir": str(folder), "per_device_train_batch_size": 8, "num_train_epochs": 1,
            "max_grad_norm": 0.0, "report_to": [], "save_strategy": "no", "use_cpu": True,
            "disable_tqdm": True, "logging_strategy": "no", "dataloader_pin_memory": False,
        } | options
    )  # fmt: skip
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    made = kind(
        model, arguments, train_dataset=Rows(data), eval_dataset=Rows(rows(17)),
        callbacks=list(callbacks), optimizers=(optimizer, constant), **(keyword or {}),
    )  # fmt: skip
    made.trained_on = []
    return made


def test_every_batch_is_written_after_the_step_that_learned_from_it(tmp_path):
    model = wrapped()
    training = trainer(model, rows(30), tmp_path, RememberCallback(), num_train_epochs=2)
    training.train()
    steps = [[batch] for batch in training.trained_on]
    assert [len(y) for _, y in training.trained_on] == [8, 8, 8, 6] * 2
    expect_same(model.model, trained_by_hand(steps))
    assert not follows(model.model, trained_by_hand(steps, write="before"))


def test_slots_that_wait_start_before_the_first_step(tmp_path):
    config = replace(fresh_model().config, slot_init="class_means")
    model = ForTrainer(
        HMA(fresh_model().backbone, 3, config), inputs=lambda batch: batch["pixel_values"]
    )
    found = []
    model.register_forward_pre_hook(lambda *_: found.append(model.model.synthetic.waits))
    trainer(model, rows(30), tmp_path, RememberCallback()).train()
    assert found == [False] * 4


@pytest.mark.parametrize("accumulated", [2, 3])
def test_accumulated_batches_wait_for_their_step_and_move_the_momentum_encoder_once(
    accumulated, tmp_path
):
    model = wrapped()
    training = trainer(
        model, rows(52), tmp_path, RememberCallback(), num_train_epochs=2,
        gradient_accumulation_steps=accumulated,
    )  # fmt: skip
    training.train()
    epochs = training.trained_on[:7], training.trained_on[7:]
    steps = [e[at : at + accumulated] for e in epochs for at in range(0, 7, accumulated)]
    assert len(steps[-1]) == 1
    expect_same(model.model, trained_by_hand(steps))


def test_evaluation_in_between_writes_nothing(tmp_path):
    model = wrapped()
    training = trainer(
        model, rows(32), tmp_path, RememberCallback(), eval_strategy="steps", eval_steps=1
    )
    training.train()
    assert sum("eval_loss" in entry for entry in training.state.log_history) == 4
    expect_same(model.model, trained_by_hand([[batch] for batch in training.trained_on]))


def test_a_batch_that_is_read_twice_in_a_step_is_written_once(tmp_path):
    class Twice(Recording):
        def compute_loss(self, model, inputs, *rest, **options):
            first = super().compute_loss(model, dict(inputs), *rest, **options)
            return (first + super().compute_loss(model, dict(inputs), *rest, **options)) / 2

    model = wrapped()
    training = trainer(model, rows(32), tmp_path, RememberCallback(), kind=Twice)
    training.train()
    expect_same(model.model, trained_by_hand([[batch] for batch in training.trained_on]))


def test_a_look_at_other_rows_without_gradients_is_not_written(tmp_path):
    class Looks(Recording):
        def compute_loss(self, model, inputs, *rest, **options):
            loss = super().compute_loss(model, dict(inputs), *rest, **options)
            x, y = rows(5)
            with torch.no_grad():
                model(pixel_values=-x, labels=y)
            return loss

    model = wrapped()
    training = trainer(model, rows(32), tmp_path, RememberCallback(), kind=Looks)
    training.train()
    expect_same(model.model, trained_by_hand([[batch] for batch in training.trained_on]))


def test_a_second_training_and_a_later_forward_are_not_listened_to_twice(tmp_path):
    model, callback = wrapped(), RememberCallback()
    training = trainer(model, rows(16), tmp_path, callback)
    training.train()
    assert not model._forward_pre_hooks
    again = trainer(model, rows(24), tmp_path, callback)
    again.train()
    steps = [[batch] for batch in training.trained_on + again.trained_on]
    expect_same(model.model, trained_by_hand(steps))


def test_a_training_that_broke_off_leaves_no_second_hook(tmp_path):
    class Breaks(Recording):
        def training_step(self, *arguments):
            raise KeyboardInterrupt

    model, callback = wrapped(), RememberCallback()
    with pytest.raises(KeyboardInterrupt):
        trainer(model, rows(16), tmp_path, callback, kind=Breaks).train()
    trainer(model, rows(16), tmp_path, callback).train()
    assert not model._forward_pre_hooks


def test_a_checkpoint_holds_the_rows_of_its_step_and_a_resumed_run_goes_on_from_there(tmp_path):
    model = wrapped()
    whole = trainer(
        model, rows(32), tmp_path, RememberCallback(), num_train_epochs=2, save_strategy="epoch",
    )  # fmt: skip
    whole.train()
    resumed_model = wrapped()
    resumed = trainer(resumed_model, rows(32), tmp_path, RememberCallback(), num_train_epochs=2)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert [len(y) for _, y in resumed.trained_on] == [8] * 4
    expect_same(resumed_model.model, model.model)
    expect_same(resumed_model.model, trained_by_hand([[batch] for batch in whole.trained_on]))


def test_a_model_of_ones_own_is_taken_apart_by_unpack(tmp_path):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.memory = fresh_model()

        def forward(self, pixel_values, labels, place):
            logits = self.memory(pixel_values)
            return nn.functional.cross_entropy(logits, labels), logits

    model = Own()
    callback = RememberCallback(
        unpack=lambda called: (called["pixel_values"], called["labels"], called["place"])
    )
    training = trainer(model, rows(24), tmp_path, callback)
    training.train()
    expect_same(model.memory, trained_by_hand([[batch] for batch in training.trained_on]))
    state = model.memory.memory_state()
    assert torch.equal(rows(24)[1][state.ids], state.labels)


def test_labels_that_the_trainer_keeps_back_are_missed_at_once(tmp_path):
    def loss(outputs, labels, num_items_in_batch=None):
        return nn.functional.cross_entropy(outputs["logits"], labels)

    training = trainer(
        wrapped(), rows(16), tmp_path, RememberCallback(), keyword={"compute_loss_func": loss}
    )
    with pytest.raises(
        UserError, match=r"labels must reach .* called with pixel_values; label smoo"
    ):
        training.train()


def test_a_loss_of_ones_own_belongs_into_the_wrapper(tmp_path):
    smooth = nn.CrossEntropyLoss(label_smoothing=0.3)
    model, x, y = wrapped(loss=smooth), *rows(5)
    output = model(pixel_values=x, labels=y)
    torch.testing.assert_close(output["loss"], smooth(output["logits"], y))
    assert set(model(pixel_values=x)) == {"logits"}


def test_the_contrastive_loss_of_the_model_is_added_in_training():
    config = replace(fresh_model().config, contrastive=0.5)
    model = ForTrainer(
        HMA(fresh_model().backbone, 3, config), inputs=lambda batch: batch["pixel_values"]
    )
    x, y = rows(5)
    for training in (True, False):
        output = model.train(training)(pixel_values=x, labels=y)
        expected = nn.functional.cross_entropy(output["logits"], y)
        if training:
            contrast = model.model.contrast(model.model.backbone(x), y)
            expected = expected + 0.5 * contrast.mean()
        torch.testing.assert_close(output["loss"], expected)


def test_a_compute_loss_that_never_calls_the_model_is_an_error(tmp_path):
    class Around(Recording):
        def compute_loss(self, model, inputs, *rest, **options):
            logits = model.model(inputs["pixel_values"])
            return nn.functional.cross_entropy(logits, inputs["labels"])

    training = trainer(wrapped(), rows(16), tmp_path, RememberCallback(), kind=Around)
    with pytest.raises(UserError, match="was not called in training mode during this step"):
        training.train()


def test_a_trainer_without_a_memory_is_told_so(tmp_path):
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, pixel_values, labels):
            return (nn.functional.cross_entropy(self.layer(pixel_values), labels),)

    with pytest.raises(UserError, match=r"Plain holds no memory of hma; pass Remember.*\(model="):
        trainer(Plain(), rows(16), tmp_path, RememberCallback()).train()


def test_predictions_of_the_trainer_are_the_models(tmp_path):
    model = wrapped()
    training = trainer(model, rows(16), tmp_path, RememberCallback())
    training.train()
    predicted = training.predict(Rows(rows(9)))
    model.eval()
    with torch.no_grad():
        expected = torch.cat([model.model(x) for x, _ in in_batches(rows(9), 8)])
    torch.testing.assert_close(torch.tensor(predicted.predictions), expected)
    assert predicted.label_ids.tolist() == rows(9)[1].tolist()

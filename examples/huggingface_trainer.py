"""The Hugging Face Trainer and a small vision Transformer with a memory, on 8x8 digits."""

from tempfile import TemporaryDirectory

import torch
from torch.utils.data import Dataset

import hma
from hma.adapters.transformers import ForTrainer, RememberCallback
from hma.backbones import TransformerFeatures
from hma.data.sets.digits import digits

from transformers import (  # isort: skip
    PrinterCallback,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTModel,
    set_seed,
)


class Images(Dataset):
    def __init__(self, split):
        self.split = split

    def __len__(self):
        return len(self.split)

    def __getitem__(self, place):
        return {"pixel_values": self.split.x[place], "label": self.split.labels[place]}


def accuracy(predicted):
    return {"accuracy": (predicted.predictions.argmax(axis=1) == predicted.label_ids).mean()}


set_seed(0)
task = digits(seed=0)
encoder = ViTModel(
    ViTConfig(
        image_size=8,
        patch_size=2,
        num_channels=1,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
    ),
    add_pooling_layer=False,
)
model = hma.VotingMemory(TransformerFeatures(encoder), num_classes=10)

with TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        num_train_epochs=7,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=360,
        learning_rate=2e-3,
        save_strategy="no",
        logging_strategy="no",
        eval_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    trainer = Trainer(
        ForTrainer(model),
        arguments,
        train_dataset=Images(task.train),
        eval_dataset=Images(task.validation),  # decides what the memory counts
        compute_metrics=accuracy,
        callbacks=[RememberCallback()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    scores = trainer.evaluate(Images(task.tests["test"]))
    print(f"test accuracy {scores['eval_accuracy']:.3f}")

"""Two processes that train together come to what one process comes to."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from training_cases import (
    EVERYTHING,
    MEMORY,
    Noisy,
    Plain,
    memory_learner,
    plain_learner,
    quietly,
    rows,
    small_task,
)

from hma.backbones.frozen import Frozen
from hma.data import InMemory
from hma.extras import fabric_module
from hma.methods.simple import neighbours
from hma.training import Interrupted, Record, fabric_for
from hma.training.devices import data_parallel
from hma.vote.config import VoteConfig

RECIPE = replace(EVERYTHING, epochs=3, patience=None, optimizer="sgd", lr=0.1, eval_batch_size=8)
"""Not Adam, which makes steps of the same size out of gradients that are zero but for rounding."""
STILL = replace(MEMORY, dropout=0.0)
STARTED = {
    "started": replace(STILL, slot_init="distilled", contrastive=0.3),
    "voting": VoteConfig(
        key_dim=4, key_dropout=0.0, candidates=None, slots_per_class=2, slot_init="kmeans"
    ),
}
"""Memories whose slots start from rows, the first with a contrastive loss."""
SHIFTS = {"vote.norm.bias", "vote.to_keys.bias"}
"""Move all keys alike and no distance, so that they follow rounding alone."""


def weighted_task():
    """Rows with weights of their own, in a number that no batch and no process divides."""
    train = rows(93, seed=1)
    weight = torch.linspace(0.1, 3.0, 93)
    return small_task(train=InMemory(train.x, train.labels, weight=weight))


def case_of(name):
    """Return task, learner and recipe of a case; each process makes its own."""
    task = weighted_task() if name == "weights" else small_task()
    if name in ("memory", "weights", "stopped"):
        return task, memory_learner(task, config=STILL, backbone=Plain), RECIPE
    if name == "frozen":
        return task, memory_learner(task, config=STILL, backbone=lambda w: Frozen(Plain(w))), RECIPE
    if name in STARTED:
        config = STARTED[name]
        return task, memory_learner(task, config=config, backbone=Plain), RECIPE
    if name == "at once":
        return task, neighbours()(task, 0), replace(RECIPE, balance="none")
    if name == "plain":
        return task, plain_learner(task), replace(RECIPE, balance="none")
    noisy = memory_learner(task, backbone=Noisy)
    return task, noisy, replace(RECIPE, selection="last", optimizer="adamw", lr=0.003)


def train_together(folder, processes, case):
    """Run in a process of its own: train a case, every rank leaving its weights and its scores."""
    strategy = data_parallel(start_method="fork")
    fabric = fabric_module().Fabric(accelerator="cpu", devices=processes, strategy=strategy)
    fabric.launch(_train_rank, folder, case)


def _train_rank(fabric, folder, case):
    torch.set_num_threads(1)
    task, learner, recipe = case_of(case)
    rank = fabric.global_rank
    if case == "stopped" and not (folder / "stopped once").exists():
        inner, steps = learner.loss, []

        def asking_to_stop(batch):
            steps.append(1)
            if len(steps) == 4 and rank == 1:
                os.kill(os.getpid(), signal.SIGINT)
            return inner(batch)

        learner.loss = asking_to_stop
        try:
            quietly(learner, task, recipe, folder=folder / "run", fabric=fabric)
        except Interrupted as stopped:
            (folder / f"said {rank}").write_text(str(stopped))
            fabric.barrier()
            (folder / "stopped once").touch()
        return
    record = quietly(learner, task, recipe, folder=folder / "run", fabric=fabric)
    save_file(learner.module.state_dict(), folder / f"rank {rank}.safetensors")
    (folder / f"rank {rank}.json").write_text(json.dumps(record.repeatable()))


def alone(folder, case):
    task, learner, recipe = case_of(case)
    record = quietly(learner, task, recipe, folder=folder)
    return record, learner.module.state_dict()


def together(processes, folder, case):
    processes.start("together", folder=str(folder), processes=2, case=case)
    assert processes.ended() == 0, processes.said()


def expect_ranks_agree(folder):
    first, second = (load_file(folder / f"rank {rank}.safetensors") for rank in (0, 1))
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    said = [(folder / f"rank {rank}.json").read_text() for rank in (0, 1)]
    assert said[0] == said[1]
    return first


@pytest.mark.parametrize("case", ["plain", "memory", "weights", "frozen", *STARTED, "at once"])
def test_two_processes_come_to_the_weights_and_scores_of_one(processes, tmp_path, case):
    expected, weights = alone(tmp_path / "alone", case)
    together(processes, tmp_path, case)
    found = expect_ranks_agree(tmp_path)
    for name in weights.keys() - SHIFTS:
        torch.testing.assert_close(found[name], weights[name], rtol=2e-3, atol=2e-4, msg=name)
    record = Record.read(tmp_path / "run" / "record.json")
    for mine, one in zip(record.epochs, expected.epochs, strict=True):
        assert mine["train_loss"] == pytest.approx(one["train_loss"], rel=1e-3, nan_ok=True)
    for context, scores in expected.tests["near"].items():
        assert record.tests["near"][context]["nll"] == pytest.approx(scores["nll"], rel=1e-3)


def test_with_dropout_and_batch_statistics_the_processes_still_agree(processes, tmp_path):
    together(processes, tmp_path, "noisy")
    found = expect_ranks_agree(tmp_path)
    assert found["backbone.layers.1.num_batches_tracked"] == 18


def test_a_signal_to_one_process_stops_both_and_both_go_on(processes, tmp_path):
    expected, weights = alone(tmp_path / "alone", "stopped")
    together(processes, tmp_path, "stopped")
    said = [(tmp_path / f"said {rank}").read_text() for rank in (0, 1)]
    assert said[0] == said[1]
    assert said[0].startswith("stopped by Ctrl-C after step 6 of 18; start the same run again")
    together(processes, tmp_path, "stopped")
    found = expect_ranks_agree(tmp_path)
    for name, value in weights.items():
        torch.testing.assert_close(found[name], value, rtol=2e-3, atol=2e-4, msg=name)
    assert len(Record.read(tmp_path / "run" / "record.json").epochs) == len(expected.epochs)


@pytest.mark.slow
def test_a_program_is_started_again_for_each_further_device(tmp_path):
    network = {"GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"}
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, __file__, str(tmp_path)],
        env=os.environ | network | {"PYTHONPATH": paths},
        check=True,
        timeout=300,
    )
    found = expect_ranks_agree(tmp_path)
    _, weights = alone(tmp_path / "alone", "memory")
    for name, value in weights.items():
        torch.testing.assert_close(found[name], value, rtol=2e-3, atol=2e-4, msg=name)


if __name__ == "__main__":
    _train_rank(fabric_for(RECIPE, accelerator="cpu", devices=2), Path(sys.argv[1]), "memory")

"""Two processes behave as one that holds both halves of every batch."""

import subprocess
import sys
from collections import deque
from pathlib import Path

import distributed_worker as worker
import pytest
import torch

from benchmarks.messages import messages
from benchmarks.shapes import Shape

ABLATIONS = worker.ABLATIONS


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What two processes, started once, returned for each case; by case, then by rank."""
    folder = tmp_path_factory.mktemp("ranks")
    program = [sys.executable, "-W", "error", str(Path(worker.__file__))]
    processes = [
        subprocess.Popen(
            [*program, str(rank), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(worker.RANKS)
    ]
    try:
        outputs = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, (done, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, f"after {done.split()}: {errors}"
    return {
        case: [torch.load(folder / f"{case}-{rank}.pt") for rank in range(worker.RANKS)]
        for case in worker.CASES
    }


def assert_close_state(left, right, *, names=None):
    assert left.keys() == right.keys()
    compared = [name for name in left if names is None or names(name)]
    assert compared
    for name in compared:
        torch.testing.assert_close(  # of integers exactly, of float64 to 1e-7
            left[name], right[name], msg=lambda difference, name=name: f"{name}: {difference}"
        )


# ---------------------------------------------------------------------------- rows


def test_slots_that_start_from_rows_are_those_of_the_first_rank(results):
    (slots, features), (other, _) = results["slots"]
    assert torch.equal(slots, other)
    assert torch.cdist(slots, features).min(dim=1).values.max() < 0.3, "near rows of the first"


def test_rows_of_both_ranks_enter_both_queues_in_rank_order(results):
    oracle = deque(maxlen=7)
    for step, both in enumerate(zip(*results["rows"], strict=True)):
        for rank in range(worker.RANKS):
            rows = worker.step_of_rows(rank, step)
            for place, number in enumerate(rows["ids"].tolist()):
                if rows["ignore"] is None or not rows["ignore"][place]:
                    oracle.append(number)
        for features, labels, ids in both:
            assert ids.tolist() == list(oracle), f"step {step}"
            assert labels.tolist() == [number % worker.CLASSES for number in oracle]
            assert features[:, 0].tolist() == list(oracle)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_gathered_rows_carry_the_gradient_of_every_rank_back_to_their_own(results, dim):
    parts = [worker.own_tensor(rank, dim).requires_grad_() for rank in range(worker.RANKS)]
    together = torch.cat(parts, dim=dim)
    sum(worker.loss_of(rank, together) for rank in range(worker.RANKS)).backward()
    for rank, part in enumerate(parts):
        gathered, gradient = results["gradients"][rank][dim]
        assert torch.equal(gathered, together)
        torch.testing.assert_close(gradient, part.grad)


# ------------------------------------------------------------------------ training


@pytest.mark.parametrize("row", ABLATIONS)
def test_two_ranks_on_halves_end_where_one_process_on_whole_batches_ends(results, row):
    alone = worker.build(row)
    start = {name: value.clone() for name, value in alone.state_dict().items()}
    worker.train(alone)
    for state, _ in results[f"train {row}"]:
        assert_close_state(state, alone.state_dict())
    moved = {name for name, value in alone.state_dict().items() if not value.equal(start[name])}
    assert {"backbone.0.weight", "head.weight"} <= moved
    if "queue_size" in worker.SIZES[row]:
        assert {"real.queue.ids", "momentum_encoder.encoder.0.weight"} <= moved


def test_without_gathering_the_batch_both_ranks_still_hold_the_same_queue_and_weights(results):
    (first, _), (second, _) = results["train apart"]
    assert_close_state(first, second)
    together = results["train hma"][0][0]
    assert torch.equal(first["real.queue.ids"], together["real.queue.ids"])
    assert not torch.allclose(first["head.weight"], together["head.weight"])


def test_ranks_agree_on_the_batches_that_are_read_without_neighbours(results):
    alone = worker.build("hma", **worker.SOMETIMES_ALONE)
    torch.manual_seed(0)
    worker.train(alone)
    for state in results["train sometimes alone"]:
        assert_close_state(state, alone.state_dict())
    assert int(alone.state_dict()["momentum_encoder.steps"]) == worker.STEPS


# ------------------------------------------------------- DistributedDataParallel itself


@pytest.mark.parametrize("row", ABLATIONS)
def test_every_parameter_outside_the_momentum_encoder_gets_a_gradient_on_every_rank(results, row):
    model = worker.build(row)
    learns = {name for name, _ in model.named_parameters() if "momentum_encoder" not in name}
    if row == "vote":  # its keys and slots learn when training is over
        learns = {name for name in learns if name.startswith(("backbone.", "head."))}
    for _, reached in results[f"train {row}"]:
        assert reached == learns


@pytest.mark.parametrize("row", ABLATIONS)
def test_ranks_built_from_different_seeds_end_with_the_same_weights_and_memory(results, row):
    (first, _), (second, _) = results[f"other seeds {row}"]

    def shared(name):  # BatchNorm's statistics are each rank's own between two forward passes
        return "running_" not in name

    assert_close_state(first, second, names=shared)
    slow = {name for name in first if name.startswith("momentum_encoder.")}
    assert bool(slow) == ("queue_size" in worker.SIZES[row])


# ----------------------------------------------------------------------- what is sent


@pytest.mark.parametrize("design", worker.COUNTED)
def test_a_step_hands_over_the_messages_of_the_formulas(results, design):
    model = worker.counted_model(design)
    shape = Shape(
        batch=worker.BATCH // worker.RANKS,
        features=worker.WIDTH,
        label=4,
        classes=worker.CLASSES,
        queue=16,
        slots_per_class=2,
    )
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    told = messages(design, shape, worker.RANKS, trained, number=8)
    wanted = sorted((one.collective, one.size) for one in told)
    for found, later in results[f"messages {design}"]:
        assert sorted(found) == wanted
        assert later == [], "each process learns the memory by itself"

"""Several seeds: a whole run for each, continued after a kill, never trained twice, compared."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from hma.errors import UserError
from hma.runs import MEMORY, PLAIN, Run, RunOptions, SeveralRuns, train, train_seeds
from hma.runs.kept_answers import answers_of
from hma.runs.living import LivingMemory
from hma.runs.seeds import is_several
from hma.runs.source import prepared_from
from hma.training import Recipe
from hma.training.progress import SilentProgress
from hma.vote.config import VoteConfig

SMALL = VoteConfig(memory_size=8, slots_per_class=1)
HOW = {"accelerator": "cpu", "pages": False}


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    draw = np.random.default_rng(0)
    y = draw.integers(2, size=60)
    path = tmp_path_factory.mktemp("rows") / "rows.npz"
    np.savez(path, x=draw.normal(size=(60, 3)) + y[:, None], y=y)
    recipe = Recipe(epochs=2, batch_size=16)
    return RunOptions(source=str(path), backbone="mlp", config=SMALL, recipe=recipe)


@pytest.fixture(scope="module")
def finished(options, tmp_path_factory):
    return train_seeds(options, tmp_path_factory.mktemp("several"), 2, **HOW).folder


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copy")


def content(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_each_seed_is_the_run_that_it_is_alone(options, finished, tmp_path):
    alone = train(replace(options, seed=1), tmp_path / "alone", accelerator="cpu")
    found = SeveralRuns.open(finished).run(1)
    for which in (PLAIN, MEMORY):
        assert found.record(which).repeatable() == alone.record(which).repeatable()
    assert found.places == alone.places
    assert found.places != SeveralRuns.open(finished).run(0).places, "each seed has its own splits"


def test_a_finished_seed_is_not_trained_again_and_a_larger_number_adds_the_missing(options, copy):
    before, said = content(copy), []
    found = train_seeds(options, copy, 3, say=said.append, **HOW)
    assert list(found.runs) == [0, 1, 2]
    after = content(copy)
    assert {name: after[name] for name in before} == before
    done = [line for line in said if "is done" in line]
    assert [line.partition(":")[0] for line in done] == [f"seed {i} is done" for i in range(3)]
    assert not any(line.startswith(("seed 0: ", "seed 1: ")) for line in said)


class Killed(BaseException):
    """As a kill: nothing in the library catches it."""


@pytest.mark.parametrize("during", [1, 3, 6])
def test_the_same_call_goes_on_after_a_kill(options, finished, tmp_path, during):
    folder, begun = tmp_path / "run", 0

    class Kills(SilentProgress):
        def begin(self, title, total, done=0):
            nonlocal begun
            begun += 1  # a training, or asking the candidates

        def update(self, done, note=""):
            if begun == during:
                raise Killed

    with pytest.raises(Killed):
        train_seeds(options, folder, 2, progress=Kills(), **HOW)
    ended = train_seeds(options, folder, 2, **HOW)
    for seed, expected in SeveralRuns.open(finished).runs.items():
        found = ended.run(seed)
        for which in (PLAIN, MEMORY):
            assert found.record(which).repeatable() == expected.record(which).repeatable()
        said, wanted = answers_of(found), answers_of(expected)
        for test, asked in wanted.items():
            for candidate, logits in asked.own.items():
                assert (said[test].own[candidate] == logits).all()


def test_other_options_are_refused_and_named(options, copy):
    before = content(copy)
    other = replace(options, recipe=replace(options.recipe, lr=0.5))
    with pytest.raises(
        UserError, match=r"holds a run with other options: recipe\.lr was .* is 0.5"
    ):
        train_seeds(other, copy, 2, **HOW)
    with pytest.raises(UserError, match="seed was 0, is 4 now"):
        train_seeds(replace(options, seed=4), copy, 2, **HOW)
    assert content(copy) == before


def test_one_run_and_several_do_not_take_each_others_folders(options, copy, tmp_path):
    with pytest.raises(UserError, match=r"holds several runs; give one of them, such as .*seed-0"):
        train(options, copy, accelerator="cpu")
    with pytest.raises(UserError, match="holds several runs"):
        Run.open(copy)
    with pytest.raises(UserError, match="holds a single run; give another folder"):
        train_seeds(options, copy / "seed-0", 2, **HOW)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").touch()
    with pytest.raises(UserError, match="is not empty and is not a run"):
        train_seeds(options, tmp_path / "notes", 2, **HOW)
    assert is_several(copy)
    assert not is_several(copy / "seed-0")
    assert not is_several(tmp_path)


def test_rows_that_changed_stop_the_missing_seeds(options, copy, tmp_path):
    kept = shutil.copy(options.source, tmp_path / "kept.npz")
    before = content(copy)
    draw = np.random.default_rng(1)
    try:
        np.savez(options.source, x=draw.normal(size=(60, 3)), y=draw.integers(2, size=60))
        with pytest.raises(UserError, match="has changed since"):
            train_seeds(options, copy, 3, **HOW)
        assert content(copy) == before
        train_seeds(options, copy, 2, **HOW)  # nothing is missing, so nothing is opened
    finally:
        shutil.copy(kept, options.source)


def test_a_seed_with_other_options_is_not_compared_with_the_rest(options, copy):
    other = replace(options, seed=5, recipe=replace(options.recipe, lr=0.5))
    train(other, copy / "seed-5", accelerator="cpu")
    with pytest.raises(UserError, match=r"seed-5 holds a run with other options than .*seed-0"):
        SeveralRuns.open(copy)


def test_a_seed_that_did_not_finish_is_said_and_not_counted(options, copy):
    (copy / "seed-2").mkdir()
    replace(options, seed=2).write(copy / "seed-2" / "run.json")
    found = SeveralRuns.open(copy)
    assert found.unfinished == (2,)
    report = found.report()
    assert report.seeds == (0, 1)
    assert report.notes == ("Not finished, and not counted here: seed 2.",)


def test_a_folder_without_a_finished_seed_says_so(options, tmp_path):
    options.write(tmp_path / "run.json", several=True)
    with pytest.raises(UserError, match=r"no run in .* has finished; run its hma train command"):
        SeveralRuns.open(tmp_path)


def test_a_seed_that_is_not_there_is_named(finished):
    with pytest.raises(UserError, match=r"--seed must be one of 0, 1 for .*, got 7"):
        SeveralRuns.open(finished).run(7)


def test_seeds_share_no_device_with_others(options, tmp_path):
    with pytest.raises(UserError, match="--seeds trains on one device"):
        train_seeds(options, tmp_path / "run", 2, devices=2, **HOW)
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------------------ its answers


def test_scores_over_seeds_are_those_of_the_records(finished):
    found = SeveralRuns.open(finished)
    (trial,) = found.report().tests
    for which, name in ((PLAIN, "plain backbone"), (MEMORY, "memory")):
        for seed, run in found.runs.items():
            recorded = run.record(which).tests["test"]["alone"]
            for metric, values in trial.result(name).by_seed.items():
                assert values[seed] == pytest.approx(recorded[metric], abs=1e-6)
    assert trial.seed_rows == (12, 12)
    assert not trial.same_rows


def test_what_was_deployed_answers_as_prediction_does(finished):
    run = SeveralRuns.open(finished).run(1)
    deployed = answers_of(run)["test"].own["deployed"]
    split = prepared_from(run.options).task.tests["test"]
    with torch.no_grad():
        expected = run.learner(run.deployed.which).predict(split.batch(torch.arange(12)))
    torch.testing.assert_close(deployed.softmax(dim=1), expected.softmax(dim=1))


def test_kept_answers_that_are_damaged_are_made_again(copy):
    run = SeveralRuns.open(copy).run(0)
    (path,) = run.folder.glob("answers-*.safetensors")
    before = answers_of(run)
    damaged = path.read_bytes()[:-3] + b"xyz"
    path.unlink()  # what was read is still mapped
    path.write_bytes(damaged)
    with pytest.warns(UserWarning, match="does not match its hash; its answers are made again"):
        again = answers_of(run)
    for candidate, logits in before["test"].own.items():
        torch.testing.assert_close(again["test"].own[candidate], logits)  # solved for again
    answers_of(run)  # without a warning: the file is whole


def test_rows_that_come_in_splits_are_the_same_for_every_seed(options, tmp_path):
    given = replace(options, test=options.source)
    found = train_seeds(given, tmp_path / "run", 2, **HOW)
    assert found.report().tests[0].same_rows


def test_a_seed_whose_memory_was_taught_its_test_rows_is_not_counted(options, copy, tmp_path):
    rows = np.load(options.source)

    def teach(seed):
        run = SeveralRuns.open(copy).run(seed)
        tested = run.places["test"]
        np.savez(tmp_path / "test.npz", x=rows["x"][tested], y=rows["y"][tested])
        LivingMemory.open(run).remember(str(tmp_path / "test.npz"), yes=True)

    teach(1)
    report = SeveralRuns.open(copy).report()
    assert report.seeds == (0,)
    assert report.notes == ("Not counted here: seed 1, whose memory was taught 12 test rows.",)
    teach(0)
    with pytest.raises(UserError, match=r"the memory of every seed in .* was taught its test rows"):
        SeveralRuns.open(copy).report()
    said = []
    train_seeds(options, copy, 2, say=said.append, **HOW)
    assert "seed 1 is done: not scored, as the memory was taught 12 test rows" in said

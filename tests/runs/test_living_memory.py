"""A run's memory taught, made to forget and brought back, against models built by hand."""

import os
import random
import shutil
import signal
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

import hma
from hma.attention.config import HMAConfig
from hma.data import open_source
from hma.errors import UserError
from hma.memory.rows import MemoryRows
from hma.runs import MEMORY, Run, RunOptions, train
from hma.runs.answers import evaluate, predict
from hma.runs.explanation import explain_row
from hma.runs.kept_answers import candidate_answers
from hma.runs.living import LivingMemory
from hma.runs.memory_scores import left_out_logits
from hma.runs.memory_search import search, write_rows
from hma.runs.memory_versions import CURRENT, Living
from hma.runs.source import prepared_from, rows_for
from hma.training import Recipe, SilentProgress, all_logits

CORNERS = 4 * np.eye(4)


def table(kinds, seed):
    """Rows around a corner for each kind, with a town that the labels know nothing of."""
    draw = np.random.default_rng(seed)
    frame = pandas.DataFrame(CORNERS[kinds] + draw.normal(size=(len(kinds), 4)), columns=[*"abcd"])
    towns = ["Oslo" if place % 4 else "Rome" for place in range(len(kinds))]
    return frame.round(3).assign(town=towns, kind=[f"k{kind}" for kind in kinds])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of three classes, and five rows of a fourth."""
    folder = tmp_path_factory.mktemp("living")
    table(np.arange(90) % 3, 0).to_csv(folder / "rows.csv", index=False)
    table(np.full(5, 3), 1).to_csv(folder / "new.csv", index=False)
    table(np.arange(6) % 3, 2).to_csv(folder / "old.csv", index=False)
    options = RunOptions(
        source=str(folder / "rows.csv"),
        target=("kind",),
        recipe=Recipe(epochs=2, batch_size=16),
    )
    train(options, folder / "run", progress=SilentProgress())
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    shutil.copytree(trained / "run", tmp_path / "run")
    for name in ("new.csv", "old.csv"):
        shutil.copy(trained / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def memory(folder):
    return LivingMemory.open(folder / "run")


def stored(run):
    return run.learner(MEMORY).model.real.queue.rows()


def asked(run, source, which=None):
    """Probabilities of the rows of a source."""
    rows = rows_for(run, str(source), labelled=False)
    learner = run.learner(which or run.deployed.which)
    split = run.preparation.split(rows)
    with torch.no_grad():
        logits = learner.predict(split.batch(torch.arange(len(split))))
    return run.preparation.target.expected(logits)


def test_taught_rows_are_stored_with_new_ids_and_a_new_class_is_answered(memory, folder):
    before = stored(memory.run)
    version = memory.remember(str(folder / "new.csv"), new_classes=True, note="a fourth")
    assert (version.number, version.parent, version.added, version.classes) == (1, 0, 5, ("k3",))
    held = stored(memory.run)
    assert torch.equal(held.features[:-5], before.features)
    assert held.ids.tolist() == [*before.ids.tolist(), *range(len(before.ids), len(before.ids) + 5)]
    assert held.labels[-5:].tolist() == [3] * 5
    backbone = memory.run.learner(MEMORY).model.backbone
    split = memory.run.preparation.split(
        rows_for(memory.run, str(folder / "new.csv"), labelled=True)
    )
    with torch.no_grad():
        made = backbone(split.batch(torch.arange(5)).x)
    torch.testing.assert_close(held.features[-5:], made)
    rows = memory.rows()
    assert [(row.label, row.where) for row in rows[-5:]] == [("k3", "new.csv")] * 5
    assert rows[0].where == "training"
    assert rows[-1].what.startswith("row 4: a=")


def test_every_candidate_gives_an_added_class_the_probability_of_the_vote(memory, folder):
    known = asked(memory.run, folder / "old.csv")
    memory.remember(str(folder / "new.csv"), new_classes=True)
    for source in ("old.csv", "new.csv"):
        of_memory = asked(memory.run, folder / source, MEMORY)
        for which in memory.run.answering:
            said = asked(memory.run, folder / source, which)
            assert said.shape[1] == 4
            torch.testing.assert_close(said[:, 3], of_memory[:, 3])
            torch.testing.assert_close(said.sum(dim=1), torch.ones(len(said)))
    now = asked(memory.run, folder / "old.csv")
    left = 1 - now[:, 3:]
    plain = asked(memory.run, folder / "old.csv", "plain")
    trained = asked(replace(memory.run, held=None), folder / "old.csv", "plain")
    torch.testing.assert_close(plain, trained)
    version_0 = LivingMemory.open(folder / "run")
    version_0.restore(0)
    torch.testing.assert_close(asked(version_0.run, folder / "old.csv"), known, rtol=0, atol=0)
    torch.testing.assert_close(
        plain[:, :3], left * asked(version_0.run, folder / "old.csv", "plain")
    )


def test_predict_evaluate_and_explain_answer_with_the_version_in_use(memory, folder, tmp_path):
    memory.remember(str(folder / "new.csv"), new_classes=True)
    run = Run.open(folder / "run")
    rows = rows_for(run, str(folder / "new.csv"), labelled=False)
    list(predict(run, rows, tmp_path / "said.csv"))
    said = pandas.read_csv(tmp_path / "said.csv")
    assert "probability of k3" in said
    assert set(said["label"]) == {"k3"}
    labelled = rows_for(run, str(folder / "new.csv"), labelled=True)
    assert evaluate(run, labelled)["mixture"]["alone"]["accuracy"] == 1.0
    found = explain_row(run, rows, 2, top=3, context="alone")
    assert found.answer.startswith("k3")
    taught = [effect for effect in found.effects if effect.part == "taught row"]
    row = run.preparation.split(rows).batch(torch.tensor([2])).x
    shares = hma.explain(run.learner(MEMORY).model, row)
    of_taught = shares.exact.queue(0)[:, 3] * (shares.queue_ids >= run.learned_rows)
    strongest = int(shares.queue_ids[of_taught.abs().argmax()]) - run.learned_rows
    assert taught[0].description == rows.describe(strongest)
    assert found.near[0].description == rows.describe(2)


def test_forgetting_equals_a_memory_that_never_had_the_rows_to_the_last_bit(memory, folder):
    model = memory.run.learner(MEMORY).model
    queue = model.real.queue
    held = queue.rows()
    gone = held.ids[::3]
    stay = ~torch.isin(held.ids, gone)
    queue.clear()  # the same keys, which are weights, and the other rows alone
    queue.write(MemoryRows(held.features[stay], held.labels[stay], held.ids[stay]))
    queue.trim()
    memory.forget(ids=gone.tolist())
    forgotten = memory.run.learner(MEMORY).model
    rows = rows_for(memory.run, str(folder / "old.csv"), labelled=False)
    split = memory.run.preparation.split(rows)
    x = split.batch(torch.arange(len(split))).x
    with torch.no_grad():
        assert torch.equal(forgotten(x), model(x))
    restored = stored(replace(memory.run, held=None))
    assert torch.equal(restored.ids, held.ids[stay])


def test_rows_that_were_taught_and_forgotten_leave_nothing_behind(memory, folder):
    before = asked(memory.run, folder / "old.csv")
    version = memory.remember(str(folder / "old.csv"))
    taught = [row.id for row in memory.rows()[-6:]]
    changed = asked(memory.run, folder / "old.csv")
    assert not torch.equal(changed, before)
    version = memory.forget(ids=taught)
    assert "nothing, since no weight" in version.remains
    assert torch.equal(asked(memory.run, folder / "old.csv"), before)
    version = memory.forget(ids=[0])
    for said in ("the backbone", "its head", "nearest neighbours", "train again"):
        assert said in version.remains


def test_a_condition_chooses_the_rows_that_pandas_chooses(memory, folder, trained):
    frame = pandas.read_csv(trained / "rows.csv")
    places = memory.run.places["train"] + memory.run.places["validation"]  # all are stored
    meant = frame.iloc[places].query("town == 'Rome' and a > 1.5").index.tolist()
    memory.remember(str(folder / "old.csv"))
    also = pandas.read_csv(folder / "old.csv").query("town == 'Rome' and a > 1.5")
    version = memory.forget(where="town == Rome and a > 1.5")
    gone = {places.index(place) for place in meant}
    assert version.forgotten == len(gone) + len(also)
    assert not gone & {row.id for row in memory.rows()}


def test_scores_before_and_after_are_those_of_the_two_memories(memory, folder):
    version = memory.remember(str(folder / "new.csv"), new_classes=True)
    validation, new = version.scores
    task = prepared_from(memory.run.options).task
    assert (validation.rows, validation.count) == ("validation rows", len(task.validation))
    split = task.validation.batch(torch.arange(len(task.validation)))
    for number, value in ((0, validation.before), (1, validation.after)):
        run = replace(memory.run, held=memory.run.versions.living(number))
        run = run.before  # validation rows judge the models that had not seen them
        with torch.no_grad():
            said = run.learner(run.deployed.which).predict(split)
        assert value == pytest.approx((said.argmax(dim=1) == split.y).double().mean().item())
    assert (new.rows, new.count, new.before) == ("taught rows of new classes", 5, None)
    assert "leave-one-out" in new.how
    right = 0
    for row in memory.rows()[-5:]:  # each asked of a memory that does not hold it
        model = memory.run.learner(MEMORY).model
        features = model.real.queue.features[model.real.queue.find(torch.tensor([row.id]))]
        model.forget(torch.tensor([row.id]))
        with torch.no_grad():
            alone = model.classify(features)
        mine = left_out_logits(memory.run.learner(MEMORY).model, torch.tensor([row.id]))
        both = mine.softmax(dim=1), alone.softmax(dim=1)  # logarithms multiply roundings
        torch.testing.assert_close(*both, rtol=0, atol=1e-4)
        right += int(alone.argmax() == 3)
    assert new.after == pytest.approx(right / 5)


def test_history_is_never_rewritten_and_any_version_can_be_restored(memory, folder):
    answers = [asked(memory.run, folder / "old.csv", MEMORY)]
    memory.remember(str(folder / "old.csv"))
    answers.append(asked(memory.run, folder / "old.csv", MEMORY))
    memory.forget(ids=[0, 1])
    answers.append(asked(memory.run, folder / "old.csv", MEMORY))
    written = {p: p.read_bytes() for p in (folder / "run/memory/versions").glob("[12]/*.*")}
    for number in (1, 0, 2):
        version = memory.restore(number)
        assert (version.verb, version.restored) == ("restore", number)
        assert torch.equal(asked(memory.run, folder / "old.csv", MEMORY), answers[number])
    assert [one.verb for one in memory.history()] == ["remember", "forget", *["restore"] * 3]
    assert {p: p.read_bytes() for p in written} == written
    version = memory.remember(str(folder / "new.csv"), new_classes=True)
    ids = [row.id for row in memory.rows()]
    assert len(set(ids)) == len(ids)  # never one that an earlier row had
    assert version.next_id == max(ids) + 1


def test_the_memory_is_searched_by_class_nearness_and_what_decides(memory, folder, tmp_path):
    rows = rows_for(memory.run, str(folder / "old.csv"), labelled=False)
    model = memory.run.learner(MEMORY).model
    state = model.memory_state()
    found = search(memory, label="k1", like=(rows, 2), top=4)
    x = memory.run.preparation.split(rows).batch(torch.tensor([2])).x
    with torch.no_grad():
        keys, own = model.vote.keys(state.features), model.vote.keys(model.backbone(x))
    apart = torch.tensor([float((key - own[0]).norm()) for key in keys])
    apart[state.labels != 1] = torch.inf
    assert [row.id for row in found.rows] == state.ids[apart.argsort()[:4]].tolist()
    assert found.values == pytest.approx(apart.sort().values[:4].tolist(), rel=1e-4)
    found = search(memory, deciding=True)
    tests = prepared_from(memory.run.options).task.tests["test"]
    shares = hma.explain(model, tests.batch(torch.arange(len(tests))).x).queue.double()
    mean = (shares / shares.sum(dim=1, keepdim=True)).mean(dim=0)
    best = mean.argsort(descending=True, stable=True)
    assert [row.id for row in found.rows][:5] == state.ids[best[:5]].tolist()
    assert sum(found.values) == pytest.approx(1.0)
    write_rows(found, tmp_path / "rows.csv")
    written = pandas.read_csv(tmp_path / "rows.csv")
    assert list(written) == ["id", "label", "share of the vote", "what", "where"]
    assert written["id"].tolist() == [row.id for row in found.rows]


# ---------------------------------------------------------------------------- bad input


def test_rows_that_are_held_already_are_not_stored_twice(memory, folder):
    memory.remember(str(folder / "old.csv"))
    with pytest.raises(UserError, match=r"holds all 6 rows of .*old.csv already; nothing was"):
        memory.remember(str(folder / "old.csv"))
    both = pandas.concat([table(np.arange(6) % 3, 2), table(np.arange(2), 7)])
    both.to_csv(folder / "both.csv", index=False)
    told = []
    memory.say = told.append
    assert memory.remember(str(folder / "both.csv")).added == 2
    assert told == ["left out 6 rows that the memory holds already"]


@pytest.mark.parametrize(
    ("asked_for", "said"),
    [
        ({"ids": [2, 999]}, r"--ids names 999, which the memory does not hold; hma memory"),
        ({"label": "k7"}, r"--class must be one of 'k0', 'k1', 'k2', got 'k7'"),
        ({"label": "k1"}, r"last row of 'k1' out of the memory of .*; pass --yes"),
        ({"where": "a > -100"}, r"all \d+ rows out of the memory .*; pass --yes"),
        ({"where": "age == 3"}, r"--where names the column 'age', which .* it has 'a', 'b'"),
        ({"where": "a = 3"}, r"--where must be COLUMN == VALUE"),
        ({"where": "__import__('os')"}, r"--where must be COLUMN == VALUE"),
        ({"where": "a > 1000"}, r"no row of the memory is meant by a > 1000"),
        ({}, r"give one of --ids, --where and --class"),
        ({"ids": [1], "label": "k0"}, r"give one of --ids, --where and --class"),
    ],
)
def test_what_cannot_be_forgotten_is_said_and_nothing_changes(memory, asked_for, said):
    with pytest.raises(UserError, match=said):
        memory.forget(**asked_for)
    assert memory.history() == []


def test_forgetting_a_class_or_everything_is_done_when_it_is_meant(memory, folder):
    memory.forget(label="k1", yes=True)
    assert {row.label for row in memory.rows()} == {"k0", "k2"}
    memory.forget(where="a > -100", yes=True)
    assert memory.rows() == []
    model = memory.run.learner(MEMORY).model
    rows = rows_for(memory.run, str(folder / "old.csv"), labelled=False)
    x = memory.run.preparation.split(rows).batch(torch.arange(6)).x
    with torch.no_grad():
        headed = model.head_logits(model.backbone(x)).softmax(dim=1)
    torch.testing.assert_close(asked(memory.run, folder / "old.csv", MEMORY), headed)
    assert explain_row(memory.run, rows, 0, top=3, context="alone").near == ()


def test_rows_that_do_not_fit_are_refused_by_name(memory, folder):
    with pytest.raises(UserError, match=r"holds 'k3' in 5 of 5 rows, .* pass --new-classes"):
        memory.remember(str(folder / "new.csv"))
    table([0, 1], 3).drop(columns=["b", "town"]).to_csv(folder / "few.csv", index=False)
    with pytest.raises(UserError, match=r"few.csv has other columns .* lacks 'b', 'town'"):
        memory.remember(str(folder / "few.csv"))
    (folder / "rows.jsonl").write_text('{"text": "a", "label": "k0"}\n')
    with pytest.raises(UserError, match=r"kind 'text', but the model was prepared for 'table'"):
        memory.remember(open_source(folder / "rows.jsonl"))
    with pytest.raises(UserError, match=r"no version 4 .*; it has version 0 alone, see hma memory"):
        memory.restore(4)
    memory.forget(ids=[0])
    with pytest.raises(UserError, match=r"no version 4 .*; it has versions 0 to 1"):
        memory.restore(4)
    with pytest.raises(UserError, match="version 1 answers already"):
        memory.restore(1)


def test_the_papers_memory_says_what_is_needed(tmp_path):
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", x=draw.normal(size=(20, 3)), y=np.arange(20) % 2)
    options = RunOptions(
        source=str(tmp_path / "rows.npz"),
        config=HMAConfig(queue_size=8, slots_per_class=2, label_dim=8),
        recipe=Recipe(epochs=1, batch_size=8),
    )
    run = train(options, tmp_path / "run", compare=False, progress=SilentProgress())
    with pytest.raises(
        UserError, match=r"no memory that keeps a row for each sample.* --memory vote"
    ):
        LivingMemory.open(run).forget(ids=[0])


@pytest.mark.parametrize("name", ["version.json", "rows.json", "rows.safetensors"])
def test_a_damaged_version_is_one_line_and_an_earlier_one_can_answer(memory, folder, name):
    before = asked(memory.run, folder / "old.csv")
    memory.remember(str(folder / "old.csv"))
    path = folder / "run/memory/versions/1" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(UserError, match=rf"{name} is damaged: .* hma memory .* --restore 0"):
        _ = Run.open(folder / "run").learner(MEMORY)
    told = []
    again = LivingMemory.open(Run.open(folder / "run"), told.append)
    assert again.restore(0).number == 2
    assert len(told) == 1
    assert torch.equal(asked(again.run, folder / "old.csv"), before)


def test_a_damaged_pointer_is_written_anew_by_a_restore(memory, folder):
    memory.remember(str(folder / "old.csv"))
    after = asked(memory.run, folder / "old.csv")
    memory.forget(ids=[0])
    (folder / "run/memory" / CURRENT).write_text("{")
    with pytest.raises(UserError, match=rf"{CURRENT} is damaged: .* --restore 0"):
        _ = Run.open(folder / "run").living
    again = LivingMemory.open(Run.open(folder / "run"))
    assert again.restore(1).number == 3
    assert torch.equal(asked(again.run, folder / "old.csv"), after)
    assert [one.number for one in again.history()] == [1, 2, 3]


# ------------------------------------------------------------------- processes and kills

FORK = get_context("fork")  # what is loaded is there at once: a kill hits the work, not imports


def _change(folder, verb):
    memory = LivingMemory.open(folder / "run")
    if verb == "remember":
        memory.remember(str(folder / "old.csv"))
    else:
        memory.forget(ids=[row.id for row in memory.rows()[:3]], scored=False)


def test_two_writers_wait_for_each_other_and_both_changes_count(folder):
    before = len(stored(Run.open(folder / "run")).ids)
    writers = [FORK.Process(target=_change, args=(folder, verb)) for verb in ("remember", "forget")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    memory = LivingMemory.open(folder / "run")
    assert sorted(one.verb for one in memory.history()) == ["forget", "remember"]
    assert len(memory.rows()) == before + 6 - 3


def _killed_at_file(folder, number):
    """Change the memory, and end at once when that file would appear."""
    appeared, replace_file = 0, Path.replace

    def counting(path, target):
        nonlocal appeared
        appeared += 1
        if appeared == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace_file(path, target)

    Path.replace = counting
    _change(folder, "forget")


def test_a_version_counts_from_its_last_file_on(folder):
    before = stored(Run.open(folder / "run")).ids
    for number in range(1, 6):  # tensors, texts, the version, the pointer; then none
        writer = FORK.Process(target=_killed_at_file, args=(folder, number))
        writer.start()
        writer.join()
        run = Run.open(folder / "run")
        assert writer.exitcode == (-signal.SIGKILL if number < 5 else 0)
        assert run.versions.current()[0] == (number == 5)
        assert torch.equal(stored(run).ids, before if number < 5 else before[3:])


def test_ten_kills_leave_the_old_version_or_the_new_one(folder):
    draw = random.Random(0)
    verbs = ["remember", "forget"] * 5
    _change(folder, "remember")
    LivingMemory.open(folder / "run").restore(0)
    start = time.perf_counter()
    _change(folder, "remember")
    longest = time.perf_counter() - start
    LivingMemory.open(folder / "run").restore(0)
    for verb in verbs:
        memory = LivingMemory.open(folder / "run")
        if verb == "remember" and any(row.where == "old.csv" for row in memory.rows()):
            memory.restore(0)
        old, ids = memory.run.versions.current()[0], stored(memory.run).ids.tolist()
        writer = FORK.Process(target=_change, args=(folder, verb))
        writer.start()
        time.sleep(draw.uniform(0, 1.2 * longest))
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        run = Run.open(folder / "run")
        now, held = run.versions.current()[0], stored(run).ids.tolist()
        assert now in (old, old + 1)
        if now == old:
            assert held == ids
        else:
            assert held == (ids[3:] if verb == "forget" else [*ids, *held[-6:]])
        assert [one.number for one in LivingMemory.open(run).history()] == list(range(1, now + 1))
    _change(folder, "forget")  # what a killed writer left is in nobody's way


def test_kept_answers_are_those_of_the_version_that_answers(memory):
    before = candidate_answers(memory.run).said["test"][MEMORY]["alone"]
    memory.forget(label="k0", yes=True)
    run = memory.run
    task = prepared_from(run.options).task
    said = all_logits(run.learner(MEMORY), task.tests["test"], batch_size=256)
    now = candidate_answers(run).said["test"][MEMORY]["alone"]
    torch.testing.assert_close(now, said)
    assert not torch.allclose(now, before)
    assert torch.equal(candidate_answers(run.at(Living())).said["test"][MEMORY]["alone"], before)

"""Any sequence of changes to a memory, against a plain dict that is told the same."""

import shutil
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import hma.runs.memory_versions
from hma.errors import UserError
from hma.memory.rows import MemoryRows
from hma.runs import MEMORY, RunOptions, train
from hma.runs.living import LivingMemory
from hma.runs.memory_versions import Living
from hma.runs.source import rows_for
from hma.training import Recipe, SilentProgress
from hma.vote.added_classes import add_classes

KNOWN, NEW = ("k0", "k1", "k2"), ("n0", "n1", "n2")
POOL = 6
"""Rows that may be taught: few, so that many are taught again."""
TAUGHT = st.lists(
    st.tuples(st.integers(0, POOL - 1), st.sampled_from((*KNOWN, *NEW))), min_size=1, max_size=5
)


def table(count, seed):
    draw, kinds = np.random.default_rng(seed), np.arange(count) % 3
    frame = pandas.DataFrame(draw.normal(size=(count, 3)), columns=[*"abc"]) + kinds[:, None]
    return frame.round(4).assign(kind=[f"k{kind}" for kind in kinds])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("machine")
    table(40, 0).to_csv(folder / "rows.csv", index=False)
    table(POOL, 1).to_csv(folder / "pool.csv", index=False)
    options = RunOptions(
        source=str(folder / "rows.csv"),
        target=("kind",),
        backbone="mlp",
        recipe=Recipe(epochs=1, batch_size=16),
    )
    train(options, folder / "run", compare=False, progress=SilentProgress())
    return folder


class Changes(RuleBasedStateMachine):
    """A memory and its oracle: sample id -> what is held, in the order it came."""

    trained: Path
    folder: Path

    @initialize()
    def open(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.trained / "run", self.folder)
        self.memory = LivingMemory.open(self.folder)
        run = self.memory.run
        pool = run.preparation.split(rows_for(run, str(self.trained / "pool.csv"), labelled=False))
        self.pool = pool
        model, names = run.learner(MEMORY).model, run.preparation.classes
        self.x = pool.batch(torch.arange(POOL)).x
        with torch.no_grad():
            self.made = model.encode_for_memory(self.x)
        rows = model.real.queue.rows()
        self.features = dict(zip(rows.ids.tolist(), rows.features, strict=True))
        self.held = {
            id: (None, names[label])
            for id, label in zip(rows.ids.tolist(), rows.labels.tolist(), strict=True)
        }
        self.classes = tuple(names)
        self.used = set(self.held)
        self.versions = [(dict(self.held), self.classes)]

    def _changed(self):
        self.versions.append((dict(self.held), self.classes))

    @rule(taught=TAUGHT)
    def remember(self, taught):
        places, labels = [place for place, _ in taught], [label for _, label in taught]
        what = [f"row {place}" for place in places]
        batch = self.pool.batch(torch.tensor(places))
        new = [one for one in taught if one not in self.held.values()]
        if not new:
            with pytest.raises(UserError, match="nothing was changed"):
                self.memory.remember_rows(batch, labels, what, new_classes=True, scored=False)
            return
        version = self.memory.remember_rows(batch, labels, what, new_classes=True, scored=False)
        self.classes += tuple(sorted({label for _, label in new} - {*self.classes}))
        ids = [row.id for row in self.memory.rows()][-len(new) :]
        assert not self.used & {*ids}
        self.used |= {*ids}
        self.held |= zip(ids, new, strict=True)
        self.features |= {id: self.made[place] for id, (place, _) in zip(ids, new, strict=True)}
        assert version.added == len(new)
        self._changed()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def forget(self, data):
        gone = data.draw(st.lists(st.sampled_from([*self.held]), min_size=1, max_size=4))
        version = self.memory.forget(ids=gone, yes=True, scored=False)
        assert version.forgotten == len({*gone})
        for id in {*gone}:
            del self.held[id]
        self._changed()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def forget_a_class(self, data):
        name = data.draw(st.sampled_from(sorted({label for _, label in self.held.values()})))
        self.memory.forget(label=name, yes=True, scored=False)
        self.held = {id: row for id, row in self.held.items() if row[1] != name}
        self._changed()

    @precondition(lambda self: len(self.versions) > 1)
    @rule(data=st.data())
    def restore(self, data):
        number = data.draw(st.integers(0, len(self.versions) - 2))
        self.memory.restore(number, scored=False)
        held, self.classes = self.versions[number]
        self.held = dict(held)
        self._changed()

    @rule()
    def reopen(self):
        self.memory = LivingMemory.open(self.folder)

    @invariant()
    def the_rows_are_those_of_the_oracle(self):
        rows = self.memory.rows()
        assert [(row.id, row.label) for row in rows] == [
            (id, label) for id, (_, label) in self.held.items()
        ]
        assert self.memory.run.preparation.classes == self.classes
        assert self.memory.run.living.number == len(self.versions) - 1
        for row in rows:
            place = self.held[row.id][0]
            assert place is None or row.what == f"row {place}"

    @invariant()
    def the_answers_are_those_of_a_model_with_these_rows(self):
        model = self.memory.run.at(Living()).learner(MEMORY).model
        if added := len(self.classes) - len(KNOWN):
            add_classes(model, added)
        queue = model.real.queue
        queue.clear()
        if self.held:
            labels = [self.classes.index(label) for _, label in self.held.values()]
            features = torch.stack([self.features[id] for id in self.held])
            queue.write(MemoryRows(features, torch.tensor(labels), torch.tensor([*self.held])))
        queue.trim()
        model.reproject()
        with torch.no_grad():
            wanted = model(self.x)
            got = self.memory.run.learner(MEMORY).model(self.x)
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)

    def teardown(self):
        if hasattr(self, "memory"):
            self.reopen()
            self.the_rows_are_those_of_the_oracle()
            assert [one.verb for one in self.memory.history()].count("damaged") == 0


def test_any_sequence_of_changes_leaves_what_a_dict_holds(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(hma.runs.memory_versions, "STATE_EVERY", 3)
    Changes.trained, Changes.folder = trained, tmp_path / "run"
    few = settings(max_examples=8, stateful_step_count=25, deadline=None, derandomize=True)
    run_state_machine_as_test(Changes, settings=few)

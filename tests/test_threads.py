"""Several threads on one model: what one asks for never reaches the answer of another."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread
from time import sleep

import pytest
import torch
from torch import nn

import hma
from hma import HMA, HMAConfig, VoteConfig, VotingMemory, explain
from hma.memory.locking import ReadWriteLock
from hma.vote import learning as key_learning

CONFIG = HMAConfig(label_dim=4, queue_size=6, slots_per_class=2, num_heads=2)
X = torch.sin(torch.arange(20.0).view(4, 5))


def filled():
    model = HMA(nn.Linear(5, 8), 3, CONFIG, feature_dim=8)
    model.remember(X, torch.tensor([0, 1, 2, 0]))
    model.set_anchors(X * 2)
    return model.eval()


def test_a_context_may_be_given_with_the_call():
    model = filled()
    for context in ("alone", "anchors", "batch"):
        expected = model(X, context=context)
        model.context = context
        assert torch.equal(model(X), expected)
    assert not torch.equal(model(X, context="alone"), model(X, context="batch"))
    with pytest.raises(ValueError, match="did you mean 'alone'"):
        model(X, context="alnoe")


@torch.no_grad()
def test_a_context_set_while_another_prediction_runs_does_not_change_it():
    """The other thread sets the context at the worst moment: while the memory is projected."""
    model = filled()
    expected = {context: model(X, context=context) for context in ("batch", "anchors")}
    model.context = "anchors"
    project = model.synthetic.project

    def interrupted(*arguments):
        model._context = "batch"  # as an assignment of another thread would
        return project(*arguments)

    model.synthetic.project = interrupted
    model.reproject()
    assert torch.equal(model(X), expected["anchors"])
    model.synthetic.project = project
    assert torch.equal(model(X), expected["batch"])
    model.context = "anchors"
    assert torch.equal(model(X), expected["anchors"])


def test_explaining_in_two_threads_leaves_a_training_model_in_training_mode():
    model, together = filled().train(), Barrier(2)

    def ask(_):
        together.wait()
        return explain(model, X).logits

    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            left, right = pool.map(ask, range(2))
            assert torch.equal(left, right)
            assert all(part.training for part in (model, model.real, model.backbone))


# ----------------------------------------------------------------- readers beside a writer

READERS = 4
LABELS = torch.tensor([0, 1, 2, 0])


def rows(seed, count=5):
    """Return points around three centres, and which centre each belongs to."""
    draw, y = torch.Generator().manual_seed(seed), torch.arange(count) % 3
    return 2 * torch.eye(5)[y] + torch.randn(count, 5, generator=draw), y


def voting(**config):
    torch.manual_seed(0)
    model = VotingMemory(nn.Linear(5, 8), 3, VoteConfig(key_dim=4, **config), feature_dim=8).eval()
    model.vote.share.fill_(0.5)
    model.remember(*rows(0), ids=torch.arange(5))
    return model


def write(model, step):
    """Append rows, replace rows, take rows out."""
    if step % 3 == 2 and isinstance(model, VotingMemory):
        model.forget(torch.arange(2) + 3 * (step - 1))
    else:
        model.remember(*rows(step), ids=torch.arange(5) + 3 * step)


def beside(read, work):
    """Return what several threads read while this one works; an error of a reader is raised."""
    done, started = Event(), Barrier(READERS + 1)

    def keep_reading():
        found = [read()]
        started.wait()
        while not done.is_set():
            found.append(read())
        return found

    with ThreadPoolExecutor(READERS) as pool:
        readers = [pool.submit(keep_reading) for _ in range(READERS)]
        try:
            started.wait(timeout=30)
            work()
        finally:
            done.set()
        return [answer for reader in readers for answer in reader.result()]


def exactly(*tensors):
    return tuple(tensor.numpy().tobytes() for tensor in tensors)


def forward(model):
    with torch.no_grad():
        return exactly(model(X))


def forward_with_gradients(model):
    logits = model(X)
    logits.sum().backward()
    return exactly(logits.detach())


def explained(model):
    found = explain(model, X)
    return exactly(found.logits, found.queue, found.queue_ids)


def without_each(model):
    found = hma.contributions(model, X)
    return found.value, exactly(found.queue)


def audited(model):
    found = hma.audit(model, X, LABELS, repeats=1, resamples=0)
    return found.stored, str(found.scores), str(found.changes)


def suspected(model):
    found = hma.suspects(model)
    return exactly(found.ids, found.score)


def unfamiliar(model):
    return exactly(hma.unfamiliarity(model, X))


def copied_out(model):
    found = model.memory_state()
    return exactly(found.features, found.labels, found.ids)


@pytest.mark.parametrize(
    ("build", "read", "writes"),
    [
        (voting, forward, 300),
        (filled, forward, 300),
        (voting, forward_with_gradients, 100),
        (voting, explained, 100),
        (filled, explained, 100),
        (voting, without_each, 40),
        (voting, audited, 40),
        (voting, suspected, 100),
        (voting, unfamiliar, 100),
        (voting, copied_out, 300),
    ],
)
def test_what_is_read_beside_a_writer_is_that_of_a_state_before_or_after_a_write(
    build, read, writes
):
    model = build()
    alone = copy.deepcopy(model)
    valid = {read(alone)}
    for step in range(1, writes):
        write(alone, step)
        valid.add(read(alone))

    def work():
        for step in range(1, writes):
            write(model, step)

    found = beside(lambda: read(model), work)
    assert set(found) <= valid
    assert read(model) == read(alone)


def test_a_model_that_is_saved_beside_a_writer_is_that_of_some_state(tmp_path):
    model, valid = voting(), set()
    alone = copy.deepcopy(model)
    for step in range(1, 200):
        write(alone, step)
        valid.add(copied_out(alone))

    def work():
        for step in range(1, 200):
            write(model, step)

    writer = Thread(target=work)
    writer.start()
    for name in range(5):
        hma.save(model, tmp_path / str(name))
    writer.join()
    for name in range(5):
        loaded = hma.load(tmp_path / str(name), nn.Linear(5, 8))
        assert copied_out(loaded) in valid | {copied_out(voting())}


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(key_learning, "LEAST_STEPS", 30)


def draw_numbers(model):
    sleep(1e-4)  # others want to draw too
    torch.rand(3)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("read", "config"),
    [
        (forward, {}),
        (explained, {}),
        (draw_numbers, {}),
        (draw_numbers, {"slots_per_class": 2, "slot_init": "kmeans"}),
    ],
)
def test_readers_and_random_numbers_of_others_do_not_change_what_is_learned(
    read, config, training, few_steps
):
    alone, shared = voting(**config).train(training), voting(**config).train(training)
    expected = alone.learn_memory([rows(1, 60)], [rows(2, 30)])
    found = {}
    beside(
        lambda: read(shared),
        lambda: found.update(shared.learn_memory([rows(1, 60)], [rows(2, 30)])),
    )
    assert found == expected
    for name, value in alone.state_dict().items():
        assert torch.equal(shared.state_dict()[name], value), name
    assert all(part.training is training for part in (shared, shared.vote, shared.backbone))


def test_two_models_learn_at_once_what_each_learns_alone(few_steps):
    expected = [voting(), voting()]
    for seed, model in enumerate(expected):
        model.learn_memory([rows(1, 60)], [rows(2, 30)], seed=seed)
    models = [voting(), voting()]
    with ThreadPoolExecutor(2) as pool:
        list(
            pool.map(
                lambda seed: models[seed].learn_memory([rows(1, 60)], [rows(2, 30)], seed=seed),
                range(2),
            )
        )
    for one, other in zip(models, expected, strict=True):
        assert torch.equal(one.vote.to_keys.weight, other.vote.to_keys.weight)


class Slow(nn.Linear):
    """A backbone that another thread can look at while it runs."""

    def __init__(self):
        super().__init__(5, 8)
        self.running, self.go_on, self.modes = Event(), Event(), []

    def forward(self, x):
        self.modes.append(self.training)
        self.running.set()
        assert self.go_on.wait(timeout=30)
        self.modes.append(self.training)
        return super().forward(x)


def test_a_reader_waits_for_a_training_step_rather_than_end_its_mode():
    backbone = Slow()
    model = VotingMemory(backbone, 3, feature_dim=8).train()
    with ThreadPoolExecutor(2) as pool:
        step = pool.submit(model, X)
        assert backbone.running.wait(timeout=30)
        asked = pool.submit(explain, model, X)
        with pytest.raises(TimeoutError):
            asked.result(timeout=0.2)
        backbone.go_on.set()
        step.result(timeout=30)
        asked.result(timeout=30)
    assert backbone.modes == [True, True, False, False]
    assert model.training
    assert backbone.training


def test_a_mode_that_is_set_while_another_thread_explains_stays():
    backbone = Slow()
    model = VotingMemory(backbone, 3, feature_dim=8).train()
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(explain, model, X)
        assert backbone.running.wait(timeout=30)
        changed = pool.submit(model.eval)
        backbone.go_on.set()
        asked.result(timeout=30)
        changed.result(timeout=30)
    assert not any(part.training for part in model.modules())


def test_a_gradient_is_that_of_the_rows_that_were_read():
    model = VotingMemory(nn.Linear(5, 8), 3, feature_dim=8).eval()
    model.vote.share.fill_(0.5)
    model.vote.requires_grad_(True)
    model.remember(*rows(0), ids=torch.arange(5))
    weight = model.vote.norm.weight
    expected = torch.autograd.grad(model(X)[0, 0], weight)
    logits = model(X)
    model.remember(*rows(7), ids=torch.arange(5))
    assert torch.equal(*expected, *torch.autograd.grad(logits[0, 0], weight))


# --------------------------------------------------------------------------------- the lock


def test_readers_and_writers_are_served_in_the_order_they_came():
    """A reader that comes after a waiting writer waits for it, and the next writer for the reader.

    So neither starves.
    """
    lock, order = ReadWriteLock(), []

    def use(name, hold):
        with hold():
            order.append(name)

    later = []
    with lock.shared():
        for place, hold in enumerate([lock.exclusive, lock.shared, lock.shared, lock.exclusive]):
            later.append(Thread(target=use, args=(place, hold)))
            later[-1].start()
            while len(lock._queue) <= place:
                assert later[-1].is_alive()
        assert order == []
    for thread in later:
        thread.join(timeout=30)
    assert order[0] == 0
    assert set(order[1:3]) == {1, 2}
    assert order[3] == 3


def test_a_writer_may_read_and_write_and_a_reader_may_read():
    model = voting()
    with model.lock.exclusive():
        model.remember(*rows(1))
        explain(model, X)
        model.reset_memory()
        model.remember(*rows(1, 9))
    with model.reading():
        assert torch.equal(explain(model, X).logits, model(X))
        assert len(model.memory_state().labels) == 9


@pytest.mark.parametrize("verb", ["remember", "forget", "add_classes", "load_state_dict", "train"])
def test_who_reads_cannot_write_and_is_told_so(verb):
    model = voting()
    arguments = {
        "remember": rows(1),
        "forget": (torch.arange(2),),
        "add_classes": (1,),
        "load_state_dict": (model.state_dict(),),
        "train": (),
    }
    with (
        model.reading(),
        pytest.raises(RuntimeError, match="cannot write into a model while it reads it"),
    ):
        getattr(model, verb)(*arguments[verb])
    getattr(model, verb)(*arguments[verb])  # afterwards it may


def test_a_writer_that_fails_gives_the_lock_back():
    model = voting()
    with pytest.raises(ValueError, match="y must hold class ids"):
        model.remember(X, LABELS + 9)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(model.remember, X, LABELS).result(timeout=30)


def test_a_copy_has_a_lock_of_its_own_that_nobody_holds():
    model = voting()
    with model.lock.exclusive():
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        with ThreadPoolExecutor(1) as pool:
            for other in copies:
                pool.submit(write, other, 1).result(timeout=30)
    for other in copies:
        assert other.lock is not model.lock
        assert len(other.memory_state().labels) == 8
    assert not any("lock" in name for name in model.state_dict())

"""What a person sees of a run: a bar with the time left, curves, and neither too often."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_resume import interrupting
from training_cases import EVERYTHING, memory_learner, plain_learner, quietly, small_task

from hma.errors import UserError
from hma.training import (
    Interrupted,
    LineProgress,
    RichProgress,
    SilentProgress,
    between_steps,
    progress_for_terminal,
    progress_ticker,
)
from hma.training.between_steps import BetweenSteps, StopRequests
from hma.training.devices import fabric_for
from hma.training.log import TensorBoardLog
from hma.training.loop import Training

RECIPE = replace(EVERYTHING, epochs=4, patience=None, checkpoint_every_seconds=1e9)


class Clock:
    """Seconds that pass when told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Told:
    """A progress and a log that keep what they are told."""

    def __init__(self) -> None:
        self.events = []

    def begin(self, title, total, done=0):
        self.events.append(("begin", title, total, done))

    def update(self, done, note=""):
        self.events.append(("update", done, note))

    def say(self, message):
        self.events.append(("say", message))

    def end(self):
        self.events.append(("end",))

    def add(self, step, values):
        self.events.append(("add", step, values))

    def flush(self):
        self.events.append(("flush",))

    def close(self):
        self.events.append(("close",))


def of_kind(told, kind):
    return [event for event in told.events if event[0] == kind]


def test_a_run_is_begun_and_ended_with_its_number_of_steps(tmp_path):
    told = Told()
    quietly(plain_learner(small_task()), small_task(), RECIPE, progress=told)
    assert told.events[0] == ("begin", "clouds", 24, 0)
    assert told.events[-1] == ("end",)
    assert told.events[1][1] == 1
    assert "epoch 1/4 loss" in told.events[1][2]


def test_progress_ends_after_an_error_and_goes_on_where_the_run_does(tmp_path):
    told, again = Told(), Told()
    learner = interrupting(plain_learner(small_task()), 9)
    with pytest.raises(Interrupted):
        quietly(learner, small_task(), RECIPE, progress=told, folder=tmp_path)
    assert told.events[-1] == ("end",)
    quietly(plain_learner(small_task()), small_task(), RECIPE, progress=again, folder=tmp_path)
    assert again.events[0] == ("begin", "clouds", 24, 10)
    assert again.events[1] == ("say", "going on from step 10 of 24")


def test_progress_log_and_checkpoints_are_told_by_the_clock_not_by_the_step():
    learner, task, clock, told = plain_learner(small_task()), small_task(), Clock(), Told()
    recipe = replace(RECIPE, checkpoint_every_seconds=4, steps=20_000)
    training = Training(learner, task, recipe, 0, fabric_for(recipe))
    saved = []
    between = BetweenSteps(
        training, save=lambda: saved.append(clock.now), progress=told, log=told,
        stop=StopRequests(), clock=clock,
    )  # fmt: skip
    for _ in range(10_000):  # ten seconds of steps of a millisecond
        training.standing.step += 1
        between.run_callbacks()
        clock.now += 0.001
    assert len(of_kind(told, "update")) == pytest.approx(
        10 / between_steps.SHOW_EVERY_SECONDS, abs=1
    )
    assert len(of_kind(told, "add")) == pytest.approx(10 / between_steps.LOG_EVERY_SECONDS, abs=1)
    assert saved == pytest.approx([1004.0, 1008.0], abs=0.01)
    assert len(of_kind(told, "flush")) == 2


@pytest.mark.parametrize(
    ("takes", "every", "share"), [(2.0, 4, 0.05), (0.1, 4, 0.1 / 4.1), (0.001, 0, 0.5)]
)
def test_checkpoints_take_at_most_a_twentieth_of_the_time(takes, every, share):
    learner, task, clock, told = plain_learner(small_task()), small_task(), Clock(), Told()
    recipe = replace(RECIPE, checkpoint_every_seconds=every, steps=500_000)
    training = Training(learner, task, recipe, 0, fabric_for(recipe))
    saved = []

    def save():
        saved.append(clock.now)
        clock.now += takes

    between = BetweenSteps(
        training, save=save, progress=told, log=told, stop=StopRequests(), clock=clock
    )
    step = 0.01 if every else 0.001
    while clock.now < 1400.0 and len(saved) < 1000:
        training.standing.step += 1
        between.run_callbacks()
        clock.now += step
    assert takes * len(saved) / (clock.now - 1000.0) == pytest.approx(share, rel=0.1)


def drawn(after, seconds, steps=40):
    clock, screen = Clock(), io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, height=20)
    bar = RichProgress(console, after=after, clock=clock)
    bar.begin("clouds [b]", total=100, done=20)
    for step in range(steps):
        clock.now += seconds / steps
        bar.update(21 + step, note="loss 0.5 [/b]")
    bar.say("a [line] that stays")
    bar.end()
    return screen.getvalue()


def test_a_long_run_shows_a_bar_with_steps_and_time_left():
    seen = drawn(after=2.0, seconds=4.0)
    assert "clouds [b]" in seen  # markup in names is shown, not obeyed
    assert "60/100" in seen
    assert "left" in seen
    assert "loss 0.5 [/b]" in seen


def test_a_short_run_leaves_the_screen_alone():
    assert drawn(after=2.0, seconds=1.0).strip() == "a [line] that stays"


def test_without_a_terminal_there_is_no_bar(monkeypatch):
    assert isinstance(progress_for_terminal(), SilentProgress)
    assert isinstance(progress_for_terminal(lines=True), LineProgress)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert isinstance(progress_for_terminal(), RichProgress)


def test_a_terminal_of_80_columns_has_room_for_everything():
    clock, screen = Clock(), io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, height=20, color_system=None)
    bar = RichProgress(console, after=2.0, clock=clock)
    bar.begin("a-folder-with-a-very-long-name", total=4000, done=0)
    note = "epoch 12/50 loss 0.123 best accuracy 0.931"
    for step in range(1, 11):
        clock.now += 1.0
        bar.update(100 * step, note=note)
    seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    bar.end()
    lines = [line for line in re.split(r"[\r\n]+", seen) if line.strip()]
    assert max(map(len, lines)) <= 80
    assert re.search(rf"a-folder-with-a… +25% left \S+ {re.escape(note)}", seen)


def test_a_pipe_gets_a_line_every_few_seconds_and_no_control_characters():
    clock, file = Clock(), io.StringIO()
    lines = LineProgress(file, every=5.0, clock=clock)
    lines.begin("a-folder-with-a-very-long-name", total=4000, done=1000)
    note = "epoch 12/50 loss 0.123 best accuracy 0.931"
    for step in range(1, 129):
        clock.now += 0.125
        lines.update(1000 + 12 * step, note=note)
    lines.say("said\x1b[2J")
    lines.end()
    first, second, third, said = file.getvalue().splitlines()
    assert first == f"a-folder-with-a… 37%, 0:00:26 left  {note}"
    assert second == f"a-folder-with-a… 49%, 0:00:21 left  {note}"
    assert third.startswith("a-folder-with-a… 61%, 0:00:16 left")
    assert max(map(len, (first, second))) <= 79
    assert said.isprintable()
    assert first.isprintable()


def test_a_short_run_writes_no_line():
    clock, file = Clock(), io.StringIO()
    lines = LineProgress(file, every=5.0, clock=clock)
    lines.begin("t", total=10)
    for step in range(10):
        clock.now += 0.4
        lines.update(step)
    lines.end()
    assert file.getvalue() == ""


def test_what_is_counted_begins_with_the_first_tick_and_ends_after_an_error():
    told = Told()
    with progress_ticker(told, "encoding"):
        pass
    assert told.events == []

    def broken():
        with progress_ticker(told, "encoding") as tick:
            tick(3, 10)
            tick(1 // 0, 10)

    with pytest.raises(ZeroDivisionError):
        broken()
    assert told.events == [("begin", "encoding", 10, 0), ("update", 3, ""), ("end",)]


def test_an_unstarted_bar_takes_no_harm():
    bar = RichProgress(Console(file=io.StringIO()))
    bar.update(3)
    bar.end()


def curves(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    tags = events.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}


def test_tensorboard_shows_what_the_record_says(tmp_path):
    record = quietly(memory_learner(small_task()), small_task(), RECIPE, folder=tmp_path)
    found = curves(tmp_path / "tensorboard")
    steps = [6, 12, 18, 24]
    for context in ("batch", "alone"):
        for metric in ("accuracy", "nll"):
            values = [epoch["validation"][context][metric] for epoch in record.epochs]
            shown = found[f"validation/{context}/{metric}"]
            assert shown == [(s, pytest.approx(v)) for s, v in zip(steps, values, strict=True)]
        value = record.tests["far"][context]["auroc"]
        assert found[f"test/far/{context}/auroc"] == [(24, pytest.approx(value))]
    losses = [epoch["train_loss"] for epoch in record.epochs]
    assert [value for _, value in found["train/epoch_loss"]] == pytest.approx(losses)
    assert [v for _, v in found["train/lr"]] == pytest.approx([e["lr"] for e in record.epochs])
    assert found["train/loss"][0][0] == 1


def test_a_resumed_run_hides_what_was_logged_after_its_checkpoint(tmp_path):
    log = TensorBoardLog(tmp_path, first_step=0)
    for step in (1, 2, 3, 4):
        log.add(step, {"loss": float(step)})
    log.close()
    log = TensorBoardLog(tmp_path, first_step=3)
    log.add(3, {"loss": 30.0})
    log.add(4, {"loss": 40.0})
    log.close()
    assert curves(tmp_path)["loss"] == [(1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0)]


def test_a_log_on_a_full_disk_is_one_clear_error(tmp_path):
    log = TensorBoardLog(tmp_path)
    log.flush()
    log._file.close()
    log._file = open("/dev/full", "wb")  # noqa: SIM115
    log._records._writer = log._file
    log.add(1, {"loss": 1.0})
    with pytest.raises(UserError, match=r"cannot write .*: No space left on device; .*free some"):
        log.flush()
    with pytest.raises(OSError, match="No space left"):
        log._file.close()

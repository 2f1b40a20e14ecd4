"""Files that are whole or not there, and held by one process at a time."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import filelock
import pytest

import hma
from hma.errors import UserError
from hma.io.files import (
    FileError,
    HeldError,
    MissingFileError,
    atomic_write,
    expect_regular,
    hold_lock,
    remove_abandoned,
)

ALONE = f"""
import os, signal, sys, time, types
from pathlib import Path
sys.modules["hma"] = types.ModuleType("hma")  # the rest takes seconds to import
sys.modules["hma"].__path__ = [{str(Path(hma.__file__).parent)!r}]
"""
HOLDER = """
from hma.io.files import HeldError, hold_lock
lock, log, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
done = 0
while done < rounds:
    try:
        with hold_lock(lock):
            with open(log, "a") as file: file.write("begin\\n")
            time.sleep(0.001)
            with open(log, "a") as file: file.write("end\\n")
        done += 1
    except HeldError:
        time.sleep(0.0005)
"""
KILLED = """
from hma.io.files import atomic_write
with atomic_write(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def python(code, *arguments):
    return subprocess.Popen([sys.executable, "-c", ALONE + code, *map(str, arguments)])


def hidden(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(".writing")]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_no_two_holds_overlap(tmp_path, kind):
    lock = tmp_path / "held"
    if kind == "folder":
        lock.mkdir()
    log = tmp_path / "log"
    others = [python(HOLDER, lock, log, 60) for _ in range(4)]
    assert [other.wait(60) for other in others] == [0] * 4
    assert log.read_text().splitlines() == ["begin", "end"] * (4 * 60)


def test_a_hold_is_waited_for_as_long_as_asked(tmp_path):
    lock, order = tmp_path / "lock", []
    inside = threading.Event()

    def first():
        with hold_lock(lock):
            inside.set()
            time.sleep(0.1)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(10)
    with pytest.raises(HeldError), hold_lock(lock):
        pass
    with hold_lock(lock, wait=10):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


def test_a_folder_that_cannot_be_written_is_said_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match=r"cannot write .*lock: .*see to that") as caught,
        hold_lock(tmp_path / "file" / "lock"),
    ):
        pass
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_follows_the_umask(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        with atomic_write(tmp_path / "file") as temporary:
            temporary.write_text("x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, mode):
    target = tmp_path / "file"
    target.write_text("before")
    target.chmod(mode)
    with atomic_write(target) as temporary:
        temporary.write_text("after")
    assert target.read_text() == "after"
    assert stat.S_IMODE(target.stat().st_mode) == mode


def test_a_killed_writer_leaves_what_was_there_and_the_next_one_tidies_up(tmp_path):
    target = tmp_path / "file"
    target.write_text("before")
    assert python(KILLED, target).wait(60) == -signal.SIGKILL
    (tmp_path / ".writing-empty").mkdir()  # killed earlier still
    assert target.read_text() == "before"
    assert len(hidden(tmp_path)) == 2
    with atomic_write(tmp_path / "another") as temporary:
        temporary.write_text("after")
    assert hidden(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another", "file"]


def test_what_killed_writers_left_below_goes_and_what_is_held_stays(tmp_path):
    (tmp_path / "one" / "two").mkdir(parents=True)
    for target in (tmp_path / "file", tmp_path / "one" / "two" / "file"):
        assert python(KILLED, target).wait(60) == -signal.SIGKILL
    with atomic_write(tmp_path / "one" / "slow") as slow:
        slow.write_text("slow")
        remove_abandoned(tmp_path)
        assert hidden(tmp_path) == []
        assert len(hidden(tmp_path / "one" / "two")) == 1
        remove_abandoned(tmp_path, below=True)
        assert hidden(tmp_path / "one" / "two") == []
    assert (tmp_path / "one" / "slow").read_text() == "slow"
    remove_abandoned(tmp_path / "none", below=True)


def test_a_writer_at_work_keeps_its_folder(tmp_path):
    with atomic_write(tmp_path / "slow") as slow:
        slow.write_text("slow")
        with atomic_write(tmp_path / "quick") as quick:
            quick.write_text("quick")
    assert (tmp_path / "slow").read_text() == "slow"


def test_many_writers_of_one_file_leave_one_of_their_texts_and_nothing_else(tmp_path):
    code = (
        "from hma.io.files import atomic_write\n"
        "for round in range(40):\n"
        "    with atomic_write(Path(sys.argv[1])) as file: file.write_text(sys.argv[2] * 999)\n"
    )
    others = [python(code, tmp_path / "file", letter) for letter in "abcd"]
    assert [other.wait(60) for other in others] == [0] * 4
    assert (tmp_path / "file").read_text() in [letter * 999 for letter in "abcd"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_error_inside_the_block_is_passed_on_and_nothing_is_left(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic_write(tmp_path / "file") as temporary:
        temporary.write_bytes(bytes(1 // 0))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_in_one_line(tmp_path):
    (tmp_path / "file").write_text("before")
    with (
        pytest.raises(UserError, match=r"cannot write .*file: No space.*free some space"),
        atomic_write(tmp_path / "file"),
    ):
        raise OSError(28, "No space left on device")
    assert (tmp_path / "file").read_text() == "before"


def test_what_is_no_regular_file_is_refused_before_it_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "long").write_text("12345")
    with pytest.raises(FileError, match="no regular file"):
        expect_regular(tmp_path / "pipe")
    with pytest.raises(FileError, match="no regular file"):
        expect_regular(Path("/dev/zero"))
    with pytest.raises(FileError, match="is a folder where a file is expected"):
        expect_regular(tmp_path / "folder")
    with pytest.raises(FileError, match="has 5 bytes, and at most 4 are read"):
        expect_regular(tmp_path / "long", most_bytes=4)
    with pytest.raises(MissingFileError, match="does not exist"):
        expect_regular(tmp_path / "long" / "inside")
    with pytest.raises(FileError, match="cannot be read"):
        expect_regular(tmp_path / ("x" * 300))
    with pytest.raises(FileError, match="cannot be read"):
        expect_regular(tmp_path / "nul\0")


def test_a_folder_that_goes_while_its_lock_is_taken_is_made_again(tmp_path, monkeypatch):
    acquire, missed = filelock.FileLock.acquire, []

    def disturbed(lock, *arguments, **options):
        if not missed:
            missed.append(lock)
            raise FileExistsError(17, "File exists")  # what mkdir says when a folder comes and goes
        return acquire(lock, *arguments, **options)

    monkeypatch.setattr(filelock.FileLock, "acquire", disturbed)
    with atomic_write(tmp_path / "file") as file:
        file.write_text("whole")
    assert missed
    assert (tmp_path / "file").read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

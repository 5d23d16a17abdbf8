"""The lock of a run, held by real processes that are really killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddtree import run_lock

# A run as Ansible makes one: it holds the lock, forks a worker with a session of its own, and the two share a queue.
RUN = """
import multiprocessing.queues, os, subprocess, sys, time
from pathlib import Path
from ddtree import run_lock
lock = run_lock.hold(Path(sys.argv[1]))
queue = multiprocessing.queues.SimpleQueue(ctx=multiprocessing.get_context("fork"))
if not os.fork():
    os.setsid()
    {worker}
    os._exit(0)
print("up", flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def run(lock: Path, worker: str) -> Iterator[subprocess.Popen[str]]:
    code = RUN.format(worker=textwrap.indent(textwrap.dedent(worker), "    ").strip())
    process = subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    assert process.stdout and process.stdout.readline() == "up\n"
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        for left in run_lock.holders(lock):
            os.kill(int(left.name), signal.SIGKILL)


def test_a_run_that_lives_is_named_at_once(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with run(lock, "time.sleep(60)") as process, pytest.raises(run_lock.HeldError) as held:
        run_lock.wait(lock, 30, pytest.fail)
    assert held.value.alive and held.value.pid == str(process.pid)


def test_a_task_of_a_killed_run_is_waited_for(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    told: list[str] = []
    with run(lock, "time.sleep(2); Path(sys.argv[1] + '.done').touch()") as process:
        process.kill()
        process.wait()
        run_lock.wait(lock, 30, told.append)
        assert told == [str(process.pid)] and (tmp_path / "lock.done").exists()


def test_a_task_that_does_not_end_is_not_waited_for_longer_than_asked(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with run(lock, "time.sleep(60)") as process:
        process.kill()
        process.wait()
        with pytest.raises(run_lock.HeldError) as held:
            run_lock.wait(lock, 0.5, lambda pid: None)
        assert not held.value.alive and held.value.pid == str(process.pid)


def test_a_result_that_outgrows_the_pipe_does_not_hold_the_lock_for_ever(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    worker = """
    time.sleep(1)
    queue.put("x" * 1_000_000)
    queue.put("x" * 1_000_000)
    Path(sys.argv[1] + '.done').touch()
    """
    with run(lock, worker) as process:
        process.kill()
        process.wait()
        run_lock.wait(lock, 30, lambda pid: None)
        assert (tmp_path / "lock.done").exists()


def test_what_a_task_reads_of_its_command_is_left_to_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    worker = """
    command = subprocess.Popen(["sh", "-c", "echo all of it; sleep 2"], stdout=subprocess.PIPE)
    time.sleep(2)
    Path(sys.argv[1] + '.said').write_bytes(command.stdout.read())
    """
    with run(lock, worker) as process:
        process.kill()
        process.wait()
        run_lock.wait(lock, 30, lambda pid: None)
        assert (tmp_path / "lock.said").read_text() == "all of it\n"


def test_who_only_waits_for_the_lock_is_no_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with run(lock, "time.sleep(60)"), lock.open("a+"):
        assert str(os.getpid()) not in {one.name for one in run_lock.holders(lock)}
        assert len(list(run_lock.holders(lock))) == 2

"""Hostile programs in the sandboxes of this machine. tests/integration/test_sandbox.py has the long table, and systemd's."""

from __future__ import annotations

import http.server
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hostile import FIB, REPLIES, TASK, look, ways_out

from ddtree.codecheck import choose, judge_all
from ddtree.sandbox import MEMORY_MIB, OUTPUT_LIMIT, PROCESSES, Sandbox, candidates

KINDS = [kind for kind in candidates() if kind != "systemd"]


def test_this_machine_has_a_sandbox() -> None:
    assert {"bwrap", "unshare"} & set(KINDS), "install bubblewrap: programs that hosts must survive are tried out here"


@pytest.fixture(params=KINDS, scope="module")
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return choose(kinds=[request.param], cpu_seconds=1, wall_seconds=4.0)


def test_each_answer_that_needs_no_time_gets_its_outcome(sandbox: Sandbox) -> None:
    """All rows but the endless ones, and one endless one."""
    rows = {name: row for name, row in REPLIES.items() if "timeout" not in row[1] or name == "endless loop"}
    before = look()
    entries = judge_all([(TASK, reply) for reply, _ in rows.values()], sandbox)
    wrong = {name: one for name, one in zip(rows, entries) if one["outcome"] not in rows[name][1].split() or not one["detail"]}
    assert not wrong and len(rows) >= 70
    time.sleep(0.3)
    after = look()
    assert {key: value for key, value in after.items() if value != before[key] and key != "mounts"} == {}


class Door(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.knocked = True  # type: ignore[attr-defined]


@pytest.fixture
def door() -> Iterator[http.server.HTTPServer]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Door)
    server.knocked = False  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def test_no_way_leads_out(sandbox: Sandbox, door: http.server.HTTPServer, tmp_path: Path) -> None:
    found = ways_out(sandbox)
    assert {name: got for name, got in found["ways"].items() if not got.startswith("no: ")} == {}
    assert found["environment"] == {} and found["capabilities"] == "0" * 16 and found["processes"] < 4
    assert not set(os.environ) - {"PATH", "PWD", "OLDPWD", "PYTHONHASHSEED"} & set(found["initial"].split("\0"))
    secret = tmp_path / "secret"
    secret.write_text("the key")
    tries = f"""
import urllib.request
def fib(n):
    if n:
        return urllib.request.urlopen("http://127.0.0.1:{door.server_address[1]}", timeout=1).read().decode()
    return open({str(secret)!r}).read()
"""
    answer = sandbox.run(tries, "fib", [[0], [1]])
    assert answer.found is not None and [kind for kind, _ in answer.found] == ["raised", "raised"], answer
    assert not door.knocked and secret.read_text() == "the key"  # type: ignore[attr-defined]


def test_limits_are_in_force(sandbox: Sandbox) -> None:
    code = """
import resource
def fib(name):
    return list(resource.getrlimit(getattr(resource, "RLIMIT_" + name)))
"""
    answer = sandbox.run(code, "fib", [["AS"], ["CPU"], ["NPROC"], ["CORE"]])
    assert answer.found is not None
    assert [said for _, said in answer.found] == [
        f"[{MEMORY_MIB << 20}, {MEMORY_MIB << 20}]",
        "[1, 2]",
        f"[{PROCESSES}, {PROCESSES}]",
        "[0, 0]",
    ]


def test_runs_side_by_side_do_not_meet(sandbox: Sandbox) -> None:
    """Each has all of its tasks and files to itself."""
    code = """
import os, threading, time
def fib(n):
    open("mine", "x").write(str(n))
    threads = [threading.Thread(target=time.sleep, args=(0.3,)) for _ in range(4)]
    for one in threads: one.start()
    for one in threads: one.join()
    return [int(open("mine").read()), sorted(os.listdir("."))]
"""
    found: dict[int, object] = {}
    calm = replace(sandbox, wall_seconds=15.0)
    threads = [threading.Thread(target=lambda at=at: found.update({at: calm.run(code, "fib", [[at]]).found})) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {at: [["value", f'[{at}, ["mine"]]']] for at in range(4)}


def test_a_flood_is_cut_off_at_once(sandbox: Sandbox) -> None:
    began = time.monotonic()
    code = "import os, time\ndef fib(n):\n    for fd in range(3, 64):\n        try:\n            os.write(fd, b'x' * 100000)\n"
    answer = replace(sandbox, wall_seconds=30.0).run(code + "        except OSError:\n            pass\n    time.sleep(60)\n", "fib", [[0]])
    assert answer.state == "noisy" and time.monotonic() - began < 20 and OUTPUT_LIMIT < 100_000


def test_without_a_sandbox_only_limits_hold(tmp_path: Path) -> None:
    """What `unsandboxed` allows: the right program passes, an endless one ends, and the folder is gone afterwards."""
    sandbox = Sandbox("none", choose().python, cpu_seconds=1, wall_seconds=4.0)
    assert sandbox.run(FIB, "fib", [[10]]).found == [["value", "55"]]
    assert sandbox.run("while True:\n    pass", "fib", [[0]]).state in ("cpu", "timeout")
    where = sandbox.run("import os\ndef fib(n):\n    return os.getcwd()", "fib", [[0]]).found
    assert where is not None and not os.path.exists(where[0][1].strip('"'))

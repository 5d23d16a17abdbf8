"""Hostile and odd answers on a host with real systemd: each outcome, in a transient unit and in bubblewrap, and the host afterwards."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile import KEY, PROGRAMS, REPLIES

ROOT = Path(__file__).resolve().parents[2]
HOSTS = str(ROOT / "tests" / "containers" / "hosts")
GROUP, HOST, FOLDER = "sandbox", "gpu01", "/opt/ddtree-hostile"
KINDS = ("systemd", "bwrap")
LIMIT = 60.0  # seconds for the whole table, where the cores have nothing else to do


def on_host(command: str, given: bytes = b"", timeout: float = 300) -> bytes:
    done = subprocess.run([HOSTS, "ssh", GROUP, HOST, command], input=given, capture_output=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout.decode()[-2000:]}{done.stderr.decode()[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def host() -> Iterator[None]:
    """A container whose PID 1 is systemd, with the toolkit's logic and the table on it."""
    up = subprocess.run([HOSTS, "up", GROUP, HOST], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
    assert up.returncode == 0, up.stdout[-3000:]
    try:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
            archive.add(ROOT / "tests" / "unit" / "hostile.py", "hostile.py")
            for path in sorted((ROOT / "module_utils" / "ddtree").glob("*.py")):
                archive.add(path, f"ddtree/{path.name}")
        on_host(f"rm -rf {FOLDER} && mkdir -p {FOLDER} && tar -xzf - -C {FOLDER}", packed.getvalue())
        yield
    finally:
        subprocess.run([HOSTS, "down", GROUP], capture_output=True, check=False)


@pytest.fixture(scope="module", params=KINDS)
def found(request: pytest.FixtureRequest, host: None) -> dict[str, Any]:
    """All of the table in one kind of sandbox; see hostile.main."""
    told: dict[str, Any] = json.loads(on_host(f"cd {FOLDER} && PYTHONDONTWRITEBYTECODE=1 python3 hostile.py {request.param}"))
    assert told["kind"] == request.param
    return told


@pytest.mark.parametrize("name", REPLIES)
def test_each_answer_gets_its_outcome(found: dict[str, Any], name: str) -> None:
    entry = found["entries"][name]
    assert entry["outcome"] in REPLIES[name][1].split() and entry["detail"], entry


def test_there_are_sixty_and_they_take_less_than_a_minute(found: dict[str, Any]) -> None:
    crowd = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert len(PROGRAMS) >= 50 and len(REPLIES) >= 60 and found["seconds"] < LIMIT * crowd, found["seconds"]


def test_the_harness_is_right_about_its_own_programs(found: dict[str, Any]) -> None:
    assert found["harness"] == []


def test_no_way_leads_out(found: dict[str, Any]) -> None:
    ways = found["ways_out"]
    assert {name: got for name, got in ways["ways"].items() if not got.startswith("no: ")} == {} and len(ways["ways"]) >= 20
    assert ways["environment"] == {} and ways["capabilities"] == "0" * 16 and ways["processes"] < 4
    assert KEY not in json.dumps(found["entries"]) + ways["initial"]


def test_the_host_is_as_it_was(found: dict[str, Any]) -> None:
    before, after = found["before"], found["after"]
    assert {key: (before[key], value) for key, value in after.items() if value != before[key]} == {}
    assert after["escaped"] == after["stray"] == after["units"] == [] and KEY in after["secret"]


def test_a_unit_is_bounded_by_its_control_group(host: None) -> None:
    """Memory of several processes together, which limits of single ones do not bound."""
    code = """
import os
def fib(n):
    children = []
    ready, go = os.pipe(), os.pipe()
    for _ in range(6):
        children.append(os.fork())
        if children[-1] == 0:
            hog = bytearray(150 << 20)
            for at in range(0, len(hog), 4096):
                hog[at] = 1
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            os._exit(0)
    os.close(ready[1])
    held = 0
    while held + dead(children) < 6:
        held += len(os.read(ready[0], 1))
    return held
def dead(children, gone=set()):
    for child in children:
        if child not in gone and os.waitpid(child, os.WNOHANG)[0]:
            gone.add(child)
    return len(gone)
"""
    script = (
        "import json, sys; from ddtree.sandbox import Sandbox, interpreter; "
        "said = Sandbox('systemd', interpreter(), 5, 30.0).run(sys.stdin.read(), 'fib', [[0]]); print(json.dumps(said.__dict__))"
    )
    told = json.loads(on_host(f'cd {FOLDER} && python3 -c "{script}"', code.encode()))
    counted = on_host("systemctl show system.slice --value -p MemoryCurrent").decode().strip().isdigit()
    if counted:  # 256 MiB hold one of the six; the kernel ends the others, or with control groups of version 2 the whole unit
        assert told["state"] == "silent" or told["found"] == [["value", "1"]], told
    else:  # a container that was given no memory controller; what the unit asks for is looked at in the next test
        assert told["found"] == [["value", "6"]], told


def test_what_the_unit_asks_for(host: None) -> None:
    wanted = {"DynamicUser": "yes", "PrivateNetwork": "yes", "ProtectSystem": "strict", "ProtectProc": "invisible", "ProcSubset": "pid",
              "NoNewPrivileges": "yes", "MemoryMax": str(256 << 20), "MemorySwapMax": "0", "TasksMax": "8", "RuntimeMaxUSec": "9s",
              "CPUQuotaPerSecUSec": "1s", "CapabilityBoundingSet": ""}  # fmt: skip
    script = (
        "from ddtree.sandbox import Sandbox, interpreter; "
        "Sandbox('systemd', interpreter(), 5, 9.0).run('import time; time.sleep(5)', 'x', [])"
    )
    names = " ".join(f"-p {name}" for name in wanted)
    look = (
        "for _ in $(seq 100); do unit=$(systemctl list-units --plain --no-legend 'ddtree-code-*' | cut -d ' ' -f 1); "
        f'[ -z "$unit" ] || break; sleep 0.05; done; sleep 0.3; systemctl show $unit {names}; wait'
    )
    shown = on_host(f'cd {FOLDER} && (python3 -c "{script}" & {look})').decode()
    found = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    assert found == wanted


def test_a_host_without_a_working_sandbox_refuses(host: None) -> None:
    script = "from ddtree.codecheck import choose; choose(kinds=[])"
    told = on_host(f"cd {FOLDER} && python3 -c '{script}' 2>&1 || true").decode()
    assert "RefusedError: generated code is not run, since no sandbox works here: install bubblewrap" in told

"""Sweeps of the scenario, as a person types them, and what they left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

from remotehost import CACHE, ROOT, Remote

HOSTS = ("gpu01", "gpu02", "gpu03")
RESULTS = ROOT / ".cache" / "results" / "fleet"
# A host that is gone is noticed within seconds, not after a minute.
SSH_ARGS = "-o ControlMaster=auto -o ControlPersist=60s -o ServerAliveInterval=2 -o ServerAliveCountMax=2 -o ConnectTimeout=5"


def start(name: str, *words: str, hosts: tuple[str, ...] = HOSTS) -> subprocess.Popen[str]:
    """A sweep that runs; its output is in .cache/results/fleet-NAME.log."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_HOME": str(ROOT / ".ansible"), "NO_COLOR": "1",
                   "ANSIBLE_SSH_ARGS": SSH_ARGS}  # fmt: skip
    command = [ROOT / ".venv" / "bin" / "ansible-playbook", f"--inventory={ROOT}/molecule/shared/inventory",
               f"--inventory={ROOT}/molecule/fleet/inventory", f"--limit={','.join(hosts)},localhost", ROOT / "sweep.yml",
               f"--extra-vars=sweep_name={name}", *words]  # fmt: skip
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS.parent / f"fleet-{name}.log").open("a") as log:
        return subprocess.Popen([str(word) for word in command], env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log,
                                stderr=subprocess.STDOUT, text=True, start_new_session=True)  # fmt: skip


def sweep(name: str, *words: str, hosts: tuple[str, ...] = HOSTS, code: int = 0) -> str:
    """Run it to its end; what it printed."""
    process, log = start(name, *words, hosts=hosts), RESULTS.parent / f"fleet-{name}.log"
    try:
        ended = process.wait(900)
    except subprocess.TimeoutExpired:
        running = subprocess.check_output(["ps", "-eo", "pid,ppid,sid,stat,wchan:20,etimes,args", "--forest"], text=True)
        os.kill(process.pid, signal.SIGINT)
        raise AssertionError(f"does not end: {log.read_text()[-4000:]}\nWhat runs:\n{running}") from None
    said = log.read_text()
    assert ended == code, f"ended with {ended}: {said[-4000:]}"
    return said


def events(name: str) -> list[dict[str, Any]]:
    path = RESULTS / name / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []


def wait_for(name: str, seconds: float = 600, **wanted: Any) -> dict[str, Any]:
    """The first event that has these keys and values."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for event in events(name):
            if all(event.get(key) == value for key, value in wanted.items()):
                return event
        time.sleep(0.1)
    raise AssertionError(f"no event {wanted} within {seconds} s")


def measured(name: str) -> dict[str, list[str]]:
    """Point to the hosts that measured it well."""
    found: dict[str, list[str]] = {}
    for path in sorted((RESULTS / name).glob("gpu*/*.json")):
        record = json.loads(path.read_text())
        if record.get("status") == "ok" and record.get("cells"):
            found.setdefault(path.stem, []).append(path.parent.name)
    return found


def seconds(name: str) -> float:
    """From the first point's begin to the last one's end."""
    times = [event["time"] for event in events(name) if event["event"] in ("point", "point_ended")]
    first, last = (time.mktime(time.strptime(one[:19], "%Y-%m-%dT%H:%M:%S")) + float(one[19:23]) for one in (times[0], times[-1]))
    return last - first


def starts(host: str, since: float) -> Counter[str]:
    """How often the engine was started on the host with each configuration since then, from the journal."""
    remote = Remote("fleet", host)
    try:
        lines = remote.sh(f"journalctl --unit=ddtree.service --since=@{since:.0f} --output=cat --grep='server_args=' --no-pager || true")
    finally:
        remote.close()
    return Counter(re.findall(r"weight_version='([0-9a-f]{12})'", lines))


def plan_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name / "sweep.json").read_text())
    return found


def forget(name: str) -> None:
    subprocess.run(["rm", "-rf", str(RESULTS / name), str(RESULTS.parent / f"fleet-{name}.log")], check=True)


def container(host: str) -> str:
    where: dict[str, Any] = json.loads(Path(CACHE / "fleet" / "hosts.json").read_text())
    return str(where[host]["container"])

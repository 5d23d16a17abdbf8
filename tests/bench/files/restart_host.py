"""Restart the unit on this host by one method after the other, and judge each "ready" by a strict oracle. Runs on the test host.

Reads {"trials": [...], "options": {...}} on stdin; prints one JSON a trial. Nothing here is the toolkit's own code but the module that is
judged, which runs as a process like the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pynvml

UNIT, PORT = "ddtree.service", 30000
UNIT_FILE = Path("/etc/systemd/system/ddtree.service")
TEST, STATE = Path("/opt/ddtree-test"), Path("/opt/ddtree-sim/state")
URL = f"http://127.0.0.1:{PORT}"
TOKENS = 32
GIVE_UP = 90.0  # seconds until a method that sees no ready is ended
POLL = 0.2  # seconds between polls of the two usual methods
AT_ONCE = 0.5  # seconds that the oracle's generation may take longer than the one after it: else the engine was not ready yet
LONGEST = 10.0  # seconds that a generation of about 0.25 s may take on a busy machine
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(path: str, body: Any = None, timeout: float = 2.0) -> tuple[int, Any]:
    """(status, JSON or None); status 0 when nobody answers."""
    request = urllib.request.Request(URL + path, None if body is None else json.dumps(body).encode())
    try:
        with _opener.open(request, timeout=timeout) as answer:
            text = answer.read()
            status = answer.status
    except urllib.error.HTTPError as error:
        return error.code, None
    except (OSError, ValueError):
        return 0, None
    try:
        return status, json.loads(text)
    except ValueError:
        return status, None


def generate(tokens: int, timeout: float) -> dict[str, Any]:
    """meta_info of a greedy generation; empty when none came."""
    body = {"text": "Count to ten.", "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}}
    status, answer = get("/generate", body, timeout)
    return dict(answer["meta_info"]) if status == 200 and answer else {}


def timed_generation() -> tuple[float, dict[str, Any]]:
    began = time.monotonic()
    meta = generate(TOKENS, LONGEST)
    return time.monotonic() - began, meta


def show(*names: str) -> dict[str, str]:
    text = subprocess.run(["systemctl", "show", UNIT, f"--property={','.join(names)}"], check=True, capture_output=True, text=True).stdout
    return dict(line.split("=", 1) for line in text.splitlines())


def port_open() -> bool:
    """Whether somebody listens on the port, from the kernel's table: a connection would end up in the engine's log."""
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(row.split()[3] == "0A" and int(row.split()[1].rpartition(":")[2], 16) == PORT for row in rows)


def port_is_of(group: str) -> bool:
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    wanted = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == PORT}
    for procs in {
        path
        for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")
        for path in Path(root + group).rglob("cgroup.procs")
    }:
        for pid in procs.read_text().split():
            with contextlib.suppress(OSError):
                if wanted & {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}:
                    return True
    return False


def vram_free() -> bool:
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    return all(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used < 1 << 30 for handle in handles)


class Watch(threading.Thread):
    """When the old process was gone, its VRAM free and the port open again: the engine's own times, looked up every 10 ms."""

    def __init__(self, old_pid: str) -> None:
        super().__init__(daemon=True)
        self.old, self.seen, self.over = Path(f"/proc/{old_pid}"), dict[str, float](), False

    def run(self) -> None:
        for name, true in (("gone", lambda: not self.old.exists()), ("free", vram_free), ("open", port_open)):
            while not self.over and not true():
                time.sleep(0.01)
            self.seen[name] = time.time()


def oracle(before: str, config_id: str) -> str:
    """'' if the unit is ready now, else why not."""
    now = show("InvocationID", "ControlGroup", "ActiveState")
    if now["InvocationID"] in ("", before):
        return "old instance"
    if not port_is_of(now["ControlGroup"]):
        return "no listener of the new instance"
    seconds, meta = timed_generation()
    if meta.get("completion_tokens") != TOKENS:
        return "no generation"
    if meta.get("weight_version") != config_id:
        return "old configuration"
    if seconds - timed_generation()[0] > AT_ONCE:
        return "no generation yet"
    return "" if show("InvocationID")["InvocationID"] == now["InvocationID"] else "instance changed"


def poll(path: str) -> bool:
    end = time.monotonic() + GIVE_UP
    while get(path)[0] != 200:
        if time.monotonic() > end:
            return False
        time.sleep(POLL)
    return True


def core_module(module: str, **args: Any) -> dict[str, Any]:
    """One of Ansible's own modules, as Ansible runs it."""
    done = subprocess.run(
        [sys.executable, str(TEST / "modules" / f"{module}.py")], input=json.dumps({"ANSIBLE_MODULE_ARGS": args}), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def by_systemctl(trial: dict[str, Any], _: dict[str, Any]) -> bool:
    """`systemctl restart`, then poll the model list: what people script."""
    subprocess.run(["systemctl", "restart", *(["--no-block"] if trial["no_block"] else []), UNIT], check=False)
    return poll("/v1/models")


def by_ansible(_: dict[str, Any], __: dict[str, Any]) -> bool:
    """systemd_service with state restarted, then uri with until."""
    if core_module("systemd_service", name=UNIT, state="restarted", daemon_reload=True).get("failed"):
        return False
    end = time.monotonic() + GIVE_UP
    while core_module("uri", url=f"{URL}/health", timeout=2).get("status") != 200:
        if time.monotonic() > end:
            return False
        time.sleep(POLL)
    return True


def by_module(trial: dict[str, Any], options: dict[str, Any]) -> bool:
    args = {**options, "name": "ddtree", "state": "restarted", "config_id": trial["config_id"]}
    done = subprocess.run(
        [sys.executable, str(TEST / "library" / "sglang_service.py")], input=json.dumps({"ANSIBLE_MODULE_ARGS": args}),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    trial["result"] = json.loads(done.stdout)
    return not trial["result"].get("failed")


METHODS = {"systemctl": by_systemctl, "ansible": by_ansible, "module": by_module}


def faults(values: dict[str, Any]) -> None:
    new = STATE / "faults.new"
    new.write_text(json.dumps(values))
    new.replace(STATE / "faults.json")


def settle() -> str:
    """A good server to begin with, brought about without any of the methods; its invocation."""
    faults({})
    now = show("ActiveState", "InvocationID")
    if now["ActiveState"] != "active" or not generate(TOKENS, LONGEST):
        subprocess.run(["systemctl", "stop", UNIT], check=False)
        while not vram_free():
            time.sleep(0.05)
        subprocess.run(["systemctl", "reset-failed", UNIT], check=False, capture_output=True)
        subprocess.run(["systemctl", "start", UNIT], check=True)
        while not generate(TOKENS, LONGEST):
            time.sleep(0.1)
    subprocess.run(["systemctl", "reset-failed", UNIT], check=False, capture_output=True)  # the start limit is not what is shown
    return show("InvocationID")["InvocationID"]


def ask_for(config_id: str) -> None:
    text = UNIT_FILE.read_text()
    UNIT_FILE.write_text(re.sub(r"(--weight-version \\\n\s+)\S+", rf"\g<1>{config_id}", text))
    subprocess.run(["systemctl", "daemon-reload"], check=True)


def run(trial: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    before = settle()
    ask_for(trial["config_id"])
    faults(trial["faults"])
    flight: list[float] = []
    if trial["in_flight"]:

        def request() -> None:
            generate(trial["in_flight"], 30)
            flight.append(time.time())

        threading.Thread(target=request, daemon=True).start()
        time.sleep(0.1)
    watch = Watch(show("MainPID")["MainPID"])
    watch.start()
    began = time.time()
    said_ready = METHODS[trial["method"]](trial, options)
    ended = time.time()
    why = oracle(before, trial["config_id"])
    watch.over = True
    found = {"method": trial["method"], "no_block": trial["no_block"], "ready": said_ready, "seconds": ended - began,
             "false_ready": why if said_ready else "", "faults": trial["faults"], "in_flight": trial["in_flight"]}  # fmt: skip
    if trial["method"] == "module":
        found["failure"] = {key: trial["result"].get(key) for key in ("phase", "cause", "msg")} if not said_ready else None
        if said_ready:
            found["phases"] = {phase["name"]: phase["seconds"] for phase in trial["result"]["phases"]}
            found["engine_seconds"] = engine_seconds(began, flight, watch.seen, trial)
    return found


def engine_seconds(began: float, flight: list[float], seen: dict[str, float], trial: dict[str, Any]) -> float:
    """What the engine itself needed: requests in flight, its drain, the release of VRAM, its load, its first generation."""
    stamps = show("ExecMainStartTimestampMonotonic", "InvocationID")
    to_wall = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    started = int(stamps["ExecMainStartTimestampMonotonic"]) / 1e6 + to_wall
    stopping = journal_time("^Stopping ", began)
    times = [timed_generation()[0] for _ in range(3)]
    requests = max(0.0, flight[0] - began) if flight and flight[0] < stopping + 0.2 else 0.0
    possible = max(0.0, trial["faults"].get("models_before_generate_seconds", 0.0))
    return requests + (seen["gone"] - stopping) + (seen["free"] - seen["gone"]) + (seen["open"] - started) + possible + sorted(times)[1]


def journal_time(pattern: str, since: float) -> float:
    """When systemd last said that of the unit."""
    words = ["journalctl", f"UNIT={UNIT}", "_PID=1", f"--grep={pattern}", "--output=json", f"--since=@{since - 1:.0f}", "--quiet"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    return int(json.loads(lines[-1])["__REALTIME_TIMESTAMP"]) / 1e6


def main() -> None:
    pynvml.nvmlInit()
    asked = json.load(sys.stdin)
    for trial in asked["trials"]:
        print(json.dumps(run(trial, asked["options"])), flush=True)


if __name__ == "__main__":
    main()

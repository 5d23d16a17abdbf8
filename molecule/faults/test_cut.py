"""A connection cut, a controller killed, a module killed, in each phase: the next run ends right, with one engine and no orphan."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from remotehost import FOLDER, PYTHON, ROOT, Remote

# What makes a phase long enough to be hit; without it a phase of the simulated host is over in milliseconds.
PHASES: dict[str, dict[str, Any]] = {
    "inspect": {},
    "drain": {},
    "stop": {"drain_seconds": 3},
    "release": {"vram_linger_seconds": 3},
    "start": {},
    "load": {"load_seconds": 3},
    "generate": {"models_before_generate_seconds": 3},
    "verify": {},
}
CUT = 3  # seconds without sshd


@pytest.fixture(params=PHASES)
def phase(request: pytest.FixtureRequest, host: Remote, asked: dict[str, Any]) -> Any:
    """A phase that will be hit; the host serves, and a changed drop-in makes the next `started` take it down."""
    host.faults()
    ready = host.module(state="started", **asked)
    assert ready.get("ready"), ready
    folder = "/run/systemd/system/ddtree.service.d"
    host.sh(f"mkdir -p {folder}; printf '[Service]\\nEnvironment=N={time.time_ns()}\\n' > {folder}/new.conf; systemctl daemon-reload")
    host.faults(**PHASES[request.param])
    yield request.param
    host.faults()


class Play:
    """ansible-playbook with one task of sglang_service, in a process group of its own as from a terminal."""

    def __init__(self, host: Remote, folder: Path, asked: dict[str, Any], *flags: str) -> None:
        self.kept = folder / "result.json"
        options = {"name": "ddtree", "state": "started", **asked}
        variables = {"play_kept": str(self.kept), "play_options": options}
        environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_HOME": str(ROOT / ".ansible"), "NO_COLOR": "1"}
        inventories = [ROOT / "molecule" / "shared" / "inventory", ROOT / "molecule" / "faults" / "inventory"]
        command = [ROOT / ".venv" / "bin" / "ansible-playbook", *(f"--inventory={one}" for one in inventories),
                   ROOT / "molecule" / "faults" / "files" / "play.yml", f"--extra-vars={json.dumps(variables)}",
                   f"--limit={host.name},localhost", *flags]  # fmt: skip
        self.process = subprocess.Popen(
            [str(word) for word in command], env=environment, cwd=ROOT, start_new_session=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def wait(self) -> str:
        """What it printed; it must have succeeded."""
        output = self.process.communicate(timeout=120)[0]
        assert self.process.returncode == 0, output
        return output

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kept.read_text())
        return found

    def kill(self) -> None:
        """The whole of it at once, as when the controller's memory or power ends."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=10)


def starts(host: Remote) -> int:
    """How often systemd has started the unit since the host is up."""
    return int(host.sh("journalctl --quiet UNIT=ddtree.service _PID=1 --grep '^Started ' --output=cat | wc -l"))


def watch(host: Remote, phase: str, what: str) -> subprocess.Popen[str]:
    process = host.start(f"{PYTHON} {FOLDER}/files/at.py {phase} {what}")
    assert process.stdout and process.stdout.readline() == "watching\n"
    return process


def one_engine(host: Remote, before: int, expected: dict[str, Any], exactly: int = 1) -> None:
    seen = host.look()
    assert seen["unit"]["ActiveState"] == "active"
    assert seen["port_pid"] == int(seen["unit"]["MainPID"]) == expected["pid"]["after"]
    assert set(map(int, seen["engines"])) == set(seen["pids"]), "an orphan"
    assert starts(host) - before == exactly, f"started {starts(host) - before} times"
    assert host.record()["started"]["proof"] == "ready"


def test_connection_cut(host: Remote, asked: dict[str, Any], phase: str, tmp_path: Path) -> None:
    before = starts(host)
    # In the manager's hands, for this session ends with all others.
    host.sh(f"systemd-run --quiet --collect {PYTHON} {FOLDER}/files/at.py {phase} cut {CUT}")
    time.sleep(0.3)
    host.close_connection()
    play = Play(host, tmp_path, asked)
    output = play.wait()
    assert f"{host.name}: connection lost" in output, output
    assert play.result()["changed"] and play.result()["ready"]["completion_tokens"] == 32
    one_engine(host, before, play.result())


def test_controller_killed(host: Remote, asked: dict[str, Any], phase: str, tmp_path: Path) -> None:
    before = starts(host)
    watcher = watch(host, phase, "say")
    first = Play(host, tmp_path, asked)
    assert watcher.stdout and watcher.stdout.readline() == "reached\n"
    first.kill()
    watcher.wait(10)
    second = Play(host, tmp_path, asked)
    second.wait()
    assert second.result()["ready"]["completion_tokens"] == 32
    one_engine(host, before, second.result())


def test_module_killed(host: Remote, asked: dict[str, Any], phase: str) -> None:
    before = starts(host)
    watcher = watch(host, phase, "kill")
    first = host.start_module(state="started", **asked)
    output = first.communicate(timeout=60)[0]
    if first.returncode == 0:
        host.sh("pkill -f files/at.py", check=False)
    assert first.returncode != 0, f"it was not hit: {output}"
    watcher.wait(10)
    second = host.module(state="started", **asked)
    assert second.get("ready", {}).get("completion_tokens") == 32, second
    # Killed before the stop had been asked for, the old instance still serves as asked, and is left alone.
    one_engine(host, before, second, exactly=0 if phase == "stop" and not second["changed"] else 1)


def test_two_at_once(host: Remote, asked: dict[str, Any]) -> None:
    host.faults(load_seconds=3)
    before = starts(host)
    watcher = watch(host, "load", "say")
    first = host.start_module(state="restarted", runner="alice@deploy1", **asked)
    assert watcher.stdout and watcher.stdout.readline() == "reached\n"
    second = host.module(state="restarted", runner="bob@deploy2", **asked)
    assert second["cause"] == "busy" and "alice@deploy1" in second["msg"]
    output = first.communicate(timeout=60)[0]
    host.faults()
    one_engine(host, before, json.loads(output))


def test_sent_twice_it_restarts_once(host: Remote, asked: dict[str, Any]) -> None:
    """The connection breaks after the job began and before the controller knows: it sends the same run again."""
    host.faults()
    before = starts(host)
    first = host.start_module(state="restarted", runner="alice@deploy1", run_id="4711", **asked)
    time.sleep(0.5)
    second = host.module(state="restarted", runner="alice@deploy1", run_id="4711", **asked)
    first.communicate(timeout=60)
    assert second.get("ready", {}).get("completion_tokens") == 32, second
    one_engine(host, before, second)


def restarted_by_hand(host: Remote) -> None:
    """As a person does it, who waits for the port."""
    host.sh("systemctl restart ddtree.service")
    host.sh("for i in $(seq 300); do curl -sf --noproxy '*' http://127.0.0.1:30000/health_generate && exit 0; sleep 0.2; done; exit 1")


def test_what_another_started_before_the_unit_changed_is_restarted(host: Remote, asked: dict[str, Any]) -> None:
    host.faults()
    assert host.module(state="started", **asked).get("ready")
    restarted_by_hand(host)
    taken_over = host.module(state="started", **asked)
    assert not taken_over["changed"] and taken_over["ready"], taken_over
    restarted_by_hand(host)
    folder = "/run/systemd/system/ddtree.service.d"
    host.sh(f"mkdir -p {folder}; printf '[Service]\\nNice=5\\n' > {folder}/new.conf; systemctl daemon-reload")
    anew = host.module(state="started", **asked)
    assert anew["changed"] and "someone else" in anew["reason"], anew
    assert host.sh(f"ps -o ni= -p {host.look()['unit']['MainPID']}").strip() == "5"

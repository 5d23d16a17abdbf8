"""The scenario's fleet: hosts behind the real sglang-router, clients that never stop asking, a watch of who serves, and the plays."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from typing import Any

import gateway
from remotehost import CACHE, ROOT, Remote

from ddtree.router import Router, RouterError

HOSTS = ("gpu01", "gpu02", "gpu03", "gpu04", "gpu05")
RESULTS = ROOT / ".cache" / "results" / "rolling"
CONNECTION = os.environ.get("ROLLING_CONNECTION", "ssh")
# A host that is gone is noticed within seconds, not after a minute.
SSH_ARGS = "-o ControlMaster=auto -o ControlPersist=60s -o ServerAliveInterval=2 -o ServerAliveCountMax=2 -o ConnectTimeout=5"
ASKED = {"text": "Tell me about trees.", "sampling_params": {"temperature": 0, "max_new_tokens": 48, "ignore_eos": True}}


class Fleet:
    """All hosts serve and are in the router when it is made."""

    def __init__(self) -> None:
        self.where: dict[str, Any] = json.loads((CACHE / "rolling" / "hosts.json").read_text())
        first = self.where[HOSTS[0]]["ip"]
        RESULTS.mkdir(parents=True, exist_ok=True)
        here = f"{first.rpartition('.')[0]}.1"  # this machine, as the hosts see it
        self.gateway = gateway.Gateway(RESULTS, "--policy", "round_robin", address=here, bind="0.0.0.0")
        self.url = self.gateway.url
        for host in HOSTS:
            self.router(host).enrol()

    def close(self) -> None:
        self.gateway.close()

    def router(self, host: str) -> Router:
        return Router(self.url, self.worker(host))

    def worker(self, host: str) -> str:
        return f"http://{self.where[host]['ip']}:30000"

    def serving(self) -> set[str]:
        """The hosts that the router sends requests to now."""
        workers = set(self.router(HOSTS[0]).serving())
        return {host for host in HOSTS if self.worker(host) in workers}

    # -- hosts

    def on(self, host: str, command: str, check: bool = True) -> str:
        remote = Remote("rolling", host)
        try:
            return remote.sh(command, check=check)
        finally:
            remote.close()

    def faults(self, host: str, **values: Any) -> None:
        remote = Remote("rolling", host)
        try:
            remote.faults(**values)
        finally:
            remote.close()

    def loaded(self, host: str) -> str:
        """The configuration that answers a generation on the host."""
        asked = json.dumps(ASKED)
        said = self.on(host, f"curl -sS -m 20 -H 'Content-Type: application/json' -d '{asked}' http://127.0.0.1:30000/generate")
        return str(json.loads(said)["meta_info"]["weight_version"])

    def started(self, host: str) -> str:
        """The process that serves there: another one after a restart."""
        return self.on(host, "systemctl show --property=InvocationID --value ddtree.service").strip()

    def bring_up(self, host: str) -> None:
        """Start what was powered off, as a person presses the button."""
        for action, names in (("on", [host]), ("up", HOSTS)):
            subprocess.run([str(ROOT / "tests" / "containers" / "hosts"), action, "rolling", *names], check=True, capture_output=True)
        self.where = json.loads((CACHE / "rolling" / "hosts.json").read_text())

    # -- plays

    def start(self, play: str, *words: str) -> subprocess.Popen[str]:
        """A play as a person types it; what it prints goes to a log of its own."""
        environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_HOME": str(ROOT / ".ansible"), "NO_COLOR": "1",
                       "ANSIBLE_SSH_ARGS": SSH_ARGS, "ANSIBLE_TIMEOUT": "5"}  # fmt: skip
        if CONNECTION == "paramiko_ssh":  # it takes no option of OpenSSH: the host keys of these containers are known to ssh alone
            environment["ANSIBLE_HOST_KEY_CHECKING"] = "False"
        command = [ROOT / ".venv" / "bin" / "ansible-playbook", f"--inventory={ROOT}/molecule/shared/inventory",
                   f"--inventory={ROOT}/molecule/rolling/inventory", f"--connection={CONNECTION}", ROOT / f"{play}.yml",
                   f"--extra-vars=ddtree_server_router_url={self.url}", *words]  # fmt: skip
        self.log = RESULTS / f"{CONNECTION}-{play}-{time.strftime('%H%M%S')}.log"
        with self.log.open("w") as log:
            return subprocess.Popen([str(word) for word in command], env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log,
                                    stderr=subprocess.STDOUT, text=True, start_new_session=True)  # fmt: skip

    def run(self, play: str, *words: str, code: int = 0) -> str:
        """Run it to its end; what it printed."""
        ended = self.start(play, *words).wait(900)
        said = self.log.read_text()
        assert ended == code, f"ended with {ended}, see {self.log}: {said[-5000:]}"
        return said

    @staticmethod
    def outcomes() -> dict[str, str]:
        """What the last run's file says of each host."""
        state = json.loads((RESULTS / "deploys" / "latest" / "deploy.json").read_text())
        return {name: one["outcome"] for name, one in state["hosts"].items()}

    @staticmethod
    def details() -> dict[str, str]:
        state = json.loads((RESULTS / "deploys" / "latest" / "deploy.json").read_text())
        return {name: one["detail"] for name, one in state["hosts"].items()}

    @staticmethod
    def state() -> dict[str, Any]:
        found: dict[str, Any] = json.loads((RESULTS / "deploys" / "latest" / "deploy.json").read_text())
        return found

    def wait_out(self, host: str, seconds: float = 120) -> None:
        """Until the router sends the host nothing any more."""
        self._until(lambda: host not in self.serving(), seconds, f"{host} was never taken out")

    def wait_started(self, host: str, old: str, seconds: float = 120) -> None:
        """Until another process than `old` is being started there."""
        self._until(lambda: self.started(host) not in ("", old), seconds, f"{host} was not restarted")

    @staticmethod
    def _until(done: Any, seconds: float, failed: str) -> None:
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, failed
            time.sleep(0.1)


class Clients(gateway.Clients):
    """Clients that never stop asking through the router, and a watch of how many hosts it sends requests to."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet.gateway, ASKED)
        self.least, self.looks = len(HOSTS), 0
        self._fleet = fleet
        self._threads.append(threading.Thread(target=self._watch))

    def _watch(self) -> None:
        while not self._over.is_set():
            try:
                self.least = min(self.least, len(self._fleet.serving()))
                self.looks += 1
            except RouterError:
                self.least = 0
            time.sleep(0.05)

"""A fleet of simulated hosts on this machine over local connections: a folder, a supervisord and an engine of one GPU rank each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from simhost import FILES, ROOT, free_port

BIN = Path(sys.executable).parent
# Turns are short: two requests of a soak, no wait between them, no bound of speed unless a test sets one.
QUICK = {"deploy_soak_requests": 2, "deploy_soak_seconds": 0, "deploy_soak_tokens": 32, "deploy_soak_speed": 0, "deploy_min_available": 0}


class LocalFleet:
    """`number` hosts in `folder`, h01 and on; `variables` are for all of them. Nothing runs until site.yml was played."""

    def __init__(self, folder: Path, number: int, **variables: Any) -> None:
        self.programs = BIN  # the folder of ansible-playbook
        self.folder, self.names = folder, [f"h{at:02d}" for at in range(1, number + 1)]
        library = folder / "libnvidia-ml.so.1"
        compiler = ["cc", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-o", str(library)]
        subprocess.run([*compiler, str(FILES / "nvml" / "nvml.c"), "-ldl"], check=True)
        shutil.copytree(ROOT / "inventory" / "local" / "group_vars", folder / "inventory" / "group_vars")
        self.ports = {name: free_port() for name in self.names}
        self.hosts: dict[str, dict[str, Any]] = {
            name: {"local_root": str(folder / name), "ddtree_server_port": self.ports[name]} for name in self.names
        }
        self.shared: dict[str, Any] = {
            "ansible_connection": "local", "ansible_python_interpreter": sys.executable, "allowed_vars": ["local_root"],
            "gpu_host_venv": sys.prefix, "gpu_host_report": "", "ddtree_server_python": sys.executable,
            "simulated_host_nvml_library": str(library), "simulated_host_gpu_mib": 1000000, "simulated_host_time_scale": 360,
            "deploy_results": str(folder / "deploys"), **QUICK, **variables,
        }  # fmt: skip
        self.write()

    def write(self) -> None:
        inventory = {"gpu_hosts": {"children": {"simulated_hosts": None}}, "simulated_hosts": {"hosts": self.hosts, "vars": self.shared}}
        (self.folder / "inventory" / "hosts.yml").write_text(yaml.safe_dump(inventory))

    def command(self, play: str, *words: str) -> tuple[list[str], dict[str, str]]:
        """A play as a person types it, and its environment."""
        environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1"}
        program, inventory = self.programs / "ansible-playbook", self.folder / "inventory"
        return [str(program), "-i", str(inventory), str(ROOT / f"{play}.yml"), *words], environment

    def play(self, play: str, *words: str, code: int = 0) -> str:
        """Run it to its end; what it printed, in one line."""
        command, environment = self.command(play, *words)
        done = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{play} ended with {done.returncode}: {done.stdout[-5000:]}{done.stderr[-2000:]}"
        return " ".join(done.stdout.split())

    def state(self) -> dict[str, Any]:
        """The file of the last run."""
        found: dict[str, Any] = json.loads((self.folder / "deploys" / "latest" / "deploy.json").read_text())
        return found

    def outcomes(self) -> dict[str, str]:
        return {name: one["outcome"] for name, one in self.state()["hosts"].items()}

    def record(self, host: str) -> dict[str, Any]:
        """What the last start on the host left: invocation, config_id and proof."""
        found: dict[str, Any] = json.loads((self.folder / host / "state" / "ddtree.json").read_text())
        return dict(found["started"] or {})

    def faults(self, host: str, **values: Any) -> None:
        """Replace the faults in force there."""
        (self.folder / host / "sim" / "state" / "faults.json").write_text(json.dumps(values))

    def close(self) -> None:
        """End each supervisord, and with it the engine."""
        pids = []
        for name in self.names:
            path = self.folder / name / "state" / "supervisord.pid"
            if path.exists():
                pids.append(int(path.read_text()))
                subprocess.run(["kill", str(pids[-1])], check=False, capture_output=True)
        end = time.monotonic() + 60
        while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < end:
            time.sleep(0.2)

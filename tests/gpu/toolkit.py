"""The toolkit as its users run it: ansible-playbook on this machine, its result read from a file."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULT = "/tmp/ddtree-suite-result.json"


class Toolkit:
    """`path` is the vars file of the host; `log` collects what ansible-playbook prints."""

    def __init__(self, path: str, log: Path) -> None:
        self.path, self.log = path, log
        self.values: dict[str, Any] = yaml.safe_load(Path(path).read_text())

    def play(self, playbook: str, values: dict[str, Any] | None = None, tell: Callable[[float, str], None] | None = None) -> int:
        """Run a playbook with the host's vars and `values`; `tell` gets each line with its time. Returns the exit status."""
        with self.start(playbook, values) as process:
            assert process.stdout is not None
            with self.log.open("a") as log:
                for line in process.stdout:
                    log.write(line)
                    if tell:
                        tell(time.time(), line.rstrip())
        return process.returncode

    def start(self, playbook: str, values: dict[str, Any] | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "ansible", "playbook", "-i", str(HERE / "hosts.yml"), playbook, "-e", f"@{self.path}"]
        if values:
            command += ["-e", json.dumps(values)]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "ANSIBLE_NOCOLOR": "1"}
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)

    def role(self, spec: dict[str, Any], state: str, during: Callable[[], None] | None = None, **values: Any) -> dict[str, Any]:
        """One run of the role ddtree_server: {failed, result, began, ended}; `during` runs beside it."""
        Path(RESULT).unlink(missing_ok=True)
        asked = {"suite_point": spec, "suite_result": RESULT, "ddtree_server_state": state, **values}
        began = time.time()
        process = self.start(str(HERE / "restart.yml"), asked)
        try:
            if during:
                during()
        finally:
            text, _ = process.communicate()
            with self.log.open("a") as log:
                log.write(text)
        try:
            found: dict[str, Any] = json.loads(Path(RESULT).read_text())
        except (OSError, ValueError):
            found = {"failed": True, "result": {"msg": " ".join(text.split())[-600:], "phase": "play", "cause": "no result"}}
        return {**found, "began": began, "ended": time.time()}

    def module(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """One run of sglang_service alone, ad hoc: {failed, result, began, ended}."""
        command = [sys.executable, "-m", "ansible", "adhoc", "-i", str(HERE / "hosts.yml"), "gpu_hosts"]
        command += ["-e", f"@{self.path}", "-e", json.dumps({"ansible_python_interpreter": self.values["gpu_host_python"]})]
        command += ["-m", "sglang_service", "-a", json.dumps(arguments)]
        began = time.time()
        environment = {**os.environ, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "ANSIBLE_NOCOLOR": "1"}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
        with self.log.open("a") as log:
            log.write(done.stdout + done.stderr)
        try:
            result = json.loads(re.findall(r"(?ms)^\S+ \| [A-Z!]+ => (\{.*)", done.stdout)[0])
        except (ValueError, IndexError):
            result = {"msg": " ".join((done.stdout + done.stderr).split())[-600:], "phase": "play", "cause": "no result"}
        return {"failed": done.returncode != 0, "result": result, "began": began, "ended": time.time()}


def phases(result: dict[str, Any]) -> dict[str, float]:
    return {one["name"]: one["seconds"] for one in result.get("phases") or []}

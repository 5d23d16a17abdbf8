"""A test host with real systemd, over SSH: modules run there directly, faults are set, and what is true is looked up."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import ansible

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "containers"
FOLDER = "/opt/ddtree-test"
SIMULATED = "/opt/ddtree-sim"
PYTHON = "/opt/ddtree-ops/venv/bin/python"
STATE = "/var/lib/ddtree-ops"
ENVIRONMENT = {"LD_LIBRARY_PATH": f"{SIMULATED}/lib", "PYTHONPATH": f"{FOLDER}:{SIMULATED}/site"}


def container_engine() -> str:
    return os.environ.get("CONTAINER_ENGINE") or ("podman" if shutil.which("podman") else "docker")


class Remote:
    """One host of a group that `tests/containers/hosts up` started and site.yml brought to serving."""

    def __init__(self, group: str, name: str = "gpu01") -> None:
        self.group, self.name = group, name
        where = json.loads((CACHE / group / "hosts.json").read_text())[name]
        self.container = where["container"]
        self._sockets = tempfile.TemporaryDirectory(prefix="ddtree-ssh-")
        self.ssh = ["ssh", "-i", str(CACHE / "id_ed25519"), "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes", "-o",
                    f"UserKnownHostsFile={CACHE / group / 'known_hosts'}", "-o", "ControlMaster=auto", "-o", "ControlPersist=60", "-o",
                    f"ControlPath={self._sockets.name}/s", "-p", str(where["port"]), f"root@{where['address']}"]  # fmt: skip

    def start(self, command: str) -> subprocess.Popen[str]:
        """A command on the host, not waited for."""
        words = ["env", *(f"{key}={value}" for key, value in ENVIRONMENT.items()), "sh", "-c", command]
        return subprocess.Popen(
            [*self.ssh, shlex.join(words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def sh(self, command: str, given: str = "", timeout: float = 120, check: bool = True) -> str:
        process = self.start(command)
        out, err = process.communicate(given, timeout=timeout)
        assert not check or process.returncode == 0, f"{command} answered {process.returncode}: {out}{err}"
        return out

    def push(self) -> None:
        """Bring Ansible's module_utils, the toolkit's modules and what looks at the host."""
        core = Path(ansible.__file__).parent
        folders = [(core / "module_utils", "ansible/module_utils"), (ROOT / "module_utils" / "ddtree", "ansible/module_utils/ddtree"),
                   (ROOT / "library", "library"), (ROOT / "molecule" / "faults" / "files", "files")]  # fmt: skip
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
            for name in ("__init__.py", "release.py", "_vendor/__init__.py"):
                archive.add(core / name, f"ansible/{name}")
            for source, target in folders:
                for path in sorted(source.rglob("*.py")):
                    archive.add(path, f"{target}/{path.relative_to(source)}")
        unpack = f"rm -rf {FOLDER} && mkdir -p {FOLDER} && tar -xzf - -C {FOLDER}"
        subprocess.run([*self.ssh, unpack], input=packed.getvalue(), check=True, timeout=60)

    def start_module(self, **args: Any) -> subprocess.Popen[str]:
        process = self.start(f"{PYTHON} {FOLDER}/library/sglang_service.py")
        assert process.stdin
        process.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": {"name": "ddtree", **args}}))
        process.stdin.close()
        process.stdin = None
        return process

    def module(self, **args: Any) -> dict[str, Any]:
        """The module's result; `_ended` is the host's time when it came."""
        given = json.dumps({"ANSIBLE_MODULE_ARGS": {"name": "ddtree", **args}})
        out = self.sh(f"{PYTHON} {FOLDER}/library/sglang_service.py 2>&1; date +%s.%N", given)
        lines = [line for line in out.splitlines() if line.strip()]
        assert lines and lines[0].startswith("{"), out
        return {**json.loads(lines[0]), "_ended": float(lines[-1])}

    def faults(self, **values: Any) -> None:
        """Replace the faults in force."""
        words = [f"{key}={json.dumps(value)}" for key, value in values.items()]
        self.sh(shlex.join([PYTHON, "-m", "sglang.sim.faults", "--clear", *words]))

    def hold(self, gpu: int, mib: int) -> int:
        """A foreign process that holds VRAM; its pid."""
        self.sh(f"rm -f /tmp/hold; nohup {PYTHON} -m sglang.sim.hold --gpu {gpu} --mib {mib} > /tmp/hold 2>&1 &")
        self.sh("until grep -q holding /tmp/hold; do sleep 0.02; done", timeout=10)
        return int(self.sh("cat /tmp/hold").split("as pid")[1].split()[0])

    def look(self, invocation: str = "") -> dict[str, Any]:
        """What systemd, the kernel, NVML and the journal (of an invocation, else the unit's own) say; see seen.py."""
        found: dict[str, Any] = json.loads(self.sh(f"{PYTHON} {FOLDER}/files/seen.py ddtree.service 30000 {invocation}"))
        return found

    def record(self) -> dict[str, Any]:
        """What the module keeps between runs."""
        found: dict[str, Any] = json.loads(self.sh(f"cat {STATE}/ddtree.json"))
        return found

    def close_connection(self) -> None:
        """End the shared connection; the next command opens another."""
        subprocess.run([*self.ssh, "-O", "exit"], capture_output=True, check=False)

    def close(self) -> None:
        self.close_connection()
        self._sockets.cleanup()

"""The role that installs the simulated host: idempotent, honest in check mode, without root, with one line for a missing compiler."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from simhost import ROOT

PLAY = """
- hosts: localhost
  gather_facts: false
  connection: local
  tasks:
    - ansible.builtin.include_role: {name: simulated_host, tasks_from: "{{ which | default('main') }}"}
"""


def play(folder: Path, root: Path, *arguments: str) -> tuple[int, dict[str, int], str]:
    """(exit code, totals of the recap, output) of a play with the role on this machine."""
    book = folder / "play.yml"
    book.write_text(PLAY)
    env = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_ROLES_PATH": str(ROOT / "roles"), "ANSIBLE_NOCOLOR": "1"}
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", str(book), "-e", f"simulated_host_root={root}",
        "-e", f"ansible_python_interpreter={sys.executable}", *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    recap = re.search(r"^localhost\s+: (.*)$", done.stdout, re.M)
    totals = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", recap[1])} if recap else {}
    return done.returncode, totals, done.stdout + done.stderr


def test_install_repeat_and_remove(tmp_path: Path) -> None:
    root = tmp_path / "host"
    code, totals, said = play(tmp_path, root, "--check")
    assert code == 0 and totals["changed"] > 0 and not root.exists(), said
    code, totals, said = play(tmp_path, root)
    assert code == 0 and totals["changed"] > 0, said
    for path in (
        "lib/libnvidia-ml.so.1",
        "site/sglang/launch_server.py",
        "models/drafter/config.json",
        "state/gpus.conf",
        "state/faults.json",
    ):
        assert (root / path).is_file(), path
    code, totals, said = play(tmp_path, root, "--check")
    assert (code, totals["changed"]) == (0, 0), said
    library = root / "lib" / "libnvidia-ml.so.1"
    other = library.rename(tmp_path / "built-elsewhere.so")
    given = {"simulated_host_faults": {"nvml": ["gpu 0 all GPU_IS_LOST"]}, "simulated_host_nvml_library": str(other)}
    code, totals, said = play(tmp_path, root, "-e", json.dumps(given), "-e", "simulated_host_cc=no-such-compiler")
    assert (code, totals["changed"]) == (0, 2) and library.read_bytes() == other.read_bytes(), said
    found = subprocess.run(
        [sys.executable, "-c", "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount()); n.nvmlDeviceGetHandleByIndex(0)"],
        env={**os.environ, "LD_LIBRARY_PATH": str(root / "lib")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.stdout.strip() == "8" and "NVMLError_GpuIsLost" in found.stderr
    code, totals, said = play(tmp_path, root, "-e", "which=remove")
    assert code == 0 and not root.exists(), said


def test_missing_compiler_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "host"
    code, totals, said = play(tmp_path, root, "-e", "simulated_host_cc=no-such-compiler")
    assert code != 0 and totals["changed"] == 0 and not root.exists()
    assert "No C compiler: no-such-compiler does not run on localhost." in said

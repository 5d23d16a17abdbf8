"""The role gpu_host on a simulated host, through the real NVML binding: its table, its file, and what stops a play."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from simhost import FILES, ROOT, Host, free_port

PLAY = """
- hosts: localhost
  gather_facts: false
  connection: local
  roles:
    - role: gpu_host
"""


class Run:
    """One run of the role: what it said and what it wrote."""

    def __init__(self, sim: Host, check: bool = False, **variables: Any) -> None:
        report = sim.folder / "preflight.json"
        given = {
            "ansible_python_interpreter": sys.executable, "gpu_host_python": sys.executable, "gpu_host_install": False,
            "gpu_host_environment": {"LD_LIBRARY_PATH": str(sim.library.parent), "DDTREE_SIM_STATE": str(sim.state)},
            "gpu_host_report": str(report), "gpu_host_disk_gib": 0, "gpu_host_weights": False, "ddtree_server_port": free_port(),
            "ddtree_server_model": str(FILES / "models" / "target"), "ddtree_server_drafter": str(FILES / "models" / "drafter"),
            **variables,
        }  # fmt: skip
        (sim.folder / "play.yml").write_text(PLAY)
        command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", str(sim.folder / "play.yml")]
        env = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1"}
        command += ["-e", json.dumps(given), *(["--check"] if check else [])]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)
        self.code, self.text = done.returncode, done.stdout + done.stderr
        self.said = " ".join(self.text.split())
        self.written = json.loads(report.read_text()) if report.exists() else {}
        report.unlink(missing_ok=True)

    def level(self, check: str) -> list[str]:
        return [one["level"] for one in self.written["checks"] if one["check"] == check]


def test_a_host_that_is_well(sim: Host) -> None:
    run = Run(sim)
    assert run.code == 0, run.text
    assert "changed=0" in run.said and "ok    GPUs" in run.text
    assert (run.level("GPU driver"), run.level("GPUs"), run.level("foreign VRAM"), run.level("port")) == (["ok"],) * 4
    boards = run.written["facts"]["boards"]
    assert (boards["driver"], boards["cuda"], len(boards["gpus"])) == ("580.95.05", "13.0", 8)
    assert run.written["stops"] == [] and run.written["host"] == "localhost"
    assert run.written["facts"]["drafter"]["block_size"] == 8


def test_check_mode_looks_and_writes_nothing(sim: Host) -> None:
    run = Run(sim, check=True)
    assert run.code == 0 and "ok    GPUs" in run.text and run.written == {}, run.text


def boards(sim: Host) -> dict[str, Any]:
    """What the survey sees of the simulated boards, in a process that loads their library."""
    code = "import json; from ddtree import gpus, survey; print(json.dumps(survey.boards(gpus.Nvml())))"
    env = {**sim.environment(), "PYTHONPATH": str(ROOT / "module_utils")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=20)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("fault", ["all GPU_IS_LOST", "memory NOT_SUPPORTED", "memory NO_PERMISSION", "handle UNKNOWN"])
def test_one_board_that_does_not_answer_does_not_hide_the_others(sim: Host, fault: str) -> None:
    sim.faults(nvml=[f"gpu 3 {fault}"])
    found = boards(sim)
    assert [one["index"] for one in found["lost"]] == [3] and [one["index"] for one in found["gpus"]] == [0, 1, 2, 4, 5, 6, 7]


def test_a_driver_that_does_not_answer_stops_with_what_to_do(sim: Host) -> None:
    sim.faults(nvml=["library init LIB_RM_VERSION_MISMATCH"])
    run = Run(sim)
    assert run.code == 2 and "localhost cannot run the engine: GPU driver: NVML does not start" in run.said, run.text
    assert "driver and library differ after an upgrade: reboot" in run.said
    assert len(run.written["stops"]) == 1, "the file is written before the play stops"


def test_what_would_break_the_engine_stops_together_and_is_named(sim: Host) -> None:
    holder = sim.hold("--gpu", "5", "--mib", "20480")
    try:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            run = Run(sim, ddtree_server_port=taken.getsockname()[1], gpu_host_gpus=16)
    finally:
        holder.kill()
        holder.wait(10)
    assert run.code == 2 and len(run.written["stops"]) == 3, run.text
    assert "8 of NVIDIA RTX PRO 6000 Blackwell Server Edition, gpu_host_gpus asks for 16" in run.said
    assert f"GPU 5: pid {holder.pid}" in run.said and "with 20480 MiB" in run.said
    assert f"is taken by pid {os.getpid()}" in run.said

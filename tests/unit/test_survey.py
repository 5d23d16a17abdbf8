"""What a host is: boards of a faked NVML, and files of a faked root; what is not told is None and never a guess."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ddtree import survey
from ddtree.gpus import MIB, Nvml

XIDS = """\
[    5.1] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05
[  105.1] NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[  106.1] NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.
[  107.1] NVRM: Xid (PCI:0000:c1:00.0): 31, pid=7, name=python, Ch 00000008
"""


class Library:
    """NVML with two boards, of which `lost` cannot be read; functions in `mute` are not there."""

    class NVMLError(Exception): ...

    NVMLError_FunctionNotFound = NVMLError_InvalidArgument = NVMLError_ArgumentVersionMismatch = NVMLError
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, nvmlMemory_v2 = 1, 0, 230, 2  # noqa: N815

    def __init__(self, lost: int = -1, mute: bool = False) -> None:
        self.lost = lost
        answers: dict[str, Any] = {
            "nvmlDeviceGetMigMode": (1, 1), "nvmlDeviceGetEccMode": (0, 0), "nvmlDeviceGetRemappedRows": (0, 1, 1, 0),
            "nvmlDeviceGetCudaComputeCapability": (12, 0), "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"00000000:41:00.0"),
            "nvmlDeviceGetPersistenceMode": 1, "nvmlDeviceGetRetiredPagesPendingStatus": 0, "nvmlDeviceGetTotalEccErrors": 3,
            "nvmlDeviceGetComputeMode": 2,
            "nvmlDeviceGetFieldValues": [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=1))],
        }  # fmt: skip
        for name, answer in answers.items():
            setattr(self, name, self._absent if mute else self._gives(answer))

    def _absent(self, *words: Any) -> Any:
        raise self.NVMLError("Function Not Found")

    def _gives(self, answer: Any) -> Callable[..., Any]:
        return lambda *words: answer

    def __getattr__(self, name: str) -> Any:
        known = {
            "nvmlInit": lambda: None, "nvmlSystemGetDriverVersion": lambda: "580.95.05", "nvmlSystemGetCudaDriverVersion": lambda: 13010,
            "nvmlDeviceGetCount": lambda: 2, "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}", "nvmlDeviceGetName": lambda handle: "X",
            "nvmlDeviceGetGraphicsRunningProcesses": lambda handle: [],
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=os.getpid(), usedGpuMemory=7 * MIB)],
            "nvmlDeviceGetMemoryInfo": lambda handle, version=None: SimpleNamespace(total=100 * MIB, used=9 * MIB),
        }  # fmt: skip
        if name in known:
            return known[name]
        raise AttributeError(name)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index == self.lost:
            raise self.NVMLError("GPU is lost")
        return index


def boards(**how: Any) -> dict[str, Any]:
    return survey.boards(Nvml(load=lambda: Library(**how)))


def test_a_board_with_everything() -> None:
    found = boards()
    assert (found["driver"], found["cuda"], found["lost"], found["error"]) == ("580.95.05", "13.1", [], None)
    gpu = found["gpus"][1]
    assert (gpu["index"], gpu["uuid"], gpu["total_mib"], gpu["used_mib"], gpu["bus"]) == (1, "GPU-1", 100, 9, "00000000:41:00.0")
    assert (gpu["capability"], gpu["mig"], gpu["ecc"], gpu["uncorrected"], gpu["recovery"]) == ("12.0", True, False, 3, 1)
    assert (gpu["repair_pending"], gpu["repair_failed"], gpu["persistence"], gpu["compute_mode"]) == (True, False, True, 2)
    assert gpu["holders"][0]["pid"] == os.getpid() and "python" in gpu["holders"][0]["shown"]


def test_what_a_driver_does_not_tell_is_none() -> None:
    gpu = boards(mute=True)["gpus"][0]
    told = {"capability", "mig", "ecc", "uncorrected", "repair_pending", "repair_failed", "persistence", "compute_mode", "recovery"}
    assert {gpu[name] for name in told} == {None} and gpu["bus"] == "" and gpu["total_mib"] == 100


def test_br13_a_lost_board_does_not_hide_the_others() -> None:
    found = boards(lost=0)
    assert [gpu["index"] for gpu in found["gpus"]] == [1] and found["lost"] == [{"index": 0, "error": "GPU is lost"}]


def test_br15_a_driver_that_does_not_answer_is_said_with_a_remedy() -> None:
    class Broken(Library):
        class NVMLError_LibRmVersionMismatch(Library.NVMLError): ...  # noqa: N801

        class NVMLError_LibraryNotFound(Library.NVMLError): ...  # noqa: N801

        class NVMLError_DriverNotLoaded(Library.NVMLError): ...  # noqa: N801

        def nvmlInit(self) -> None:  # noqa: N802
            raise self.NVMLError_LibRmVersionMismatch("Driver/library version mismatch")

    found = survey.boards(Nvml(load=Broken))
    assert found["gpus"] == [] and "version mismatch" in found["error"]["message"] and "reboot" in found["error"]["remedy"]


def test_xids_are_counted_by_board_and_code() -> None:
    found = survey.xids(lambda argv: XIDS)
    assert found == [{"bus": "0000:41:00", "code": 79, "times": 2}, {"bus": "0000:c1:00.0", "code": 31, "times": 1}]
    assert survey.xids(lambda argv: None) is None
    assert survey.xids(lambda argv: XIDS if argv[0] == "dmesg" else "") == found
    assert survey.xids(lambda argv: "nothing of interest") == []


def put(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_linux(tmp_path: Path) -> None:
    root = put(
        tmp_path, proc__meminfo="MemTotal:  2097152 kB\nMemAvailable: 1048576 kB\nHugePages_Total: 0\nempty:\n",
        sys__devices__system__cpu__cpu0__cpufreq__scaling_governor="powersave\n",
        sys__devices__system__cpu__cpu11__cpufreq__scaling_governor="performance\n",
        sys__devices__system__node__node0__x="", sys__devices__system__node__node1__x="",
        proc__77__comm="nvidia-cuda-mps-server\n", proc__78__comm="python\n",
    )  # fmt: skip
    found = survey.host(root)
    assert (found["memory_mib"], found["available_mib"], found["nodes"]) == (2048, 1024, 2)
    assert found["governors"] == {"powersave": 1, "performance": 1} and found["shm_mib"] is None and found["cpus"]
    assert survey.mps(root) == [77]
    nothing = survey.host(tmp_path / "gone")
    assert (nothing["memory_mib"], nothing["governors"], nothing["nodes"]) == (0, {}, 0)


@pytest.mark.parametrize(("text", "node"), [("1\n", 1), ("-1\n", None), ("", None)])
def test_numa_node(tmp_path: Path, text: str, node: int | None) -> None:
    path = tmp_path / "sys" / "bus" / "pci" / "devices" / "0000:41:00.0" / "numa_node"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert survey.numa_node("00000000:41:00.0", tmp_path) == node
    assert survey.numa_node("", tmp_path) is None


def test_fabric_manager(tmp_path: Path) -> None:
    answers: dict[str, str | None] = {
        "systemctl": "LoadState=loaded\nActiveState=active\n", "nv-fabricmanager": "Fabric Manager version is : 580.95.05\n"
    }  # fmt: skip
    ask = lambda argv: answers[argv[0]]  # noqa: E731
    assert survey.fabric_manager(tmp_path, ask) is None
    put(tmp_path, **{"dev__nvidia-nvswitch0": ""})
    assert survey.fabric_manager(tmp_path, ask) == {"active": True, "version": "580.95.05"}
    answers.update(systemctl="LoadState=loaded\nActiveState=failed\n")
    answers["nv-fabricmanager"] = None
    assert survey.fabric_manager(tmp_path, ask) == {"active": False, "version": None}
    answers.update(systemctl="LoadState=not-found\nActiveState=inactive\n")
    assert survey.fabric_manager(tmp_path, ask) == {"active": None, "version": None}


def test_the_engines_cuda_is_read_without_importing_it(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    assert survey.engine_build(str(python)) == {"found": False, "torch": None, "cuda": None}
    python.symlink_to("/bin/sh")
    text = "__version__ = '2.11.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
    put(tmp_path / "venv", **{"lib__python3.12__site-packages__torch__version.py": text})
    assert survey.engine_build(str(python)) == {"found": True, "torch": "2.11.0+cu130", "cuda": "13.0"}
    put(
        tmp_path / "venv",
        **{"lib__python3.12__site-packages__torch__version.py": "__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n"},
    )
    assert survey.engine_build(str(python))["cuda"] is None


def test_free_space_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert survey.free_gib(str(tmp_path / "a" / "b")) == pytest.approx(survey.free_gib(str(tmp_path)), abs=1)


def test_a_command_that_is_not_there_or_fails_is_none() -> None:
    assert survey.output(["/nowhere/tool"]) is None and survey.output(["false"]) is None and survey.output(["echo", "x"]) == "x\n"

"""What a host is, gathered for the preflight: boards through NVML, and what Linux tells. Nothing is judged here, and nothing changed.

A fact that the host does not tell is None, never a guess.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .gpus import MIB, GpuError, Nvml, Smi, read_board

XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+)")
MONITORED_LINES = 200_000  # of the kernel's log; older ones are of no use


def boards(nvml: Nvml) -> dict[str, Any]:
    """{driver, cuda, gpus, lost, error}: every board apart, so that a lost one does not hide the others.

    `error` is {message, remedy} when no board can be read at all; `lost` lists {index, error}.
    """
    found: dict[str, Any] = {"driver": None, "cuda": None, "gpus": [], "lost": [], "error": None}
    try:
        library = nvml.library()
        found["driver"] = nvml.driver()
        version = _told(library, library.nvmlSystemGetCudaDriverVersion)
        found["cuda"] = f"{version // 1000}.{version % 1000 // 10}" if version else None
        for index in range(library.nvmlDeviceGetCount()):
            try:
                found["gpus"].append(_board(library, index))
            except library.NVMLError as error:
                found["lost"].append({"index": index, "error": str(error)})
    except GpuError as error:
        if not shutil.which("nvidia-smi"):
            found["error"] = {"message": str(error), "remedy": error.remedy}
            return found
        return _by_smi(found)
    return found


def _by_smi(found: dict[str, Any]) -> dict[str, Any]:
    """The same through nvidia-smi, with less."""
    try:
        found["gpus"] = [_plain(gpu) for gpu in Smi().read()]
        found["driver"] = Nvml().driver()
    except GpuError as error:
        found["error"] = {"message": str(error), "remedy": error.remedy}
    return found


def _board(library: Any, index: int) -> dict[str, Any]:
    handle = library.nvmlDeviceGetHandleByIndex(index)
    ask = lambda name, *words: _told(library, getattr(library, name), handle, *words)  # noqa: E731
    mig, ecc, rows = ask("nvmlDeviceGetMigMode"), ask("nvmlDeviceGetEccMode"), ask("nvmlDeviceGetRemappedRows")
    capability, pci = ask("nvmlDeviceGetCudaComputeCapability"), ask("nvmlDeviceGetPciInfo")
    persistence, retired = ask("nvmlDeviceGetPersistenceMode"), ask("nvmlDeviceGetRetiredPagesPendingStatus")
    bus = pci.busId if pci else ""
    return {
        **_plain(read_board(library, index, handle)),
        "bus": bus.decode() if isinstance(bus, bytes) else str(bus),
        "capability": ".".join(str(one) for one in capability) if capability else None,
        "mig": None if mig is None else bool(mig[0]),
        "ecc": None if ecc is None else bool(ecc[0]),
        "uncorrected": ask("nvmlDeviceGetTotalEccErrors", library.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, library.NVML_VOLATILE_ECC),
        "repair_pending": None if rows is None and retired is None else bool(rows and rows[2]) or bool(retired),
        "repair_failed": None if rows is None else bool(rows[3]),
        "persistence": None if persistence is None else bool(persistence),
        "compute_mode": ask("nvmlDeviceGetComputeMode"),
        "recovery": _recovery(library, handle),
    }


def _recovery(library: Any, handle: Any) -> int | None:
    """What the driver itself wants done: 0 nothing, 1 reset, 2 reboot, 3 and 4 drain."""
    field = getattr(library, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
    values = _told(library, library.nvmlDeviceGetFieldValues, handle, [field]) if field is not None else None
    return int(values[0].value.uiVal) if values is not None and values[0].nvmlReturn == 0 else None


def _told(library: Any, ask: Callable[..., Any], *words: Any) -> Any:
    """An answer, or None where this driver or board has none."""
    try:
        return ask(*words)
    except library.NVMLError:
        return None


def _plain(gpu: Any) -> dict[str, Any]:
    holders = [{**vars(one), "shown": str(one)} for one in gpu.holders]
    return {**vars(gpu), "holders": holders}


# -- Linux


def host(root: Path = Path("/")) -> dict[str, Any]:
    """{kernel, memory_mib, available_mib, shm_mib, cpus, governors, nodes, nofile, memlock_kib}: what the engine shares the host with."""
    memory = _meminfo(root / "proc/meminfo")
    governors: dict[str, int] = {}
    for one in root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"):
        name = _text(one)
        governors[name] = governors.get(name, 0) + 1
    return {
        "kernel": os.uname().release,
        "memory_mib": memory.get("MemTotal", 0) // 1024,
        "available_mib": memory.get("MemAvailable", 0) // 1024,
        "shm_mib": _size_mib(root / "dev/shm"),
        "cpus": os.cpu_count(),
        "governors": governors,
        "nodes": len(list(root.glob("sys/devices/system/node/node[0-9]*"))),
        "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "memlock_kib": _limit(resource.RLIMIT_MEMLOCK),
    }


def numa_node(bus: str, root: Path = Path("/")) -> int | None:
    """The NUMA node of a PCI device, None where the host has one only or does not tell."""
    name = bus.lower()[-12:]  # NVML writes an eight digit domain, sysfs four
    text = _text(root / "sys/bus/pci/devices" / name / "numa_node")
    return int(text) if text.isdigit() else None


def free_gib(path: str) -> float | None:
    """GiB free for ordinary users on the file system of `path`, or of the nearest folder above that exists."""
    for one in (Path(path), *Path(path).parents):
        if one.exists():
            return round(shutil.disk_usage(one).free / 2**30, 1)
    return None


def xids(run: Callable[[Sequence[str]], str | None] | None = None) -> list[dict[str, Any]] | None:
    """[{bus, code, times}] of the kernel's log since boot, None where it cannot be read."""
    run = run or output
    text = run(["journalctl", "--dmesg", "--boot", "--no-pager", "--output=cat", f"--lines={MONITORED_LINES}"])
    text = text if text else run(["dmesg"])
    if text is None:
        return None
    seen: dict[tuple[str, int], int] = {}
    for bus, code in XID.findall(text):
        seen[bus, int(code)] = seen.get((bus, int(code)), 0) + 1
    return [{"bus": bus, "code": code, "times": times} for (bus, code), times in sorted(seen.items())]


def mps(root: Path = Path("/")) -> list[int]:
    """Processes of the Multi-Process Service."""
    found = []
    for comm in root.glob("proc/[0-9]*/comm"):
        if _text(comm).startswith("nvidia-cuda-mps"):
            found.append(int(comm.parent.name))
    return sorted(found)


def fabric_manager(root: Path = Path("/"), run: Callable[[Sequence[str]], str | None] | None = None) -> dict[str, Any] | None:
    """{active, version} of the fabric manager on a host with NVSwitch; None on others, and `active` None where systemd does not know it."""
    if not list(root.glob("dev/nvidia-nvswitch[0-9]*")):
        return None
    run = run or output
    shown = dict(line.split("=", 1) for line in (run(["systemctl", "show", "nvidia-fabricmanager"]) or "").splitlines() if "=" in line)
    known = shown.get("LoadState") == "loaded"
    version = re.search(r"\d+\.\d+[\d.]*", run(["nv-fabricmanager", "--version"]) or "")
    return {"active": shown.get("ActiveState") == "active" if known else None, "version": version[0] if version else None}


def engine_build(python: str) -> dict[str, Any]:
    """{found, torch, cuda} of the engine's interpreter, from torch's own files: nothing is imported."""
    folder = Path(python).parent.parent  # as written: a venv's python is a link out of it
    found: dict[str, Any] = {"found": Path(python).exists(), "torch": None, "cuda": None}
    for path in sorted(folder.glob("lib*/python3*/*-packages/torch/version.py")):
        text = _text(path)
        torch, cuda = re.search(r"__version__ = '([^']+)'", text), re.search(r"^cuda[^=]*= '([\d.]+)'", text, re.MULTILINE)
        found.update(torch=torch[1] if torch else None, cuda=cuda[1] if cuda else None)
    return found


def output(argv: Sequence[str]) -> str | None:
    """What a command prints, None where it cannot be run or fails."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=30, check=False)
        return done.stdout if done.returncode == 0 else None
    return None


def _meminfo(path: Path) -> Mapping[str, int]:
    return {key: int(value.split()[0]) for key, _, value in (line.partition(":") for line in _text(path).splitlines()) if value.split()}


def _size_mib(path: Path) -> int | None:
    try:
        return shutil.disk_usage(path).total // MIB
    except OSError:
        return None


def _limit(which: int) -> int | None:
    """A hard limit in KiB, None for no limit."""
    hard = resource.getrlimit(which)[1]
    return None if hard == resource.RLIM_INFINITY else hard // 1024


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""

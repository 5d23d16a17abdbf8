"""Look at a host without the toolkit's modules: print as JSON what systemd, the kernel, NVML and the engine say.

    look.py UNIT PORT
Runs with the Python of the toolkit's venv, for its pynvml.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from typing import Any

import pynvml

PROPERTIES = ("ActiveState", "SubState", "UnitFileState", "InvocationID", "NRestarts", "MainPID", "ControlGroup", "Result")


def unit_properties(unit: str) -> dict[str, str]:
    command = ["systemctl", "show", unit, "--property", ",".join(PROPERTIES)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def journal(unit: str) -> dict[str, list[str]]:
    """The unit's own lines by invocation, oldest first."""
    command = ["journalctl", "--unit", unit, "--output", "json", "--no-pager"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        entry = json.loads(line)
        if "_SYSTEMD_INVOCATION_ID" in entry and isinstance(entry.get("MESSAGE"), str):
            found.setdefault(entry["_SYSTEMD_INVOCATION_ID"], []).append(entry["MESSAGE"])
    return found


def jobs(unit: str) -> list[dict[str, Any]]:
    """What systemd says it did with the unit, oldest first."""
    command = ["journalctl", f"UNIT={unit}", "_PID=1", "--output", "json", "--no-pager"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    entries = [json.loads(line) for line in text.splitlines()]
    wanted = ("Started ", "Stopping ", "Stopped ")
    return [
        {"seconds": int(entry["__REALTIME_TIMESTAMP"]) / 1e6, "message": entry["MESSAGE"]}
        for entry in entries
        if str(entry["MESSAGE"]).startswith(wanted)
    ]


def gpus() -> list[dict[str, Any]]:
    """MiB in use and the pids of each GPU; memory v2, which leaves the driver's reserve out."""
    pynvml.nvmlInit()
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        pids = [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        found.append({"used_mib": memory.used >> 20, "total_mib": memory.total >> 20, "pids": pids})
    return found


def listeners(port: int) -> list[int]:
    """Pids of the processes with a listening TCP socket on the port."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as lines:
            for fields in (line.split() for line in list(lines)[1:]):
                if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    pids = []
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        try:
            targets = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        except OSError:
            continue
        if targets & inodes:
            pids.append(int(pid))
    return sorted(pids)


def in_cgroup(pid: int, cgroup: str) -> bool:
    """Whether one of the process's cgroups ends in the unit's: cgroup v1, v2 and hybrid."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="ascii") as lines:
            return any(line.strip().split(":", 2)[2].endswith(cgroup) for line in lines)
    except OSError:
        return False


def generation(port: int) -> dict[str, Any]:
    """A greedy generation: its text and meta_info."""
    body = {"text": "Name the first ten primes.", "sampling_params": {"temperature": 0, "max_new_tokens": 32, "ignore_eos": True}}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return json.load(answer)


def main() -> None:
    unit, port = sys.argv[1], int(sys.argv[2])
    properties = unit_properties(unit)
    owners = listeners(port)
    holders = gpus()
    cgroup = properties["ControlGroup"]
    pids = sorted(set(owners) | {pid for gpu in holders for pid in gpu["pids"]})
    print(
        json.dumps(
            {
                "unit": properties,
                "journal": journal(unit),
                "jobs": jobs(unit),
                "gpus": holders,
                "port_pids": owners,
                "outside_unit": [pid for pid in pids if not in_cgroup(pid, cgroup)],
                "generation": generation(port),
            }
        )
    )


if __name__ == "__main__":
    main()

"""Look at a host in any state, without the toolkit's modules: print as JSON what systemd, the kernel, NVML and the journal say.

seen.py UNIT PORT [INVOCATION]      the last whose journal is read, else that of the unit now
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml

PROPERTIES = "ActiveState,SubState,InvocationID,NRestarts,MainPID,ControlGroup,Result,LoadState"


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def journal(unit: str, invocation: str) -> list[dict[str, Any]]:
    """Lines of that invocation, the manager's own among them, with their time."""
    if not invocation:
        return []
    words = [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}", "+", f"UNIT={unit}", f"INVOCATION_ID={invocation}"]
    found = [json.loads(line) for line in output("journalctl", "--output=json", "--no-pager", "--all", *words).splitlines()]
    return [{"seconds": int(one["__REALTIME_TIMESTAMP"]) / 1e6, "line": str(one.get("MESSAGE"))} for one in found]


def engines() -> dict[int, str]:
    """Every process of an engine on this host, in whatever group: pid and title. The schedulers rename themselves."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip() if entry.name.isdigit() else ""
        except OSError:
            continue
        if "sglang.launch_server" in title or title.startswith("sglang::"):
            found[int(entry.name)] = title.split(" --")[0]
    return found


def group_pids(group: str) -> list[int]:
    """Processes of the unit's control group on v1, v2 and hybrid hosts."""
    pids: set[int] = set()
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"):
        for procs in Path(root + group).rglob("cgroup.procs") if group else ():
            pids |= {int(pid) for pid in procs.read_text().split()}
    return sorted(pids)


def listener(port: int) -> int:
    """Pid that listens on the port, 0 for nobody."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for fields in (line.split() for line in Path(table).read_text().splitlines()[1:]):
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for pid in (name for name in os.listdir("/proc") if name.isdigit()) if inodes else ():
        try:
            if inodes & {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}:
                return int(pid)
        except OSError:
            continue
    return 0


def gpus() -> list[int] | str:
    """MiB in use of each GPU, or why NVML does not tell."""
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used >> 20 for handle in handles]
    except pynvml.NVMLError as error:
        return str(error)


def main() -> None:
    unit, port, invocation = sys.argv[1], int(sys.argv[2]), "".join(sys.argv[3:])
    shown = dict(line.split("=", 1) for line in output("systemctl", "show", unit, "--property", PROPERTIES).splitlines())
    print(
        json.dumps(
            {
                "unit": shown,
                "pids": group_pids(shown.get("ControlGroup", "")),
                "engines": engines(),
                "port_pid": listener(port),
                "gpus": gpus(),
                "journal": journal(unit, invocation or shown.get("InvocationID", "")),
            }
        )
    )


if __name__ == "__main__":
    main()

"""What systemd, the kernel, NVML and the engine itself say; nothing of the toolkit's modules is used, so that they can be judged by it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pynvml

PROMPT = "Name the first ten primes, then go on as long as you can."


def say(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout


class Unit:
    """One systemd unit and the port that its engine serves."""

    def __init__(self, name: str, port: int) -> None:
        self.name, self.port = f"{name}.service", port

    def shown(self, *more: str) -> dict[str, str]:
        names = ("ActiveState", "SubState", "Result", "InvocationID", "MainPID", "ControlGroup", "NRestarts", *more)
        text = say("systemctl", "show", self.name, f"--property={','.join(names)}")
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def pids(self) -> list[int]:
        group = self.shown().get("ControlGroup", "")
        found = []
        for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"):
            with contextlib.suppress(OSError):
                if group:
                    found += [int(one) for one in Path(f"{root}{group}/cgroup.procs").read_text().split()]
        return sorted(set(found))

    def scheduler(self) -> int | None:
        """The pid of the unit's first scheduler process."""
        for pid in self.pids():
            with contextlib.suppress(OSError):
                if b"scheduler" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        return None

    def listener(self) -> int | None:
        inodes = set()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with contextlib.suppress(OSError):
                for fields in (line.split() for line in Path(table).read_text().splitlines()[1:]):
                    if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == self.port:
                        inodes.add(f"socket:[{fields[9]}]")
        for entry in Path("/proc").iterdir() if inodes else ():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and any(os.readlink(one) in inodes for one in (entry / "fd").iterdir()):
                    return int(entry.name)
        return None

    def get(self, path: str, body: Any = None, timeout: float = 3.0) -> tuple[int, str]:
        """(status, text); status 0 when nobody answers."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            headers = {"Content-Type": "application/json"}
            link.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
            answer = link.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            link.close()

    def accepts(self) -> bool:
        with socket.socket() as one:
            one.settimeout(0.5)
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def ready(self, before: str, config_id: str) -> str:
        """'' when the strict oracle holds now, else what is wrong: another invocation than `before` owns the port, and a generation
        of 32 tokens comes back within 3 s and carries `config_id`."""
        shown = self.shown()
        if not shown["InvocationID"] or shown["InvocationID"] == before:
            return "the old invocation runs"
        if self.listener() not in self.pids():
            return "the unit does not own the port"
        body = {"text": PROMPT, "sampling_params": {"temperature": 0, "max_new_tokens": 32, "ignore_eos": True}}
        status, text = self.get("/generate", body)
        if status != 200:
            return f"a generation gave {status or 'no answer'}"
        meta = json.loads(text)["meta_info"]
        if meta["completion_tokens"] != 32 or (config_id and meta.get("weight_version") != config_id):
            return f"the answer has {meta['completion_tokens']} tokens of {meta.get('weight_version')}"
        return "" if self.shown()["InvocationID"] == shown["InvocationID"] else "the invocation changed"

    def journal(self, since: float, own: bool = True) -> list[tuple[float, str]]:
        """(time, message) since a time; of the unit's processes, or with own=False what systemd says of it."""
        where = [f"_SYSTEMD_UNIT={self.name}"] if own else ["_PID=1", f"UNIT={self.name}"]
        text = say("journalctl", *where, f"--since=@{since:.3f}", "--output=json", "--all", "--no-pager", "--quiet")
        found = []
        for line in text.splitlines():
            entry = json.loads(line)
            words = entry.get("MESSAGE")
            if isinstance(words, list):  # bytes, as of a progress bar
                words = bytes(words).decode(errors="replace")
            found.append((int(entry["__REALTIME_TIMESTAMP"]) / 1e6, str(words or "")))
        return found


class Boards:
    """MiB in use on the watched GPUs, without the driver's reserve."""

    def __init__(self, count: int) -> None:
        pynvml.nvmlInit()
        self.handles = [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(min(count, pynvml.nvmlDeviceGetCount()))]

    def used(self) -> int:
        return max(pynvml.nvmlDeviceGetMemoryInfo(one, version=pynvml.nvmlMemory_v2).used >> 20 for one in self.handles)

    def describe(self) -> dict[str, Any]:
        names = {str(pynvml.nvmlDeviceGetName(one)) for one in self.handles}
        return {"gpu": ", ".join(sorted(names)), "gpus": len(self.handles), "driver": str(pynvml.nvmlSystemGetDriverVersion())}


class Watch:
    """Looks every 20 ms at the port and the VRAM while something happens: what the engine itself took."""

    def __init__(self, unit: Unit, boards: Boards, idle_mib: int = 1024) -> None:
        self.unit, self.boards, self.idle_mib = unit, boards, idle_mib
        self.samples: list[tuple[float, bool, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self.began = time.time()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.is_set():
            self.samples.append((time.time(), self.unit.accepts(), self.boards.used()))
            time.sleep(0.02)

    def own(self) -> dict[str, float]:
        """Seconds that the engine itself took: {stop, release, load}; empty where the journal does not tell."""
        said = self.unit.journal(self.began, own=False)
        stopping = next((at for at, words in said if words.startswith("Stopping ")), None)
        starting = [at for at, words in said if words.startswith(("Starting ", "Started "))]
        gone = [at for at, words in said if "Deactivated successfully" in words or "Failed with result" in words]
        if stopping is None or not gone or not [at for at in starting if at > gone[0]]:
            return {}
        dead, start = gone[0], min(at for at in starting if at > gone[0])
        free = next((at for at, _, used in self.samples if at >= dead and used <= self.idle_mib), dead)
        port = next((at for at, accepts, _ in self.samples if at > start and accepts), None)
        if port is None:
            return {}
        return {"stop": dead - stopping, "release": max(0.0, free - dead), "load": port - start, "port_at": port}


class Streams:
    """So many streams in flight, each started anew while the unit is active; none is sent once it begins to stop."""

    def __init__(self, unit: Unit, count: int, tokens: int) -> None:
        self.unit, self.tokens = unit, tokens
        self.ended = self.broken = 0
        self._active, self._lock = True, threading.Lock()
        self._threads = [threading.Thread(target=self._slot, args=(at,), daemon=True) for at in range(count)]
        self._guard = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Streams:
        for one in (*self._threads, self._guard):
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._active = False
        for one in self._threads:
            one.join(timeout=30)

    def _watch(self) -> None:
        while self._active:
            if self.unit.shown().get("ActiveState") != "active":
                self._active = False
            time.sleep(0.1)

    def _slot(self, at: int) -> None:
        number = 0
        while self._active:
            number += 1
            sampling = {"temperature": 0, "max_new_tokens": self.tokens, "ignore_eos": True}
            status, _ = self.unit.get("/generate", {"text": f"{at} {number} {PROMPT}", "sampling_params": sampling}, timeout=120)
            with self._lock:
                self.ended += status == 200
                self.broken += status != 200

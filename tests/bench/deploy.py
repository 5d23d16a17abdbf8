"""What does a rollout cost by the number of hosts? Simulated hosts over local connections: time per batch, controller memory, status.

    deploy.py [--quick] [--hosts 1,4,16,32]

Each host is a folder of its own with supervisord and a simulated engine of one GPU rank. What runs on a host runs on this machine too, so
its seconds are an upper bound: on a fleet they are spent elsewhere. `status_over` is the whole of status.yml less the slowest host's
answer, from the asking to what it said; `status_slowest` is the look itself within that, without the start of Python there and the way.
The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from localfleet import LocalFleet  # noqa: E402  needs the path above

SAMPLE = 0.25  # seconds between looks at the controller's memory


class Fleet(LocalFleet):
    """Hosts whose plays are measured."""

    def measured(self, play: str, number: int, *words: str) -> dict[str, float]:
        """{wall, cpu: of all processes, memory_mib: the most that the controller's held} of a play over the first hosts."""
        command, environment = self.command(play, "--limit", ",".join([*self.names[:number], "localhost"]), *words)
        environment |= {"ANSIBLE_LOG_PATH": str(self.folder / f"{play}-{number}.times"), "ANSIBLE_STDOUT_CALLBACK": "default"}
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        with (self.folder / f"{play}-{number}.log").open("w+") as log:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            memory = Memory(process.pid)
            try:
                ended = process.wait()
            finally:
                held = memory.end()
            log.seek(0)
            if ended:
                sys.exit(f"{play} over {number} hosts ended with {ended}: {log.read()[-3000:]}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"wall": round(time.monotonic() - began, 2), "cpu": round(cpu, 1), "memory_mib": held}

    def answer(self, play: str, number: int, task: str) -> float:
        """Seconds of a task that all hosts begin at once, until the last of them has answered; from the log of the play."""
        began, last = 0.0, 0.0
        for line in (self.folder / f"{play}-{number}.times").read_text().splitlines():
            if f"| TASK [{task}]" in line:
                began = clock(line)
            elif began and ("| TASK [" in line or "| PLAY [" in line):
                break
            elif began and "| ok: [" in line:
                last = clock(line)
        if not last:
            sys.exit(f"{play} over {number} hosts shows no answer of the task {task}")
        return round(last - began, 2)


def clock(line: str) -> float:
    """The time of a line of Ansible's log, in seconds."""
    return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()


class Memory:
    """The most MiB that Ansible's own processes, the main one and its workers, held together; shared pages count once."""

    def __init__(self, pid: int) -> None:
        self._pid, self._most, self._over = pid, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(SAMPLE):
            self._most = max(self._most, sum(map(proportional, [self._pid, *children(self._pid)])))

    def end(self) -> float:
        self._over.set()
        self._thread.join()
        return round(self._most, 1)


def children(pid: int) -> list[int]:
    """Its workers: direct children that are Ansible's own processes still, and no module."""
    try:
        found = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return [one for one in found if b"ansible-playbook" in Path(f"/proc/{one}/cmdline").read_bytes()]
    except OSError:
        return []


def proportional(pid: int) -> float:
    """MiB of a process, what it shares divided by how many share it."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    except (OSError, ValueError):
        return 0.0


def law(pairs: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """a and b of the line a + b n nearest to the pairs (n, value), by least squares; b is 0 where all n are one."""
    mean_n, mean = sum(n for n, _ in pairs) / len(pairs), sum(value for _, value in pairs) / len(pairs)
    spread = sum((n - mean_n) ** 2 for n, _ in pairs)
    b = sum((n - mean_n) * (value - mean) for n, value in pairs) / spread if spread else 0.0
    return round(mean - b * mean_n, 2), round(b, 3)


def measure(folder: Path, numbers: Sequence[int]) -> dict[str, Any]:
    fleet = Fleet(folder, max(numbers))
    rows: list[dict[str, Any]] = []
    batches: list[tuple[int, float]] = []
    try:
        fleet.measured("site", max(numbers), "-e", "budget=12 topk=6 tp=1", "--forks", "8")
        for at, number in enumerate(numbers):
            asked = f"budget={14 + at} topk=6 tp=1"
            took = fleet.measured("deploy", number, "-e", asked)
            state = json.loads((folder / "deploys" / "latest" / "deploy.json").read_text())
            times = [(len(one["hosts"]), one["ended_at"] - one["began_at"]) for one in state["times"]]
            batches += times
            seen = folder / "status.json"
            status = fleet.measured("status", number, "-e", asked, "-e", f"status_json={seen}")
            looks = [one["seconds"] for one in json.loads(seen.read_text())["hosts"].values() if "seconds" in one]
            answer, largest = fleet.answer("status", number, "ddtree_server : Look at the engine"), max(times)
            rows.append({
                "hosts": number, "deploy_s": took["wall"], "before_s": round(times_began(state) - state["ended_at"] + took["wall"], 1),
                "batches": len(times), "canary_s": round(times[0][1], 1), "largest_batch": largest[0],
                "largest_batch_s": round(largest[1], 1), "cpu_s": took["cpu"], "memory_mib": took["memory_mib"],
                "status_s": status["wall"], "status_slowest_s": max(looks), "status_answer_s": answer,
                "status_over_s": round(status["wall"] - answer, 2),
            })  # fmt: skip
    finally:
        fleet.close()
    a, b = law(batches)
    m, k = law([(row["hosts"], row["memory_mib"]) for row in rows])
    s, t = law([(row["hosts"], row["status_over_s"]) for row in rows])
    return {
        "rows": rows,
        "batch_s": {"fixed": a, "per_host": b},
        "memory_mib": {"fixed": m, "per_host": k},
        "status_over_s": {"fixed": s, "per_host": t},
    }


COLUMNS = (
    ("hosts", "hosts", ""), ("deploy_s", "whole deploy", " s"), ("before_s", "until the first batch", " s"), ("batches", "batches", ""),
    ("canary_s", "canary", " s"), ("largest_batch", "hosts in the largest batch", ""), ("largest_batch_s", "that batch", " s"),
    ("cpu_s", "CPU with the hosts' modules", " s"), ("memory_mib", "controller memory", " MiB"), ("status_s", "status.yml", " s"),
    ("status_slowest_s", "slowest look", " s"), ("status_answer_s", "slowest answer", " s"), ("status_over_s", "beyond it", " s"),
)  # fmt: skip
LAWS = (
    ("batch_s", "a batch of n hosts takes", "s"), ("memory_mib", "the controller holds, for n hosts,", "MiB"),
    ("status_over_s", "status.yml takes, beyond the slowest answer of n hosts,", "s"),
)  # fmt: skip


def times_began(state: dict[str, Any]) -> float:
    return float(state["times"][0]["began_at"])


def show(found: dict[str, Any]) -> None:
    print("| " + " | ".join(title for _, title, _ in COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for row in found["rows"]:
        print("| " + " | ".join(f"{row[key]:g}{unit}" for key, _, unit in COLUMNS) + " |")
    print()
    for name, what, unit in LAWS:
        print(f"- {what} about {found[name]['fixed']:g} + {found[name]['per_host']:g} n {unit}")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure rollouts by the number of hosts.")
    parser.add_argument("--quick", action="store_true", help="1 and 2 hosts")
    parser.add_argument("--hosts", default="1,4,16,32", help="numbers of hosts")
    asked = parser.parse_args()
    numbers = [1, 2] if asked.quick else sorted(int(one) for one in asked.hosts.split(","))
    with tempfile.TemporaryDirectory(prefix="ddtree-deploy-") as folder:
        found = measure(Path(folder), numbers)
    show(found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

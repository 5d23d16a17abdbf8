"""What does a sweep cost beyond the engine's own loads and the measuring? One simulated host, whole command against its parts.

    sweep.py [--quick] [--points N] [--point-seconds S]

Loads take half of a point, cells the other half. Own time: drain, stop, release, load and first generation of each start as the engine
needed them, the last start for the best point included, and each cell from its first request to its end. wall_ratio is the whole
command, plan and report included, over that; wall_ratio_projected is the same overhead for points of six minutes. What a point costs
beside its own time is the median over the points but the last, from one claim to the next; the rest is spent once. The last line printed
is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from simhost import free_port  # noqa: E402  needs the path above

BIN = Path(sys.executable).parent
OWN = ("drain", "stop", "release", "load", "generate")
REAL_LOAD, REAL_POINT = 360.0, 360.0


def options(folder: Path, seconds: float) -> dict[str, Any]:
    """A host of its own, whose load takes half of a point and whose two cells take the other."""
    return {
        "allowed_vars": ["local_root", "simulated_pattern"], "local_root": str(folder / "host"),
        "sweep_results": str(folder / "results"), "sweep_name": "bench",
        "ddtree_server_port": free_port(), "simulated_host_time_scale": REAL_LOAD / (seconds / 2), "sweep_controls": False,
        "benchmark_contexts": [60], "benchmark_concurrencies": [1, 32], "benchmark_coding": False, "benchmark_repeats_least": 1,
        "benchmark_precision": 0, "benchmark_repeats_most": 100, "benchmark_seconds_most": seconds / 4, "report_baseline": "",
        "topk": 4,
    }  # fmt: skip


def play(given: dict[str, Any], budgets: list[int]) -> float:
    """Seconds of the whole command."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1"}
    command = [str(BIN / "ansible-playbook"), str(ROOT / "sweep.yml"), "-e", json.dumps({**given, "budget": budgets})]
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the sweep ended with {done.returncode}: {done.stdout[-3000:]}")
    return time.monotonic() - began


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results" / "bench" / "events.jsonl").read_text().splitlines()]


def own(folder: Path) -> Counter[str]:
    """Seconds by what they were spent on, from results and events: load of the engine, cells, and the module's own part of a start."""
    spent: Counter[str] = Counter()
    for event in events(folder):
        for phase in event.get("phases") or [] if event["event"] == "loaded" else []:
            spent["load" if phase["name"] in OWN else "start"] += phase["seconds"]
    for path in (folder / "results" / "bench" / "local").glob("*.json"):
        for cell in json.loads(path.read_text())["cells"]:
            spent["measure"] += cell["wall_seconds"]
    return spent


def of_a_point(folder: Path) -> float:
    """Seconds that a point takes beside its own, the median."""
    claims = [(datetime.fromisoformat(one["time"]), str(one["point"])) for one in events(folder) if one["event"] == "point"]
    beside = []
    for (began, name), (ended, _) in zip(claims, claims[1:], strict=False):
        record = json.loads((folder / "results" / "bench" / "local" / f"{name}.json").read_text())
        mine = sum(one["seconds"] for one in record["restart"]["phases"] if one["name"] in OWN)
        beside.append((ended - began).total_seconds() - mine - sum(cell["wall_seconds"] for cell in record["cells"]))
    return statistics.median(beside)


def main() -> None:
    parser = argparse.ArgumentParser(description="Wall time of a sweep over the engine's own load and measuring time.")
    parser.add_argument("--quick", action="store_true", help="two points of 8 s, under a minute")
    parser.add_argument("--points", type=int, default=8)
    parser.add_argument("--point-seconds", type=float, default=30.0)
    asked = parser.parse_args()
    number, seconds = (2, 8.0) if asked.quick else (asked.points, asked.point_seconds)
    with tempfile.TemporaryDirectory(prefix="ddtree-sweep-") as name:
        folder = Path(name)
        given = options(folder, seconds)
        try:
            # The host is there before a sweep: a start of its own is no part of what is measured.
            command = [str(BIN / "ansible-playbook"), str(ROOT / "playbooks" / "simulated.yml"), "-e", json.dumps(given)]
            environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
            subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=environment)
            wall = play({**given, "simulated_pattern": []}, list(range(8, 8 + number)))
            spent, each = own(folder), of_a_point(folder)
        finally:
            subprocess.run([str(BIN / "supervisorctl"), "-c", str(folder / "host" / "etc" / "supervisord.conf"), "shutdown"], check=False,
                           capture_output=True)  # fmt: skip
    total = spent["load"] + spent["measure"]
    over = wall - total
    once = over - number * each
    print("| of the whole command | seconds | a point |")
    print("|---|---|---|")
    for label, value in (("the engine's own loads", spent["load"]), ("measuring", spent["measure"]), ("the rest", over), ("all", wall)):
        print(f"| {label} | {value:.1f} | {value / number:.1f} |")
    print(f"\n{number} points of about {seconds:.0f} s. The rest is about {once:.0f} s once and {each:.1f} s a point, of which "
          f"{spent['start'] / (number + 1):.1f} s are looks and proofs of the start.")  # fmt: skip
    figures = {
        "wall_ratio": round(wall / total, 4), "wall_ratio_projected": round(1 + over / (number * REAL_POINT), 4), "points": number,
        "once_seconds": round(once, 1), "point_seconds": round(each, 2),
    }  # fmt: skip
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

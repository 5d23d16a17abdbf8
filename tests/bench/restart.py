"""How often is "ready" wrong, and what does the proof cost? Restarts with random timings under real systemd, by three methods.

    restart.py [--quick] [--restarts N] [--seed N]

systemctl: `systemctl restart`, every second time with --no-block, then poll /v1/models. ansible: the modules systemd_service
(restarted) and uri on /health. module: sglang_service. A ready is false when at that moment a strict oracle says no: a new
invocation owns the port, and a generation of 32 tokens with the new configuration comes at once. overhead_s: seconds that the
module's phases take beyond the engine's own drain, release, load and first generation. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))

import ansible  # noqa: E402
from remotehost import FOLDER, PYTHON, Remote  # noqa: E402  needs the path above

GROUP = "bench"
METHODS = ("systemctl", "ansible", "module")
# systemd waits 10 s before it starts a crashed engine again; here loads are 200 times shorter, and so is this.
DROP_IN = "[Service]\nRestartSec=1s\n"


def trials(count: int, seed: int) -> list[dict[str, Any]]:
    """The methods in turn, each with the same list of random timings, in seconds."""
    rng = random.Random(seed)
    found = []
    for number in range(-(-count // len(METHODS))):
        faults = {
            "drain_seconds": rng.choice((0.0, rng.uniform(0.1, 1.5))),
            "vram_linger_seconds": rng.choice((0.0, rng.uniform(0.1, 1.2))),
            "load_seconds": rng.uniform(0.5, 1.5),
            "models_before_generate_seconds": rng.choice((0.0, rng.uniform(0.8, 2.0))),
        }
        in_flight = rng.choice((0, 0, rng.randint(40, 200)))
        for method in METHODS:
            found.append({"method": method, "no_block": bool(number % 2) and method == "systemctl", "in_flight": in_flight,
                          "faults": faults, "config_id": f"bench{number:04d}{method[:1]}"})  # fmt: skip
    return found[:count]


def bring_up() -> None:
    """A host with systemd, brought to serving by site.yml."""
    inventory = ROOT / ".cache" / "bench-inventory.json"
    inventory.write_text(
        json.dumps({"all": {"vars": {"test_group": GROUP}}, "simulated_hosts": {"hosts": {"gpu01": {"simulated_host_time_scale": 360}}}})
    )
    python = ROOT / ".venv" / "bin"
    wheels, library = ROOT / ".cache" / "wheels", ROOT / ".cache" / "nvml" / "libnvidia-ml.so.1"
    for command in (
        [ROOT / "tests" / "containers" / "artifacts", wheels, library],
        [ROOT / "tests" / "containers" / "hosts", "up", GROUP, "gpu01"],
        [
            python / "ansible-playbook",
            "-i",
            ROOT / "molecule" / "shared" / "inventory",
            "-i",
            inventory,
            ROOT / "site.yml",
            "-e",
            "budget=12 topk=6",
        ],
    ):
        done = subprocess.run(
            [str(word) for word in command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{' '.join(str(word) for word in command)} failed:\n{done.stdout[-4000:]}")


def measure(host: Remote, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    host.push()
    core = Path(ansible.__file__).parent / "modules"
    host.sh(f"mkdir -p {FOLDER}/modules")
    for path in (core / "systemd_service.py", core / "uri.py"):
        host.sh(f"cat > {FOLDER}/modules/{path.name}", path.read_text())
    host.sh(f"cat > {FOLDER}/restart_host.py", (ROOT / "tests" / "bench" / "files" / "restart_host.py").read_text())
    host.sh("mkdir -p /run/systemd/system/ddtree.service.d && cat > /run/systemd/system/ddtree.service.d/bench.conf", DROP_IN)
    process = host.start(f"{PYTHON} {FOLDER}/restart_host.py")
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(json.dumps({"trials": asked, "options": {"stop_timeout": 60, "release_timeout": 30, "ready_timeout": 60}}))
    process.stdin.close()
    found = []
    for line in process.stdout:
        found.append(json.loads(line))
        one = found[-1]
        said = one["false_ready"] or ("" if one["ready"] else f"no ready {one.get('failure') or ''}")
        print(f"{len(found):4d} {one['method']:<9} {one['seconds']:6.2f} s  {said}", file=sys.stderr, flush=True)
    if process.wait():
        sys.exit(f"the host gave up: {process.stderr.read()[-3000:]}")
    return found


def rows(found: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    def of(method: str, no_block: bool = False) -> list[dict[str, Any]]:
        return [one for one in found if one["method"] == method and one["no_block"] == no_block]

    return [
        ("systemctl restart, poll /v1/models", of("systemctl")),
        ("systemctl restart --no-block, poll /v1/models", of("systemctl", True)),
        ("systemd_service restarted, uri /health", of("ansible")),
        ("sglang_service", of("module")),
    ]


def table(found: list[dict[str, Any]]) -> str:
    lines = ["| method | restarts | false ready | why | no ready | seconds to ready, median |", "|---|---|---|---|---|---|"]
    for name, of in rows(found):
        why = Counter(one["false_ready"] for one in of if one["false_ready"])
        said = ", ".join(f"{reason} {count}" for reason, count in why.most_common())
        seconds = f"{median(one['seconds'] for one in of):.2f}" if of else ""
        lines.append(f"| {name} | {len(of)} | {sum(why.values())} | {said} | {sum(not one['ready'] for one in of)} | {seconds} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="False readies and overhead of a restart, by three methods.")
    parser.add_argument("--quick", action="store_true", help="9 restarts, under a minute once the host is up")
    parser.add_argument("--restarts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="leave the host running")
    asked = parser.parse_args()
    bring_up()
    host = Remote(GROUP)
    try:
        found = measure(host, trials(9 if asked.quick else asked.restarts, asked.seed))
    finally:
        host.close()
        if not asked.keep:
            subprocess.run([str(ROOT / "tests" / "containers" / "hosts"), "down", GROUP], check=False, stdout=subprocess.DEVNULL)
    proven = [one for one in found if "engine_seconds" in one]
    over = sorted(sum(one["phases"].values()) - one["engine_seconds"] for one in proven)
    overhead = {
        "median": round(median(over), 3),
        "p95": round(quantiles(over, n=20, method="inclusive")[-1] if len(over) > 1 else over[0], 3),
    }
    before = median(one["seconds"] - sum(one["phases"].values()) for one in proven)
    print(table(found))
    print(
        f"\nsglang_service beyond the engine's own drain, release, load and first generation, {len(over)} restarts: median "
        f"{overhead['median']} s, 95th percentile {overhead['p95']} s; that is {overhead['median'] / 3.6:.2f}% of six minutes. Of that, "
        + ", ".join(f"{name} {median(one['phases'][name] for one in proven):.2f} s" for name in ("inspect", "start", "verify"))
        + f". Starting and ending Python, as for any module, comes on top: {before:.2f} s."
    )
    false = {name: sum(bool(one["false_ready"]) for one in found if one["method"] == name) for name in METHODS}
    print(json.dumps({"false_ready": false, "restarts": len(found), "overhead_s": overhead}))


if __name__ == "__main__":
    main()

"""The controller killed at random moments: the same command ends in the complete set, and hardly a start is wasted."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter

import pytest
import sweeping

KILLS = int(os.environ.get("FLEET_KILLS", "2"))
POINTS = (
    "--extra-vars=budget=8,10,14 topk=4",
    "--extra-vars=sweep_share=split sweep_controls=false sweep_anchor=none sweep_finally=best",
)


@pytest.fixture(scope="module")
def usual() -> float:
    """Seconds of the same sweep when nobody kills it."""
    sweeping.forget("whole")
    began = time.monotonic()
    sweeping.sweep("whole", *POINTS, hosts=("gpu01", "gpu02"))
    return time.monotonic() - began


@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_sweep_goes_on_with_the_same_command(number: int, usual: float) -> None:
    name = f"killed{number}"
    sweeping.forget(name)
    since = time.time()
    moment = random.Random(f"{os.environ.get('FLEET_SEED', '6')}/{number}").uniform(0.1, 0.95) * usual
    process = sweeping.start(name, *POINTS, hosts=("gpu01", "gpu02"))
    time.sleep(moment)
    before = sweeping.measured(name)
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL) if number % 2 else os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    phase = [event.get("step") or event["event"] for event in sweeping.events(name)][-2:]
    sweeping.sweep(name, *POINTS, hosts=("gpu01", "gpu02"))
    found = sweeping.measured(name)
    assert set(found) == {"b8-k4-w2048", "b10-k4-w2048", "b14-k4-w2048"}
    assert all(len(hosts) == 1 for hosts in found.values()), found
    assert before.items() <= found.items(), "what was measured is not measured again"
    started: Counter[str] = sum((sweeping.starts(host, since) for host in ("gpu01", "gpu02")), Counter())
    names = {run["config_id"]: run["name"] for host in sweeping.plan_of(name)["hosts"].values() for run in host["runs"]}
    final = 2  # at the end both hosts are brought to the best point
    print(
        f"\nkilled after {moment:.1f} s at {phase}: {', '.join(f'{names.get(one, one)} started {count}' for one, count in started.items())}"
    )
    assert sum(started.values()) <= len(found) + final + 1
    assert max(started.values()) <= 1 + final + 1

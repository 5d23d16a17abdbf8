"""One host dies in the middle of a point: the others take the point up, and the sweep is complete."""

from __future__ import annotations

import subprocess
import time

import sweeping
from remotehost import container_engine


def test_the_points_of_a_host_that_dies_are_taken_up_by_the_others() -> None:
    sweeping.forget("lost")
    asked = ("--extra-vars=budget=4,6,9,11,13,15 topk=4", "--extra-vars=sweep_share=split sweep_controls=false sweep_finally=stop")
    process = sweeping.start("lost", *asked, "--extra-vars=benchmark_output_tokens=256")
    second = sweeping.wait_for("lost", host="gpu03", event="cell")  # its first point is measured
    sweeping.wait_for("lost", host="gpu03", event="point_ended")
    while sum(one["event"] == "step" and one.get("step") == "cell" and one["host"] == "gpu03" for one in sweeping.events("lost")) < 2:
        time.sleep(0.05)
        if any(one["event"] == "idle" and one["host"] == "gpu03" for one in sweeping.events("lost")):
            raise AssertionError("gpu03 got no second point")
    subprocess.run([container_engine(), "kill", sweeping.container("gpu03")], check=True, capture_output=True)
    code = process.wait(900)
    at = [one["point"] for one in sweeping.events("lost") if one["event"] == "point" and one["host"] == "gpu03"][-1]
    lost = [one for one in sweeping.events("lost") if one["event"] == "lost"]
    found = sweeping.measured("lost")
    assert second and code == 4, "Ansible says by 4 that a host was lost"
    assert [(one["host"], one["point"]) for one in lost] == [("gpu03", at)]
    assert set(found) == {f"b{budget}-k4-w2048" for budget in (4, 6, 9, 11, 13, 15)}
    assert set(found[at]) <= {"gpu01", "gpu02"} and found[at]

"""Dealt out over three hosts, a sweep runs on all of them at once; every host measured the anchor."""

from __future__ import annotations

import json
import os

import sweeping

# Loads of 20 s, as a sweep of a real engine spends most of its time in them; the anchor is what all hosts serve already. FLEET_TIME_SCALE=6
# makes them a minute, which shows what splitting gives (docs/benchmarks.md).
SCALE = f"--extra-vars=simulated_host_time_scale={float(os.environ.get('FLEET_TIME_SCALE', '18')):g}"
LONG = ("--extra-vars=@sweeps/seed.yml", "--extra-vars=sweep_controls=false", SCALE)


def test_split_measures_on_all_hosts_at_once() -> None:
    sweeping.forget("one")
    sweeping.forget("split")
    sweeping.sweep("one", *LONG, "--extra-vars=sweep_finally=previous", hosts=("gpu01",))
    assert len(sweeping.measured("one")) == 4
    said = sweeping.sweep("split", *LONG, "--extra-vars=sweep_share=split sweep_finally=previous")
    found = sweeping.measured("split")
    assert set(found) == set(sweeping.measured("one"))
    assert found["b12-k6-w2048"] == list(sweeping.HOSTS), "each host measures the anchor"
    others = [hosts for name, hosts in found.items() if name != "b12-k6-w2048"]
    assert sorted(others) == [["gpu01"], ["gpu02"], ["gpu03"]], "each other point is measured once, by a host of its own"
    one, split = sweeping.seconds("one"), sweeping.seconds("split")
    print(f"\none host {one:.1f} s, split over three {split:.1f} s: {split / one:.1%}")
    assert split < one
    apart = [event for event in sweeping.events("split") if event.get("point") not in (None, "b12-k6-w2048")]
    begun = [event["time"] for event in apart if event["event"] == "point"]
    ended = [event["time"] for event in apart if event["event"] == "point_ended"]
    assert len(begun) == len(ended) == 3 and max(begun) < min(ended), "hosts do not wait for each other"
    assert "gpu03: point" in said and "TASK [ddtree_server" not in said, "one line per host and point, no line per task"


def test_each_host_is_left_as_it_was() -> None:
    for host in sweeping.HOSTS:
        remote = sweeping.Remote("fleet", host)
        config = json.loads(remote.sh("cat /var/lib/ddtree-ops/ddtree.json"))["started"]["config_id"]
        kept = remote.sh("ls -d /var/lib/ddtree-ops/kept-* 2>/dev/null || true")
        remote.close()
        anchor = json.loads((sweeping.RESULTS / "split" / host / "b12-k6-w2048.json").read_text())
        assert config == anchor["config_id"] and not kept

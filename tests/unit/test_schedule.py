"""Who measures what next: no point lost, none measured twice but the anchor, whatever happens to hosts and controller."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddtree import schedule
from ddtree.results import merge
from ddtree.schedule import ScheduleError, begin, cause_of, claim, ended, left, load, lose, reusable, stop, stopping


def runs(*names: str, aliases: dict[str, list[str]] | None = None) -> list[dict[str, Any]]:
    return [{"name": name, "aliases": (aliases or {}).get(name, []), "config_id": f"id-{name}"} for name in names]


def opened(folder: Path, share: str = "split", hosts: int = 2, points: str = "abcd", **more: Any) -> str:
    """The id of a run over hosts h0, h1, ... that all have the same points."""
    loaded = more.pop("loaded", {})
    given_hosts = {f"h{at}": {"runs": runs(*points), "release": "r1", "loaded": loaded.get(f"h{at}", "")} for at in range(hosts)}
    return str(begin(folder, share, given_hosts, {"contexts": [60]}, **more)["run"]["id"])


def record(folder: Path, host: str, name: str, status: str = "ok", **more: Any) -> None:
    failure = {"cause": "crashed"} if status == "failed" else None
    merge(folder / host / f"{name}.json", {"config_id": f"id-{name}", "status": status, "failure": failure, **more})


def finish(folder: Path, host: str, run: str, status: str = "ok", cause: str = "") -> str:
    name = str(load(folder)["hosts"][host]["now"])
    record(folder, host, name, status)
    return ended(folder, host, run, status, cause)


def test_what_is_loaded_goes_first_and_then_the_order_asked(tmp_path: Path) -> None:
    run = opened(tmp_path, "replicate", 1, loaded={"h0": "id-c"})
    order = []
    while name := claim(tmp_path, "h0", run)["name"]:
        order.append(name)
        finish(tmp_path, "h0", run)
    assert order == list("cabd")


def test_each_host_measures_every_point_when_they_replicate(tmp_path: Path) -> None:
    run = opened(tmp_path, "replicate", 2)
    for host in ("h0", "h1"):
        first = claim(tmp_path, host, run)
        assert (first["name"], first["index"], first["of"], first["anchor"]) == ("a", 1, 4, False)
    finish(tmp_path, "h0", run)
    assert claim(tmp_path, "h0", run)["index"] == 2 and left(load(tmp_path), "h0") == 3 and left(load(tmp_path), "h1") == 4


def test_split_deals_each_point_once_and_the_anchor_to_all(tmp_path: Path) -> None:
    run = opened(tmp_path, hosts=3, loaded={"h0": "id-d", "h1": "id-d", "h2": "id-d"})
    assert load(tmp_path)["anchor"] == "d", "what most hosts have loaded costs no start"
    got: dict[str, list[str]] = {host: [claim(tmp_path, host, run)["name"]] for host in ("h0", "h1", "h2")}
    assert [one for found in got.values() for one in found] == ["d", "d", "d"]
    for host in got:
        finish(tmp_path, host, run)
        got[host].append(claim(tmp_path, host, run)["name"])
    assert sorted(one[1] for one in got.values()) == ["a", "b", "c"]


def test_a_host_that_has_nothing_else_to_do_measures_no_anchor(tmp_path: Path) -> None:
    run = opened(tmp_path, points="a")
    assert claim(tmp_path, "h0", run)["name"] == "a"
    finish(tmp_path, "h0", run)
    assert claim(tmp_path, "h1", run) == {"name": "", "why": "every point is measured"}


def test_a_point_that_another_host_has_loaded_is_left_to_it(tmp_path: Path) -> None:
    run = opened(tmp_path, anchor="none", loaded={"h1": "id-a"})
    assert [claim(tmp_path, host, run)["name"] for host in ("h0", "h1")] == ["b", "a"]


def test_the_anchor_may_be_named_and_must_be_a_point(tmp_path: Path) -> None:
    opened(tmp_path, anchor="c")
    assert load(tmp_path)["anchor"] == "c"
    opened(tmp_path, anchor="none")
    assert load(tmp_path)["anchor"] == ""
    with pytest.raises(ScheduleError, match="sweep_anchor is x, which is none of the points: a, b, c, d"):
        opened(tmp_path, anchor="x")
    with pytest.raises(ScheduleError, match="sweep_share is 'both'"):
        opened(tmp_path, "both")


def test_hosts_on_which_other_points_make_the_same_engine_still_share(tmp_path: Path) -> None:
    hosts = {"h0": {"runs": runs("a", "c", aliases={"a": ["b"]})}, "h1": {"runs": runs("b", "c")}}
    run = str(begin(tmp_path, "split", hosts, {}, anchor="none")["run"]["id"])
    assert claim(tmp_path, "h0", run)["name"] == "a"
    assert claim(tmp_path, "h1", run)["name"] == "c", "b is what h0 measures as a"


def test_the_point_of_a_lost_host_goes_to_one_that_waited_for_it(tmp_path: Path) -> None:
    run = opened(tmp_path, points="ab", anchor="none")
    claim(tmp_path, "h0", run)
    claim(tmp_path, "h1", run)
    finish(tmp_path, "h0", run)
    assert "waiting for h1" in claim(tmp_path, "h0", run, wait=0)["why"]
    timer = threading.Timer(0.3, lose, (tmp_path, "h1"))
    timer.start()
    assert claim(tmp_path, "h0", run, wait=10)["name"] == "b"
    timer.join()


def test_who_waits_ends_when_its_run_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as controller:
        run = opened(tmp_path, points="ab", anchor="none", pid=controller.pid)
        claim(tmp_path, "h0", run)
        claim(tmp_path, "h1", run)
        finish(tmp_path, "h0", run)
        assert "waiting for h1" in claim(tmp_path, "h0", run, wait=0)["why"]
        killer = threading.Timer(0.3, controller.kill)
        reaper = threading.Thread(target=controller.wait)
        killer.start()
        reaper.start()
        with pytest.raises(ScheduleError, match="was killed"):
            claim(tmp_path, "h0", run, wait=10)
        killer.join()
        reaper.join()


def test_two_causes_in_a_row_that_no_point_cures_end_the_host_and_leave_its_points_to_others(tmp_path: Path) -> None:
    run = opened(tmp_path, hosts=2, points="abc", anchor="none")
    assert claim(tmp_path, "h0", run)["name"] == "a"
    assert finish(tmp_path, "h0", run, "failed", "no_gpu") == ""
    assert claim(tmp_path, "h0", run)["name"] == "b"
    said = finish(tmp_path, "h0", run, "failed", "foreign_vram")
    assert said.startswith("h0 measures nothing more: its last 2 points ended with no_gpu and foreign_vram")
    assert claim(tmp_path, "h0", run)["why"] == said
    assert [claim(tmp_path, "h1", run)["name"], finish(tmp_path, "h1", run), claim(tmp_path, "h1", run)["name"]] == ["a", "", "b"]


def test_a_failure_of_the_point_itself_ends_nothing_and_is_not_tried_elsewhere(tmp_path: Path) -> None:
    run = opened(tmp_path, points="ab", anchor="none")
    claim(tmp_path, "h0", run)
    for _ in range(1):
        assert finish(tmp_path, "h0", run, "failed", "out_of_memory") == ""
    assert claim(tmp_path, "h1", run)["name"] == "b" and load(tmp_path)["hosts"]["h0"]["loaded"] == ""


def test_only_causes_in_a_row_count(tmp_path: Path) -> None:
    run = opened(tmp_path, "replicate", 1)
    for status, cause in (("failed", "no_gpu"), ("ok", ""), ("failed", "no_gpu"), ("failed", "crashed")):
        claim(tmp_path, "h0", run)
        assert finish(tmp_path, "h0", run, status, cause) == ""


def test_a_full_disk_is_known_by_what_the_system_says() -> None:
    assert cause_of({"cause": "crashed", "log_tail": ["OSError: [Errno 28] No space left on device"]}) == "disk_full"
    assert cause_of({"message": "Destination /x not writable: No space left on device"}) == "disk_full"
    assert cause_of({"cause": "crashed", "message": "no spaceship"}) == "crashed" and cause_of({}) == ""


def test_a_stop_gives_no_more_points_and_takes_back_what_was_begun(tmp_path: Path) -> None:
    run = opened(tmp_path, "replicate", 1)
    claim(tmp_path, "h0", run)
    stop(tmp_path, "stopped by Ctrl-C")
    assert stopping(tmp_path) == "stopped by Ctrl-C"
    assert ended(tmp_path, "h0", run, "interrupted") == "stopped by Ctrl-C"
    assert claim(tmp_path, "h0", run) == {"name": "", "why": "stopped by Ctrl-C"} and load(tmp_path)["hosts"]["h0"]["done"] == {}
    assert opened(tmp_path, "replicate", 1) and not stopping(tmp_path), "the next run goes on"


def test_a_new_run_takes_over_and_the_old_one_notices(tmp_path: Path) -> None:
    old = opened(tmp_path)
    claim(tmp_path, "h0", old)
    new = opened(tmp_path)
    assert claim(tmp_path, "h0", new)["name"] == "a", "claims of a run that died are void"
    for again in (lambda: claim(tmp_path, "h0", old), lambda: ended(tmp_path, "h0", old, "ok")):
        with pytest.raises(ScheduleError, match="another run"):
            again()
    with pytest.raises(ScheduleError, match="h9 takes no part in this sweep: h0, h1 do"):
        claim(tmp_path, "h9", new)


def test_what_is_measured_already_is_done_unless_it_was_something_else(tmp_path: Path) -> None:
    record(tmp_path, "h0", "a")
    record(tmp_path, "h0", "b", release="r0")
    record(tmp_path, "h0", "c", matrix={"contexts": [1024]})
    record(tmp_path, "h0", "d", "failed")
    run = opened(tmp_path, "replicate", 1)
    state = load(tmp_path)["hosts"]["h0"]
    assert state["done"] == {"a": "ok"} and claim(tmp_path, "h0", run)["name"] == "b"
    assert [note.split(":")[0] for note in state["notes"]] == [
        "b was measured with engine release r0, now r1",
        "c was measured with benchmark_contexts [1024], now [60]",
    ]
    assert reusable({"config_id": "x"}, "y", "", {}) == "configuration x, now y" and reusable({}, "y", "r", {"a": 1}) == ""


def test_a_file_that_is_no_state_or_no_result_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "h0").mkdir()
    (tmp_path / "h0" / "a.json").write_text("{")
    with pytest.raises(ScheduleError, match=r"a\.json is no complete JSON"):
        opened(tmp_path)
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(ScheduleError, match=r"sweep\.json is no complete JSON .* delete it, the results stay"):
        load(tmp_path)


def test_many_hosts_at_once_share_without_taking_a_point_twice(tmp_path: Path) -> None:
    run = opened(tmp_path, hosts=6, points="abcdefghijkl", anchor="none")
    got: list[tuple[str, str]] = []

    def host(name: str) -> None:
        while point := claim(tmp_path, name, run)["name"]:
            got.append((point, name))
            time.sleep(0.002)
            finish(tmp_path, name, run)

    threads = [threading.Thread(target=host, args=(f"h{at}",)) for at in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(point for point, _ in got) == list("abcdefghijkl")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["ok", "failed", "unfit", "lose", "kill"])), max_size=14))
def test_whatever_happens_a_rerun_ends_in_the_complete_set(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]) -> None:
    folder = tmp_path_factory.mktemp("sweep")
    run, lost = opened(folder, hosts=3, points="abcde"), set[str]()
    for at, what in steps:
        host = f"h{at}"
        if what == "kill":
            run, lost = opened(folder, hosts=3, points="abcde"), set()
        elif host not in lost and claim(folder, host, run, wait=0)["name"]:
            if what == "lose":
                lose(folder, host)
                lost.add(host)
            else:
                status, cause = ("failed", "no_gpu") if what == "unfit" else (what, "")
                finish(folder, host, run, status, cause)
        state = load(folder)
        busy = [one["now"] for one in state["hosts"].values() if one["now"] and one["now"] != state["anchor"]]
        assert len(busy) == len(set(busy)), "no two hosts at one point but the anchor"
    run = opened(folder, hosts=3, points="abcde")
    for _ in range(6):
        for at in range(3):
            if claim(folder, f"h{at}", run, wait=0)["name"]:
                finish(folder, f"h{at}", run)
    good = {path.stem for path in folder.glob("h*/*.json") if json.loads(path.read_text())["status"] == "ok"}
    assert good == set("abcde")
    assert schedule.FILE in {path.name for path in folder.iterdir()}

"""The plan of a fleet-wide change never leaves fewer hosts in service than asked, whatever fails or dies on the way."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree import deploys, rollout
from ddtree.rollout import DEPLOYED, LOST, ROLLED_BACK, UNTOUCHED, RolloutError

STEPS = st.lists(st.one_of(st.integers(1, 6), st.sampled_from(["1", "10%", "25%", "50%", "100%"])), min_size=1, max_size=4)
FLEET = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)  # (serves, is to be changed)


def host(serving: bool = True, reason: str = "configuration a runs, b is asked", **more: Any) -> dict[str, Any]:
    return {"serving": serving, "reason": reason, "expected": 60.0, **more}


def fleet(number: int, **more: Any) -> dict[str, dict[str, Any]]:
    return {f"gpu{at:02d}": host(**more) for at in range(number)}


@given(FLEET, STEPS, st.integers(0, 40))
def test_never_below_the_floor_and_each_host_once(hosts: list[tuple[bool, bool]], steps: list[Any], least: int) -> None:
    turns = {f"h{at}": serves for at, (serves, change) in enumerate(hosts) if change}
    serving = sum(serves for serves, _ in hosts)
    try:
        found = rollout.batches(turns, serving, least, steps)
    except RolloutError:
        assert any(turns.values()) and serving - least < 1, "refused only where the floor leaves nobody to take"
        return
    assert sorted(name for batch in found for name in batch) == sorted(turns)
    allowed = rollout.sizes(steps, len(turns))
    for number, batch in enumerate(found):
        assert 1 <= len(batch) <= allowed[min(number, len(allowed) - 1)]
        down = sum(turns[name] for name in batch)
        assert not down or serving - down >= least, "taken out together, they would leave too few"
        serving += sum(not turns[name] for name in batch)


@given(FLEET, STEPS, st.integers(0, 40), st.data())
def test_a_run_in_which_hosts_fail_and_die_never_goes_below_the_floor(
    hosts: list[tuple[bool, bool]], steps: list[Any], least: int, data: st.DataObject
) -> None:
    """The plan and its gates played through: after each batch, hosts anywhere may have gone out of the router by themselves."""
    seen = {f"h{at}": host(serves, "changed" if change else "", router="r", worker=f"w{at}") for at, (serves, change) in enumerate(hosts)}
    worker = {name: one["worker"] for name, one in seen.items()}
    with contextlib.suppress(RolloutError):
        plan = rollout.plan(seen, steps, least)
        up = {name for name, one in seen.items() if one["serving"]}
        for batch in plan["batches"]:
            if rollout.gate(plan, batch, {"url": "r", "workers": [worker[name] for name in up]}):
                return
            taken = up & set(batch)
            up -= taken
            assert not taken or len(up) >= least
            ends = [data.draw(st.sampled_from([DEPLOYED, DEPLOYED, DEPLOYED, ROLLED_BACK, LOST, UNTOUCHED])) for _ in batch]
            for name, end in zip(batch, ends):
                plan["hosts"][name]["outcome"] = end
            up |= {name for name, end in zip(batch, ends) if end in (DEPLOYED, ROLLED_BACK)}
            up -= set(data.draw(st.lists(st.sampled_from(sorted(seen)), max_size=2)))
            if any(end != DEPLOYED for end in ends) and batch != plan["batches"][-1]:
                later = plan["batches"][plan["batches"].index(batch) + 1]
                assert rollout.gate(plan, later), "a batch after one that did not end well never begins"
                return


def test_canary_then_widening_batches() -> None:
    found = rollout.plan(fleet(12), [1, "25%"], "75%")
    assert found["sizes"] == [1, 3, 3, 3, 2] and found["min_available"] == 9
    assert found["order"] == list(fleet(12))


def test_a_batch_shrinks_to_the_floor() -> None:
    assert rollout.plan(fleet(6), [1, "100%"], 4)["sizes"] == [1, 2, 2, 1]


def test_a_host_that_does_not_serve_is_free_and_goes_first_where_no_other_can() -> None:
    hosts = {**fleet(2), "dead": host(False, "the unit is failed")}
    found = rollout.plan(hosts, [1, 2], 2)
    assert found["batches"] == [["dead"], ["gpu00"], ["gpu01"]], "brought up, it makes room for the others"


def test_hosts_that_run_what_is_asked_are_left_alone_and_count() -> None:
    found = rollout.plan({"a": host(), "b": host(reason=""), "c": host(reason="")}, 1, 2)
    assert found["order"] == ["a"] and found["hosts"]["b"]["outcome"] == UNTOUCHED
    assert "b: runs as asked, left alone" in rollout.lines(found)


def test_an_unreachable_host_counts_as_out_of_service() -> None:
    hosts: dict[str, dict[str, Any]] = {**fleet(3), "gone": {}}
    assert rollout.plan(hosts, 1, 2)["hosts"]["gone"]["outcome"] == LOST
    with pytest.raises(RolloutError, match="3 hosts serve and deploy_min_available is 3, so gpu00 cannot be taken out"):
        rollout.plan(hosts, 1, "75%")


def test_a_host_that_is_refused_stops_all() -> None:
    with pytest.raises(RolloutError, match=r"gpu01: leased to eve; .*|gpu01: leased to eve\. Nothing that serves was touched"):
        rollout.plan({**fleet(2), "gpu01": {"refused": "leased to eve"}}, 1, 0)


@pytest.mark.parametrize(("given", "said"), [("many", "neither a number"), ("120%", "neither a number"), ("", "neither"), (-1, "neither")])
def test_a_floor_that_means_nothing_is_refused(given: Any, said: str) -> None:
    with pytest.raises(RolloutError, match=said):
        rollout.amount(given, 4, "deploy_min_available")


@pytest.mark.parametrize("given", [[], [0], "0%", [1, "0"]])
def test_a_batch_of_nobody_is_refused(given: Any) -> None:
    with pytest.raises(RolloutError, match="at least 1"):
        rollout.sizes(given, 4)


def test_sizes_come_from_the_command_line_too() -> None:
    assert rollout.sizes("1,25%", 8) == [1, 2] and rollout.sizes(3, 8) == [3] and rollout.sizes("10%", 4) == [1]


def test_the_gate_asks_the_router_who_serves() -> None:
    hosts = {f"h{at}": host(router="http://r", worker=f"http://h{at}") for at in range(4)}
    plan = rollout.plan(hosts, [1], 2)
    assert rollout.gate(plan, ["h0"], {"url": "http://r", "workers": [f"http://h{at}" for at in range(3)]}) == ""
    why = rollout.gate(plan, ["h0"], {"url": "http://r", "workers": ["http://h0", "http://h1"]})
    assert why == "2 hosts serve now and 1 of them would be taken out: 1 would be left, and deploy_min_available is 2"
    assert rollout.gate(plan, ["h0"], {"url": "http://r", "workers": []}) == "", "what is down already costs nothing"


def test_the_file_tells_what_became_of_each(tmp_path: Path) -> None:
    plan = rollout.plan({**fleet(4), "gone": {}, "same": host(reason="")}, [1], 3)
    deploys.begin(tmp_path, plan, {"what": "deploy", "who": "ada@ops"})
    assert deploys.next_batch(tmp_path, ["gpu00"]) == ""
    deploys.note(tmp_path, ["gpu00"], DEPLOYED, "soak 140.0 token/s")
    assert deploys.next_batch(tmp_path, ["gpu01"]) == ""
    why = deploys.next_batch(tmp_path, ["gpu02"])  # nobody told how gpu01 ended
    assert why == "gpu01 is lost"
    state = deploys.end(tmp_path, {"gone": "no route to host"})
    outcomes = {name: one["outcome"] for name, one in state["hosts"].items()}
    assert outcomes == {"gpu00": DEPLOYED, "gpu01": LOST, "gpu02": UNTOUCHED, "gpu03": UNTOUCHED, "gone": LOST, "same": UNTOUCHED}
    assert state["hosts"]["gpu03"]["detail"] == "not reached, since gpu01 is lost"
    table = rollout.summary(state)
    assert table[-1] == "1 deployed, 0 rolled back, 3 untouched, 2 lost" and len(table) == 8
    assert deploys.load(tmp_path)["ended"]


def test_a_host_that_failed_stops_what_follows(tmp_path: Path) -> None:
    deploys.begin(tmp_path, rollout.plan(fleet(3), [1], 1), {"what": "deploy"})
    assert deploys.next_batch(tmp_path, ["gpu00"]) == ""
    deploys.note(tmp_path, ["gpu00"], ROLLED_BACK, "out_of_memory")
    assert deploys.next_batch(tmp_path, ["gpu01"]) == "gpu00 is rolled back"
    assert deploys.end(tmp_path, {})["hosts"]["gpu01"]["detail"] == "not reached, since gpu00 is rolled back"


def test_an_outcome_is_one_of_four_words(tmp_path: Path) -> None:
    deploys.begin(tmp_path, rollout.plan(fleet(1), 1, 0), {})
    with pytest.raises(ValueError, match="none of deployed, rolled back, untouched, lost"):
        deploys.note(tmp_path, ["gpu00"], "fine", "")


def test_a_host_that_could_not_be_taken_stops_what_follows(tmp_path: Path) -> None:
    deploys.begin(tmp_path, rollout.plan(fleet(3), [1], 1), {"what": "deploy"})
    deploys.note(tmp_path, ["gpu00"], UNTOUCHED, "leased to eve")
    assert deploys.next_batch(tmp_path, ["gpu00"]) == "gpu00 could not be taken"
    state = deploys.end(tmp_path, {})
    assert [one["detail"] for one in state["hosts"].values()] == ["leased to eve", *["not reached, since gpu00 could not be taken"] * 2]

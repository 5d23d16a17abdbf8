"""The restart under every interleaving: what it reports must be true, and what it kills must be its own."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import LOADED_MIB, NEVER, FakeRouter, Plan, World, lifecycle
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ddtree.ports import CAUSES, PHASES, RestartError


def names(life) -> list[str]:
    return [phase["name"] for phase in life.outcome.phases]


def failed(world: World, **want) -> RestartError:
    with pytest.raises(RestartError) as caught:
        lifecycle(world, **want).run()
    return caught.value


def test_a_restart_runs_each_phase_in_order() -> None:
    life = lifecycle(World())
    outcome = life.run()
    assert names(life) == list(PHASES)
    assert outcome.changed
    assert outcome.ready["weight_version"] == "newcfg"
    assert outcome.before.invocation == "inv1" and outcome.after.invocation == "inv2"


def test_the_old_process_answering_while_it_drains_is_not_ready() -> None:
    """The origin story: the old instance answers for 8 s more and its VRAM is held 5 s longer."""
    world = World(old=Plan(drain=8.0, vram_lag=5.0))
    lifecycle(world).run()
    assert world.vram_at_start == 0 and world.pids_at_start == set()
    assert world.time >= 8 + 5 + world.new.load + world.new.generate_after


def test_br02_port_free_and_unit_inactive_do_not_end_the_wait() -> None:
    world = World(old=Plan(drain=0.1, vram_lag=40.0))
    lifecycle(world).run()
    assert world.vram_at_start == 0


def test_br01_vram_that_is_never_released_means_no_start() -> None:
    world = World(old=Plan(vram_lag=NEVER))
    failure = failed(world, release_timeout=20)
    assert (failure.phase, failure.cause) == ("release", "vram_not_released")
    assert "start" not in world.calls
    assert failure.evidence["held_mib"][0] == LOADED_MIB


def test_br53_a_child_left_in_the_group_is_waited_for_and_ended() -> None:
    world = World(old=Plan(child_survives=500.0))
    lifecycle(world).run()
    assert world.killed == {1001}


def test_br52_a_stop_that_ended_in_sigkill_is_told() -> None:
    outcome = lifecycle(World(old=Plan(ignores_sigterm=True))).run()
    assert outcome.killed


def test_an_engine_that_kills_itself_after_its_drain_was_not_cut_off() -> None:
    outcome = lifecycle(World(old=Plan(ends_by_signal=True))).run()
    assert not outcome.killed
    assert [one["detail"] for one in outcome.phases if one["name"] == "stop"] == ["ended itself by a signal"]


@pytest.mark.parametrize("mib", [0, 103, 256, 900])
def test_br07_some_memory_held_by_others_is_no_failure(mib: int) -> None:
    lifecycle(World(foreign_mib={3: mib})).run()


def test_another_tenant_is_refused_before_the_server_is_stopped() -> None:
    world = World(foreign_mib={5: 60_000})
    failure = failed(world)
    assert (failure.phase, failure.cause) == ("inspect", "foreign_vram")
    assert "GPU 5" in failure.message and "python train.py" in failure.message
    assert world.calls == [] and world.state().active == "active"


def test_a_lost_gpu_leaves_the_running_server_alone() -> None:
    world = World(lost_gpu=True)
    assert failed(world).cause == "no_gpu"
    assert world.calls == []


def test_a_port_of_somebody_else_is_refused_before_the_stop() -> None:
    world = World(foreign_listener=True)
    assert (failed(world).cause, world.calls) == ("port_in_use", [])


def test_a_crash_while_loading_is_told_at_once() -> None:
    world = World(new=Plan(load=300.0, crash_after=20.0))
    failure = failed(world)
    assert (failure.phase, failure.cause) == ("load", "crashed")
    assert world.time < 3 + 20 + 2


def test_br40_a_crash_loop_is_told_and_ended() -> None:
    world = World(new=Plan(load=300.0, crash_after=2.0, restart_always=True))
    failure = failed(world)
    assert failure.cause == "crash_loop"
    assert world.calls[-1] == "stop", "the loop must not go on all night"


def test_br03_out_of_memory_tells_what_was_held_at_the_start() -> None:
    failure = failed(World(new=Plan(load=300.0, fatal_after=5.0)))
    assert (failure.phase, failure.cause) == ("load", "out_of_memory")
    assert failure.evidence["vram_at_start_mib"] == [0] * 8


def test_a_generation_that_hangs_is_a_failure_and_not_a_wait_for_ever() -> None:
    world = World(new=Plan(hang=True))
    failure = failed(world, generate_timeout=10)
    assert (failure.phase, failure.cause) == ("generate", "generation_failed")


def test_a_wrong_configuration_is_a_mismatch() -> None:
    failure = failed(World(new=Plan(loads_config="other")))
    assert (failure.phase, failure.cause) == ("verify", "config_mismatch")
    assert failure.evidence["mismatch"]["speculative_draft_window_size"] == {"asked": 2048, "loaded": 512}


def test_a_load_that_never_ends_is_given_up() -> None:
    assert failed(World(new=Plan(load=NEVER)), ready_timeout=30).cause == "load_timeout"


def test_started_leaves_alone_what_runs_as_asked() -> None:
    world, record = World(), dict[str, Any]()
    lifecycle(world, record, state="restarted").run()
    calls = list(world.calls)
    outcome = lifecycle(world, record, state="started").run()
    assert not outcome.changed and world.calls == calls


def test_started_restarts_when_the_definition_changed() -> None:
    world, record = World(), dict[str, Any]()
    lifecycle(world, record).run()
    world.definition_text = "unit with another flag"
    outcome = lifecycle(world, record, state="started").run()
    assert outcome.changed and "definition" in outcome.reason


@pytest.mark.parametrize("changed", [True, False], ids=["after its start", "before its start"])
def test_started_restarts_what_others_started_before_the_definition_changed(changed: bool) -> None:
    world, record = World(), dict[str, Any]()
    lifecycle(world, record).run()
    world.stop()
    world.sleep(60)
    world.start()
    world.sleep(60)
    world.definition_text, world.changed = "unit with another user", changed
    outcome = lifecycle(world, record, state="started").run()
    assert outcome.changed is changed and ("someone else" in outcome.reason) is changed


def test_a_file_that_was_only_touched_is_no_change() -> None:
    world, record = World(), dict[str, Any]()
    lifecycle(world, record).run()
    record["started"]["invocation"] = "of systemd's own restart"
    world.changed = True
    assert not lifecycle(world, record, state="started").run().changed


def test_a_run_cut_off_after_the_start_is_picked_up_without_another_start() -> None:
    world, record = World(), dict[str, Any]()
    life = lifecycle(world, record)
    life._load = lambda: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        life.run()
    outcome = lifecycle(world, record, state="started").run()
    assert world.calls.count("start") == 1
    assert outcome.ready["weight_version"] == "newcfg"


def test_a_failed_start_is_not_picked_up_but_started_anew() -> None:
    world, record = World(new=Plan(hang=True)), dict[str, Any]()
    with pytest.raises(RestartError):
        lifecycle(world, record, generate_timeout=5).run()
    world.new = Plan()
    lifecycle(world, record, state="started", generate_timeout=5).run()
    assert world.calls.count("start") == 2


def test_check_mode_changes_nothing_and_tells_why_it_would() -> None:
    world = World()
    outcome = lifecycle(world, check=True).run()
    assert outcome.changed and outcome.reason and world.calls == []


def test_stopped_waits_for_the_memory_too() -> None:
    world = World(old=Plan(vram_lag=7.0))
    lifecycle(world, state="stopped").run()
    assert world.used(0) == 0 and "start" not in world.calls


@pytest.mark.parametrize("mib", [300, 60_000])
def test_stopped_does_not_mind_what_others_hold(mib: int) -> None:
    world = World(foreign_mib={3: mib})
    outcome = lifecycle(world, state="stopped").run()
    assert world.used(3) == mib and outcome.after.stopped


def test_probed_never_touches_anything() -> None:
    world = World()
    lifecycle(world, state="probed").run()
    assert world.calls == []


def test_requests_in_flight_get_their_time() -> None:
    world = World(in_flight=5.0)
    outcome = lifecycle(world, drain_timeout=20).run()
    drain = next(phase for phase in outcome.phases if phase["name"] == "drain")
    assert 5.0 <= drain["seconds"] < 5.2 and outcome.cut_off_requests == 0


def test_what_the_drain_could_not_wait_for_is_counted() -> None:
    outcome = lifecycle(World(in_flight=500.0), drain_timeout=2).run()
    assert outcome.cut_off_requests == 3


def test_the_server_leaves_the_router_before_its_drain_and_comes_back_when_it_is_verified() -> None:
    world = World(in_flight=3.0)
    router = FakeRouter(world)
    outcome = lifecycle(world, router=router).run()
    assert world.calls == ["withdraw", "stop", "start", "enrol"]
    assert outcome.phases[-1]["detail"].endswith("back in the router")


def test_a_dead_server_is_taken_out_of_the_router_too() -> None:
    world = World(running=False)
    router = FakeRouter(world)
    lifecycle(world, router=router).run()
    assert world.calls[0] == "withdraw" and router.member


def test_a_router_that_cannot_be_asked_ends_the_run_before_the_stop() -> None:
    world = World()
    with pytest.raises(RestartError) as caught:
        lifecycle(world, router=FakeRouter(world, reachable=False)).run()
    assert (caught.value.phase, caught.value.cause, world.calls) == ("inspect", "router_unreachable", [])


def test_a_router_lost_at_the_end_leaves_a_proven_server_that_the_next_run_only_puts_back() -> None:
    world, record = World(), dict[str, Any]()
    router = FakeRouter(world)
    life = lifecycle(world, record, router=router)
    verify = life._verify

    def verify_and_lose(answer: Any) -> None:
        verify(answer)
        router.reachable = False

    life._verify = verify_and_lose  # type: ignore[method-assign]
    with pytest.raises(RestartError) as caught:
        life.run()
    assert (caught.value.phase, caught.value.cause) == ("verify", "router_unreachable")
    router.reachable = True
    outcome = lifecycle(world, record, router=router, state="started").run()
    assert outcome.changed and world.calls.count("start") == 1 and router.member


def test_stopped_stays_out_of_the_router() -> None:
    world = World()
    router = FakeRouter(world)
    lifecycle(world, router=router, state="stopped").run()
    assert world.calls == ["withdraw", "stop"] and not router.member


def test_probed_and_check_mode_leave_the_router_alone() -> None:
    world = World()
    router = FakeRouter(world, member=False)
    lifecycle(world, router=router, state="probed").run()
    lifecycle(world, router=router, check=True).run()
    assert world.calls == []


delays = st.floats(0, 60)
plans = st.builds(
    Plan,
    drain=delays,
    vram_lag=st.one_of(delays, st.just(NEVER)),
    port_lag=st.floats(0, 10),
    load=st.one_of(delays, st.just(NEVER)),
    generate_after=delays,
    crash_after=st.one_of(delays, st.just(NEVER)),
    fatal_after=st.one_of(delays, st.just(NEVER)),
    restart_always=st.booleans(),
    hang=st.booleans(),
    loads_config=st.sampled_from([None, "other"]),
    child_survives=st.sampled_from([0.0, 3.0, 500.0]),
    ignores_sigterm=st.booleans(),
)


@settings(max_examples=400, deadline=None)
@given(old=plans, new=plans, running=st.booleans(), foreign=st.sampled_from([{}, {2: 500}, {2: 60_000}]))
@example(old=Plan(), new=Plan(fatal_after=0.01, crash_after=0.95), running=False, foreign={})
def test_invariant_ready_is_never_reported_unless_the_new_instance_generated(old: Plan, new: Plan, running: bool, foreign: dict) -> None:
    old.crash_after = NEVER
    world = World(old=old, new=new, running=running, foreign_mib=foreign)
    router = FakeRouter(world)
    life = lifecycle(world, router=router, release_timeout=90, ready_timeout=100, generate_timeout=70, stop_timeout=120)
    try:
        outcome = life.run()
    except RestartError as failure:
        assert failure.cause in CAUSES and failure.phase in PHASES
        assert router.member == ("withdraw" not in world.calls), "a server that is not ready must stay out of the router"
        certain = min(new.crash_after, new.fatal_after)
        if failure.phase in ("load", "generate") and failure.cause in ("crashed", "crash_loop", "out_of_memory"):
            started = next(one for one in world.instances if one.plan is new).started
            assert world.time - started <= certain + 1.5, "certain failure is told within one look"
        return
    fresh = next(one for one in world.instances if one.number == int(outcome.after.invocation[3:]))
    assert fresh.plan is new and fresh.config == world.asked, "another instance or configuration was called ready"
    assert not new.hang and world.time >= fresh.port_open + new.generate_after
    assert world.time < fresh.died
    assert world.vram_at_start <= 1024 and world.pids_at_start == set(), "started before the old instance was gone"
    assert 77 not in world.killed and 99 not in world.killed


def test_check_mode_says_that_the_router_would_be_told() -> None:
    world, record = World(asked="newcfg"), {}  # type: ignore[var-annotated]
    lifecycle(world, record).run()
    asked = {"state": "started", "check": True}
    assert lifecycle(world, record, FakeRouter(world, member=False), **asked).run().reason == "the router did not send requests here"
    assert not lifecycle(world, record, FakeRouter(world), **asked).run().changed
    assert "enrol" not in world.calls

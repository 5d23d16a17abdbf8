"""The restart over the journals of a real SGLang 0.5.17: what it says must be what happened there."""

from __future__ import annotations

from typing import Any

import pytest
from recorded import Recorded

from ddtree.invocation import Invocation
from ddtree.lifecycle import Lifecycle
from ddtree.phases import Phases
from ddtree.ports import Outcome, RestartError, Want

ONE_LOOK = 1.0 + 0.3 + 0.1  # the log is read each second, then 0.3 s are given to the rest of a traceback


def run(world: Recorded, record: dict[str, Any] | None = None, **want: Any) -> Outcome:
    asked = Want(state="started", config_id="cfg-abc123", **want)
    return Lifecycle(world, world, world, world, asked, {} if record is None else record).run()


def failure(world: Recorded) -> RestartError:
    with pytest.raises(RestartError) as caught:
        run(world)
    return caught.value


def test_a_cold_start_is_ready_when_the_first_generation_came() -> None:
    world = Recorded("good")
    outcome = run(world)
    assert outcome.ready["load_seconds"] == pytest.approx(world.at("Uvicorn running"), abs=0.15) and outcome.ready["load_seconds"] > 100
    assert world.at('"POST /generate HTTP/1.1" 200') <= world.time < world.at('"POST /generate HTTP/1.1" 200') + 0.2
    assert world.time > world.at('"GET /v1/models HTTP/1.1" 200') + 1, "the model list came a second before the first generation"


def test_the_line_of_the_draft_runner_is_found_and_another_window_is_noted() -> None:
    proof = r"Initialized DFLASH draft runner\..*draft_window_size={}, compact_cache"
    assert run(Recorded("good"), log_proofs=[proof.format(2048)]).notes == []
    assert "draft_window_size=512" in run(Recorded("good"), log_proofs=[proof.format(512)]).notes[0]


def test_a_killed_scheduler_is_told_five_seconds_before_its_parent_ends() -> None:
    world = Recorded("good")
    run(world)
    phases = Phases(world, [], lambda event: None, {})
    watched = Invocation(world.state(), world, world, phases, [], 1024)
    with pytest.raises(RestartError) as caught:
        while True:
            watched.still_possible()
            world.sleep(0.1)
    sign = world.at("Subprocess scheduler_0 (pid=408) crashed")
    assert caught.value.cause == "crashed" and "scheduler_0" in caught.value.message
    assert sign <= world.time <= sign + ONE_LOOK < world.ended
    assert world.asked_to_stop, "what is left of the unit is stopped"


@pytest.mark.parametrize(
    ("journal", "sign", "cause"),
    [
        ("badflag", "error: unrecognized arguments", "bad_flags"),
        ("badalgo", "Unknown speculative algorithm name", "invalid_config"),
        ("portbusy", "address already in use", "port_in_use"),
    ],
)
def test_what_ended_a_start_is_told_within_one_look(journal: str, sign: str, cause: str) -> None:
    world = Recorded(journal)
    told = failure(world)
    assert (told.phase, told.cause) == ("load", cause), told
    assert world.at(sign) <= world.time <= world.at(sign) + ONE_LOOK


def test_an_engine_that_logs_that_it_is_ready_on_a_taken_port_is_not() -> None:
    world = Recorded("portbusy", foreign_listener_from=10.0)
    told = failure(world)
    assert told.cause == "port_in_use" and "nginx" in told.message
    assert world.time < world.at("fired up and ready to roll")


def test_a_start_beside_another_tenant_is_ready_and_its_small_pool_is_noted() -> None:
    record: dict[str, Any] = {"history": {"cfg-abc123": {"max_total_num_tokens": 986185}}}
    outcome = run(Recorded("oom"), record)
    assert outcome.ready["completion_tokens"] == 32
    assert "348553 tokens, 986185 at the last good start" in outcome.notes[0]

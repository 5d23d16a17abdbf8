"""The figures of a cell against records written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.accept import choose, of_requests
from ddtree.figures import cell, client, counters_between, repeats, tokens_within, warnings, window
from ddtree.slots import Cost
from ddtree.wire import Record


def record(
    phase: str = "measured", sent: float = 0.0, first: float = 1.0, pace: float = 1.0, step: int = 4, total: int = 41, **more: Any
) -> Record:
    events, done, at = [(sent + first, 1)], 1, sent + first
    while done < total:
        at, done = at + pace, min(total, done + step)
        events.append((at, done))
    made = Record(phase, total, 0, sent, at, events, tokens=total, prompt_tokens=100, verify_steps=len(events) - 1, finish="length")
    return replace(made, **more)


def figures(records: list[Record], concurrency: int = 1, per_repeat: int = 100, **grown: float) -> dict[str, Any]:
    for at, one in enumerate(one for one in records if one.phase == "measured"):
        one.index = at
    accepted = choose([of_requests([one for one in records if one.phase == "measured"])])
    return cell(records, context=100, concurrency=concurrency, per_repeat=per_repeat, passages=2, accepted=accepted, grown=grown,
                client={"cpu": 0.1, "lag_ms_p99": 1.0})  # fmt: skip


def test_the_window_of_one_slot_is_the_closed_loop_with_its_waits() -> None:
    records = [record("warmup"), *(record(sent=11.0 * (at + 1)) for at in range(3))]
    assert window(records) == (11.0, 44.0)
    found = figures(records)
    assert (found["output_tok_s"], found["output_tokens"], found["seconds"]) == (pytest.approx(3 * 41 / 33, abs=1e-3), 123, 33.0)
    assert (found["ttft_ms"]["p50"], found["tpot_ms"]["p50"], found["user_tok_s"], found["accept_length"]) == (1000, 250, 4, 4.1)


def test_slots_out_of_step_give_the_rate_of_the_steady_state() -> None:
    """Four slots, each a quarter of a cycle (11 s) after the one before; fillers are cut a second after the window."""
    records = []
    for slot in range(4):
        begin = 11 * (slot + 1) / 4
        records.append(record("warmup", sent=begin - 11))
        records += [record(sent=begin + 11 * at) for at in range(3)]
        filler = record("filler", sent=begin + 33)
        filler.events, filler.cut, filler.finish, filler.ended = [one for one in filler.events if one[0] <= 46], True, None, 46.0
        records.append(filler)
    found = figures(records, concurrency=4)
    assert found["seconds"] == 33 and found["output_tok_s"] == pytest.approx(4 * 41 / 11, rel=0.012)
    assert found["achieved_concurrency"] == pytest.approx(4, rel=0.01) and found["requests"] == 12 and found["errors"] == 0


@given(st.integers(1, 9), st.integers(2, 60), st.floats(0.01, 2), st.lists(st.floats(0, 100), min_size=1, max_size=8))
def test_pieces_of_time_sum_to_all_tokens(step: int, total: int, pace: float, cuts: list[float]) -> None:
    one = record(pace=pace, step=step, total=total)
    edges = [-1.0, *sorted(cuts), 1e6]
    assert sum(tokens_within(one, low, high) for low, high in zip(edges, edges[1:])) == pytest.approx(total)


def test_failed_and_cut_requests_are_no_figures() -> None:
    good = [record(sent=11.0 * at) for at in range(3)]
    bad = record(sent=0.0, pace=0.001, error="disconnected", finish=None)
    found = figures([*good, bad])
    assert (found["requests"], found["errors"], found["error_kinds"], found["user_tok_s"]) == (4, 1, {"disconnected": 1}, 4)
    with pytest.raises(ValueError, match="no measured request"):
        figures([bad])


def test_nothing_measured_is_null_and_not_zero() -> None:
    found = figures([record(total=1, verify_steps=None)])
    assert (found["tpot_ms"]["p50"], found["user_tok_s"], found["accept_length"], found["ci95"]) == (None, None, None, None)
    assert of_requests([record(verify_steps=0)]) is None


def test_counters_of_a_server_that_was_started_anew_say_nothing() -> None:
    assert counters_between({"a_total": 5.0}, {"a_total": 7.0, "b_total": 1.0}) == {"a_total": 2.0, "b_total": 1.0}
    assert counters_between({"a_total": 5.0}, {"a_total": 1.0}) == {} and counters_between({}, {"a_total": 1.0}) == {}


@pytest.mark.parametrize(
    ("change", "code"),
    [({"histogram": [0, 0, 0, 12]}, "constant_acceptance"), ({"histogram": [12]}, "no_acceptance"),
     ({"prompt_tokens": 95}, "prompt_length"), ({"spread": True}, "usage_at_end"),
     ({"cached_tokens": 50}, "cached"), ({"finish": "length"}, "")],
)  # fmt: skip
def test_each_doubt_has_a_code(change: dict[str, Any], code: str) -> None:
    records = [record(sent=11.0 * at, **change) for at in range(3)]
    told = warnings(figures(records), records, {})
    assert [one.split(":")[0] for one in told] == ([code] if code else [])


def test_doubts_of_the_whole_cell() -> None:
    records = [record(sent=11.0 * at, weight_version=str(at)) for at in range(3)]
    found = figures(records, concurrency=2, num_requests_total=9.0, generation_tokens_total=90.0, spec_verify_calls_total=90.0)
    found["client"] = {"cpu": 0.9, "lag_ms_p99": 1.0}
    told = warnings(found, records, {"waiting": 3, "flushed": "busy", "disagreement": "4.10 by requests, 1.00 by metrics"})
    wanted = {"not_flushed", "other_traffic", "queued", "below_concurrency", "client_bound", "accept_sources", "two_configurations"}
    assert {one.split(":")[0] for one in told} == wanted


def test_repeats_follow_each_other_and_the_interval_is_over_them() -> None:
    records = [record("warmup"), *(record(sent=11.0 * (at + 1), pace=1.0 + 0.1 * (at // 2)) for at in range(8))]
    begin = 11.0
    for one in records[1:]:  # one after the other, slower from repeat to repeat
        shift = begin - one.sent
        one.sent, one.ended = begin, one.ended + shift
        one.events = [(at + shift, count) for at, count in one.events]
        begin = one.ended
    found = figures(records, per_repeat=2)
    assert [one["requests"] for one in found["repeats"]] == [2, 2, 2, 2]
    assert [one["output_tok_s"] for one in found["repeats"]] == [pytest.approx(41 / (1 + 10 * (1 + 0.1 * at)), abs=1e-3) for at in range(4)]
    assert sum(one["output_tokens"] for one in found["repeats"]) == pytest.approx(8 * 41)
    assert (
        found["ci95_method"].startswith("tokens over seconds of 4 repeats") and found["ci95"][0] < found["output_tok_s"] < found["ci95"][1]
    )
    assert repeats(records, 2)[0][0] == 11.0 and repeats(records, 2)[-1][1] == window(records)[1]


def test_two_results_can_be_paired_by_prompt() -> None:
    found = figures([record(sent=11.0 * at, pace=1.0 + at % 2) for at in range(4)])
    assert [(one["prompt"], one["requests"], one["tokens"], one["seconds"]) for one in found["per_prompt"]] == [
        (0, 2, 80, 20),
        (1, 2, 80, 40),
    ]


def test_an_answer_that_is_not_streamed_has_no_times_of_tokens() -> None:
    records = [record(sent=11.0 * at, streamed=False) for at in range(4)]
    for one in records:
        one.events = [(one.ended, 41)]
    found = figures(records)
    assert found["ttft_ms"]["p50"] is None and found["tpot_ms"]["p50"] is None and found["user_tok_s"] is None
    assert found["output_tok_s"] == pytest.approx(41 / 11, abs=1e-3) and found["e2e_ms"]["p50"] == 11000
    assert tokens_within(records[0], 0, 5.5) == pytest.approx(20.5)


def test_cached_tokens_that_nobody_tells_are_unknown() -> None:
    assert figures([record()])["cached_tokens"] is None
    assert figures([record()], cached_tokens_total=7.0)["cached_tokens"] == 7
    assert figures([record()], cached_tokens_total=7.0, num_requests_total=4.0)["cached_tokens"] == 2  # warm-up is in the counter too
    assert figures([record(cached_tokens=3)], cached_tokens_total=7.0)["cached_tokens"] == 3


def test_pieces_of_several_steps_are_marked() -> None:
    records = [record(sent=11.0 * at, verify_steps=40) for at in range(3)]
    assert [one.split(":")[0] for one in warnings(figures(records), records, {})] == ["bursts"]


def test_the_busiest_process_tells_the_cost() -> None:
    found = client([Cost(1.0, 10.0, [0.001] * 9), Cost(6.0, 10.0, [0.002] * 9)], 2)
    assert found == {"cpu": 0.6, "lag_ms_p99": 2.0, "cpu_s": 7.0, "processes": 2}

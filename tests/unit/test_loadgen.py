"""The load generator against a server of known speed, and its figures against records written by hand."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakeserver import Fake
from hypothesis import given
from hypothesis import strategies as st

from ddtree.figures import accept_length, cell, counters_between, tokens_within, warnings, window
from ddtree.loadgen import CellError, CellSpec, check, limits, run_cell
from ddtree.prompts import shared_prefix
from ddtree.wire import Record

CORPUS = str(Path(__file__).resolve().parents[2] / "roles" / "benchmark" / "files" / "corpus" / "prose.txt")
TOKENS = 41  # one, and ten steps of four


def measure(fake: Fake, **more: Any) -> dict[str, Any]:
    given = {"url": fake.url, "context": 120, "concurrency": 4, "corpus": CORPUS, "requests": 8, "output_tokens": TOKENS, **more}
    return run_cell(CellSpec(**given))


def codes(found: dict[str, Any]) -> set[str]:
    return {one.split(":")[0] for one in found["warnings"]} - {"client_bound"}  # the machine of a test may be busy


def prompts(fake: Fake, name: str = "text") -> list[str]:
    return [one[name] for one in fake.bodies if one["stream"]]


# -- the loop --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("api", "level"), [("generate", 1), ("generate", 4), ("generate", 16), ("chat", 4), ("completions", 4)])
def test_speed_and_times_of_a_known_server(api: str, level: int) -> None:
    with Fake(ttft=0.06, pace=0.04) as fake:
        found = measure(fake, api=api, concurrency=level)
    cycle = fake.ttft + 10 * fake.pace
    assert found["output_tok_s"] == pytest.approx(level * TOKENS / cycle, rel=0.04)
    assert found["user_tok_s"] == pytest.approx(40 / (10 * fake.pace), rel=0.04)
    assert found["ttft_ms"]["p50"] == pytest.approx(60, abs=10) and found["e2e_ms"]["p50"] == pytest.approx(cycle * 1000, rel=0.05)
    assert found["itl_ms"]["p50"] == pytest.approx(10, rel=0.15) and found["chunk_ms"]["p50"] == pytest.approx(40, rel=0.15)
    assert found["tokens_per_chunk"] == 4 and found["errors"] == 0 and found["requests"] == max(8, level)
    assert found["achieved_concurrency"] == pytest.approx(level, rel=0.03) and fake.most == level
    assert found["ci95"][0] < found["output_tok_s"] < found["ci95"][1]
    assert codes(found) == set() and found["finish_reasons"] == {"length": found["requests"]}
    assert found["output_tokens"] / found["seconds"] == pytest.approx(found["output_tok_s"], rel=0.01)


def test_accept_length_is_of_the_measured_requests_and_checked_by_the_counters() -> None:
    with Fake() as fake:
        found = measure(fake)
    assert (found["accept_length"], found["accept_source"]) == (4.1, "requests")
    assert found["counters"]["requests"] >= 12 and found["counters"]["accept_length"] > 0


def test_without_verify_steps_the_counters_tell_or_nothing_does() -> None:
    with Fake(spec=False) as fake:
        found = measure(fake, concurrency=1, requests=3)
        assert found["accept_source"] == "metrics" and found["accept_length"] == pytest.approx(4.1, rel=0.05)
    with Fake(spec=False, strangers=1) as fake:
        found = measure(fake, concurrency=1, requests=3)
        assert (found["accept_length"], found["accept_source"]) == (None, None)


def test_every_prompt_is_its_own_and_has_the_tokens() -> None:
    with Fake() as fake:
        found = measure(fake, requests=12)
    sent = prompts(fake)
    assert len(set(sent)) == len(sent) >= 17 and shared_prefix(sent) < 12
    assert found["prompt_tokens"] == {"min": 120, "max": 120}
    assert found["corpus"]["counted_by"] == "tokenize" and found["sent"]["filler"] >= 1


@pytest.mark.parametrize("more", [{"tokenizer": False}, {"template": 9}, {"tokenizer": False, "template": 9}])
def test_templates_and_servers_without_a_tokenizer(more: dict[str, Any]) -> None:
    with Fake(**more) as fake:
        found = measure(fake, requests=4, output_tokens=9)
    assert abs(found["prompt_tokens"]["min"] - 120) <= 1 and "prompt_length" not in codes(found)


def test_the_same_seed_sends_the_same_prompts() -> None:
    with Fake() as one, Fake() as two, Fake() as three:
        for fake, seed in ((one, "a"), (two, "a"), (three, "b")):
            measure(fake, requests=4, seed=seed, output_tokens=9)
    assert sorted(prompts(one))[:8] == sorted(prompts(two))[:8] and not set(prompts(one)) & set(prompts(three))


def test_reasoning_counts_as_output() -> None:
    with Fake(reasoning=5) as fake:
        found = measure(fake, api="chat")
    assert found["first_answer_ms"]["p50"] - found["ttft_ms"]["p50"] > 30 and found["request_tokens"] == 8 * TOKENS
    assert all(one["chat_template_kwargs"]["enable_thinking"] is False for one in fake.bodies)


def test_usage_only_at_the_end_is_spread_and_marked() -> None:
    with Fake(usage="end", pace=0.02) as fake:
        found = measure(fake, api="chat")
    assert codes(found) == {"usage_at_end"} and found["output_tok_s"] == pytest.approx(4 * TOKENS / 0.22, rel=0.05)


def test_no_usage_is_a_failure() -> None:
    with Fake(usage="none") as fake, pytest.raises(CellError, match=r"no usage \d+ times"):
        measure(fake, api="chat")


def test_answers_that_end_early_are_counted_as_they_are() -> None:
    with Fake(stop_after=21) as fake:
        found = measure(fake, ignore_eos=True)
    assert (found["request_tokens"], found["short"], found["finish_reasons"]) == (8 * 21, 8, {"stop": 8}) and "short" in codes(found)


def test_some_failures_are_counted_by_kind() -> None:
    with Fake(fail_after=8) as fake:
        found = measure(fake, requests=8, concurrency=2)
    assert 0 < found["errors"] < 8 and found["error_kinds"] == {"http 500": found["errors"]} and "errors" in codes(found)


@pytest.mark.parametrize(
    ("more", "words"),
    [({"fail_after": 0}, r"http 500 \d+ times \(.*out of order"), ({"break_after": 5}, "disconnected|incomplete"),
     ({"hang_after": 0}, "timeout")],
)  # fmt: skip
def test_a_server_that_always_fails_ends_the_cell(more: dict[str, Any], words: str) -> None:
    with Fake(**more) as fake, pytest.raises(CellError, match=words):
        measure(fake, idle_timeout=0.3)
    assert fake.started < 40


def test_the_cache_is_flushed_or_the_cell_is_marked() -> None:
    with Fake(flush_busy=3) as fake:
        assert measure(fake, requests=4, output_tokens=9)["flushed"] is True
    assert fake.flushed == 1
    for busy, status in ((999, 400), (1, 403)):
        with Fake(flush_busy=busy, flush_status=status) as fake:
            found = measure(fake, requests=4, output_tokens=9, flush_timeout=0.3)
        assert found["flushed"] is False and any(one.startswith("not_flushed: ") and f"gave {status}" in one for one in found["warnings"])


def test_contaminated_cells_are_marked() -> None:
    with Fake(cached=64, running=2) as fake:
        assert codes(measure(fake, requests=4, output_tokens=9)) == {"cached", "other_traffic"}
    with Fake(strangers=500) as fake:
        assert "other_traffic" in codes(measure(fake, requests=4, output_tokens=9))


def test_what_does_not_fit_is_said_before_anything_is_sent() -> None:
    with Fake(limit=3, context=200) as fake:
        with pytest.raises(CellError, match=r"concurrency 4 .* runs 3 requests"):
            measure(fake)
        with pytest.raises(CellError, match=r"context 190 with 41 output tokens .* takes 200 tokens"):
            measure(fake, concurrency=1, context=190)
        with pytest.raises(CellError, match="a context of 9 tokens is too short"):
            measure(fake, concurrency=1, context=9)
        assert check(CellSpec(fake.url, 100, 2, "", output_tokens=9))["max_running_requests"] == 3
    assert not prompts(fake)


def test_keys_are_sent_and_never_told() -> None:
    with Fake(key="s3cret-key", fail_after=0) as fake:
        with pytest.raises(CellError) as told:
            measure(fake, api_key="s3cret-key")
        assert "s3cret-key" not in str(told.value) and fake.keys == {"Bearer s3cret-key"}
        with pytest.raises(CellError, match="refuses the API key"):
            measure(fake, api_key="wrong")
    assert "s3cret" not in repr(CellSpec("u", 1, 1, "c", api_key="s3cret"))


def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(CellError, match=rf"{url} does not answer /server_info: ClientConnectorError"):
        run_cell(CellSpec(url, 100, 1, CORPUS))


def test_a_proxy_variable_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with Fake() as fake:
        assert check(CellSpec(fake.url, 100, 1, ""))["version"] == "fake"


def test_limits_over_ranks() -> None:
    ranks = [{"effective_max_running_requests_per_dp": 6}] * 8
    assert limits({"max_running_requests": 64, "internal_states": ranks, "context_length": 100})["max_running_requests"] == 48
    assert limits({"max_running_requests": 64})["max_running_requests"] == 64 and limits({})["context_length"] is None


# -- the figures -----------------------------------------------------------------------------------------------------------


def record(
    phase: str = "measured", sent: float = 0.0, first: float = 1.0, pace: float = 1.0, step: int = 4, total: int = 41, **more: Any
) -> Record:
    events, done, at = [(sent + first, 1)], 1, sent + first
    while done < total:
        at, done = at + pace, min(total, done + step)
        events.append((at, done))
    made = Record(phase, total, sent, at, events, tokens=total, prompt_tokens=100, verify_steps=len(events) - 1, finish="length")
    return replace(made, **more)


def figures(records: list[Record], concurrency: int = 1, **grown: float) -> dict[str, Any]:
    return cell(records, context=100, concurrency=concurrency, grown=grown, client={"cpu": 0.1, "lag_ms_p99": 1.0})


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
    assert accept_length([record(verify_steps=0)]) is None


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
    told = warnings(found, records, {"waiting": 3, "flushed": "busy"})
    wanted = {"not_flushed", "other_traffic", "queued", "below_concurrency", "client_bound", "accept_sources", "two_configurations"}
    assert {one.split(":")[0] for one in told} == wanted

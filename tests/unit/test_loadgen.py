"""The load generator against a server of known speed, and its figures against records written by hand."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from fakeserver import Fake
from hypothesis import given
from hypothesis import strategies as st

from ddtree.loadgen import CellError, CellSpec, limits, run_cell
from ddtree.prompts import shared_prefix
from ddtree.wire import Record, _Native

CORPUS = str(Path(__file__).resolve().parents[2] / "roles" / "benchmark" / "files" / "corpus" / "prose.txt")
TOKENS = 41  # one, and ten steps of four


def measure(fake: Fake, **more: Any) -> dict[str, Any]:
    given = {"url": fake.url, "context": 120, "concurrency": 4, "corpus": CORPUS, "requests": 8, "output_tokens": TOKENS,
             "api": "generate", "repeats_most": 1, **more}  # fmt: skip
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


def test_connections_are_used_again() -> None:
    with Fake() as fake:
        measure(fake, requests=12, repeats_most=1)
    assert len(fake.peers) <= 4 + 4  # one for each slot, and those that asked before and beside the load


def test_reasoning_counts_as_output() -> None:
    with Fake(reasoning=5) as fake:
        found = measure(fake, api="chat")
    assert found["first_answer_ms"]["p50"] - found["ttft_ms"]["p50"] > 30 and found["request_tokens"] == 8 * TOKENS
    assert all(one["chat_template_kwargs"]["enable_thinking"] is False for one in fake.bodies)


def test_usage_only_at_the_end_is_spread_and_marked() -> None:
    with Fake(usage="end", pace=0.02) as fake:
        found = measure(fake, api="chat")
    assert codes(found) == {"usage_at_end"} and found["output_tok_s"] == pytest.approx(4 * TOKENS / 0.22, rel=0.05)


@pytest.mark.parametrize(("asked", "slots", "made"), [(0, 5, 5), (4, 1, 4), (4, 3, 6), (8, 4, 8), (9, 4, 12)])
def test_a_repeat_has_as_many_requests_of_each_slot(asked: int, slots: int, made: int) -> None:
    assert CellSpec("u", 1, slots, "c", requests=asked).per_repeat == made
    assert CellSpec("u", 1, slots, "c", requests=asked, rate=1.0).per_repeat == max(1, asked)


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
        found = codes(measure(fake, requests=4, output_tokens=9))
    assert found - {"below_concurrency"} == {"cached", "other_traffic"}  # on a busy machine a stream of milliseconds has gaps
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
        assert measure(fake)["server"]["version"] == "fake"


def test_limits_over_ranks() -> None:
    ranks = [{"effective_max_running_requests_per_dp": 6}] * 8
    assert limits({"max_running_requests": 64, "internal_states": ranks, "context_length": 100})["max_running_requests"] == 48
    assert limits({"max_running_requests": 64})["max_running_requests"] == 64 and limits({})["context_length"] is None


def test_repeats_go_on_until_the_interval_is_narrow() -> None:
    with Fake(ttft=0.02, pace=0.02) as fake:
        found = measure(fake, requests=4, repeats_most=8, precision=0.2)
    assert found["stopped"] == "precision" and found["precision_reached"] and len(found["repeats"]) >= 3
    assert found["requests"] == sum(one["requests"] for one in found["repeats"]) and "repeats, Student t" in found["ci95_method"]
    assert sum(one["requests"] for one in found["per_prompt"]) == found["requests"] and found["wall_seconds"] > found["seconds"]
    assert found["began"] + found["seconds"] < found["measured_until"] < found["began"] + found["wall_seconds"]
    with Fake(ttft=0.02, pace=0.02) as fake:
        capped = measure(fake, requests=4, repeats_most=8, precision=0.0, seconds_most=0.8)
    assert capped["stopped"] == "seconds" and not capped["precision_reached"] and capped["seconds"] < 1.0


@pytest.mark.parametrize("api", ["generate", "chat"])
def test_answers_that_are_not_streamed(api: str) -> None:
    with Fake(ttft=0.06, pace=0.04) as fake:
        found = measure(fake, api=api, streamed=False)
    assert found["output_tok_s"] == pytest.approx(4 * TOKENS / 0.46, rel=0.05) and found["streamed"] is False
    assert found["ttft_ms"]["p50"] is None and found["itl_ms"]["p50"] is None and found["e2e_ms"]["p50"] == pytest.approx(460, rel=0.05)
    assert found["request_tokens"] == 8 * TOKENS and not any(one["stream"] for one in fake.bodies)


def test_an_open_loop_sends_at_its_rate_and_waits_from_the_due_moment() -> None:
    with Fake(ttft=0.03, pace=0.01) as fake:
        found = measure(fake, rate=40.0, concurrency=200, requests=40, repeats_least=3, repeats_most=3)
    assert found["rate"] == 40.0 and found["requests"] == 120 and found["errors"] == 0
    assert found["output_tok_s"] == pytest.approx(40 * TOKENS, rel=0.35)  # arrivals are random: 120 of them, +-9% at one sigma
    assert found["achieved_concurrency"] == pytest.approx(found["requests"] / found["seconds"] * 0.13, rel=0.3)
    assert found["ttft_ms"]["p50"] == pytest.approx(30, abs=8) and codes(found) == set()


def test_a_rate_that_is_too_high_is_said() -> None:
    with Fake(ttft=0.5, pace=0.01) as fake:
        found = measure(fake, rate=100.0, concurrency=10, requests=30, repeats_least=1)
    assert "overloaded" in codes(found) and found["error_kinds"]["overload"] > 0 and fake.most <= 11


@pytest.mark.parametrize("more", [{"fail_after": 0}, {"dies_after": 2}, {"hang_after": 0}])
def test_an_open_loop_ends_when_the_server_fails(more: dict[str, Any]) -> None:
    with Fake(**more) as fake, pytest.raises(CellError, match="failed requests in a row"):
        measure(fake, rate=50.0, concurrency=40, requests=30, idle_timeout=0.3)


@pytest.mark.parametrize("more", [{}, {"rate": 60.0, "requests": 40, "repeats_most": 1, "concurrency": 90}])
def test_several_processes_make_one_load(more: dict[str, Any]) -> None:
    with Fake(ttft=0.06, pace=0.04) as fake:
        found = measure(fake, **{"concurrency": 6, "requests": 12, "repeats_most": 3, "processes": 3, "precision": 0.2, **more})
    assert found["client"]["processes"] == 3 and found["errors"] == 0
    sent = prompts(fake)
    assert len(set(sent)) == len(sent)
    if not more:
        assert found["output_tok_s"] == pytest.approx(6 * TOKENS / 0.46, rel=0.05) and fake.most == 6
        assert found["ttft_ms"]["p50"] == pytest.approx(60, abs=10) and codes(found) == set()


def test_several_processes_tell_of_a_server_that_fails() -> None:
    with Fake(fail_after=0) as fake, pytest.raises(CellError, match=r"failed requests in a row: http 500"):
        measure(fake, processes=2)


def test_an_own_file_of_prompts_as_they_are(tmp_path: Path) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text('{"prompt": "Why is the sky blue?"}\n{"messages": [{"role": "user", "content": "And the sea?"}]}')
    with Fake() as fake:
        found = measure(fake, context=0, corpus=str(own), requests=4)
    assert {one.split(". ", 1)[1] for one in prompts(fake)} == {"Why is the sky blue?", "And the sea?"}
    assert found["context"] == 0 and codes(found) == set() and found["corpus"]["passages"] == 2


def test_a_shared_prefix_is_sent_and_is_no_doubt() -> None:
    with Fake(cached=60) as fake:
        found = measure(fake, prefix_sharing=0.5)
    assert 0.35 < shared_prefix(prompts(fake)) / len(prompts(fake)[0]) < 0.65
    assert codes(found) == set() and found["corpus"]["sharing"] == 0.5 and found["cached_tokens"] == 8 * 60


@given(st.text(max_size=60), st.integers(1, 10**6), st.booleans())
def test_counts_are_found_in_an_event_whatever_its_text_says(text: str, count: int, spaces: bool) -> None:
    """The quick look at an event and the whole parse of it give the same record."""
    hostile = text + '"completion_tokens":7,"finish_reason":null'
    event = {"text": hostile, "output_ids": [1], "meta_info": {"finish_reason": None, "prompt_tokens": 3, "completion_tokens": count}}
    line = json.dumps(event, separators=(", ", ": ") if spaces else (",", ":"), ensure_ascii=False).encode()
    found = []
    for quick in (True, False):
        record = Record("measured", 9)
        reader = _Native(record, [0])
        reader.quick = lambda quick=quick: quick  # type: ignore[method-assign,misc]
        assert reader.line(line, 1.5)
        found.append(record.events)
    assert found[0] == found[1] == [(1.5, count)]

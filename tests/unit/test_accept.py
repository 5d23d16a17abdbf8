"""Accept length from four sources, none of which may tell of anything before the cell."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.accept import SOURCES, Reading, choose, disagreement, of_counters, of_log, of_requests, of_server_info
from ddtree.wire import Record

LINE = (
    "1764667200.{us:06d} host sglang[7]: [2026-12-01 12:00:00{rank}] Decode batch, #running-req: {running}, #token: 9, token usage: 0.01, "
)
REST = "accept len: {length}, accept rate: 0.5, cuda graph: True, gen throughput (token/s): 10.00, #queue-req: 0"


def record(tokens: int = 41, steps: int | None = 10, **more: Any) -> Record:
    return Record("measured", 41, 0, tokens=tokens, verify_steps=steps, finish="stop", **more)


def line(length: str, running: int = 1, rank: str = "", at: int = 0) -> str:
    return (LINE + REST).format(us=at, rank=rank, running=running, length=length)


def test_requests_are_weighted_by_their_steps() -> None:
    found = of_requests([record(41, 10), record(10, 9)])
    assert found and found.length == 51 / 19 and found.decode_length == 49 / 19 and found.scope == "2 measured requests"
    assert of_requests([record(steps=None)]) is None and of_requests([record(error="timeout")]) is None and of_requests([]) is None
    assert of_requests([record(3, 10)]) is None  # below one token per step is no measurement


def test_counters_count_only_when_all_requests_are_ours() -> None:
    grown = {"generation_tokens_total": 410.0, "spec_verify_calls_total": 100.0, "num_requests_total": 10.0}
    found = of_counters(grown, 10)
    assert found and (found.length, found.decode_length) == (4.1, 4.0)
    assert of_counters(grown, 9) is None and of_counters({}, 3) is None
    assert of_counters({**grown, "generation_tokens_total": 0.0}, 10) is None  # not filled in by this build


def test_server_info_is_of_the_ranks_that_tell_and_only_after_a_flush() -> None:
    info = {"internal_states": [{"avg_spec_accept_length": None}, {"avg_spec_accept_length": 3.0}, {"avg_spec_accept_length": 0.0},
                                {"avg_spec_accept_length": 4.0}, {}]}  # fmt: skip
    found = of_server_info(info, flushed=True)
    assert found and found.length == 3.5 and "2 of 5 ranks" in found.scope
    assert of_server_info(info, flushed=False) is None and of_server_info({}, flushed=True) is None
    assert of_server_info({"internal_states": [{"avg_spec_accept_length": float("nan")}]}, flushed=True) is None


def test_log_lines_of_the_cell_only() -> None:
    begin = 1764667200.0
    lines = [line("9.00", at=1), line("2.00", 1, at=2), line("4.00", 3, at=3), line("nan", at=4), "noise"]
    found, why = of_log(lines, begin, begin + 1, flushed=False)
    assert found and found.length == 3.5 and why == ""  # the first one reaches back before the cell
    fresh, _ = of_log(lines[:1], begin, begin + 1, flushed=True)
    assert fresh and fresh.length == 9.0
    assert of_log(lines, begin + 10, begin + 20, flushed=True)[0] is None
    nothing, why = of_log([], begin, begin + 1, flushed=True)
    assert nothing is None and why


def test_the_first_source_that_tells_is_taken() -> None:
    readings = [Reading(source, 2.0, "") for source in SOURCES]
    for at, source in enumerate(SOURCES):
        found = choose([None, *reversed(readings[at:])])
        assert found and found.source == source
    assert choose([None, None]) is None


@pytest.mark.parametrize(("other", "words"), [(4.1, ""), (3.7, "4.00 by requests, 3.70 by log")])
def test_a_disagreement_is_told_and_the_prefills_token_is_none(other: float, words: str) -> None:
    own = Reading("requests", 4.4, "", tokens=440, steps=100, requests=40)  # 4.0 without the token of each prefill
    assert disagreement([own, None, Reading("log", other, "")]) == words
    assert disagreement([own]) == "" and disagreement([]) == ""


@given(st.lists(st.tuples(st.integers(2, 500), st.integers(1, 500)), min_size=1))
def test_requests_and_counters_of_the_same_requests_agree(pairs: list[tuple[int, int]]) -> None:
    records = [record(max(tokens, steps), steps) for tokens, steps in pairs]
    tokens, steps = sum(one.tokens or 0 for one in records), sum(one.verify_steps or 0 for one in records)
    grown = {"generation_tokens_total": float(tokens), "spec_verify_calls_total": float(steps), "num_requests_total": float(len(records))}
    own, counted = of_requests(records), of_counters(grown, len(records))
    assert own and counted and own.length == counted.length and disagreement([own, counted]) == ""

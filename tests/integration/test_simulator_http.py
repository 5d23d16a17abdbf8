"""Answers of the simulated engine against recordings of the real one."""

from __future__ import annotations

import gzip
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from simhost import Engine, Host

RECORDED = Path(__file__).resolve().parents[1] / "fixtures" / "recordings"
HTTP: dict[str, Any] = json.loads((RECORDED / "http.json").read_text())


@pytest.fixture(scope="module")
def engine(shared_sim: Host) -> Iterator[Engine]:
    shared_sim.faults(speed=20)
    yield shared_sim.start("--weight-version", "cfg-abc123", "--decode-log-interval", "5").wait_up()


def shape(value: Any) -> Any:
    """Keys and kinds of a JSON value; numbers are one kind, since a whole float prints as an integer elsewhere."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def test_generate_has_the_recorded_keys(engine: Engine) -> None:
    engine.generate("The same words come twice here.", 24)
    found = engine.generate("The same words come twice here.", 24)
    assert shape(found) == shape(HTTP["generate"])
    meta = found["meta_info"]
    assert meta["completion_tokens"] == 24 and meta["finish_reason"] == {"type": "length", "length": 24}
    assert meta["weight_version"] == "cfg-abc123"
    assert meta["cached_tokens"] == meta["prompt_tokens"] - 1 == meta["cached_tokens_details"]["device"]
    assert meta["spec_accept_length"] == meta["completion_tokens"] / meta["spec_verify_ct"]
    assert sum(meta["spec_correct_drafts_histogram"]) == meta["spec_verify_ct"]
    assert meta["spec_num_correct_drafts"] == 24 - 1 - meta["spec_verify_ct"]
    assert len(found["output_ids"]) == 24


def test_generate_streams_the_whole_text_so_far(engine: Engine) -> None:
    body = {"text": "stream this please", "sampling_params": {"temperature": 0, "max_new_tokens": 30}}
    *events, done = engine.stream("/generate", body)
    assert done == "[DONE]"
    assert set(events[1]["meta_info"]) == set(HTTP["generate_stream"][1]["meta_info"])
    assert set(events[0]["meta_info"]) == set(HTTP["generate_stream"][0]["meta_info"])
    for before, after in zip(events, events[1:], strict=False):
        assert after["text"].startswith(before["text"]) and len(after["output_ids"]) > len(before["output_ids"])
    counts = [one["meta_info"]["completion_tokens"] for one in events]
    assert counts[0] == 1 and counts[-1] == 30 and max(b - a for a, b in zip(counts, counts[1:], strict=False)) > 1
    assert events[-1]["text"] == engine.call("/generate", body)[1]["text"]


def test_chat_streams_the_recorded_chunks(engine: Engine) -> None:
    body = {"model": "x", "messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 12, "temperature": 0,
            "stream_options": {"include_usage": True}}  # fmt: skip
    *chunks, done = engine.stream("/v1/chat/completions", body)
    first, delta, end, usage = HTTP["chat_stream"]
    assert done == "[DONE]"
    assert shape(chunks[0]) == shape(first) and shape(chunks[1]) == shape(delta)
    assert shape(chunks[-2]) == shape(end) and shape(chunks[-1]) == shape(usage)
    assert chunks[-1]["usage"]["completion_tokens"] == 12
    assert len(chunks) - 3 < 12, "several tokens come in a chunk"
    assert "metadata" not in chunks[-1]


def test_continuous_usage_is_in_every_chunk(engine: Engine) -> None:
    body = {"prompt": "Count the tokens", "max_tokens": 20, "temperature": 0,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True}}  # fmt: skip
    *chunks, _ = engine.stream("/v1/completions", body)
    counts = [one["usage"]["completion_tokens"] for one in chunks]
    assert counts[0] == 1 and counts[-1] == 20 and counts == sorted(counts)
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"


def test_completions_carry_the_weight_version_when_not_streamed(engine: Engine) -> None:
    status, found = engine.call("/v1/completions", {"model": "x", "prompt": "a b c", "max_tokens": 12, "temperature": 0})
    assert status == 200 and shape(found) == shape(HTTP["completions"])
    assert found["metadata"] == {"weight_version": "cfg-abc123"}


def test_server_info_has_every_recorded_field(engine: Engine) -> None:
    recorded = json.loads((RECORDED / "server_info.json").read_text())
    found = engine.call("/server_info")[1]
    assert set(recorded) - set(found) == set()
    assert set(found) - set(recorded) == {"launch_command", "speculative_ddtree_budget"}
    optional = {"_quantization_explicitly_unset", "_cuda_graph_config_locked", "_declarations_materialized", "_mx_config_cache"}
    assert set(recorded["internal_states"][0]) - set(found["internal_states"][0]) <= optional
    assert found["speculative_ddtree_budget"] == 12 and found["speculative_draft_window_size"] == 2048
    assert found["speculative_algorithm"] == "DDTREE" and found["speculative_num_draft_tokens"] == 8
    assert found["disable_overlap_schedule"] is True and found["tp_size"] == 8
    assert set(found["startup_time"]["cuda_graph"]) == set(recorded["startup_time"]["cuda_graph"])
    assert engine.call("/get_server_info")[1]["weight_version"] == "cfg-abc123"


def test_metrics_have_the_recorded_names_and_labels(engine: Engine) -> None:
    engine.generate("counted once", 20)
    engine.generate("counted once", 20)
    list(engine.stream("/generate", {"text": "counted", "sampling_params": {"max_new_tokens": 20}}))
    text = engine.call("/metrics")[1]

    def families(lines: str) -> dict[str, set[tuple[str, ...]]]:
        found: dict[str, set[tuple[str, ...]]] = {}
        for name, labels in re.findall(r"^(sglang:\w+)(?:\{(.*)\})? \S+$", lines, re.M):
            keys = tuple(sorted(key for key in re.findall(r'(\w+)="', labels) if key != "le"))
            found.setdefault(name.removesuffix("_bucket"), set()).add(keys)
        return found

    recorded, found = families((RECORDED / "metrics_without_buckets.txt").read_text()), families(text)
    missing = set(recorded) - set(found) - {"sglang:get_loads_duration_seconds_sum", "sglang:get_loads_duration_seconds_count"}
    assert not missing
    for name in set(recorded) & set(found):
        assert recorded[name] & found[name] or not recorded[name], name
    values = dict(re.findall(r"^(sglang:\w+)\{[^}]*\} (\S+)$", text, re.M))
    assert float(values["sglang:spec_verify_calls_total"]) > 0
    assert float(values["sglang:num_running_reqs"]) == 0


def test_metrics_are_compressed_for_whoever_accepts_it(engine: Engine) -> None:
    request = urllib.request.Request(f"{engine.url}/metrics", headers={"Accept-Encoding": "gzip, deflate"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert b"sglang:generation_tokens_total" in gzip.decompress(answer.read())


def test_counters_move_by_what_was_generated(engine: Engine) -> None:
    def totals() -> dict[str, float]:
        text = engine.call("/metrics")[1]
        out = {}
        for name in ("generation_tokens_total", "prompt_tokens_total", "spec_verify_calls_total", "num_requests_total"):
            out[name] = sum(float(one) for one in re.findall(rf"^sglang:{name}\{{.*\}} (\S+)$", text, re.M))
        return out

    before = totals()
    found = engine.generate("three tokens more or less", 40)["meta_info"]
    moved = {key: value - before[key] for key, value in totals().items()}
    assert moved == {"generation_tokens_total": 40, "prompt_tokens_total": found["prompt_tokens"],
                     "spec_verify_calls_total": found["spec_verify_ct"], "num_requests_total": 1}  # fmt: skip


def test_small_endpoints(engine: Engine) -> None:
    assert engine.call("/v1/models")[1].keys() == HTTP["models"].keys()
    assert engine.call("/model_info")[1]["weight_version"] == "cfg-abc123"
    assert engine.call("/get_model_info")[0] == 200 and "'/get_model_info' is deprecated" in engine.log
    status, found = engine.call("/nonexistent")
    assert (status, found) == (404, HTTP["not_found"])
    assert engine.status("/get_load") == 404
    load = engine.call("/v1/loads?include=core,spec")[1]["loads"][0]
    assert set(load) >= {"num_running_reqs", "num_waiting_reqs", "max_total_num_tokens", "speculative"}
    assert set(HTTP["load_keys"]) - set(engine.call("/v1/loads")[1]["loads"][0]) <= {
        "total_prefill_uncached_tokens", "total_prefill_busy_us", "decode_moments", "kv_cac"}  # fmt: skip
    for path in ("/health", "/health_generate", "/ready", "/ping"):
        assert engine.status(path) == 200, path


def test_tokenize_agrees_with_prompt_tokens(engine: Engine) -> None:
    text = "def f(x):\n    return x  # straße, 東京 and a verylongidentifier_indeed"
    found = engine.call("/tokenize", {"prompt": text})[1]
    assert found["count"] == len(found["tokens"]) == engine.generate(text, 2)["meta_info"]["prompt_tokens"]
    assert engine.call("/detokenize", {"tokens": found["tokens"]})[1]["text"] == text


def test_refusals(engine: Engine) -> None:
    status, found = engine.call("/generate", {"input_ids": [7] * 300000, "sampling_params": {"max_new_tokens": 4}})
    assert status == 400 and re.sub(r"\d+", "N", json.dumps(found)) == re.sub(r"\d+", "N", json.dumps(HTTP["too_long"]))
    status, found = engine.call("/generate", raw=b'{"text": ')
    assert status == 400 and "json_invalid" in found["message"]
    assert engine.call("/generate", {"sampling_params": {}})[0] == 400
    assert engine.call("/v1/completions", {"prompt": ""})[0] == 400
    assert engine.call("/generate", {"text": "x", "return_logprob": True})[0] == 400


def test_prefix_cache_and_flush(engine: Engine) -> None:
    text = "A prefix that is shared. " * 20
    engine.generate(text + "one", 4)
    assert engine.generate(text + "two", 4)["meta_info"]["cached_tokens"] > 100
    status, said = engine.call("/flush_cache", {})
    assert status == 200 and said.startswith("Cache flushed.")
    assert engine.generate(text + "two", 4)["meta_info"]["cached_tokens"] == 0


def test_flush_is_refused_while_busy(engine: Engine) -> None:
    events = engine.stream("/generate", {"text": "long", "sampling_params": {"max_new_tokens": 2000, "ignore_eos": True}})
    next(events)
    assert engine.status("/flush_cache", {}) == 400
    list(events)


def test_natural_end_and_ignore_eos(engine: Engine) -> None:
    ended = engine.generate("Describe a quiet afternoon.", 1000)["meta_info"]
    assert ended["finish_reason"]["type"] == "stop" and 200 < ended["completion_tokens"] <= 402
    assert engine.generate("Describe a quiet afternoon.", 600, ignore_eos=True)["meta_info"]["completion_tokens"] == 600
    other = engine.generate("Describe a loud evening.", 1000)["meta_info"]
    assert other["completion_tokens"] != ended["completion_tokens"]
    cut = engine.generate("Describe a quiet afternoon.", 1000, stop=["."])
    assert cut["meta_info"]["finish_reason"] == {"type": "stop", "matched": "."} and "." not in cut["text"] and cut["text"]


def test_decode_and_prefill_lines_have_the_recorded_shape(engine: Engine) -> None:
    engine.generate("some steps for the log", 200, ignore_eos=True)
    recorded = (RECORDED / "good.txt").read_text()
    for start in ("Prefill batch, ", "Decode batch, "):
        pattern = r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: TP0)?\] (" + start + ".*)$"
        blank = {re.sub(r"True|False", "B", re.sub(r"[\d.]+", "N", one)) for one in re.findall(pattern, recorded, re.M)}
        found = {re.sub(r"True|False", "B", re.sub(r"[\d.]+", "N", one)) for one in re.findall(pattern, engine.log, re.M)}
        assert blank and found == blank


def test_start_log_lines_come_in_the_recorded_order(engine: Engine) -> None:
    keys = ("server_args=", "Init torch distributed begin", "Load weight begin", "Load weight end", "Initialized DFLASH draft runner.",
            "DFLASH draft runner ready", "KV Cache is allocated", "Memory pool end", "Capture target prefill CUDA graph begin",
            "Capture target verify CUDA graph begin", "Capture draft verify CUDA graph end", "max_total_num_tokens=",
            "Tree cache initialized",
            "Engine startup timings (s)", "Started server process", "Application startup complete", "Uvicorn running on",
            "ready to roll!")  # fmt: skip
    for log in ((RECORDED / "good.txt").read_text(), engine.log):
        places = [log.find(key) for key in keys]
        assert -1 not in places and places == sorted(places)
    assert "draft_window_size=2048, compact_cache=True" in engine.log
    assert "Initialized DDTree worker. block_size=8, tree_budget=12, max_tree_nodes=13" in engine.log

"""What /metrics shows: the families, labels and buckets of the real engine (metrics_table.json), fed by the token clock."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import Engine, Request

_TABLE: list[list[Any]] = json.loads((Path(__file__).resolve().parent / "metrics_table.json").read_text())
_BUCKETS = {name: [float(edge) for edge in buckets] for name, kind, _, buckets in _TABLE if kind == "histogram"}
_EDGES = {name: buckets for name, kind, _, buckets in _TABLE if kind == "histogram"}
_ROUTING = ("0", "1", "2", "3", "5", "7", "10", "20", "50", "100", "200", "+Inf")
P = "sglang:"


def _labels(labels: dict[str, str]) -> str:
    escaped = {key: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for key, value in labels.items()}
    return "{" + ",".join(f'{key}="{escaped[key]}"' for key in sorted(escaped)) + "}" if labels else ""


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(float(value))


class Metrics:
    """Counters and histograms since the start; gauges are read from the engine when shown."""

    def __init__(self, model_name: str, scheduler_pid: int, gauges: dict[str, Any]) -> None:
        self._model, self._pid, self._start = model_name, scheduler_pid, gauges
        self._counters: dict[str, Counter[tuple[tuple[str, str], ...]]] = {}
        self._histograms: dict[str, dict[tuple[tuple[str, str], ...], tuple[Counter[int], float]]] = {}
        self.http_active: Counter[tuple[str, str]] = Counter()

    # ---- feeding -------------------------------------------------------------------------------------------------

    def add(self, name: str, amount: float, **labels: str) -> None:
        self._counters.setdefault(P + name, Counter())[tuple(sorted(labels.items()))] += amount  # type: ignore[assignment]

    def observe(self, name: str, value: float, **labels: str) -> None:
        key = tuple(sorted(labels.items()))
        family = self._histograms.setdefault(P + name, {})
        counts, total = family.get(key, (Counter(), 0.0))
        counts[next(at for at, edge in enumerate(_BUCKETS[P + name]) if value <= edge)] += 1
        family[key] = (counts, total + value)

    def finished(self, request: Request) -> None:
        """A request came to its end: tokens, latencies and verify steps count now."""
        if request.probe:
            return
        common = self._common()
        stream = {**common, "is_streaming": str(request.stream).lower()}
        uncached, tokens = request.context - request.cached, len(request.pieces)
        self.add("prompt_tokens_total", request.context, **stream)
        self.add("generation_tokens_total", tokens, **stream)
        self.add("num_requests_total", 1, **stream)
        if request.cached:
            self.add("cached_tokens_total", request.cached, cache_source="device", **common)
        if request.verify_steps:
            self.add("spec_verify_calls_total", request.verify_steps, **common)
        self.observe("time_to_first_token_seconds", request.first - request.received, **stream)
        self.observe("e2e_request_latency_seconds", request.ended - request.received, **stream)
        self.observe("prompt_tokens_histogram", request.context, **common)
        self.observe("uncached_prompt_tokens_histogram", uncached, **common)
        self.observe("generation_tokens_histogram", tokens, **common)
        if tokens > 1:
            self.observe("inter_token_latency_seconds", (request.ended - request.first) / (tokens - 1), **common)
        rank = self._rank()
        self.observe("queue_time_seconds", max(0.0, request.began - request.received), **rank)
        self.observe("per_stage_req_latency_seconds", max(0.0, request.began - request.received), stage="request_process", **rank)
        self.observe("per_stage_req_latency_seconds", max(0.0, request.first - request.began), stage="prefill_forward", **rank)
        steps = request.verify_steps or tokens - 1
        self.add("cuda_graph_passes_total", 1, mode="prefill_cuda_graph" if uncached > 1 else "prefill_none", **rank)
        self.add("cuda_graph_passes_total", steps, mode="decode_cuda_graph", **rank)
        self.add("realtime_tokens_total", uncached, mode="prefill_compute", **rank)
        self.add("realtime_tokens_total", tokens, mode="decode", **rank)
        self.add("realtime_tokens_total", request.cached, mode="prefill_cache", **rank)

    def aborted(self, probe: bool) -> None:
        if not probe:
            self.add("num_aborted_requests_total", 1, **self._common())

    # ---- showing -------------------------------------------------------------------------------------------------

    def render(self, engine: Engine) -> str:
        """The exposition text."""
        gauges = self._gauges(engine)
        out = []
        for name, kind, help_text, _ in _TABLE:
            out += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
            if kind == "histogram":
                out += self._histogram(name)
            elif name in self._counters:
                out += [f"{name}{_labels(dict(key))} {_number(value)}" for key, value in self._counters[name].items()]
            else:
                out += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in gauges.get(name, [])]
        return "\n".join(out) + "\n"

    def _histogram(self, name: str) -> list[str]:
        out = []
        for key, (counts, total) in self._histograms.get(name, {}).items():
            labels, seen = dict(key), 0
            out.append(f"{name}_sum{_labels(labels)} {_number(total)}")
            for at, edge in enumerate(_EDGES[name]):
                seen += counts[at]
                out.append(f"{name}_bucket{_labels({**labels, 'le': edge})} {_number(seen)}")
            out.append(f"{name}_count{_labels(labels)} {_number(seen)}")
        return out

    def _common(self) -> dict[str, str]:
        return {"engine_type": "unified", "model_name": self._model}

    def _rank(self) -> dict[str, str]:
        return {**self._common(), "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}

    def _gauges(self, engine: Engine) -> dict[str, list[tuple[dict[str, str], float]]]:
        rank, common, start = self._rank(), self._common(), self._start
        used, spec = engine.used_tokens(), engine.config.algorithm != "NONE"
        cached = min(len(engine.cache), engine.max_tokens - used)
        plain: dict[str, float] = {
            "max_total_num_tokens": engine.max_tokens, "num_pages": engine.max_tokens, "page_size": 1,
            "context_len": start["context_len"], "startup_available_gpu_memory_gb": start["available_gb"],
            "weight_memory_usage_gb": start["weight_gb"], "kv_cache_memory_usage_gb": start["kv_gb"],
            "num_running_reqs": len(engine.running), "num_queue_reqs": len(engine.waiting),
            "gen_throughput": engine.gen_throughput if engine.running else 0.0, "token_usage": engine.usage(),
            "full_token_usage": engine.usage(), "num_used_tokens": used, "kv_used_tokens": used,
            "kv_available_tokens": engine.max_tokens - used - cached, "kv_evictable_tokens": cached, "decode_sum_seq_lens": used,
            "utilization": min(1.0, len(engine.running) / max(1, engine.max_running)), "fwd_occupancy": math.nan,
            "new_token_ratio": 0.7, "is_cuda_graph": float(bool(engine.running)),
            "spec_accept_length": (engine.accept_length or 0.0) if spec else 0.0,
            "spec_accept_rate": engine.accept_rate() if spec and engine.accept_length else 0.0,
            "spec_num_steps": 1.0 if spec else 0.0, "spec_num_draft_tokens": float(engine.config.block) if spec else 0.0,
        }  # fmt: skip
        out: dict[str, list[tuple[dict[str, str], float]]] = {}
        for name, kind, _, _ in _TABLE:
            if kind == "gauge":
                out[name] = [(rank, plain.get(name.removeprefix(P), 0.0))]
        out[P + "routing_keys_active"] = [({}, 0.0)]
        for name in ("num_retracted_reqs", "num_paused_reqs"):
            out[P + name] = [({**rank, "pid": str(self._pid)}, 0.0)]
        phases, graph = start["startup_time"], start["startup_time"]["cuda_graph"]
        out[P + "startup_time_seconds"] = [({**common, "phase": key}, one) for key, one in phases.items() if key != "cuda_graph"]
        out[P + "startup_cuda_graph_time_seconds"] = [({**common, "phase": key}, one) for key, one in graph.items()]
        out[P + "graph_memory_usage_gb"] = [({**rank, "phase": key}, start["graph_gb"].get(key, 0.0)) for key in graph]
        for name in ("routing_key_running_req_count", "routing_key_all_req_count"):
            out[P + name] = [({**rank, "gt": low, "le": high}, 0.0) for low, high in zip(_ROUTING, _ROUTING[1:], strict=False)]
        out[P + "http_requests_active"] = [
            ({"endpoint": endpoint, "method": method}, float(count)) for (endpoint, method), count in self.http_active.items()
        ]
        out[P + "process_cpu_seconds_total"] = [({"component": "tokenizer"}, time.process_time()), ({"component": "detokenizer"}, 0.0)]
        return out

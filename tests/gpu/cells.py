"""The matrix as the toolkit measures it, beside what the engine's log and metrics say of the same seconds."""

from __future__ import annotations

import json
import re
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

from toolkit import ROOT, Toolkit
from truth import Unit

sys.path.append(str(ROOT / "module_utils"))
from ddtree import logs

COUNTERS = {"finished": "generation_tokens_total", "decoded": "realtime_tokens_total"}
CELL = re.compile(r"Measure the cell ctx (\d+), C (\d+)")
RATES = ("output_tok_s", "engine_tok_s", "engine_finished_tok_s", "engine_log_tok_s", "peer_tok_s")
PEER_REQUESTS = 12  # of a shape with one stream: bench_serving's mean needs no more, and each takes a second


def counters(text: str) -> dict[str, float]:
    """The tokens of a /metrics page: of ended requests, and of decode steps as of the engine's last log line."""
    found = dict.fromkeys(COUNTERS, 0.0)
    for line in text.splitlines():
        for key, counter in COUNTERS.items():
            if line.startswith(f"sglang:{counter}{{") and (key == "finished" or 'mode="decode"' in line):
                found[key] += float(line.rsplit(" ", 1)[-1])
    return found


class Sampler:
    """Reads /metrics ten times a second, beside the measurement."""

    def __init__(self, unit: Unit) -> None:
        self.unit, self.seen = unit, []  # type: ignore[var-annotated]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            began = time.time()
            status, text = self.unit.get("/metrics")
            if status == 200:
                self.seen.append({"at": (began + time.time()) / 2, **counters(text)})

    def rate(self, key: str, begin: float, end: float) -> float | None:
        """Tokens per second between the first and the last move of a counter in a window: between moves it stands still."""
        moved = [b for a, b in zip(self.seen, self.seen[1:]) if b[key] > a[key] and begin <= b["at"] <= end]
        return (moved[-1][key] - moved[0][key]) / (moved[-1]["at"] - moved[0]["at"]) if len(moved) > 2 else None


def log_figures(lines: list[tuple[float, str]], concurrency: int) -> dict[str, Any]:
    """From the decode lines of the seconds in which so many requests ran: token/s, and the accept length weighted by tokens."""
    found = []
    for at, line in lines:
        try:
            one = logs.batch(line)
        except ValueError:
            continue
        if one and one.kind == "decode":
            found.append((at, one.values))
    gaps = [b[0] - a[0] for a, b in zip(found, found[1:])]
    if len(gaps) < 3:
        return {"lines": len(found)}
    usual = statistics.median(gaps)
    full = [
        (gap, here[1])
        for gap, before, here in zip(gaps, found, found[1:])
        if gap < 4 * usual and min(before[1]["running"], here[1]["running"]) >= 0.9 * concurrency
    ]
    seconds = sum(gap for gap, _ in full)
    tokens = sum(gap * values["throughput"] for gap, values in full)
    steps = sum(gap * values["throughput"] / values["accept_length"] for gap, values in full if values.get("accept_length"))
    return {"lines": len(full), "tok_s": tokens / seconds if seconds else None, "accept_length": tokens / steps if steps else None}


def measure(toolkit: Toolkit, unit: Unit, out: Path, name: str, only: dict[str, Any]) -> list[dict[str, Any]]:
    """Run benchmark.yml; the cells of its result file, each with what the engine said meanwhile."""
    marks: list[tuple[float, int, int]] = []
    began = time.time()

    def tell(at: float, line: str) -> None:
        hit = CELL.search(line)
        if hit:
            marks.append((at, int(hit[1]), int(hit[2])))
        if "tok/s" in line:
            print("   ", line.strip(' "'), flush=True)

    values = {"sweep_name": name, "sweep_results": str(out / "results"), **only}
    with Sampler(unit) as sampler:
        status = toolkit.play("benchmark.yml", values, tell)
    record = json.loads((out / "results" / name / "gpu" / "loaded.json").read_text())
    if status:
        print(f"    benchmark.yml ended with {status}", flush=True)
    journal = unit.journal(began)
    ends = [at for at, _, _ in marks[1:]] + [time.time()]
    whole = json.loads(unit.get("/server_info", timeout=10)[1] or "{}")
    states = whole.get("internal_states") or [{}]
    for cell in record.get("cells", []):
        for (at, context, concurrency), end in zip(marks, ends):
            if (context, concurrency) == (cell["context"], cell["concurrency"]):
                said = log_figures([one for one in journal if at <= one[0] <= end], concurrency)
                since = cell["measured_until"] - cell["seconds"]
                own = cell.get("accept") or {}
                cell["engine_tok_s"] = sampler.rate("decoded", since, cell["measured_until"])
                cell["engine_finished_tok_s"] = sampler.rate("finished", since, cell["measured_until"])
                cell["engine_log_tok_s"] = said.get("tok_s")
                cell["accept"] = {
                    "requests": cell.get("accept_length"),
                    "metrics": (own.get("metrics") or {}).get("length"),
                    "log": said.get("accept_length"),
                    "server_info": states[0].get("avg_spec_accept_length"),
                    "toolkit": {source: (one or {}).get("length") for source, one in own.items()},
                }
    (out / "samples.json").write_text(json.dumps(sampler.seen))
    return list(record.get("cells", []))

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

COUNTERS = {"tokens": "generation_tokens_total", "verify": "spec_verify_calls_total", "requests": "num_requests_total"}
CELL = re.compile(r"Measure the cell ctx (\d+), C (\d+)")


def counters(text: str) -> dict[str, float]:
    """The named counters of a /metrics page, summed over their labels."""
    found = dict.fromkeys(COUNTERS, 0.0)
    for line in text.splitlines():
        name, _, value = line.partition(" ") if "{" not in line else (line[: line.index("{")], "", line.rsplit(" ", 1)[-1])
        for key, counter in COUNTERS.items():
            if name.replace("sglang:", "") == counter:
                found[key] += float(value)
    return found


class Sampler:
    """Reads /metrics five times a second, beside the measurement."""

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
        while not self._over.wait(0.2):
            status, text = self.unit.get("/metrics")
            if status == 200:
                self.seen.append((time.time(), counters(text)["tokens"]))

    def rate(self, begin: float, end: float, warm: float, measured: float) -> float | None:
        """Tokens per second between the sample at which `warm` tokens were over and the last one within the measured ones.

        The counter moves when a request ends, so both edges are taken where it has just moved."""
        inside = [one for one in self.seen if begin <= one[0] <= end]
        if len(inside) < 3:
            return None
        base = inside[0][1]
        moved = [b for a, b in zip(inside, inside[1:]) if b[1] > a[1] and warm <= b[1] - base <= warm + measured]
        return (moved[-1][1] - moved[0][1]) / (moved[-1][0] - moved[0][0]) if len(moved) > 2 else None


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
                length = cell.get("asked_output_tokens", 0)
                warm = length * ((concurrency + 1) / 2 if concurrency > 1 else 0.5)
                cell["engine_tok_s"] = said.get("tok_s")
                cell["engine_metrics_tok_s"] = sampler.rate(at, end, warm * 0.98, cell["requests"] * length)
                cell["accept"] = {
                    "requests": cell.get("accept_length"),
                    "metrics": (cell.get("counters") or {}).get("accept_length"),
                    "log": said.get("accept_length"),
                    "server_info": states[0].get("avg_spec_accept_length"),
                }
    return list(record.get("cells", []))

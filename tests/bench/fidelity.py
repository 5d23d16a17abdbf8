"""How far are the figures of the load generator from the truth? A server with an exact schedule, many streams, several tokens a piece.

    fidelity.py [--quick]

The truth server gives each answer its first token and then a fixed number of tokens at exact moments, in events of the shapes that the
real engine was recorded with, so output token/s, accept length and TTFT are known. Each cell is measured as the role benchmark does it.
The lateness of the server's writes and of the client's event loop is shown; a cell in which either was late is measured again, at most
twice, since a busy machine does that as well.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "module_utils"), str(ROOT / "tests" / "integration")]

from exactserver import Truth  # noqa: E402  needs the path above

from ddtree.loadgen import CellSpec, run_cell  # noqa: E402

CORPUS = ROOT / "roles" / "benchmark" / "files" / "corpus" / "prose.txt"
TTFT, PACE, STEPS = 0.15, 0.05, 24
MIXED = [3, 1, 8, 2, 5, 7, 4, 6]
LATE_MS = 4.0  # p99 of the server's writes, and of the client's event loop, beyond which the machine was busy
TRIES = 3
WITHIN = {"output_tok_s": 0.01, "accept_length": 0.01, "ttft": 0.02}
TTFT_MS = 2.0  # or so many milliseconds, if that is more


def measure(truth: Truth, concurrency: int, sizes: list[int], api: str, quick: bool) -> dict[str, Any]:
    """One cell and its errors, each as a share of the truth."""
    tokens = 1 + sum(sizes[at % len(sizes)] for at in range(STEPS))
    truth.plan(TTFT, PACE, sizes, tokens)
    spec = CellSpec(
        truth.url, 256, concurrency, str(CORPUS), requests=max(concurrency, 4), output_tokens=tokens, api=api,
        repeats_least=1 if quick else 3, repeats_most=1 if quick else 3, precision=0.0,
    )  # fmt: skip
    found = run_cell(spec)
    true = {"output_tok_s": concurrency * tokens / (TTFT + STEPS * PACE), "accept_length": tokens / STEPS, "ttft": TTFT * 1000}
    ttft = [abs(found["ttft_ms"][level] - true["ttft"]) for level in ("p50", "p99")]
    return {
        "concurrency": concurrency, "tokens": (len(sizes) > 1 and "1-8") or sizes[0], "api": api, "found": found, "true": true,
        "late_ms": truth.account()["late_ms"]["p99"], "ttft_off_ms": max(ttft),
        "errors": {
            "output_tok_s": found["output_tok_s"] / true["output_tok_s"] - 1,
            "accept_length": (found["accept_length"] or 0.0) / true["accept_length"] - 1,
            "ttft": max(ttft) / true["ttft"],
        },
    }  # fmt: skip


def good(row: dict[str, Any]) -> bool:
    """Whether the cell meets what is promised."""
    errors = row["errors"]
    near = all(abs(errors[name]) <= WITHIN[name] for name in ("output_tok_s", "accept_length"))
    return near and (row["ttft_off_ms"] <= TTFT_MS or errors["ttft"] <= WITHIN["ttft"]) and not row["found"]["errors"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter cells, under a minute")
    quick = parser.parse_args().quick
    levels = (1, 16, 256) if quick else (1, 4, 16, 32, 64, 256)
    kinds = [([4], "chat"), (MIXED, "generate")] if quick else [*(([at], "chat") for at in range(1, 9)), (MIXED, "generate")]
    print(
        "| streams | tokens a piece | route | token/s | true | off | accept length off | TTFT p50, p99 | off | server late p99 | client |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    rows, again = [], 0
    with Truth() as truth:
        for concurrency in levels:
            for sizes, api in kinds:
                for _ in range(TRIES):
                    row = measure(truth, concurrency, sizes, api, quick)
                    if max(row["late_ms"], row["found"]["client"]["lag_ms_p99"]) <= LATE_MS:
                        break
                    again += 1
                rows.append(row)
                show(row)
    worst = {name: round(max(abs(one["errors"][name]) for one in rows), 5) for name in WITHIN}
    missed = [one for one in rows if not good(one)]
    late = [one for one in rows if max(one["late_ms"], one["found"]["client"]["lag_ms_p99"]) > LATE_MS]
    print(f"\n{len(rows) - len(missed)} of {len(rows)} cells within 1% (token/s, accept length) and 2 ms or 2% (TTFT p50 and p99); TTFT "
          f"off by at most {max(one['ttft_off_ms'] for one in rows):.2f} ms. {again} measured again because server or client was late; in "
          f"{len(late)} one was late to the last.")  # fmt: skip
    print(json.dumps({"max_error": worst, "cells": len(rows), "missed": len(missed), "late": len(late)}))


def show(row: dict[str, Any]) -> None:
    found, errors = row["found"], row["errors"]
    doubts = "".join(f" {one.split(':')[0]}" for one in found["warnings"])
    ttft, client = found["ttft_ms"], found["client"]
    print("|", " | ".join((
        str(row["concurrency"]), str(row["tokens"]), row["api"], f"{found['output_tok_s']:.1f}", f"{row['true']['output_tok_s']:.1f}",
        f"{errors['output_tok_s']:+.2%}", f"{errors['accept_length']:+.2%}", f"{ttft['p50']:.1f}, {ttft['p99']:.1f} ms",
        f"{row['ttft_off_ms']:.2f} ms", f"{row['late_ms']:.2f} ms", f"{client['cpu']:.0%}, {client['lag_ms_p99']:.1f} ms late{doubts}",
    )), "|", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

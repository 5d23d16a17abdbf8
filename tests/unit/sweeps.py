"""Result files for tests: plausible figures of any points, on any hosts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ddtree.engine import Server, render
from ddtree.points import Point
from ddtree.results import merge

CONTEXTS, LEVELS = (60, 1024, 4096), (1, 32)
SPEED = {
    (60, 1): 147.5,
    (1024, 1): 139.0,
    (4096, 1): 87.9,
    (60, 32): 696.8,
    (1024, 32): 672.6,
    (4096, 32): 417.7,
}
TASKS = ("is_palindrome", "fib", "merge_sorted", "word_count", "gcd")
SERVER = Server(python="/p", model="/m", drafter="/d", block_size=8)


def record(point: Point, factor: float = 1.0, passed: int = 5, spread: float = 0.01, **more: Any) -> dict[str, Any]:
    """An ok record whose cells run at `factor` times the origin's speed."""
    launch = render(point, SERVER)
    cells = []
    for (context, level), speed in SPEED.items():
        rate = round(speed * factor, 2)
        cells.append(
            {
                "context": context,
                "concurrency": level,
                "requests": 6 * level,
                "errors": 0,
                "output_tokens": 1536 * level,
                "seconds": round(1536 * level / rate, 3),
                "output_tok_s": rate,
                "user_tok_s": round(rate / level, 2),
                "ci95": [round(rate * (1 - spread), 2), round(rate * (1 + spread), 2)],
                "ttft_ms": {"p50": 200.0, "p95": 300.0, "p99": 400.0},
                "tpot_ms": {"p50": 5.0, "p95": 6.0, "p99": 7.0},
                "e2e_ms": {"p50": 900.0, "p95": 950.0, "p99": 990.0},
                "accept_length": None if point.dialect == "none" else 3.5 + context / 10000,
                "accept_source": "requests",
            }
        )
    tasks = [{"name": name, "outcome": "passed" if index < passed else "truncated", "detail": ""} for index, name in enumerate(TASKS)]
    return {
        "schema": 1,
        "point": point.as_dict(),
        "config_id": launch.config_id,
        "status": "ok",
        "started": "2026-12-01T10:00:00Z",
        "finished": "2026-12-01T10:09:00Z",
        "failure": None,
        "cells": cells,
        "coding": {"passed": passed, "total": 5, "tasks": tasks},
        "engine": {
            "dialect": point.dialect,
            "version": "0.5.23",
            "derived": launch.derived,
            "resolved": {"page_size": 1},
        },
        "restart": {
            "changed": True,
            "seconds": 380.5,
            "phases": [
                {"name": "stop", "seconds": 12.5, "detail": ""},
                {"name": "load", "seconds": 368.0, "detail": ""},
            ],
        },
        **more,
    }


def failed(
    point: Point,
    cause: str = "out_of_memory",
    message: str = "no memory is left",
    tail: tuple[str, ...] = ("CUDA out of memory",),
) -> dict[str, Any]:
    base = record(point)
    return {
        **base,
        "status": "failed",
        "cells": [],
        "coding": {},
        "failure": {"phase": "load", "cause": cause, "message": message, "log_tail": list(tail)},
    }


def store(folder: Path, *records: dict[str, Any], host: str = "gpu-a") -> Path:
    for one in records:
        merge(folder / host / f"{one['point']['name']}.json", {"sweep": folder.name, "host": host, **one})
    return folder


def grid24(folder: Path, hosts: tuple[str, ...] = ("gpu01", "gpu02")) -> Path:
    """A sweep of 24 points with the figures of the simulated engine's formula, dealt out over hosts that differ by 3%, with failures."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "roles" / "simulated_host" / "files" / "site"))
    from sglang.sim.speed import accept_length, config, output_tok_s

    points = [Point(budget=budget, topk=topk) for budget in (4, 8, 12, 16, 24, 32) for topk in (2, 4, 6)]
    points += [Point(budget=12, topk=6, window=one) for one in (512, 1024, None)]
    points += [Point(dialect="none", window=None), Point(dialect="dflash"), Point(budget=12, topk=6, tp=4)]
    for index, point in enumerate(points):
        for at, host in enumerate(hosts):
            anchor = point.dialect == "none"
            if not anchor and index % len(hosts) != at:
                continue
            if index in (5, 17):
                store(folder, failed(point, ("out_of_memory", "load_timeout")[index == 17]), host=host)
                continue
            algorithm = {"none": "NONE", "dflash": "DFLASH"}.get(point.dialect, "DDTREE")
            engine = config(point.budget or 12, point.topk or 6, point.window, algorithm, point.tp)
            one = record(point, host=host)
            for cell in one["cells"]:
                key = cell["context"], cell["concurrency"]
                speed = output_tok_s(engine, *key) * (1 - 0.03 * at) * (1 + 0.004 * ((index * 7 + sum(key)) % 5 - 2))
                cell.update(output_tok_s=round(speed, 2), user_tok_s=round(speed / key[1], 2))
                cell.update(ci95=[round(speed * 0.988, 2), round(speed * 1.012, 2)], accept_length=round(accept_length(engine, key[0]), 3))
                cell["accept_length"] = None if algorithm == "NONE" else cell["accept_length"]
            store(folder, one, host=host)
    return folder

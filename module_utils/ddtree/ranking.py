"""Which point is best: entries per point over its hosts, an objective, the coding check as a bar, the Pareto
front.

The default objective `balanced` is the geometric mean of output tok/s over the cells that all complete points
have: a percent won at concurrency 1 counts as much as a percent at concurrency 32, although the figures
differ fivefold.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .lossless import CHANGED
from .lossless import compare as compare_answers
from .results import cell_key, geometric_mean

OBJECTIVES = ("balanced", "single-user", "aggregate")
AT = "aggregate@"  # with the concurrency behind it
_LONG = {"single-user speed": "single-user", "aggregate throughput": "aggregate"}
_MEANING = {
    "balanced": "geometric mean of output tok/s over all cells",
    "single-user": "geometric mean of output tok/s over the contexts at the lowest concurrency",
    "aggregate": "geometric mean of output tok/s over the contexts at the highest concurrency",
}


class RankingError(ValueError):
    """An objective that cannot be computed; the message is one sentence."""


def meaning(objective: Any) -> str:
    """The objective in words."""
    if isinstance(objective, Mapping):
        return "weighted geometric mean: " + ", ".join(f"{name} {weight:g}" for name, weight in _weights(objective).items())
    name = next(iter(_weights(objective)))
    if name.startswith(AT):
        return f"geometric mean of output tok/s over the contexts at concurrency {name[len(AT) :]}"
    return _MEANING[name]


def rank(records: Sequence[Mapping[str, Any]], objective: Any = "balanced", anchor: str = "",
         bounds: Mapping[str, float] | None = None) -> list[dict[str, Any]]:  # fmt: skip
    """One entry per point, best first: {rank, name, point, hosts, tier, reasons, score, cells, single_user,
    aggregate, accept, coding, ...}.

    `objective` is one of OBJECTIVES, aggregate@N for a concurrency, or weights such as {single-user: 0.7, aggregate: 0.3}. `bounds`:
    {ttft_ms or tpot_ms: most of its p99 in every cell}. Tiers, each below the one before: 0 clean; 1 coding below the bar, a bound
    exceeded, or requests that failed; 2 cells missing; 3 not measured (failed, skipped, unfinished).
    `cells` maps (context, concurrency) to {output_tok_s, user_tok_s, accept_length, low, high, errors},
    averaged over hosts. With an `anchor`, the point that each host measured, figures are first put on the fleet's mean by what the
    anchor shows of their host, cell by cell.
    """
    weights = _weights(objective)
    records = on_the_mean_host(records, anchor) if anchor else records
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault(str(record["point"].get("name")), []).append(record)
    entries = [_entry(name, group) for name, group in groups.items()]
    complete = {key for entry in entries for key in entry["cells"]}
    control = _coding_control(entries)
    bar = 1.0 if any(entry["coding"] for entry in entries) else None
    if control:
        bar = control["coding"]["passed"] / control["coding"]["total"]
    for entry in entries:
        both = control and control is not entry and entry["coding"]
        entry["lossless"] = compare_answers(control["coding"], entry["coding"]) if control and both else None
        entry["tier"], entry["reasons"] = _tier(entry, complete, bar, bounds or {})
    shared = [entry for entry in entries if entry["tier"] < 2]
    common = sorted(set.intersection(*(set(entry["cells"]) for entry in shared))) if shared else sorted(complete)
    for entry in entries:
        parts = _parts(entry["cells"], common)
        entry.update(
            single_user=parts["single-user"],
            aggregate=parts["aggregate"],
            score=_weighted(parts, weights, functools.partial(_at, entry["cells"], common)),
        )
    entries.sort(key=lambda entry: (entry["tier"], -(entry["score"] or 0.0), entry["name"]))
    place = 0
    for entry in entries:
        place += entry["tier"] < 3
        entry["rank"] = place if entry["tier"] < 3 else None
    return entries


def host_factors(records: Sequence[Mapping[str, Any]], anchor: str) -> dict[str, dict[tuple[int, int], float]]:
    """{host: {(context, concurrency): its speed at the anchor as a share of the fleet's mean}}."""
    speeds: dict[tuple[int, int], dict[str, float]] = {}
    for record in records:
        if record["point"].get("name") == anchor and record.get("status") == "ok":
            for cell in record.get("cells") or []:
                if cell.get("output_tok_s"):
                    speeds.setdefault(cell_key(cell), {})[str(record.get("host"))] = float(cell["output_tok_s"])
    found: dict[str, dict[tuple[int, int], float]] = {}
    for key, by_host in speeds.items():
        mean = geometric_mean(list(by_host.values()))
        for host, speed in by_host.items():
            found.setdefault(host, {})[key] = speed / mean if mean else 1.0
    return found


def on_the_mean_host(records: Sequence[Mapping[str, Any]], anchor: str) -> list[dict[str, Any]]:
    """The records with output and per-user speeds divided by their host's factor. A host without an anchor stays as it is."""
    factors = host_factors(records, anchor)
    adjusted = []
    for record in records:
        mine = factors.get(str(record.get("host")), {})
        cells = [_divided(cell, mine.get(cell_key(cell), 1.0)) for cell in record.get("cells") or []]
        adjusted.append({**record, "cells": cells})
    return adjusted


def _divided(cell: Mapping[str, Any], factor: float) -> dict[str, Any]:
    if factor == 1.0:
        return dict(cell)
    moved = {key: cell[key] / factor for key in ("output_tok_s", "user_tok_s") if cell.get(key)}
    moved["repeats"] = [_divided(one, factor) for one in cell.get("repeats") or []]
    interval = cell.get("ci95")
    if isinstance(interval, list):
        moved["ci95"] = [None if one is None else one / factor for one in interval]
    return {**cell, **moved}


def pareto(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the points that no other clean point beats in both single-user speed and aggregate
    throughput.
    """
    able = [one for one in entries if one["tier"] == 0 and one["single_user"] and one["aggregate"]]

    def beaten(one: Mapping[str, Any]) -> bool:
        return any(
            two["single_user"] >= one["single_user"]
            and two["aggregate"] >= one["aggregate"]
            and (two["single_user"], two["aggregate"]) != (one["single_user"], one["aggregate"])
            for two in able
        )

    return [one["name"] for one in sorted(able, key=lambda one: -one["single_user"]) if not beaten(one)]


def axes_of(entries: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[int]]:
    """(contexts, concurrencies) that any entry has, ascending."""
    keys = {key for entry in entries for key in entry["cells"]}
    return sorted({key[0] for key in keys}), sorted({key[1] for key in keys})


def _weights(objective: Any) -> dict[str, float]:
    if isinstance(objective, str):
        objective = {str(objective): 1.0}
    if not isinstance(objective, Mapping) or not objective:
        raise RankingError(f"the objective is {objective!r}: one of {', '.join(OBJECTIVES)}, or weights of them, is wanted")
    weights = {}
    for given, weight in objective.items():
        name = _LONG.get(str(given), str(given))
        if name not in OBJECTIVES and not (name.startswith(AT) and name[len(AT) :].isdigit()):
            raise RankingError(f"{str(given)!r} is no objective: known are {', '.join(OBJECTIVES)}")
        try:
            weights[name] = float(weight)
        except (TypeError, ValueError):
            raise RankingError(f"the weight of {name} is {weight!r}: a number is wanted") from None
        if not 0 <= weights[name] < float("inf"):
            raise RankingError(f"the weight of {name} is {weight!r}: a number of at least 0 is wanted")
    if not sum(weights.values()):
        raise RankingError("the weights of the objective are all 0: give at least one above it")
    return weights


def _entry(name: str, group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    good = [record for record in group if record.get("status") == "ok"]
    used = good or list(group)
    cells: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for record in used:
        for cell in record.get("cells") or []:
            cells.setdefault(cell_key(cell), []).append(cell)
    codings = [record["coding"] for record in used if (record.get("coding") or {}).get("total")]
    worst = min(codings, key=lambda one: one["passed"] / one["total"]) if codings else None
    failures = [{"host": str(record.get("host", "")), **record["failure"]} for record in group if record.get("failure")]
    engine: dict[str, Any] = next((record["engine"] for record in used if record.get("engine")), {})
    restarts = [record["restart"] for record in used if record.get("restart")]
    return {
        "name": name,
        "point": dict(used[0]["point"]),
        "hosts": sorted({str(record.get("host", "")) for record in used}),
        "status": "ok" if good else str(group[0].get("status", "unfinished")),
        "config_id": used[0].get("config_id", ""),
        "lost_hosts": sorted(str(record.get("host", "")) for record in group if record.get("status") != "ok") if good else [],
        "cells": {key: _mean_cell(found) for key, found in sorted(cells.items())},
        "coding": worst,
        "failure": failures[0] if failures else None,
        "failures": failures,
        "engine": engine,
        "derived": engine.get("derived") or {},
        "restart": restarts[0] if restarts else None,
        "aliases": list(used[0].get("aliases") or []),
        "screened": all((record.get("tune") or {}).get("stage") == "screen" for record in used),
        "cut": next((str(record["tune"]["cut"]) for record in used if (record.get("tune") or {}).get("cut")), ""),
    }


def _mean_cell(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    mean: dict[str, Any] = {}
    for key in ("output_tok_s", "user_tok_s", "accept_length"):
        values = [float(one[key]) for one in found if one.get(key)]
        mean[key] = geometric_mean(values) if values else None
    interval = [one["ci95"] for one in found if isinstance(one.get("ci95"), list) and len(one["ci95"]) == 2 and None not in one["ci95"]]
    alone = found[0] if len(found) == 1 else {}
    mean["repeats"] = list(alone.get("repeats") or [])
    mean.update({key: alone.get(key) for key in ("seed", "corpus", "per_prompt")})  # by which two cells are compared passage by passage
    if len(found) == 1:
        mean["low"], mean["high"] = (interval[0][0], interval[0][1]) if interval else (None, None)
    else:  # between hosts the spread says more than one host's interval
        speeds = [float(one["output_tok_s"]) for one in found if one.get("output_tok_s")]
        mean["low"], mean["high"] = (min(speeds), max(speeds)) if speeds else (None, None)
    mean["p99"] = {
        name: max((float((one.get(name) or {}).get("p99") or 0) for one in found), default=0.0) for name in ("ttft_ms", "tpot_ms")
    }
    mean["errors"] = sum(int(one.get("errors") or 0) for one in found)
    mean["hosts"] = len(found)
    mean["accept_source"] = next((one["accept_source"] for one in found if one.get("accept_source")), "")
    mean["ttft_ms"] = next((one["ttft_ms"].get("p50") for one in found if isinstance(one.get("ttft_ms"), Mapping)), None)
    return mean


def _coding_control(entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The point without speculation, where its coding was checked: what it passes is the bar for all."""
    found = (one for one in entries if one["point"].get("dialect") == "none" and one["coding"] and one["status"] == "ok")
    return next(found, None)


def _tier(entry: Mapping[str, Any], complete: set[tuple[int, int]], bar: float | None,
          bounds: Mapping[str, float]) -> tuple[int, list[str]]:  # fmt: skip
    if entry["status"] != "ok" or not entry["cells"]:
        failure = entry["failure"] or {}
        cause = f": {failure.get('cause')} in phase {failure.get('phase')}" if failure.get("cause") else ""
        return 3, [f"{entry['status'] if entry['status'] != 'ok' else 'no cells'}{cause}"]
    reasons = []
    gone = [key for key in sorted(complete) if not (entry["cells"].get(key) or {}).get("output_tok_s")]
    if gone and (entry["screened"] or entry["cut"]):
        return 2, [f"cut off: {entry['cut']}" if entry["cut"] else f"screened only, {len(complete) - len(gone)} of {len(complete)} cells"]
    if gone:
        return 2, ["not measured: " + ", ".join(f"context {key[0]} at concurrency {key[1]}" for key in gone)]
    errors = sum(cell["errors"] for cell in entry["cells"].values())
    if errors:
        reasons.append(f"{errors} requests failed")
    for name, most in bounds.items():
        worst = max((cell["p99"].get(name) or 0.0 for cell in entry["cells"].values()), default=0.0)
        if worst > most:
            reasons.append(f"p99 {name.partition('_')[0].upper()} {worst:.0f} ms, at most {most:g} are wanted")
    coding = entry["coding"]
    if bar is not None and coding and coding["passed"] / coding["total"] < bar - 1e-9:
        cut = sum(task.get("outcome") == "truncated" for task in coding.get("tasks") or [])
        why = f" ({cut} cut by the token limit)" if cut else ""
        mine = entry["lossless"] or {}
        chance = f", which chance explains (p {mine['p_worse']:.2f})" if mine.get("worse") and mine["p_worse"] >= 0.05 else ""
        reasons.append(f"coding {coding['passed']} of {coding['total']}{why}{chance}")
    if (entry["lossless"] or {}).get("verdict") == CHANGED:
        reasons.append(f"greedy answers changed: {entry['lossless']['why']}")
    return (1 if reasons else 0), reasons


def _parts(cells: Mapping[tuple[int, int], Mapping[str, Any]], common: Sequence[tuple[int, int]]) -> dict[str, float | None]:
    def mean(keys: Sequence[tuple[int, int]]) -> float | None:
        speeds = [(cells.get(key) or {}).get("output_tok_s") for key in keys]
        return geometric_mean([one for one in speeds if one]) if keys and all(speeds) else None

    levels = sorted({key[1] for key in common})
    return {
        "balanced": mean(common),
        "single-user": mean([key for key in common if key[1] == levels[0]]) if levels else None,
        "aggregate": mean([key for key in common if key[1] == levels[-1]]) if levels else None,
    }


def _at(cells: Mapping[tuple[int, int], Mapping[str, Any]], common: Sequence[tuple[int, int]], level: int) -> float | None:
    speeds = [(cells.get(key) or {}).get("output_tok_s") for key in common if key[1] == level]
    return geometric_mean([one for one in speeds if one]) if speeds and all(speeds) else None


def _weighted(parts: Mapping[str, float | None], weights: Mapping[str, float], at: Callable[[int], float | None]) -> float | None:
    """`at` gives the mean over contexts at a concurrency."""
    total, product = sum(weights.values()), 1.0
    parts = {**parts, **{name: at(int(name[len(AT) :])) for name in weights if name.startswith(AT)}}
    for name, weight in weights.items():
        value = parts[name]
        if weight and not value:
            return None
        product *= (value or 1.0) ** (weight / total)
    return product

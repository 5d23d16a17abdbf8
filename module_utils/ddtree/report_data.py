"""The report's figures as one document, report.json: what the pages show, with full precision, for machines."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .comparison import counts
from .ranking import meaning
from .report import Report, accepts, headline, why
from .results import geometric_mean

_ALIAS = re.compile(r"b([0-9]+)-k([0-9]+)(-.*)?")
HEAT = {"single_user": "single user, output tok/s", "aggregate": "aggregate, output tok/s"}
MOST_MAPS = 4


def text(report: Report) -> str:
    """The document as JSON; the same results give the same bytes."""
    return json.dumps(document(report), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def document(report: Report) -> dict[str, Any]:
    """{schema, sweep, objective, meaning, headline, why, best, points, front, heat_maps, hosts, environment, problems, comparison}"""
    return {
        "schema": 1,
        "sweep": report.sweep.name,
        "objective": report.objective,
        "meaning": meaning(report.objective),
        "headline": headline(report),
        "why": why(report),
        "best": report.best["name"] if report.best else None,
        "contexts": report.contexts,
        "concurrencies": report.levels,
        "counts": {"points": len(report.entries), "without_figures": sum(entry["tier"] == 3 for entry in report.entries)},
        "front": report.front,
        "points": [point(report, entry) for entry in report.entries],
        "heat_maps": heat_maps(report),
        "hosts": hosts(report),
        "spread_between_hosts": spread(hosts(report)),
        "began": min((str(record["started"]) for record in report.sweep.records if record.get("started")), default=None),
        "anchor": report.schedule.get("anchor") or None,
        "environment": environment(report),
        "settings": settings(report),
        "problems": report.sweep.problems,
        "tuning": report.tuning or None,
        "baseline": {**report.baseline, "counts": counts(report.comparison), "cells": report.comparison} if report.baseline else None,
    }


def point(report: Report, entry: Mapping[str, Any]) -> dict[str, Any]:
    """One point with everything that is told of it."""
    best = (report.best or {}).get("score")
    there = [one for one in accepts(entry) if one is not None]
    return {
        **{key: entry[key] for key in ("rank", "name", "aliases", "status", "tier", "reasons", "hosts", "lost_hosts", "config_id")},
        **{key: entry[key] for key in ("point", "derived", "score", "single_user", "aggregate")},
        "to_best": entry["score"] / best - 1 if entry["score"] and best else None,
        "speed_up": {name: speed_up(report, entry, name) for name in ("none", "dflash")},
        "accept_length": [min(there), max(there)] if there else None,
        "accept_by_context": {str(context): accept_at(report, entry, context) for context in report.contexts},
        "coding": entry["coding"],
        "lossless": entry["lossless"],
        "cells": [{"context": key[0], "concurrency": key[1], **_figures(cell)} for key, cell in entry["cells"].items()],
        "restart": entry["restart"],
        "restart_seconds": restart_seconds(entry),
        "failures": entry["failures"],
        "engine": {key: entry["engine"].get(key) for key in ("version", "dialect", "requested", "resolved")},
    }


def speed_up(report: Report, entry: Mapping[str, Any], dialect: str) -> dict[str, float] | None:
    """{score, single_user, aggregate}: times the control of that dialect; None for the control itself and where it was not measured."""
    control = report.control(dialect)
    if control is None or control is entry or entry["tier"] == 3:
        return None
    found = {key: entry[key] / control[key] for key in ("score", "single_user", "aggregate") if entry[key] and control[key]}
    return found or None


def _figures(cell: Mapping[str, Any]) -> dict[str, Any]:
    """A cell without what only a comparison needs; of its repeats the rates."""
    kept = {key: value for key, value in cell.items() if key not in ("seed", "corpus", "per_prompt")}
    return {**kept, "repeats": [one.get("output_tok_s") for one in cell["repeats"]]}


def accept_at(report: Report, entry: Mapping[str, Any], context: int) -> float | None:
    """At the lowest concurrency that tells."""
    values = [(entry["cells"].get((context, level)) or {}).get("accept_length") for level in report.levels]
    return next((one for one in values if one is not None), None)


def restart_seconds(entry: Mapping[str, Any]) -> float | None:
    """Of all phases together."""
    phases = (entry["restart"] or {}).get("phases") or []
    return sum(float(one.get("seconds") or 0) for one in phases) if phases else None


def heat_maps(report: Report) -> list[dict[str, Any]]:
    """[{title, budgets, topks, maps: {single_user, aggregate: {"BUDGET/TOPK": value}}}], one for each set of points that differ in
    budget and topk alone, largest first; at least two of each. A cell that another point stands for has its figure.
    """
    groups: dict[str, dict[tuple[int, int], Mapping[str, Any]]] = {}
    for entry in report.entries:
        one = entry["point"]
        if entry["tier"] >= 3 or one.get("budget") is None or one.get("topk") is None:
            continue
        rest = {key: one.get(key) for key in ("dialect", "window", "tp", "flags", "extra_args", "extra_env") if one.get(key)}
        mine = groups.setdefault(json.dumps(rest, sort_keys=True), {})
        mine[(one["budget"], one["topk"])] = entry
        for alias in entry["aliases"]:
            found = _ALIAS.fullmatch(alias)
            if found and (found[3] or "") == entry["name"].partition(f"-k{one['topk']}")[2]:
                mine.setdefault((int(found[1]), int(found[2])), entry)
    maps: list[dict[str, Any]] = []
    for rest_text, cells in groups.items():
        budgets, topks = (sorted({key[at] for key in cells}) for at in (0, 1))
        if len(budgets) > 1 and len(topks) > 1:
            values = {name: {f"{b}/{k}": entry[name] for (b, k), entry in sorted(cells.items()) if entry[name]} for name in HEAT}
            maps.append({"title": _title(json.loads(rest_text)), "budgets": budgets, "topks": topks, "maps": values})
    return sorted(maps, key=lambda one: -len(one["maps"]["single_user"]))[:MOST_MAPS]


def hosts(report: Report) -> list[dict[str, Any]]:
    """What each host gave: points, its speed against the fleet at what several hosts measured, and why it stopped."""
    state = report.schedule.get("hosts") or {}
    names = list(dict.fromkeys([*(str(record["host"]) for record in report.sweep.records), *state]))
    ratios: dict[str, dict[int, list[float]]] = {}
    cells: dict[tuple[Any, ...], dict[str, float]] = {}
    for record in report.sweep.records:
        for cell in record.get("cells") or [] if record["status"] == "ok" else []:
            if cell.get("output_tok_s"):
                key = record["point"]["name"], cell["context"], cell["concurrency"]
                cells.setdefault(key, {})[str(record["host"])] = float(cell["output_tok_s"])
    for key, by_host in cells.items():
        mean = geometric_mean(list(by_host.values()))
        for host, speed in by_host.items() if mean and len(by_host) > 1 else ():
            assert mean
            ratios.setdefault(host, {}).setdefault(key[2], []).append(speed / mean)
    found = []
    for name in names:
        mine = [record for record in report.sweep.records if record["host"] == name]
        against = {str(level): geometric_mean(values) for level, values in sorted(ratios.get(name, {}).items())}
        found.append({
            "host": name, "measured": sum(one["status"] == "ok" for one in mine), "failed": sum(one["status"] == "failed" for one in mine),
            "shared_cells": sum(len(values) for values in ratios.get(name, {}).values()), "against_fleet": against,
            "stopped": state.get(name, {}).get("stopped") or "", "lost": bool(state.get(name, {}).get("lost")),
        })  # fmt: skip
    return found


def environment(report: Report) -> list[dict[str, Any]]:
    """[{host, what, values}], as the engine and the host tell it."""
    rows: dict[tuple[str, str], set[str]] = {}
    for record in report.sweep.records:
        engine = record.get("engine") or {}
        resolved = engine.get("resolved") or {}
        shown = {**(record.get("environment") or {}), "engine version": engine.get("version"), "engine release": record.get("release")}
        for key in ("attention_backend", "page_size", "tp_size", "max_running_requests", "max_total_num_tokens", "mem_fraction_static"):
            shown[key] = resolved.get(key)
        for key, value in shown.items():
            if value not in (None, ""):
                rows.setdefault((str(record["host"]), str(key)), set()).add(_short(value))
    return [{"host": host, "what": key, "values": sorted(values)} for (host, key), values in sorted(rows.items())]


def settings(report: Report) -> dict[str, Any]:
    """What was measured, where all results agree on it."""
    found = [record["matrix"] for record in report.sweep.records if record.get("matrix")]
    return {key: value for key, value in found[0].items() if all(one.get(key) == value for one in found)} if found else {}


def flags(entry: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(field, asked, resolved) of a point's engine: what was to be proven, then what the engine tells of the speculation besides."""
    engine = entry["engine"]
    asked, resolved = engine.get("requested") or {}, engine.get("resolved") or {}
    rest = sorted(key for key in resolved if key.startswith("speculative_") and key not in asked)
    return [(key, asked.get(key), resolved.get(key)) for key in [*asked, *rest]]


def _title(rest: Mapping[str, Any]) -> str:
    words = [str(rest.get("dialect", "")), f"window {rest.get('window') or 'none'}", f"tp {rest.get('tp')}" if rest.get("tp") else ""]
    words += [f"{key} {value}" for key, value in (rest.get("flags") or {}).items()]
    words += [" ".join(rest.get("extra_args") or []), " ".join(f"{key}={value}" for key, value in (rest.get("extra_env") or {}).items())]
    return ", ".join(word for word in words if word)


def _short(value: Any) -> str:
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return shown if len(shown) <= 200 else shown[:199] + "…"


def spread(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Of the fastest host to the slowest over what they all measured, as a share; None for one host."""
    values = [value for one in rows for value in one["against_fleet"].values() if value]
    return max(values) / min(values) - 1 if len(values) > 1 else None

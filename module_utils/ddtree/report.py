"""A sweep's report as data: ranked, compared, in sentences, as CSV, and a vars file of the best point.

Everything is computed from the result files alone, without clock or locale: the same files give the same
bytes.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .comparison import compare, read_baseline
from .ranking import axes_of, host_factors, meaning, pareto, rank
from .results import ResultError, Sweep, cell_key, link_latest, load_sweep, write_text
from .schedule import load as load_schedule
from .study import load as load_study

COLUMNS = (
    "sweep",
    "host",
    "point",
    "rank",
    "dialect",
    "budget",
    "topk",
    "window",
    "tp",
    "mode",
    "effective_topk",
    "verify_width",
    "config_id",
    "status",
    "context",
    "concurrency",
    "requests",
    "errors",
    "output_tokens",
    "seconds",
    "output_tok_s",
    "output_tok_s_low",
    "output_tok_s_high",
    "user_tok_s",
    "ttft_ms_p50",
    "ttft_ms_p95",
    "ttft_ms_p99",
    "tpot_ms_p50",
    "tpot_ms_p95",
    "tpot_ms_p99",
    "e2e_ms_p50",
    "e2e_ms_p95",
    "e2e_ms_p99",
    "accept_length",
    "accept_source",
    "coding_passed",
    "coding_total",
    "restart_seconds",
    "failure_phase",
    "failure_cause",
    "aliases",
    "engine_version",
    "extra",
)
DASH = "\u2013"


@dataclass
class Report:
    """Everything that the pages show. `entries` are ranking.rank's, `comparison` is comparison.compare's; `schedule` is the sweep's
    own state, {} where it has none; `factors` are ranking.host_factors of its anchor.
    """

    sweep: Sweep
    objective: Any
    entries: list[dict[str, Any]]
    front: list[str]
    contexts: list[int]
    levels: list[int]
    comparison: list[dict[str, Any]] = field(default_factory=list)
    baseline: dict[str, Any] = field(default_factory=dict)  # {title, notes}
    schedule: dict[str, Any] = field(default_factory=dict)
    factors: dict[str, dict[tuple[int, int], float]] = field(default_factory=dict)
    tuning: dict[str, Any] = field(default_factory=dict)  # tune_report.summary of a sweep that was tuned

    @property
    def best(self) -> dict[str, Any] | None:
        """The winner; None when no point has figures."""
        first = self.entries[0] if self.entries else None
        return first if first and first["tier"] < 3 and first["score"] else None

    def control(self, dialect: str) -> dict[str, Any] | None:
        """The measured point of this dialect that gains are told against: the one asked as a control, else the best of them."""
        names = self.schedule.get("controls") or []
        found = [one for one in self.entries if one["point"].get("dialect") == dialect and one["score"]]
        return next((one for one in found if one["name"] in names), found[0] if found else None)

    @property
    def keys(self) -> list[tuple[int, int]]:
        """(context, concurrency) of every cell, by concurrency, then context."""
        found = {key for entry in self.entries for key in entry["cells"]}
        return sorted(found, key=lambda key: (key[1], key[0]))


def build(directory: str | Path, objective: Any = "balanced", baseline: str | Path | None = None) -> Report:
    """Read a sweep's folder and, if given, a baseline: another sweep's folder or a baseline file.

    Raises ResultError for a folder without one usable result and RankingError for an unusable objective.
    """
    sweep = load_sweep(directory)
    if not sweep.records and not sweep.problems:
        raise ResultError(f"{directory} holds no result file: run a sweep first, or name another folder")
    schedule = load_schedule(directory)
    anchor = str(schedule.get("anchor") or "")
    document = load_study(Path(directory))
    bounds: Mapping[str, float] = {}
    if document:  # what was tuned for rules, unless another objective is asked
        from .tune_report import goal_of, summary

        goal = goal_of(document)
        objective, bounds = goal.objective if objective == "balanced" else objective, goal.bounds
    entries = rank(sweep.records, objective, anchor, bounds)
    contexts, levels = axes_of(entries)
    report = Report(sweep, objective, entries, pareto(entries), contexts, levels, schedule=schedule)
    report.factors = host_factors(sweep.records, anchor)
    if document:
        report.tuning = summary(document, report.best["name"] if report.best else "")
    if baseline:
        title, notes, records = read_baseline(baseline)
        report.baseline = {"title": title, "notes": notes}
        report.comparison = compare(entries, rank(records))
    return report


# -- sentences


def headline(report: Report) -> str:
    """The winner in one line."""
    best = report.best
    if best is None:
        return "No point was measured completely"
    ranked = [entry for entry in report.entries if entry["tier"] < 3]
    if len(ranked) == 1:
        return f"{best['name']} was measured"
    level = [one["name"] for one in _rivals(report) if _overlap(best, one) == len(best["cells"])]
    told = f", not told apart from {', '.join(level[:3])}{' and others' if len(level) > 3 else ''}" if level else ""
    return f"{best['name']} is the best of {len(ranked)} measured points{told}"


def _rivals(report: Report) -> list[dict[str, Any]]:
    """The winner's equals in rank, best first."""
    best = report.best
    return [one for one in report.entries[1:] if best and one["score"] and one["tier"] == best["tier"]]


def why(report: Report) -> list[str]:
    """Why the winner won, and what speaks against it."""
    best = report.best
    if best is None:
        return [f"{entry['name']}: {'; '.join(entry['reasons'])}" for entry in report.entries[:5]]
    lines = [f"score {best['score']:.1f} tok/s ({meaning(report.objective)})"]
    rivals = _rivals(report)
    if rivals:
        lines[0] += f", {best['score'] / rivals[0]['score'] - 1:.1%} above the next, {rivals[0]['name']}"
        overlap = _overlap(best, rivals[0])
        if overlap == len(best["cells"]):
            lines.append(f"no difference to {rivals[0]['name']} is shown: their intervals overlap in every cell")
        elif overlap:
            lines.append(f"its intervals overlap those of {rivals[0]['name']} in {overlap} of {len(best['cells'])} cells")
    barred = [entry for entry in report.entries if best["tier"] < entry["tier"] < 3 and (entry["score"] or 0) > best["score"]]
    for entry in sorted(barred, key=lambda one: -one["score"])[:2]:
        gain = entry["score"] / best["score"] - 1
        lines.append(f"{entry['name']} is {gain:.1%} faster and ranks lower: {'; '.join(entry['reasons'])}")
    for name in ("none", "dflash"):
        control = report.control(name)
        if control and control is not best:
            what = "no speculation" if name == "none" else "the DFLASH chain"
            lines.append(f"{best['score'] / control['score']:.2f} times {what} ({control['name']})")
    if report.tuning:
        from .tune_report import lines as tuned

        lines += tuned(report.tuning)
    coding = best["coding"]
    lines.append(f"coding {coding['passed']} of {coding['total']}" if coding else "coding was not checked")
    lines += best["reasons"]
    return lines


def _overlap(one: Mapping[str, Any], two: Mapping[str, Any]) -> int:
    count = 0
    for key, cell in one["cells"].items():
        other = two["cells"].get(key)
        if other and None not in (cell["low"], other["low"]):
            count += cell["low"] <= other["high"] and other["low"] <= cell["high"]
    return count


def span(values: Sequence[float | None], digits: int = 2) -> str:
    """The lowest and highest of the values that are there, as text; an em dash for none."""
    there = [one for one in values if one is not None]
    if not there:
        return DASH
    low, high = f"{min(there):.{digits}f}", f"{max(there):.{digits}f}"
    return low if low == high else f"{low}{DASH}{high}"


def window_text(point: Mapping[str, Any]) -> str | None:
    """The window in tokens or the word none; None where the point has no part in it."""
    if "window" not in point or point.get("dialect") == "none":
        return None
    return "none" if point["window"] is None else str(point["window"])


def coding_text(entry: Mapping[str, Any]) -> str:
    coding = entry["coding"]
    return f"{coding['passed']}/{coding['total']}" if coding else DASH


def accepts(entry: Mapping[str, Any]) -> list[float | None]:
    return [cell["accept_length"] for cell in entry["cells"].values()]


# -- machine-readable --


def summary_rows(report: Report) -> list[dict[str, Any]]:
    """One row per cell and host, by rank; a point without cells has one row, so that a failure is never
    lost.
    """
    places = {entry["name"]: (index, entry) for index, entry in enumerate(report.entries)}
    rows = []
    for record in sorted(report.sweep.records, key=lambda one: (places[one["point"]["name"]][0], str(one["host"]))):
        entry = places[record["point"]["name"]][1]
        point, engine = record["point"], record.get("engine") or {}
        derived, failure, coding = (
            engine.get("derived") or {},
            record.get("failure") or {},
            record.get("coding") or {},
        )
        shared = {
            "sweep": report.sweep.name,
            "host": record["host"],
            "point": point["name"],
            "rank": entry["rank"],
            **{key: point.get(key) for key in ("dialect", "budget", "topk", "tp")},
            "window": window_text(point),
            **{key: derived.get(key) for key in ("mode", "effective_topk", "verify_width")},
            "config_id": record.get("config_id"),
            "status": record["status"],
            "coding_passed": coding.get("passed"),
            "coding_total": coding.get("total"),
            "restart_seconds": (record.get("restart") or {}).get("seconds"),
            "failure_phase": failure.get("phase"),
            "failure_cause": failure.get("cause"),
            "aliases": " ".join(record.get("aliases") or []),
            "engine_version": engine.get("version"),
            "extra": " ".join(
                [
                    *(f"{key}={value}" for key, value in (point.get("extra_env") or {}).items()),
                    *(f"{key}={value}" for key, value in (point.get("flags") or {}).items()),
                    *(point.get("extra_args") or []),
                ]
            ),
        }
        cells: Sequence[Mapping[str, Any]] = sorted(record.get("cells") or [], key=lambda one: cell_key(one)[::-1]) or [{}]
        rows += [{**dict.fromkeys(COLUMNS), **shared, **_cell_columns(cell)} for cell in cells]
    return rows


def _cell_columns(cell: Mapping[str, Any]) -> dict[str, Any]:
    plain = (
        "context",
        "concurrency",
        "requests",
        "errors",
        "output_tokens",
        "seconds",
        "output_tok_s",
        "user_tok_s",
    )
    columns = {key: cell.get(key) for key in (*plain, "accept_length", "accept_source")}
    interval = cell.get("ci95") or [None, None]
    columns.update(output_tok_s_low=interval[0], output_tok_s_high=interval[-1])
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        for level in ("p50", "p95", "p99"):
            columns[f"{name}_{level}"] = (cell.get(name) or {}).get(level)
    return columns


def summary_csv(report: Report) -> str:
    """The rows as CSV; a text that a spreadsheet would run as a formula gets an apostrophe."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in summary_rows(report):
        writer.writerow(
            {key: f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value for key, value in row.items()}
        )
    return stream.getvalue()


def best_vars(report: Report) -> str | None:
    """The best point as a vars file for -e @FILE, or None. JSON values, which YAML reads as they are."""
    best = report.best
    if best is None or not best["point"].get("dialect"):  # what was only found loaded cannot be asked by its point
        return None
    point = best["point"]
    lines = [clean(f"# {headline(report)}: {why(report)[0]}."), "---"]
    for key in ("dialect", "budget", "topk", "window", "tp", "flags", "extra_args", "extra_env"):
        value = point.get(key)
        if key == "window" and value is None and point.get("dialect") != "none":
            value = "none"
        if value not in (None, [], {}):
            text = json.dumps(value, ensure_ascii=False, sort_keys=True)
            # Ansible reads a vars file as templates; an argument is none.
            unsafe = "!unsafe " if any(sign in text for sign in ("{{", "{%", "{#")) else ""
            lines.append(f"{key}: {unsafe}{text}")
    return "\n".join(lines) + "\n"


def write(report: Report, directory: str | Path, latest: bool = True) -> list[str]:
    """Write summary.csv, report.md, report.html, report.json and best.yml, and set the link; the names of what changed."""
    from .report_data import text
    from .report_html import page
    from .report_text import markdown

    folder = Path(directory)
    files: dict[str, str | None] = {
        "summary.csv": summary_csv(report),
        "report.md": markdown(report),
        "report.html": page(report),
        "report.json": text(report),
        "best.yml": best_vars(report),
    }
    changed = [name for name, text in files.items() if text is not None and write_text(folder / name, text)]
    if files["best.yml"] is None and (folder / "best.yml").exists():
        (folder / "best.yml").unlink()  # a stale winner must not be deployed
        changed.append("best.yml")
    if latest and link_latest(folder.resolve()):
        changed.append("latest")
    return changed


def clean(text: Any) -> str:
    """One line without control characters, which could steer a terminal."""
    return "".join(one if one.isprintable() else " " for one in str(text))


def cut(text: str, width: int) -> str:
    """The text, or its beginning and an ellipsis, in at most `width` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"

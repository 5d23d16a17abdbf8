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

from .ranking import axes_of, meaning, pareto, rank
from .results import ResultError, Sweep, cell_key, link_latest, load_sweep, validate, write_text

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
FASTER, SLOWER, SAME, UNKNOWN = "faster", "slower", "no difference shown", "no interval"


@dataclass
class Report:
    """Everything that the pages show. `entries` are ranking.rank's; `comparison`: [{point, context,
    concurrency, now, then, ratio, verdict}].
    """

    sweep: Sweep
    objective: Any
    entries: list[dict[str, Any]]
    front: list[str]
    contexts: list[int]
    levels: list[int]
    comparison: list[dict[str, Any]] = field(default_factory=list)
    baseline: dict[str, Any] = field(default_factory=dict)  # {title, notes}

    @property
    def best(self) -> dict[str, Any] | None:
        """The winner; None when no point has figures."""
        first = self.entries[0] if self.entries else None
        return first if first and first["tier"] < 3 and first["score"] else None

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
    entries = rank(sweep.records, objective)
    contexts, levels = axes_of(entries)
    report = Report(sweep, objective, entries, pareto(entries), contexts, levels)
    if baseline:
        title, notes, records = read_baseline(baseline)
        report.baseline = {"title": title, "notes": notes}
        report.comparison = compare(entries, rank(records))
    return report


def read_baseline(path: str | Path) -> tuple[str, list[str], list[dict[str, Any]]]:
    """(title, notes, records) of a sweep's folder or of a file {schema, sweep, title, notes, records}. Raises
    ResultError.
    """
    source = Path(path)
    if source.is_dir():
        sweep = load_sweep(source)
        return f"sweep {sweep.name}", [problem["message"] for problem in sweep.problems], sweep.records
    try:
        given = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultError(f"the baseline {path} cannot be read: {error}") from None
    records = given.get("records") if isinstance(given, dict) else None
    if not isinstance(records, list):
        raise ResultError(f"the baseline {path} is no folder of results and has no list of records")
    for index, record in enumerate(records):
        validate(record, f"{path}: records[{index}]")
    return (
        str(given.get("title") or given.get("sweep") or source.name),
        [str(one) for one in given.get("notes") or []],
        records,
    )


def compare(entries: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Cell by cell for the points that both have, by name or alias. A verdict needs intervals that do not
    overlap.
    """
    old = {name: entry for entry in before for name in (entry["name"], *entry["aliases"])}
    rows = []
    for entry in entries:
        then = next((old[name] for name in (entry["name"], *entry["aliases"]) if name in old), None)
        for key, cell in entry["cells"].items():
            past = then["cells"].get(key) if then else None
            if past and past["output_tok_s"] and cell["output_tok_s"]:
                rows.append(
                    {
                        "point": entry["name"],
                        "context": key[0],
                        "concurrency": key[1],
                        "now": cell["output_tok_s"],
                        "then": past["output_tok_s"],
                        "ratio": cell["output_tok_s"] / past["output_tok_s"],
                        "verdict": _verdict(cell, past),
                    }
                )
    return rows


def _verdict(now: Mapping[str, Any], then: Mapping[str, Any]) -> str:
    """A side without an interval counts as its figure alone; without any interval there is no verdict."""
    if now["low"] is None and then["low"] is None:
        return UNKNOWN
    low, high = (now["low"], now["high"]) if now["low"] is not None else (now["output_tok_s"],) * 2
    past_low, past_high = (then["low"], then["high"]) if then["low"] is not None else (then["output_tok_s"],) * 2
    return FASTER if low > past_high else SLOWER if high < past_low else SAME


# -- sentences


def headline(report: Report) -> str:
    """The winner in one line."""
    best = report.best
    if best is None:
        return "No point was measured completely"
    ranked = [entry for entry in report.entries if entry["tier"] < 3]
    return f"{best['name']} is the best of {len(ranked)} measured points" if len(ranked) > 1 else f"{best['name']} was measured"


def why(report: Report) -> list[str]:
    """Why the winner won, and what speaks against it."""
    best = report.best
    if best is None:
        return [f"{entry['name']}: {'; '.join(entry['reasons'])}" for entry in report.entries[:5]]
    lines = [f"score {best['score']:.1f} tok/s ({meaning(report.objective)})"]
    rivals = [entry for entry in report.entries[1:] if entry["score"] and entry["tier"] == best["tier"]]
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
        control = next((one for one in report.entries if one["point"].get("dialect") == name and one["score"]), None)
        if control and control is not best:
            what = "no speculation" if name == "none" else "the DFLASH chain"
            lines.append(f"{best['score'] / control['score']:.2f} times {what} ({control['name']})")
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
    for key in ("dialect", "budget", "topk", "window", "tp", "extra_args", "extra_env"):
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
    """Write summary.csv, report.md, report.html and best.yml, and set the link; the names of what changed."""
    from .report_html import page
    from .report_text import markdown

    folder = Path(directory)
    files: dict[str, str | None] = {
        "summary.csv": summary_csv(report),
        "report.md": markdown(report),
        "report.html": page(report),
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

"""A sweep's report as data, and as text: CSV, Markdown, a terminal table, and a vars file of the best point.

Everything is computed from the result files alone, without clock or locale: the same files give the same bytes.
"""

from __future__ import annotations

import csv
import io
import json
import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .ranking import axes_of, meaning, pareto, rank
from .results import ResultError, Sweep, cell_key, link_latest, load_sweep, validate, write_text

COLUMNS = (
    "sweep", "host", "point", "rank", "dialect", "budget", "topk", "window", "tp", "mode", "effective_topk", "verify_width",
    "config_id", "status", "context", "concurrency", "requests", "errors", "output_tokens", "seconds", "output_tok_s",
    "output_tok_s_low", "output_tok_s_high", "user_tok_s", "ttft_ms_p50", "ttft_ms_p95", "ttft_ms_p99", "tpot_ms_p50",
    "tpot_ms_p95", "tpot_ms_p99", "e2e_ms_p50", "e2e_ms_p95", "e2e_ms_p99", "accept_length", "accept_source", "coding_passed",
    "coding_total", "restart_seconds", "failure_phase", "failure_cause", "aliases", "engine_version",
)  # fmt: skip
FASTER, SLOWER, SAME, UNKNOWN = "faster", "slower", "no difference shown", "no interval"


@dataclass
class Report:
    """Everything that the pages show. `entries` are ranking.rank's; `comparison`: [{point, context, concurrency, now, then, ratio, verdict}]."""

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
    """(title, notes, records) of a sweep's folder or of a file {schema, sweep, title, notes, records}. Raises ResultError."""
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


def compare(
    entries: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Cell by cell for the points that both have, by name or alias. A verdict needs intervals that do not overlap."""
    old = {name: entry for entry in before for name in (entry["name"], *entry["aliases"])}
    rows = []
    for entry in entries:
        then = next((old[name] for name in (entry["name"], *entry["aliases"]) if name in old), None)
        for key, cell in entry["cells"].items():
            past = then["cells"].get(key) if then else None
            if past and past["output_tok_s"] and cell["output_tok_s"]:
                rows.append({
                    "point": entry["name"], "context": key[0], "concurrency": key[1], "now": cell["output_tok_s"],
                    "then": past["output_tok_s"], "ratio": cell["output_tok_s"] / past["output_tok_s"], "verdict": _verdict(cell, past),
                })  # fmt: skip
    return rows


def _verdict(now: Mapping[str, Any], then: Mapping[str, Any]) -> str:
    """A side without an interval counts as its figure alone; without any interval there is no verdict."""
    if now["low"] is None and then["low"] is None:
        return UNKNOWN
    low, high = (now["low"], now["high"]) if now["low"] is not None else (now["output_tok_s"],) * 2
    past_low, past_high = (
        (then["low"], then["high"]) if then["low"] is not None else (then["output_tok_s"],) * 2
    )
    return FASTER if low > past_high else SLOWER if high < past_low else SAME


# -- sentences -------------------------------------------------------------------------------------------------------------


def headline(report: Report) -> str:
    """The winner in one line."""
    best = report.best
    if best is None:
        return "No point was measured completely"
    ranked = [entry for entry in report.entries if entry["tier"] < 3]
    return (
        f"{best['name']} is the best of {len(ranked)} measured points"
        if len(ranked) > 1
        else f"{best['name']} was measured"
    )


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
            lines.append(
                f"no difference to {rivals[0]['name']} is shown: their intervals overlap in every cell"
            )
        elif overlap:
            lines.append(
                f"its intervals overlap those of {rivals[0]['name']} in {overlap} of {len(best['cells'])} cells"
            )
    barred = [
        entry
        for entry in report.entries
        if best["tier"] < entry["tier"] < 3 and (entry["score"] or 0) > best["score"]
    ]
    for entry in sorted(barred, key=lambda one: -one["score"])[:2]:
        gain = entry["score"] / best["score"] - 1
        lines.append(f"{entry['name']} is {gain:.1%} faster and ranks lower: {'; '.join(entry['reasons'])}")
    for name in ("none", "dflash"):
        control = next(
            (one for one in report.entries if one["point"].get("dialect") == name and one["score"]), None
        )
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
        return "–"
    low, high = f"{min(there):.{digits}f}", f"{max(there):.{digits}f}"
    return low if low == high else f"{low}–{high}"


def window_text(point: Mapping[str, Any]) -> str | None:
    """The window in tokens or the word none; None where the point has no part in it."""
    if "window" not in point or point.get("dialect") == "none":
        return None
    return "none" if point["window"] is None else str(point["window"])


def coding_text(entry: Mapping[str, Any]) -> str:
    coding = entry["coding"]
    return f"{coding['passed']}/{coding['total']}" if coding else "–"


def accepts(entry: Mapping[str, Any]) -> list[float | None]:
    return [cell["accept_length"] for cell in entry["cells"].values()]


# -- machine-readable ------------------------------------------------------------------------------------------------------


def summary_rows(report: Report) -> list[dict[str, Any]]:
    """One row per cell and host, by rank; a point without cells has one row, so that a failure is never lost."""
    places = {entry["name"]: (index, entry) for index, entry in enumerate(report.entries)}
    rows = []
    for record in sorted(
        report.sweep.records, key=lambda one: (places[one["point"]["name"]][0], str(one["host"]))
    ):
        entry = places[record["point"]["name"]][1]
        point, engine = record["point"], record.get("engine") or {}
        derived, failure, coding = (
            engine.get("derived") or {},
            record.get("failure") or {},
            record.get("coding") or {},
        )
        shared = {
            "sweep": report.sweep.name, "host": record["host"], "point": point["name"], "rank": entry["rank"],
            **{key: point.get(key) for key in ("dialect", "budget", "topk", "tp")},
            "window": window_text(point),
            **{key: derived.get(key) for key in ("mode", "effective_topk", "verify_width")},
            "config_id": record.get("config_id"), "status": record["status"], "coding_passed": coding.get("passed"),
            "coding_total": coding.get("total"), "restart_seconds": (record.get("restart") or {}).get("seconds"),
            "failure_phase": failure.get("phase"), "failure_cause": failure.get("cause"),
            "aliases": " ".join(record.get("aliases") or []), "engine_version": engine.get("version"),
        }  # fmt: skip
        cells: Sequence[Mapping[str, Any]] = sorted(
            record.get("cells") or [], key=lambda one: cell_key(one)[::-1]
        ) or [{}]
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
            {
                key: f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value
                for key, value in row.items()
            }
        )
    return stream.getvalue()


def best_vars(report: Report) -> str | None:
    """The best point as a vars file for -e @FILE, or None. JSON values, which YAML reads as they are."""
    best = report.best
    if best is None or not best["point"].get(
        "dialect"
    ):  # what was only found loaded cannot be asked by its point
        return None
    point = best["point"]
    lines = [f"# {headline(report)}: {why(report)[0]}.".replace("\n", " "), "---"]
    for key in ("dialect", "budget", "topk", "window", "tp", "extra_args", "extra_env"):
        value = point.get(key)
        if key == "window" and value is None and point.get("dialect") != "none":
            value = "none"
        if value not in (None, [], {}):
            lines.append(f"{key}: {json.dumps(value, ensure_ascii=True, sort_keys=True)}")
    return "\n".join(lines) + "\n"


# -- for people ------------------------------------------------------------------------------------------------------------


def table(report: Report) -> tuple[list[str], list[list[str]]]:
    """(header, rows) of the points by rank, as text; the last column says what is against a point."""
    header = [
        "#",
        "point",
        *(f"{context}" for _ in report.levels for context in report.contexts),
        "coding",
        "accept",
        "restart s",
        "note",
    ]
    rows = []
    for entry in report.entries:
        cells = [
            entry["cells"].get((context, level)) for level in report.levels for context in report.contexts
        ]
        restart = entry["restart"] or {}
        rows.append([
            str(entry["rank"] or "–"), entry["name"],
            *(f"{cell['output_tok_s']:.1f}" if cell and cell["output_tok_s"] else "–" for cell in cells),
            coding_text(entry), span(accepts(entry)), f"{restart['seconds']:.0f}" if restart.get("seconds") is not None else "–",
            "; ".join(entry["reasons"]),
        ])  # fmt: skip
    return header, rows


def terminal_table(report: Report, width: int = 100) -> str:
    """The result for a terminal of `width` columns: as many cells as fit, then the winner and why."""
    header, rows = table(report)
    sizes = [max(len(clean(row[index])) for row in [header, *rows]) for index in range(len(header))]
    sizes[1] = min(sizes[1], 34)
    cells = list(range(2, len(header) - 4))
    shown = [0, 1, *cells, len(header) - 4, len(header) - 3, len(header) - 2]
    while len(cells) > 1 and sum(sizes[one] + 2 for one in shown) > width:
        # The middle goes first: the lowest and the highest load say most.
        shown.remove(cells.pop(len(cells) // 2))
    lines = [f"Sweep {clean(report.sweep.name)}: output tok/s by concurrency (C) and context"]
    groups, at = "", sum(sizes[one] + 2 for one in (0, 1))
    for level_index, level in enumerate(report.levels):
        mine = [one for one in cells if (one - 2) // len(report.contexts) == level_index]
        if mine:
            groups = groups.ljust(at) + f"C={level}"
            at += sum(sizes[one] + 2 for one in mine)
    lines += [
        groups.rstrip(),
        _line(header, shown, sizes),
        "-" * min(width, sum(sizes[one] + 2 for one in shown) - 2),
    ]
    for row in rows:
        lines.append(_line(row, shown, sizes))
        if row[-1]:
            lines.append(" " * (sizes[0] + 2) + _cut("  " + clean(row[-1]), width - sizes[0] - 2))
    if len(cells) < len(header) - 6:
        lines.append(f"({len(header) - 6 - len(cells)} more columns are in summary.csv)")
    told = [*why(report), *(f"unusable: {one['message']}" for one in report.sweep.problems)]
    lines += ["", _cut(clean(headline(report)), width)]
    for one in told:
        lines += textwrap.wrap(clean(one), width, initial_indent="  - ", subsequent_indent="    ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def markdown(report: Report) -> str:
    """The report for a pull request or a chat."""
    lines = [f"# Sweep {_md(report.sweep.name)}", "", f"**{_md(headline(report))}**", ""]
    lines += [f"- {_md(one)}" for one in why(report)]
    header, rows = table(report)
    names = [f"C={level} / {context}" for level in report.levels for context in report.contexts]
    header = [*header[:2], *names, *header[-4:]]
    lines += ["", "Output tok/s by concurrency (C) and context in tokens, best first.", ""]
    lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(_md(one) for one in row) + " |" for row in rows]
    lines += [
        "",
        f"Pareto front of single-user speed against aggregate throughput: {_md(', '.join(report.front) or 'none')}.",
    ]
    merged = [entry for entry in report.entries if entry["aliases"]]
    if merged:
        lines += ["", "The engine makes the same of these points, so they ran once:", ""]
        lines += [f"- {_md(entry['name'])} = {_md(', '.join(entry['aliases']))}" for entry in merged]
    failed = [entry for entry in report.entries if entry["failure"]]
    if failed:
        lines += ["", "## Failures", ""]
        lines += [f"- {_md(one['name'])}: {_md(one['failure'].get('phase'))}, {_md(one['failure'].get('cause'))}: {_md(one['failure'].get('message'))}"
                  for one in failed]  # fmt: skip
    if report.sweep.problems:
        lines += ["", "## Files that could not be used", ""]
        lines += [f"- {_md(one['message'])}" for one in report.sweep.problems]
    if report.baseline:
        lines += ["", f"## Against {_md(report.baseline['title'])}", ""]
        if report.comparison:
            lines += [
                "| point | context | concurrency | now tok/s | then tok/s | change | verdict |",
                "|---|---|---|---|---|---|---|",
            ]
            lines += [f"| {_md(one['point'])} | {one['context']} | {one['concurrency']} | {one['now']:.1f} | {one['then']:.1f} | "
                      f"{one['ratio'] - 1:+.1%} | {one['verdict']} |" for one in report.comparison]  # fmt: skip
        else:
            lines.append("No cell of this sweep is in the baseline.")
        lines += ["", *(f"- {_md(one)}" for one in report.baseline["notes"])]
    return "\n".join(lines).rstrip() + "\n"


def write(report: Report, directory: str | Path, latest: bool = True) -> list[str]:
    """Write summary.csv, report.md, report.html and best.yml, and set the link; the names of what changed."""
    from .report_html import page

    folder = Path(directory)
    files: dict[str, str | None] = {
        "summary.csv": summary_csv(report), "report.md": markdown(report), "report.html": page(report), "best.yml": best_vars(report),
    }  # fmt: skip
    changed = [name for name, text in files.items() if text is not None and write_text(folder / name, text)]
    if files["best.yml"] is None and (folder / "best.yml").exists():
        os.unlink(folder / "best.yml")  # a stale winner must not be deployed
        changed.append("best.yml")
    if latest and link_latest(folder.resolve()):
        changed.append("latest")
    return changed


def clean(text: Any) -> str:
    """One line without control characters, which could steer a terminal."""
    return "".join(one if one.isprintable() else " " for one in str(text))


def _line(row: Sequence[str], shown: Sequence[int], sizes: Sequence[int]) -> str:
    parts = [_cut(clean(row[one]), sizes[one]) for one in shown]
    return "  ".join(
        part.ljust(sizes[one]) if one == 1 else part.rjust(sizes[one]) for part, one in zip(parts, shown)
    )


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _md(text: Any) -> str:
    """Text that Markdown and the HTML inside it leave alone."""
    safe = clean(text).replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for sign in "|*_`[]#":
        safe = safe.replace(sign, f"\\{sign}")
    return safe

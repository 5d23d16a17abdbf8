"""The report as one HTML file: nothing is loaded from anywhere, every text is escaped, light and dark follow
the reader.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .ranking import meaning
from .report import DASH, Report, accepts, best_vars, clean, coding_text, headline, span, why, window_text
from .report_css import CSS

MOST_ROWS = 200


def page(report: Report) -> str:
    """The whole page."""
    from .report_plots import plots

    drawn = plots(report)
    title = f"Sweep {report.sweep.name}"
    parts = [
        f'<p class="eyebrow">{_e(_scope(report))}</p>',
        f"<h1>{_e(title)}: {_e(headline(report))}</h1>",
        _winner(report),
        _problems(report),
        _points(report),
        _cells(report),
        _figure(
            drawn,
            "throughput",
            "Output by context and concurrency",
            "Bars are output tok/s over all requests of the cell; whiskers are the 95% interval, or the "
            "spread between hosts where "
            "several measured the point. The best points by rank, and the controls.",
        ),
        _figure(
            drawn,
            "tradeoff",
            "Single-user speed against aggregate throughput",
            "Up and to the right is better. No clean point beats one on the Pareto front in both.",
        ),
        _figure(
            drawn,
            "accept",
            "Accept length",
            "Tokens per verify step, the bonus token included, at concurrency "
            f"{report.levels[0] if report.levels else 0}. "
            "The vertical axis does not begin at 0.",
        ),
        _coding(report),
        _figure(
            drawn,
            "restart",
            "What a restart takes",
            "Phases of each point's start, in seconds; load is the engine's own.",
        ),
        _failures(report),
        _comparison(report),
        _environment(report),
        _method(report),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_e(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def _scope(report: Report) -> str:
    hosts = sorted({str(record["host"]) for record in report.sweep.records})
    began = [str(record["started"]) for record in report.sweep.records if record.get("started")]
    failed = sum(entry["tier"] == 3 for entry in report.entries)
    parts = [f"{len(report.entries)} point{'' if len(report.entries) == 1 else 's'}" + (f" ({failed} without figures)" if failed else "")]
    parts.append(f"{len(hosts)} hosts" if len(hosts) > 3 else ", ".join(hosts))
    parts += [f"{min(began)[:10]}"] if began else []
    versions = sorted({str(entry["engine"].get("version")) for entry in report.entries if entry["engine"].get("version")})
    parts += [f"SGLang {', '.join(versions)}"] if versions else []
    return " · ".join(part for part in parts if part)


def _winner(report: Report) -> str:
    best = report.best
    reasons = "".join(f"<li>{_e(one)}</li>" for one in why(report))
    if best is None:
        return f'<div class="warn"><ul>{reasons}</ul></div>'
    figures = [(f"{best['single_user']:.1f} tok/s", f"single user (concurrency {report.levels[0]})")] if best["single_user"] else []
    if best["aggregate"] and len(report.levels) > 1:
        figures.append((f"{best['aggregate']:.1f} tok/s", f"aggregate (concurrency {report.levels[-1]})"))
    figures += [(span(accepts(best)), "accept length")] if any(one is not None for one in accepts(best)) else []
    figures += [(coding_text(best), "coding tasks")] if best["coding"] else []
    shown = "".join(f"<div><b>{_e(value)}</b><span>{_e(label)}</span></div>" for value, label in figures)
    command = f"ansible-playbook site.yml -e @results/{report.sweep.name}/best.yml"
    ask = f'<p><code class="cmd">{_e(command)}</code></p>' if best_vars(report) else ""
    return f'<div class="win"><div class="figures">{shown}</div><ul>{reasons}</ul>{ask}</div>'


def _problems(report: Report) -> str:
    if not report.sweep.problems:
        return ""
    items = "".join(f"<li>{_e(one['message'])}</li>" for one in report.sweep.problems)
    return f'<div class="warn"><b>Result files that could not be used</b><ul>{items}</ul></div>'


def _points(report: Report) -> str:
    header = [
        ("#", ""),
        ("point", "l"),
        ("budget", ""),
        ("topk", ""),
        ("window", ""),
        ("verify", "l"),
        ("score", ""),
        ("to best", ""),
        ("single user", ""),
        ("aggregate", ""),
        ("coding", ""),
        ("accept", ""),
    ]
    best = (report.best or {}).get("score")
    rows = []
    for entry in report.entries[:MOST_ROWS]:
        point, derived = entry["point"], entry["derived"]
        speculates = point.get("dialect") != "none"
        notes = list(entry["reasons"])
        notes += [f"same engine as {', '.join(entry['aliases'])}"] if entry["aliases"] else []
        notes += [f"not measured on {', '.join(entry['lost_hosts'])}"] if entry["lost_hosts"] else []
        notes += [f"with {' '.join(point['extra_args'])}"] if point.get("extra_args") else []
        notes += [f"with {name}={value}" for name, value in (point.get("extra_env") or {}).items()]
        notes += ["Pareto front"] if entry["name"] in report.front else []
        mode = f"{derived.get('mode')}, width {derived.get('verify_width')}" if speculates and derived.get("mode") else DASH
        ratio = f"{entry['score'] / best - 1:+.1%}" if entry["score"] and best and entry is not report.entries[0] else None
        topk, used = point.get("topk"), derived.get("effective_topk")
        topk = f"{topk} → {used}" if speculates and topk and used and topk != used else topk
        cells = [
            (entry["rank"], ""),
            (_Sub(entry["name"], "; ".join(notes), bool(entry["reasons"])), "l"),
            (point.get("budget"), ""),
            (topk, ""),
            (window_text(point), ""),
            (mode, "l"),
            (_number(entry["score"]), ""),
            (ratio, ""),
            (_number(entry["single_user"]), ""),
            (_number(entry["aggregate"]), ""),
            (coding_text(entry), ""),
            (span(accepts(entry)), ""),
        ]
        rows.append((cells, "best" if entry is report.best else ""))
    more = len(report.entries) - MOST_ROWS
    note = (
        f"Score is the {meaning(report.objective)}; speeds are output tok/s, single user and aggregate "
        "as geometric means over contexts. An arrow leads from the topk asked to the one that the "
        "engine uses."
    )
    note += f" {more} more points are in summary.csv." if more > 0 else ""
    return f'<h2>Points</h2><p class="note">{_e(note)}</p>{_table(header, rows)}'


def _cells(report: Report) -> str:
    if not report.keys:
        return ""
    top: dict[tuple[int, int], list[float]] = {key: [] for key in report.keys}
    entries = [entry for entry in report.entries if entry["cells"]][:MOST_ROWS]
    for entry in entries:
        for key, cell in entry["cells"].items():
            if cell["output_tok_s"]:
                top[key].append(cell["output_tok_s"])
    groups = "".join(
        f'<th class="g" colspan="{sum(key[1] == level for key in report.keys)}">concurrency {level}</th>' for level in report.levels
    )
    heads = "".join(f"<th>{key[0]}</th>" for key in report.keys)
    rows = []
    for entry in entries:
        cells = [f'<td class="l">{_e(entry["name"])}</td>']
        for key in report.keys:
            cell = entry["cells"].get(key)
            value = cell["output_tok_s"] if cell else None
            if not value:
                cells.append(f"<td>{DASH}</td>")
                continue
            low, high = min(top[key]), max(top[key])
            shade = 0.04 + 0.36 * ((value - low) / (high - low) if high > low else 0)
            hint = f"accept {cell['accept_length']:.2f}, " if cell["accept_length"] else ""
            hint += f"95% {cell['low']:.1f} to {cell['high']:.1f} tok/s" if cell["low"] is not None else "no interval"
            cells.append(f'<td style="background: rgba(var(--heat), {shade:.2f})" title="{_e(hint)}">{value:.1f}</td>')
        rows.append(f"<tr{' class=best' if entry is report.best else ''}>{''.join(cells)}</tr>")
    note = (
        "Output tok/s over all requests of a cell; columns are contexts in tokens. Darker is faster "
        "within its column; hover for the 95% interval."
    )
    return (
        f'<h2>Cells</h2><p class="note">{_e(note)}</p><div class="scroll"><table><thead><tr><th class="l" '
        f'rowspan="2">point</th>{groups}</tr>'
        f"<tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _coding(report: Report) -> str:
    checked = [entry for entry in report.entries if entry["coding"]][:MOST_ROWS]
    names = list(dict.fromkeys(str(task.get("name")) for entry in checked for task in entry["coding"].get("tasks") or []))
    if not checked or not names:
        return ""
    rows = []
    for entry in checked:
        outcomes = {str(task.get("name")): task for task in entry["coding"].get("tasks") or []}
        cells: list[tuple[Any, str]] = [(entry["name"], "l"), (coding_text(entry), "")]
        for name in names:
            outcome = (outcomes.get(name) or {}).get("outcome")
            cells.append((outcome, "l good" if outcome == "passed" else "l bad"))
        rows.append((cells, ""))
    header = [("point", "l"), ("passed", ""), *((name, "l") for name in names)]
    note = (
        "Verification is lossless in theory, so a miss is an answer that was cut, a harness fault or an "
        "engine bug; the detail is in the result file."
    )
    return f'<h2>Coding check</h2><p class="note">{_e(note)}</p>{_table(header, rows)}'


def _failures(report: Report) -> str:
    parts = []
    for entry in report.entries:
        failure = entry["failure"]
        if not failure:
            continue
        tail = failure.get("log_tail") or []
        text = "\n".join(clean(line) for line in (tail if isinstance(tail, list) else str(tail).splitlines())[-12:])
        said = f"{failure.get('cause', 'unknown')} in phase {failure.get('phase', 'unknown')}: {failure.get('message', '')}"
        parts.append(f"<p><b>{_e(entry['name'])}</b> {_e(said)}</p>" + (f"<pre>{_e(text, lines=True)}</pre>" if text else ""))
    return f"<h2>Failures</h2>{''.join(parts)}" if parts else ""


def _comparison(report: Report) -> str:
    if not report.baseline:
        return ""
    rows = [
        (
            [
                (one["point"], "l"),
                (one["concurrency"], ""),
                (one["context"], ""),
                (f"{one['now']:.1f}", ""),
                (f"{one['then']:.1f}", ""),
                (f"{one['ratio'] - 1:+.1%}", ""),
                (one["verdict"], "l"),
            ],
            "",
        )
        for one in sorted(report.comparison, key=lambda one: (one["point"], one["concurrency"], one["context"]))[:MOST_ROWS]
    ]
    header = [
        ("point", "l"),
        ("concurrency", ""),
        ("context", ""),
        ("now tok/s", ""),
        ("then tok/s", ""),
        ("change", ""),
        ("verdict", "l"),
    ]
    body = _table(header, rows) if rows else "<p>No cell of this sweep is in the baseline.</p>"
    notes = "".join(f'<p class="note">{_e(one)}</p>' for one in report.baseline["notes"])
    told = "A cell is faster or slower when the 95% intervals do not overlap; a side without an interval counts as its figure alone."
    return f'<h2>Against {_e(report.baseline["title"])}</h2><p class="note">{_e(told)}</p>{body}{notes}'


def _environment(report: Report) -> str:
    rows: dict[tuple[str, str], set[str]] = {}
    for record in report.sweep.records:
        engine = record.get("engine") or {}
        resolved = engine.get("resolved") or {}
        shown = {
            **(record.get("environment") or {}),
            "engine version": engine.get("version"),
            "dialect": engine.get("dialect"),
        }
        for key in (
            "attention_backend",
            "page_size",
            "tp_size",
            "max_running_requests",
            "max_total_num_tokens",
            "mem_fraction_static",
        ):
            shown[key] = resolved.get(key)
        for key, value in shown.items():
            if value is not None:
                rows.setdefault((str(record["host"]), str(key)), set()).add(_short(value))
    if not rows:
        return ""
    table = [([(host, "l"), (key, "l"), ("; ".join(sorted(values)), "l wrap")], "") for (host, key), values in sorted(rows.items())]
    header = [("host", "l"), ("what", "l"), ("as the engine and the host tell it", "l")]
    return f"<h2>Environment</h2>{_table(header, table)}"


def _method(report: Report) -> str:
    sources = sorted({cell["accept_source"] for entry in report.entries for cell in entry["cells"].values() if cell["accept_source"]})
    lines = [
        "Output tok/s of a cell are all its output tokens over its wall time, time to first token "
        "included, at a fixed number of users "
        "who each send their next request when the last is answered.",
        "A point ranks by the score among those that are clean. Below them come points whose coding check "
        "falls short of the point without "
        "speculation (of all tasks, where that was not measured) or that lost requests, then points with "
        "cells missing, then failures.",
    ]
    lines += [f"Accept length comes from: {', '.join(sources)}."] if sources else []
    lines.append("All figures of every cell are in summary.csv and in the result files beside this page.")
    return "<h2>How to read this</h2>" + "".join(f'<p class="note">{_e(one)}</p>' for one in lines)


# -- pieces


def _figure(drawn: Mapping[str, str], name: str, title: str, note: str) -> str:
    return f'<h2>{_e(title)}</h2><p class="note">{_e(note)}</p><figure>{drawn[name]}</figure>' if name in drawn else ""


def _table(header: Sequence[tuple[str, str]], rows: Iterable[tuple[Sequence[tuple[Any, str]], str]]) -> str:
    head = "".join(f'<th class="{style}">{_e(text)}</th>' for text, style in header)
    body = "".join(
        f'<tr class="{style}">' + "".join(f'<td class="{kind}">{_inner(text)}</td>' for text, kind in cells) + "</tr>"
        for cells, style in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


@dataclass(frozen=True)
class _Sub:
    """A cell with a smaller second line."""

    text: str
    note: str
    against: bool

    def html(self) -> str:
        style = "sub low" if self.against else "sub"
        return _e(self.text) + (f'<span class="{style}">{_e(self.note)}</span>' if self.note else "")


def _inner(value: Any) -> str:
    return value.html() if isinstance(value, _Sub) else _e(DASH if value is None else value)


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= 200 else text[:199] + "…"


def _e(value: Any, lines: bool = False) -> str:
    text = str(value)
    return html.escape(text if lines else clean(text), quote=True)

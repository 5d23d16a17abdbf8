"""The report as one HTML file: nothing is loaded from anywhere, every text is escaped, light and dark follow
the reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .ranking import meaning
from .report import DASH, Report, accepts, best_vars, coding_text, headline, span, why, window_text
from .report_css import CSS
from .report_data import speed_up
from .report_pieces import MOST_ROWS, Sub, esc, figure, number, shaded, table, times
from .report_sections import accept_table, coding, comparison, environment, failures, heat, hosts, tuning


def page(report: Report) -> str:
    """The whole page."""
    from .report_plots import plots

    drawn = plots(report)
    title = f"Sweep {report.sweep.name}"
    parts = [
        f'<p class="eyebrow">{esc(_scope(report))}</p>',
        f"<h1>{esc(title)}: {esc(headline(report))}</h1>",
        _winner(report),
        _problems(report),
        _points(report),
        tuning(report),
        heat(report),
        _cells(report),
        figure(
            drawn,
            "throughput",
            "Output by context and concurrency",
            "Bars are output tok/s over all requests of the cell; whiskers are the 95% interval, or the "
            "spread between hosts where "
            "several measured the point. The best points by rank, and the controls.",
        ),
        figure(
            drawn,
            "tradeoff",
            "Single-user speed against aggregate throughput",
            "Up and to the right is better. No clean point beats one on the Pareto front in both.",
        ),
        figure(
            drawn,
            "accept",
            "Accept length",
            "Tokens per verify step, the bonus token included, at concurrency "
            f"{report.levels[0] if report.levels else 0}. "
            "The vertical axis does not begin at 0.",
        ),
        accept_table(report),
        coding(report),
        hosts(report),
        figure(
            drawn,
            "restart",
            "What a restart takes",
            "Phases of each point's start, in seconds; load is the engine's own.",
        ),
        failures(report),
        comparison(report),
        environment(report),
        _method(report),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{esc(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
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
    reasons = "".join(f"<li>{esc(one)}</li>" for one in why(report))
    if best is None:
        return f'<div class="warn"><ul>{reasons}</ul></div>'
    figures = []
    if best["single_user"]:
        label = f"single user (concurrency {report.levels[0]}){_gains(report, best, 'single_user')}"
        figures.append((f"{best['single_user']:.1f} tok/s", label))
    if best["aggregate"] and len(report.levels) > 1:
        label = f"aggregate (concurrency {report.levels[-1]}){_gains(report, best, 'aggregate')}"
        figures.append((f"{best['aggregate']:.1f} tok/s", label))
    figures += [(span(accepts(best)), "accept length")] if any(one is not None for one in accepts(best)) else []
    figures += [(coding_text(best), "coding tasks")] if best["coding"] else []
    shown = "".join(f"<div><b>{esc(value)}</b><span>{esc(label)}</span></div>" for value, label in figures)
    command = f"ansible-playbook deploy.yml -e @results/{report.sweep.name}/best.yml"
    ask = f'<p><code class="cmd">{esc(command)}</code></p>' if best_vars(report) else ""
    return f'<div class="win"><div class="figures">{shown}</div><ul>{reasons}</ul>{ask}</div>'


def _gains(report: Report, entry: Mapping[str, Any], key: str) -> str:
    """`, 2.41× none, 1.18× chain`"""
    gains = [(label, speed_up(report, entry, name)) for name, label in (("none", "none"), ("dflash", "chain"))]
    return "".join(f", {gain[key]:.2f}× {label}" for label, gain in gains if gain and gain.get(key))


def _problems(report: Report) -> str:
    if not report.sweep.problems:
        return ""
    items = "".join(f"<li>{esc(one['message'])}</li>" for one in report.sweep.problems)
    return f'<div class="warn"><b>Result files that could not be used</b><ul>{items}</ul></div>'


def _points(report: Report) -> str:
    header = [
        ("#", ""),
        ("point", "l"),
        ("score", ""),
        ("to best", ""),
        ("single user", ""),
        ("aggregate", ""),
        ("× none", ""),
        ("× chain", ""),
        ("coding", ""),
        ("accept", ""),
        ("budget", ""),
        ("topk", ""),
        ("window", ""),
        ("verify", "l"),
    ]
    tps = [one["point"].get("tp") for one in report.entries]
    usual_tp = max(tps, key=tps.count, default=None)
    best = (report.best or {}).get("score")
    rows = []
    for entry in report.entries[:MOST_ROWS]:
        point, derived = entry["point"], entry["derived"]
        speculates = point.get("dialect") != "none"
        notes = list(entry["reasons"])
        notes += [f"same engine as {', '.join(entry['aliases'])}"] if entry["aliases"] else []
        dealt_out = report.schedule.get("share") == "split"  # then another host has it, and nothing is missing
        notes += [f"not measured on {', '.join(entry['lost_hosts'])}"] if entry["lost_hosts"] and not dealt_out else []
        notes += [f"{key} {value}" for key, value in (point.get("flags") or {}).items()]
        notes += [f"tp {point['tp']}"] if point.get("tp") != usual_tp and point.get("tp") else []
        notes += [f"with {' '.join(point['extra_args'])}"] if point.get("extra_args") else []
        notes += [f"with {name}={value}" for name, value in (point.get("extra_env") or {}).items()]
        notes += ["Pareto front"] if entry["name"] in report.front else []
        mode = f"{derived.get('mode')} {derived.get('verify_width')}" if speculates and derived.get("mode") else DASH
        ratio = f"{entry['score'] / best - 1:+.1%}" if entry["score"] and best and entry is not report.entries[0] else None
        topk, used = point.get("topk"), derived.get("effective_topk")
        topk = f"{topk} → {used}" if speculates and topk and used and topk != used else topk
        cells = [
            (entry["rank"], ""),
            (Sub(entry["name"], "; ".join(notes), bool(entry["reasons"])), "l"),
            (number(entry["score"]), ""),
            (ratio, ""),
            (number(entry["single_user"]), ""),
            (number(entry["aggregate"]), ""),
            (times(speed_up(report, entry, "none")), ""),
            (times(speed_up(report, entry, "dflash")), ""),
            (coding_text(entry), ""),
            (span(accepts(entry)), ""),
            (point.get("budget"), ""),
            (topk, ""),
            (window_text(point), ""),
            (mode, "l"),
        ]
        rows.append((cells, "best" if entry is report.best else ""))
    more = len(report.entries) - MOST_ROWS
    note = (
        f"Score is the {meaning(report.objective)}; speeds are output tok/s, single user and aggregate "
        "as geometric means over contexts; × none and × chain are the score against the points without speculation and with the "
        "plain chain. An arrow leads from the topk asked to the one that the engine uses; "
        "verify is what it verifies, with the tokens per request and step."
    )
    note += f" {more} more points are in summary.csv." if more > 0 else ""
    return f'<h2>Points</h2><p class="note">{esc(note)}</p>{table(header, rows)}'


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
        cells = [f'<td class="l">{esc(entry["name"])}</td>']
        for key in report.keys:
            cell = entry["cells"].get(key)
            value = cell["output_tok_s"] if cell else None
            if not value:
                cells.append(f"<td>{DASH}</td>")
                continue
            hint = f"accept {cell['accept_length']:.2f}, " if cell["accept_length"] else ""
            hint += f"95% {cell['low']:.1f} to {cell['high']:.1f} tok/s" if cell["low"] is not None else "no interval"
            cells.append(shaded(value, min(top[key]), max(top[key]), 1, hint))
        rows.append(f"<tr{' class=best' if entry is report.best else ''}>{''.join(cells)}</tr>")
    note = (
        "Output tok/s over all requests of a cell; columns are contexts in tokens. Darker is faster "
        "within its column; hover for the 95% interval."
    )
    return (
        f'<h2>Cells</h2><p class="note">{esc(note)}</p><div class="scroll"><table><thead><tr><th class="l" '
        f'rowspan="2">point</th>{groups}</tr>'
        f"<tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


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
    return "<h2>How to read this</h2>" + "".join(f'<p class="note">{esc(one)}</p>' for one in lines)

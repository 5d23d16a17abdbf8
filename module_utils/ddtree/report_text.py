"""The report as text: a table for a terminal, and Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from .comparison import counts
from .report import DASH, Report, accepts, clean, coding_text, cut, headline, span, why
from .report_data import HEAT, heat_maps, hosts, speed_up, spread


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
        cells = [entry["cells"].get((context, level)) for level in report.levels for context in report.contexts]
        restart = entry["restart"] or {}
        rows.append(
            [
                str(entry["rank"] or DASH),
                entry["name"],
                *(f"{cell['output_tok_s']:.1f}" if cell and cell["output_tok_s"] else DASH for cell in cells),
                coding_text(entry),
                span(accepts(entry)),
                f"{restart['seconds']:.0f}" if restart.get("seconds") is not None else DASH,
                "; ".join(entry["reasons"]),
            ]
        )
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
            lines.append(" " * (sizes[0] + 2) + cut("  " + clean(row[-1]), width - sizes[0] - 2))
    if len(cells) < len(header) - 6:
        lines.append(f"({len(header) - 6 - len(cells)} more columns are in summary.csv)")
    told = [*why(report), *(f"unusable: {one['message']}" for one in report.sweep.problems)]
    lines += ["", cut(clean(headline(report)), width)]
    for one in told:
        lines += textwrap.wrap(clean(one), width, initial_indent="  - ", subsequent_indent="    ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def markdown(report: Report) -> str:
    """The report for a pull request or a chat."""
    lines = [f"# Sweep {_md(report.sweep.name)}", "", f"**{_md(headline(report))}**", ""]
    lines += [f"- {_md(one)}" for one in why(report)]
    header, rows = table(report)
    names = [f"C={level} / {context}" for level in report.levels for context in report.contexts]
    header = [*header[:2], *names, "× none", "× chain", *header[-4:]]
    rows = [
        [*row[:-4], *(_times(speed_up(report, entry, name)) for name in ("none", "dflash")), *row[-4:]]
        for row, entry in zip(rows, report.entries)
    ]
    lines += [
        "",
        "Output tok/s by concurrency (C) and context in tokens, best first; × none and × chain are scores against the controls.",
        "",
    ]
    lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(_md(one) for one in row) + " |" for row in rows]
    lines += [
        "",
        f"Pareto front of single-user speed against aggregate throughput: {_md(', '.join(report.front) or 'none')}.",
    ]
    if report.tuning:
        lines += [
            "",
            "## The search",
            "",
            "| start | host | point | measured | outcome | minutes | tok/s | best so far | why |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for one in report.tuning["path"]:
            figures = [DASH if one[key] is None else f"{one[key]:.1f}" for key in ("score", "best")]
            words = [one["start"], one["host"], one["name"], one["stage"], one["state"], f"{one['minutes']:g}", *figures, one["why"]]
            lines.append("| " + " | ".join(_md(word) for word in words) + " |")
    for one in heat_maps(report):
        for name, label in HEAT.items():
            lines += ["", f"{_md(label)}, by budget and topk ({_md(one['title'])}):", ""]
            lines += ["| budget | " + " | ".join(f"topk {topk}" for topk in one["topks"]) + " |", "|---|" + "---|" * len(one["topks"])]
            for budget in one["budgets"]:
                values = [one["maps"][name].get(f"{budget}/{topk}") for topk in one["topks"]]
                lines.append(f"| {budget} | " + " | ".join(DASH if value is None else f"{value:.1f}" for value in values) + " |")
    apart, stopped = spread(hosts(report)), [one for one in hosts(report) if one["stopped"] or one["lost"]]
    if report.schedule.get("anchor"):
        lines += ["", f"Points were dealt out; figures are put on the mean host by {_md(report.schedule['anchor'])}, which each measured."]
    lines += ["", f"Hosts differ by up to {apart:.1%}."] if apart is not None else []
    lines += ["", *(f"- {_md(one['stopped'] or one['host'] + ' was lost')}" for one in stopped)] if stopped else []
    merged = [entry for entry in report.entries if entry["aliases"]]
    if merged:
        lines += ["", "The engine makes the same of these points, so they ran once:", ""]
        lines += [f"- {_md(entry['name'])} = {_md(', '.join(entry['aliases']))}" for entry in merged]
    failed = [(entry["name"], failure) for entry in report.entries for failure in entry["failures"]]
    if failed:
        lines += ["", "## Failures", ""]
        lines += [
            f"- {_md(name)} on {_md(one['host'])}: {_md(one.get('cause'))} in phase {_md(one.get('phase'))}: {_md(one.get('message'))}"
            for name, one in failed
        ]
    if report.sweep.problems:
        lines += ["", "## Files that could not be used", ""]
        lines += [f"- {_md(one['message'])}" for one in report.sweep.problems]
    if report.baseline:
        lines += ["", f"## Against {_md(report.baseline['title'])}", ""]
        if report.comparison:
            summed = ", ".join(f"{number} {verdict}" for verdict, number in counts(report.comparison).items())
            lines += [
                f"Of {len(report.comparison)} cells: {summed}.",
                "",
                "| point | context | concurrency | now tok/s | then tok/s | change | 95% interval | verdict |",
                "|---|---|---|---|---|---|---|---|",
            ]
            for one in report.comparison:
                interval = DASH if one["low"] is None else f"{one['low'] - 1:+.1%} to {one['high'] - 1:+.1%}"
                lines.append(
                    f"| {_md(one['point'])} | {one['context']} | {one['concurrency']} | {one['now']:.1f} | {one['then']:.1f} | "
                    f"{one['ratio'] - 1:+.1%} | {interval} | {one['verdict']} |"
                )
        else:
            lines.append("No cell of this sweep is in the baseline.")
        lines += ["", *(f"- {_md(one)}" for one in report.baseline["notes"])]
    return "\n".join(lines).rstrip() + "\n"


def _times(gain: Any) -> str:
    return f"{gain['score']:.2f}" if gain and gain.get("score") else DASH


def _line(row: Sequence[str], shown: Sequence[int], sizes: Sequence[int]) -> str:
    parts = [cut(clean(row[one]), sizes[one]) for one in shown]
    return "  ".join(part.ljust(sizes[one]) if one == 1 else part.rjust(sizes[one]) for part, one in zip(parts, shown))


def _md(text: Any) -> str:
    """Text that Markdown and the HTML inside it leave alone."""
    safe = clean(text).replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for sign in "|*_`[]#":
        safe = safe.replace(sign, f"\\{sign}")
    return safe

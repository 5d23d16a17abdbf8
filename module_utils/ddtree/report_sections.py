"""Sections of the report's page below the ranking: maps, accept length, coding, hosts, failures, baseline, environment."""

from __future__ import annotations

import json
from typing import Any

from .comparison import counts
from .lossless import CHANGED, words
from .report import DASH, Report, accepts, clean, coding_text
from .report_data import HEAT, accept_at, flags, heat_maps, settings, spread
from .report_data import environment as environment_of
from .report_data import hosts as hosts_of
from .report_pieces import MOST_ROWS, esc, shaded, signed, table, word

MOST_MISSED = 8


def heat(report: Report) -> str:
    parts = []
    for one in heat_maps(report):
        tables = []
        for name, label in HEAT.items():
            values = one["maps"][name]
            low, high = (min(values.values()), max(values.values())) if values else (0.0, 0.0)
            rows = []
            for budget in one["budgets"]:
                cells = "".join(shaded(values.get(f"{budget}/{topk}"), low, high, 1) for topk in one["topks"])
                rows.append(f'<tr><th class="l">budget {budget}</th>{cells}</tr>')
            head = "".join(f"<th>topk {topk}</th>" for topk in one["topks"])
            table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
            tables.append(f'<div class="map"><p class="note">{esc(label)}</p>{table}</div>')
        parts.append(f'<h3>{esc(one["title"])}</h3><div class="maps scroll">{"".join(tables)}</div>')
    note = "Darker is faster within a map. Points that are one engine to this build share a figure; a dash was not measured."
    return f'<h2>Budget and topk</h2><p class="note">{esc(note)}</p>{"".join(parts)}' if parts else ""


def accept_table(report: Report) -> str:
    shown = [entry for entry in report.entries if any(one is not None for one in accepts(entry))][:MOST_ROWS]
    if not shown:
        return ""
    columns = {
        context: [one for one in (accept_at(report, entry, context) for entry in shown) if one is not None] for context in report.contexts
    }
    rows = []
    for entry in shown:
        cells = "".join(
            shaded(accept_at(report, entry, context), min(found), max(found), 2) if found else f"<td>{DASH}</td>"
            for context, found in columns.items()
        )
        rows.append(f'<tr{" class=best" if entry is report.best else ""}><td class="l">{esc(entry["name"])}</td>{cells}</tr>')
    head = "".join(f"<th>{context}</th>" for context in columns)
    return (
        f'<h3>Accept length by point</h3><p class="note">Columns are contexts in tokens, at the lowest concurrency that tells.</p>'
        f'<div class="scroll"><table><thead><tr><th class="l">point</th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def coding(report: Report) -> str:
    checked = [entry for entry in report.entries if entry["coding"]][:MOST_ROWS]
    if not checked:
        return ""
    rows = []
    for entry in checked:
        missed = [task for task in entry["coding"].get("tasks") or [] if task.get("outcome") != "passed"]
        told = ", ".join(f"{task.get('name')} {task.get('outcome')}" for task in missed[:MOST_MISSED])
        told += f" and {len(missed) - MOST_MISSED} more" if len(missed) > MOST_MISSED else ""
        found = entry["lossless"]
        answers = DASH if not found or not found["compared"] else f"{found['same']} of {found['compared']} the same"
        verdict = found["verdict"] if found and found["compared"] else DASH
        rows.append(([(entry["name"], "l"), (coding_text(entry), ""), (told or DASH, "l wrap bad" if missed else "l"),
                      (answers, "l"), (verdict, "l bad" if verdict == CHANGED else "l")], ""))  # fmt: skip
    first = next((entry for entry in checked if entry["lossless"] and entry["lossless"].get("first")), None)
    seen = f'<p class="note">{esc(first["name"])}: {esc(words(first["lossless"]))}</p>' if first else ""
    header = [("point", "l"), ("passed", ""), ("not passed", "l"), ("answers against none", "l"), ("verdict", "l")]
    note = (
        "Verification is lossless in theory: a miss is an answer that was cut, a harness fault or an engine bug, and greedy answers part "
        "from those of the point without speculation no more often than near ties explain. Details are in the result files."
    )
    return f'<h2>Coding check</h2><p class="note">{esc(note)}</p>{table(header, rows)}{seen}'


def hosts(report: Report) -> str:
    found = hosts_of(report)
    if len(found) < 2 and not any(one["stopped"] or one["lost"] for one in found):
        return ""
    levels = sorted({int(level) for one in found for level in one["against_fleet"]})
    rows = []
    for one in found:
        note = one["stopped"] or ("lost; its points went to the others" if one["lost"] else "")
        against: list[tuple[Any, str]] = [(signed(one["against_fleet"].get(str(level))), "") for level in levels]
        rows.append(([(one["host"], "l"), (one["measured"], ""), (one["failed"], ""), *against, (note, "l wrap bad")], ""))
    header = [("host", "l"), ("measured", ""), ("failed", ""), *((f"C={level}", "") for level in levels), ("", "l")]
    anchor, apart = report.schedule.get("anchor"), spread(found)
    words = ["Speed against the fleet's mean at what several hosts measured."]
    if anchor:
        words.append(
            f"Points were dealt out, and each host measured the anchor, point {anchor}; by it all other figures are put on the mean host."
        )
    if apart is not None:
        words.append(f"Hosts differ by up to {apart:.1%}.")
    return f'<h2>Hosts</h2><p class="note">{esc(" ".join(words))}</p>{table(header, rows)}'


def tuning(report: Report) -> str:
    found = report.tuning
    if not found:
        return ""
    rows: list[tuple[list[tuple[Any, str]], str]] = [
        (
            [(one["start"], ""), (one["host"], "l"), (one["name"], "l"), (one["stage"], "l"), (one["state"], "l"),
             (f"{one['minutes']:g}", ""),
             (DASH if one["score"] is None else f"{one['score']:.1f}", ""), (DASH if one["best"] is None else f"{one['best']:.1f}", ""),
             (one["why"], "l wrap")],
            "",
        )
        for one in found["path"][:MOST_ROWS]
    ]  # fmt: skip
    header = [("start", ""), ("host", "l"), ("point", "l"), ("measured", "l"), ("outcome", "l"), ("minutes", ""), ("tok/s", ""),
              ("best so far", ""), ("why", "l")]  # fmt: skip
    shares = [([(axis, "l"), (f"{share:.1%}", "")], "") for axis, share in found["importance"].items()]
    coming = [
        ([(one["name"], "l"), (f"{one['gain']:.2%}", ""), (f"{one['score']:.1f}", ""), (f"{one['spread']:.1%}", "")], "")
        for one in found["next"]
    ]
    note = (
        "Each row is a start. tok/s are the objective over the screened cells; screen measures those, whole the matrix. A start is cut off "
        "as soon as its interval lies below the best one's."
    )
    parts = [f'<h2>The search</h2><p class="note">{esc(note)}</p>{table(header, rows)}']
    if shares:
        parts.append("<h3>What speed depends on</h3>" + table([("axis", "l"), ("share of the variance of log speed", "")], shares))
    if coming:
        head = [("point", "l"), ("expected gain", ""), ("expected tok/s", ""), ("known to", "")]
        parts.append("<h3>Worth trying next</h3>" + table(head, coming))
    return "".join(parts)


def failures(report: Report) -> str:
    parts = []
    for entry in report.entries:
        for failure in entry["failures"]:
            tail = failure.get("log_tail") or []
            lines = (tail if isinstance(tail, list) else str(tail).splitlines())[-12:]
            text = "\n".join(clean(line) for line in lines)
            said = f"{failure.get('cause', 'unknown')} in phase {failure.get('phase', 'unknown')}: {failure.get('message', '')}"
            evidence = json.dumps(failure["evidence"], ensure_ascii=False, sort_keys=True) if failure.get("evidence") else ""
            parts.append(f"<p><b>{esc(entry['name'])}</b> on {esc(failure['host'])}: {esc(said)}</p>")
            parts += [f'<p class="note">evidence: {esc(evidence)}</p>'] if evidence else []
            parts += [f"<pre>{esc(text, lines=True)}</pre>"] if text else []
    return f"<h2>Failures</h2>{''.join(parts)}" if parts else ""


def comparison(report: Report) -> str:
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
                (signed(one["ratio"]), ""),
                (DASH if one["low"] is None else f"{signed(one['low'])} to {signed(one['high'])}", ""),
                (one["verdict"], "l good" if one["verdict"] == "faster" else "l bad" if one["verdict"] == "slower" else "l"),
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
        ("95% interval", ""),
        ("verdict", "l"),
    ]
    body = table(header, rows) if rows else "<p>No cell of this sweep is in the baseline.</p>"
    notes = "".join(f'<p class="note">{esc(one)}</p>' for one in report.baseline["notes"])
    summed = ", ".join(f"{number} {verdict}" for verdict, number in counts(report.comparison).items())
    told = (
        "A cell is faster or slower when the interval of its change leaves 0 out and the change is 1% or more. The interval comes from "
        "the repeats of both sides, else from their intervals; a side without one counts as its figure alone."
    )
    return (
        f"<h2>Against {esc(report.baseline['title'])}</h2>"
        + (f"<p>Of {len(report.comparison)} cells: {esc(summed)}.</p>" if rows else "")
        + f'<p class="note">{esc(told)}</p>{body}{notes}'
    )


def environment(report: Report) -> str:
    rows = environment_of(report)
    parts = []
    if rows:
        told_rows = [([(one["host"], "l"), (one["what"], "l"), ("; ".join(one["values"]), "l wrap")], "") for one in rows]
        parts.append(table([("host", "l"), ("what", "l"), ("as the engine and the host tell it", "l")], told_rows))
    best = report.best
    told = flags(best) if best else []
    if best and told:
        shown = [([(key, "l"), (word(asked), "l wrap"), (word(resolved), "l wrap")], "") for key, asked, resolved in told]
        parts.append(
            f"<h3>Flags of {esc(best['name'])}</h3>" + table([("field", "l"), ("asked", "l"), ("as the engine resolved it", "l")], shown)
        )
    measured = settings(report)
    if measured:
        shown = [([(f"benchmark_{key}", "l"), (word(value), "l wrap")], "") for key, value in measured.items()]
        parts.append("<h3>What was measured</h3>" + table([("setting", "l"), ("value", "l")], shown))
    return f"<h2>Environment</h2>{''.join(parts)}" if parts else ""

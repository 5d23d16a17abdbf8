"""The report's plots as SVG texts that take their ink from the page, so that they fit its light and its dark
mode.

Okabe and Ito's colours, told apart by the colour-blind; glyphs as paths, so that no font is needed; the same
input gives the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .report import Report, clean, cut

# Stand-ins that the page's own colours replace.
INK, MUTED, LINE, PAPER = "#010203", "#040506", "#070809", "#0a0b0c"
_VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", LINE: "var(--line)", PAPER: "var(--paper)"}
SERIES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
MARKS = ("o", "s", "^", "D", "v", "P")
PHASES = {
    "inspect": "#999999",
    "drain": "#e69f00",
    "stop": "#d55e00",
    "release": "#cc79a7",
    "start": "#009e73",
    "load": "#0072b2",
    "generate": "#56b4e9",
    "verify": "#f0e442",
}
MOST_SERIES = len(SERIES)
MOST_BARS = 24
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "path",
    "svg.hashsalt": "ddtree",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "lines.linewidth": 1.8,
}


def plots(report: Report) -> dict[str, str]:
    """{throughput, tradeoff, accept, restart}: SVG elements; one without data is left out."""
    shown = [entry for entry in report.entries if entry["tier"] < 3 and entry["cells"]]
    found = {
        "throughput": _throughput(report, _chosen(report, shown)),
        "tradeoff": _tradeoff(report, shown),
        "accept": _accept(report, _chosen(report, shown)),
        "restart": _restart(report),
    }
    return {name: svg for name, svg in found.items() if svg}


def _chosen(report: Report, shown: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """As many points as there are colours: the best, and the controls that they are measured against."""
    controls = [entry for entry in shown if entry["point"].get("dialect") in ("none", "dflash")]
    names = {entry["name"] for entry in controls}
    best = [entry for entry in shown if entry["name"] not in names]
    return [*best[: MOST_SERIES - len(controls[:2])], *controls[:2]]


def _throughput(report: Report, chosen: Sequence[Mapping[str, Any]]) -> str:
    if not chosen:
        return ""
    levels, contexts = report.levels, report.contexts

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, len(levels), squeeze=False)[0]
        width = 0.82 / len(chosen)
        for axis, level in zip(axes, levels):
            for index, entry in enumerate(chosen):
                for at, context in enumerate(contexts):
                    cell = entry["cells"].get((context, level))
                    if not cell or not cell["output_tok_s"]:
                        continue
                    x, y = at - 0.41 + width * (index + 0.5), cell["output_tok_s"]
                    axis.bar(
                        x,
                        y,
                        width * 0.92,
                        color=SERIES[index],
                        label=_label(entry["name"]) if at == 0 and axis is axes[0] else None,
                    )
                    if cell["low"] is not None:
                        low, high = max(y - cell["low"], 0), max(cell["high"] - y, 0)
                        axis.errorbar(x, y, [[low], [high]], color=INK, elinewidth=1, capsize=2)
            axis.set_xticks(range(len(contexts)), [str(one) for one in contexts])
            axis.set_title(f"Concurrency {level}")
            axis.set_xlabel("Context, tokens")
            axis.grid(axis="x", visible=False)
            axis.set_ylim(bottom=0)
        axes[0].set_ylabel("Output, tok/s")
        figure.legend(loc="outside upper left", ncols=min(len(chosen), 4))

    return _svg(
        draw,
        "throughput",
        (max(4.2 * len(levels), 6.4), 3.7),
        "Output token/s by context, one panel per concurrency",
    )


def _tradeoff(report: Report, shown: Sequence[Mapping[str, Any]]) -> str:
    able = [entry for entry in shown if entry["single_user"] and entry["aggregate"]]
    if len(able) < 2 or len(report.levels) < 2:
        return ""
    front = [entry for name in report.front for entry in able if entry["name"] == name]

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        if len(front) > 1:
            axis.plot(
                [one["single_user"] for one in front],
                [one["aggregate"] for one in front],
                color=SERIES[0],
                linewidth=1.4,
                zorder=2,
            )
        for label, mark, color, group in (
            ("on the Pareto front", "o", SERIES[0], front),
            ("behind it", "o", "#999999", [one for one in able if one["tier"] == 0 and one not in front]),
            (
                "coding below the bar, or failed requests",
                "X",
                SERIES[5],
                [one for one in able if one["tier"] == 1],
            ),
        ):
            if group:
                axis.scatter(
                    [one["single_user"] for one in group],
                    [one["aggregate"] for one in group],
                    s=54,
                    color=color,
                    marker=mark,
                    label=label,
                    zorder=4 if group is front else 3,
                    edgecolors=PAPER,
                    linewidths=0.8,
                )
        axis.margins(0.12)
        axis.set_xlabel(f"Single user: output tok/s at concurrency {report.levels[0]}, geometric mean over contexts")
        axis.set_ylabel(f"Aggregate: output tok/s at\nconcurrency {report.levels[-1]}, geometric mean")
        figure.legend(loc="outside upper left", ncols=3)
        figure.canvas.draw()
        wanted = able if len(able) <= 10 else [*front, *(one for one in able if one["point"].get("dialect") in ("none", "dflash"))]
        wanted += [one for one in sorted(able, key=lambda one: -one["aggregate"])[:3] if one not in wanted]
        _labels(figure, axis, wanted, able)

    return _svg(draw, "tradeoff", (8.4, 4.4), "Single-user speed against aggregate throughput, with the Pareto front")


def _labels(figure: Any, axis: Any, wanted: Sequence[Mapping[str, Any]], able: Sequence[Mapping[str, Any]]) -> None:
    """Names beside their points, each at the first place where it covers no point and no other name."""
    from matplotlib.transforms import Bbox

    dots = [axis.transData.transform((one["single_user"], one["aggregate"])) for one in able]
    taken = [Bbox.from_extents(x - 6, y - 6, x + 6, y + 6) for x, y in dots]
    frame = axis.get_window_extent()
    for entry in wanted:
        spot = (entry["single_user"], entry["aggregate"])
        for dx, dy, side in (
            (9, -3, "left"),
            (-9, -3, "right"),
            (9, 9, "left"),
            (-9, -15, "right"),
            (9, -15, "left"),
            (-9, 9, "right"),
        ):
            text = axis.annotate(
                _label(entry["name"]),
                spot,
                (dx, dy),
                textcoords="offset points",
                ha=side,
                fontsize=9,
                color=INK,
            )
            box = text.get_window_extent(figure.canvas.get_renderer())
            inside = frame.x0 - 40 <= box.x0 and box.x1 <= frame.x1 + 4 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            if inside and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()


def _accept(report: Report, chosen: Sequence[Mapping[str, Any]]) -> str:
    level = report.levels[0] if report.levels else 0
    lines = []
    for index, entry in enumerate(chosen):
        values = [(entry["cells"].get((context, level)) or {}).get("accept_length") for context in report.contexts]
        if any(value is not None for value in values):
            lines.append((index, entry, values))
    if not lines:
        return ""

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        for index, entry, values in lines:
            there = [(at, value) for at, value in enumerate(values) if value is not None]
            axis.plot(
                [one[0] for one in there],
                [one[1] for one in there],
                color=SERIES[index],
                marker=MARKS[index],
                markersize=9 - index * 0.8,
                linewidth=4 - index * 0.5,
                label=_label(entry["name"]),
            )
        axis.set_xticks(range(len(report.contexts)), [str(one) for one in report.contexts])
        axis.set_xlim(-0.25, len(report.contexts) - 0.75)
        axis.margins(y=0.15)
        axis.set_xlabel("Context, tokens")
        axis.set_ylabel("Accept length,\ntokens per verify step")
        figure.legend(loc="outside right center")

    return _svg(draw, "accept", (8.4, 3.4), "Accept length by context")


def _restart(report: Report) -> str:
    bars = [entry for entry in report.entries if (entry["restart"] or {}).get("phases")][:MOST_BARS]
    if not bars:
        return ""
    names = list(PHASES)
    names += sorted({str(phase.get("name")) for entry in bars for phase in entry["restart"]["phases"]} - set(names))

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        seen = set()
        longest = max(sum(float(phase.get("seconds") or 0) for phase in entry["restart"]["phases"]) for entry in bars) or 1.0
        for at, entry in enumerate(bars):
            left = 0.0
            for phase in entry["restart"]["phases"]:
                name, seconds = str(phase.get("name")), float(phase.get("seconds") or 0)
                # A sliver that nobody can see needs no entry in the legend.
                label = _label(name) if name not in seen and seconds > longest * 0.002 else None
                if label:
                    seen.add(name)
                axis.barh(at, seconds, left=left, height=0.62, color=PHASES.get(name, "#999999"), label=label)
                left += seconds
            failed = "" if entry["tier"] < 3 else "  failed"
            axis.text(
                left + longest * 0.01,
                at,
                f"{left:.{0 if longest >= 100 else 1}f} s{failed}",
                va="center",
                fontsize=9,
                color=INK,
            )
        axis.set_yticks(range(len(bars)), [_label(entry["name"]) for entry in bars])
        axis.invert_yaxis()
        axis.set_xlim(0, longest * 1.16)
        axis.grid(axis="y", visible=False)
        axis.set_xlabel("Seconds since the restart was asked")
        handles, labels = axis.get_legend_handles_labels()
        order = sorted(
            range(len(labels)),
            key=lambda one: names.index(labels[one]) if labels[one] in names else len(names),
        )
        figure.legend(
            [handles[one] for one in order],
            [labels[one] for one in order],
            loc="outside upper left",
            ncols=8,
            columnspacing=1.2,
            handlelength=1.2,
        )

    return _svg(draw, "restart", (8.4, 1.25 + 0.3 * len(bars)), "Restart phases by point")


def _label(text: Any) -> str:
    return cut(clean(text), 32)


def _svg(draw: Any, name: str, size: tuple[float, float], title: str) -> str:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)  # measures texts; no display is asked for
        draw(figure)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = stream.getvalue()
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.S)
    # Ids are shared by all SVGs of a page, so each gets its plot's name.
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", text)
    text = text.replace("xlink:href", "href")
    text = re.sub(r'\s(xmlns:xlink|xmlns|version)="[^"]*"', "", text)
    for stand_in, variable in _VARIABLES.items():
        text = text.replace(stand_in, variable)
    text = re.sub(r"\n\s*", "\n", text).strip()
    width, height = (round(one * 72) for one in size)
    return re.sub(
        r'<svg[^>]*viewBox="([^"]*)"[^>]*>',
        rf'<svg role="img" aria-label="{title}" viewBox="\1" width="{width}" height="{height}">',
        text,
        count=1,
    )

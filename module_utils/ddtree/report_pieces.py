"""Pieces of the report's page: escaped text, tables, shaded cells."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .report import DASH, clean

MOST_ROWS = 200


def figure(drawn: Mapping[str, str], name: str, title: str, note: str) -> str:
    return f'<h2>{esc(title)}</h2><p class="note">{esc(note)}</p><figure>{drawn[name]}</figure>' if name in drawn else ""


def table(header: Sequence[tuple[str, str]], rows: Iterable[tuple[Sequence[tuple[Any, str]], str]]) -> str:
    head = "".join(f'<th class="{style}">{esc(text)}</th>' for text, style in header)
    body = "".join(
        f'<tr class="{style}">' + "".join(f'<td class="{kind}">{_inner(text)}</td>' for text, kind in cells) + "</tr>"
        for cells, style in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


@dataclass(frozen=True)
class Sub:
    """A cell with a smaller second line."""

    text: str
    note: str
    against: bool

    def html(self) -> str:
        style = "sub low" if self.against else "sub"
        return esc(self.text) + (f'<span class="{style}">{esc(self.note)}</span>' if self.note else "")


def _inner(value: Any) -> str:
    return value.html() if isinstance(value, Sub) else esc(DASH if value is None else value)


def number(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


def times(gain: Mapping[str, float] | None) -> str | None:
    return f"{gain['score']:.2f}" if gain and gain.get("score") else None


def signed(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio - 1:+.1%}"


def word(value: Any) -> str:
    return DASH if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def esc(value: Any, lines: bool = False) -> str:
    text = str(value)
    return html.escape(text if lines else clean(text), quote=True)


def shaded(value: float | None, low: float, high: float, digits: int, hint: str = "", highest: float = 0.4) -> str:
    if value is None:
        return f"<td>{DASH}</td>"
    shade = 0.04 + (highest - 0.04) * ((value - low) / (high - low) if high > low else 0)
    title = f' title="{esc(hint)}"' if hint else ""
    return f'<td style="background: rgba(var(--heat), {shade:.2f})"{title}>{value:.{digits}f}</td>'

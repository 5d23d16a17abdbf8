"""The report page's style: light and dark, phone and print."""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark; --paper: #ffffff; --card: #f6f7f9; --ink: #1b1f24; --muted: #5b6470;
  --line: #d9dde3;
  --accent: #0072b2; --warn: #b3470a; --heat: 0, 114, 178; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --card: #1d2127; --ink: #e8eaed;
  --muted: #a0a8b3; --line: #353b44;
  --accent: #56b4e9; --warn: #f0955a; --heat: 86, 180, 233; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 28px 20px 60px; background: var(--paper);
  color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
h1 { font-size: 25px; line-height: 1.25; margin: 2px 0 6px; } h2 { font-size: 18px; margin: 38px 0 6px; }
p { margin: 6px 0; max-width: 78ch; } .eyebrow, .note { color: var(--muted); } .note { font-size: 13.5px; }
.win { background: var(--card); border-left: 4px solid var(--accent); border-radius: 6px;
  padding: 14px 20px 12px; margin: 14px 0; }
.win ul { margin: 6px 0; padding-left: 20px; } .figures { display: flex; flex-wrap: wrap; gap: 10px 34px;
  margin: 10px 0 8px; }
.figures b { display: block; font-size: 23px; line-height: 1.2; font-variant-numeric: tabular-nums; }
  .figures span { color: var(--muted); font-size: 13px; }
.warn { border-left: 4px solid var(--warn); background: var(--card); border-radius: 6px; padding: 8px 16px;
  margin: 12px 0; }
.scroll { overflow-x: auto; margin: 8px 0; } table { border-collapse: collapse; font-size: 13.5px; }
th, td { padding: 5px 9px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap;
  font-variant-numeric: tabular-nums; }
th { color: var(--muted); font-weight: 600; vertical-align: bottom; } th.l, td.l { text-align: left; }
  td.wrap { white-space: normal; min-width: 170px; }
thead tr:first-child th.g { text-align: center; border-bottom: 1px solid var(--muted); }
tr.best td { font-weight: 650; } .sub { display: block; font-weight: 400; font-size: 12.5px;
  color: var(--muted); white-space: normal; }
h3 { font-size: 15px; margin: 22px 0 4px; }
.maps { display: flex; flex-wrap: wrap; gap: 6px 40px; } .map { max-width: 100%; overflow-x: auto; }
td { vertical-align: top; } .sub.low, td.bad { color: var(--warn); } td.good { color: var(--ink); }
code, pre { font: 13px/1.45 ui-monospace, "SFMono-Regular", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code.cmd { display: inline-block; max-width: 100%; overflow-x: auto; background: var(--paper);
  border: 1px solid var(--line); border-radius: 5px; padding: 3px 8px; }
pre { background: var(--card); padding: 10px 14px; overflow-x: auto; border-radius: 6px; margin: 6px 0; }
svg { display: block; width: 900px; height: auto; } figure { margin: 12px 0 4px; overflow-x: auto; }
@media (min-width: 700px) { svg { max-width: 100%; } } @media (max-width: 700px) { svg { width: 620px; } }
@media print { body { max-width: none; } }
"""

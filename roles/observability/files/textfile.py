"""Write what the toolkit knows of an engine for node_exporter's textfile collector. A timer runs it on the host; it changes nothing else.

usage: textfile.py STATE-DIR UNIT URL OUT     OUT is the .prom file, replaced whole
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request

HELP = {
    "ddtree_up": "Whether the unit is active and the engine says what it runs.",
    "ddtree_info": "What runs and what was declared, as labels.",
    "ddtree_drift": "Whether the engine runs another configuration than its unit declares.",
    "ddtree_restarts_total": "Restarts that systemd did by itself since the unit was started by hand.",
    "ddtree_last_outcome": "How the toolkit's last start ended, as labels.",
    "ddtree_soak_tokens_per_second": "Output token/s of the last good soak.",
    "ddtree_lease_until_seconds": "Until when somebody holds the host, in seconds since 1970.",
    "ddtree_seen_seconds": "When these figures were made, in seconds since 1970.",
}


def read(path: str) -> dict:
    try:
        with open(path) as file:
            return dict(json.load(file))
    except (OSError, ValueError):
        return {}


def shown(unit: str) -> dict:
    """systemd's words for the unit."""
    done = subprocess.run(
        ["systemctl", "show", f"{unit}.service", "--property=ActiveState,NRestarts,ExecStart"], capture_output=True, text=True, check=False
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def answered(url: str) -> dict:
    """What the engine says of itself; empty where it does not. No proxy answers for it, and no key is needed for its version."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    key = os.environ.get("DDTREE_API_KEY") or os.environ.get("DDTREE_ADMIN_API_KEY") or ""
    asked = urllib.request.Request(f"{url}/server_info", headers={"Authorization": f"Bearer {key}"} if key else {})
    try:
        with opener.open(asked, timeout=10) as answer:
            return dict(json.load(answer))
    except (OSError, ValueError):
        return {}


def samples(unit: str, state: dict, record: dict, soak: dict, lease: dict, info: dict, now: float) -> list:
    """(name, labels, value), by HELP."""
    declared = re.search(r"--weight-version[ =]([0-9a-f]+)", state.get("ExecStart", ""))
    want, loaded = declared.group(1) if declared else "", str(info.get("weight_version") or "")
    up = state.get("ActiveState") == "active" and bool(info)
    started, failure = record.get("started") or {}, record.get("last_failure") or {}
    outcome = str(started.get("proof") or "stopped")
    found = [
        ("ddtree_up", {}, float(up)),
        ("ddtree_info", {"loaded": loaded, "declared": want, "version": str(info.get("version") or "")}, 1.0),
        ("ddtree_drift", {}, float(bool(loaded and want and loaded != want))),
        ("ddtree_restarts_total", {}, float(state.get("NRestarts") or 0)),
        ("ddtree_last_outcome", {"outcome": outcome, "cause": str(failure.get("cause") or "") if outcome != "ready" else ""}, 1.0),
        ("ddtree_seen_seconds", {}, round(now, 1)),
    ]
    if soak.get("tok_s"):
        found.append(("ddtree_soak_tokens_per_second", {"config": str(soak.get("config_id") or "")}, float(soak["tok_s"])))
    if float(lease.get("until") or 0) > now:
        found.append(("ddtree_lease_until_seconds", {"who": str(lease["who"]), "what": str(lease["what"])}, float(lease["until"])))
    return [(name, {"unit": unit, **labels}, value) for name, labels, value in found]


def text(found: list) -> str:
    """The exposition format, families in order."""
    lines = []
    for name, told in HELP.items():
        mine = [one for one in found if one[0] == name]
        if mine:
            lines += [f"# HELP {name} {told}", f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}"]
            lines += [
                f"{name}{{{','.join(f'{key}={quoted(value)}' for key, value in labels.items())}}} {number!r}" for _, labels, number in mine
            ]
    return "\n".join(lines) + "\n"


def quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def main() -> int:
    state_dir, unit, url, out = sys.argv[1:]
    names = (f"{unit}.json", f"{unit}.soak.json", f"{unit}.lease")
    record, soak, lease = (read(os.path.join(state_dir, name)) for name in names)
    found = samples(unit, shown(unit), record, soak, lease, answered(url), time.time())
    with open(f"{out}.new", "w") as file:
        file.write(text(found))
    os.chmod(f"{out}.new", 0o644)
    os.replace(f"{out}.new", out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Every fault of the simulated host, in one table, read afresh from state/faults.json while the engine runs.

python -m sglang.sim.faults [--state DIR] KEY=JSON ...    set (a value null removes one); without a key: show
python -m sglang.sim.faults --table                       print the table of docs/simulator.md
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .state import state_dir

# key: (values, what it does). All seconds are real seconds, never divided by the time scale.
FAULTS: dict[str, tuple[str, str]] = {
    "drain_seconds": ("seconds", "after SIGTERM the process answers for at least this long, even when idle"),
    "vram_linger_seconds": ("seconds", "VRAM stays in use this long after its process has gone, in no process's name"),
    "ignore_sigterm": ("true", "SIGTERM does nothing; only SIGKILL ends the process"),
    "child_survives": ("true", "the last rank's process outlives the main process, in its own session, with its VRAM"),
    "ends_like": (
        '"0.5.17"',
        "as 0.5.17 was seen to end: by its own SIGKILL after its drain, with exit 1 when a scheduler is killed in the load",
    ),
    "crash_at": (
        '"load", "warmup", "serve"',
        "the scheduler dies in the load, at the engine's own warm-up, or `crash_after_seconds` after it is up",
    ),
    "crash_after_seconds": ("seconds (1)", "see crash_at"),
    "crash_times": ("number", "crash_at and crash_loop strike only in this many starts; without it, in each"),
    "crash_loop": ("true", "each start ends with exit 1 right after the imports"),
    "out_of_memory": ("true", "loading ends with torch.OutOfMemoryError, whatever VRAM is free"),
    "load_seconds": ("seconds", "length of the load"),
    "load_hangs": ("true", "the load stops halfway and never ends, until the fault is taken away"),
    "models_before_generate_seconds": ("seconds", "the port answers (/v1/models 200) this long before any generation is served"),
    "generation_hangs": ('true, "serve"', 'requests get no token until the fault is taken away; "serve": not the warm-up'),
    "wrong_config": ("true, {field: value}", "other arguments are loaded; true: window 512, or weight_version stale without speculation"),
    "build": ('"stock"', "the build knows neither --speculative-ddtree-budget nor the algorithm DDTREE"),
    "coding": (
        '"right", "wrong", "truncated", "hostile", "empty", or {function: one of them}',
        "what the answers to the coding prompts are like",
    ),
    "stream_breaks_after_tokens": ("number", "a stream's connection is cut after this many tokens"),
    "error_rate": ("0..1", "this share of generation requests is answered 500, evenly spread"),
    "speed": ("factor (1)", "multiplies the speed of token generation; tests only, the truth of speed.py is then off by it"),
    "nvml": ('list of "SCOPE FUNCTION ERROR"', "errors of the NVML library, see below"),
}


class Faults:
    """The faults in force now; an unreadable file counts as no faults."""

    def __init__(self, state: Path) -> None:
        self._path = state / "faults.json"
        self._stamp: tuple[int, int] | None = None
        self._values: dict[str, Any] = {}

    def get(self, key: str, otherwise: Any = None) -> Any:
        assert key in FAULTS, key
        try:
            info = self._path.stat()
            stamp = (info.st_mtime_ns, info.st_ino)
            if stamp != self._stamp:
                found = json.loads(self._path.read_text())
                self._values, self._stamp = (found if isinstance(found, dict) else {}), stamp
        except (OSError, ValueError):
            self._values, self._stamp = {}, None
        value = self._values.get(key)
        return otherwise if value is None or value is False else value

    def seconds(self, key: str, otherwise: float = 0.0) -> float:
        try:
            return max(0.0, float(self.get(key, otherwise)))
        except (TypeError, ValueError):
            return otherwise


def check(values: dict[str, Any]) -> None:
    """Raises ValueError naming a key that is no fault."""
    for key in values:
        if key not in FAULTS:
            raise ValueError(f"{key} is not a fault of the simulated host; it has {', '.join(sorted(FAULTS))}")


def write(state: Path, values: dict[str, Any]) -> None:
    """Replace the faults atomically, the NVML library's file included."""
    check(values)
    _replace(state / "faults.json", json.dumps(values, indent=2, sort_keys=True) + "\n")
    _replace(state / "nvml_faults.conf", "".join(f"{line}\n" for line in values.get("nvml") or []))


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text)
    os.replace(new, path)


def table() -> str:
    """The table of docs/simulator.md."""
    rows = [f"| `{key}` | {values} | {what} |" for key, (values, what) in FAULTS.items()]
    return "\n".join(["| key | value | what it does |", "|---|---|---|", *rows])


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sglang.sim.faults", description="Show or set the faults of the simulated host.")
    parser.add_argument("--state", type=Path, default=state_dir())
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--clear", action="store_true", help="take all faults away first")
    parser.add_argument("sets", nargs="*", metavar="KEY=JSON")
    asked = parser.parse_args(None if arguments is None else list(arguments))
    if asked.table:
        print(table())
        return 0
    path = asked.state / "faults.json"
    values: dict[str, Any] = {} if asked.clear or not path.exists() else json.loads(path.read_text())
    for one in asked.sets:
        key, equals, text = one.partition("=")
        try:
            value = json.loads(text) if equals else True
        except ValueError:
            value = text
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    if asked.sets or asked.clear:
        try:
            write(asked.state, values)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
    print(json.dumps(values, indent=2, sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())

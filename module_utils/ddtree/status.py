"""What one host says of its engine in one look, with nothing changed: what is loaded, whether it generates, who holds the host."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .gpus import GpuError
from .lifecycle import OUT_OF_ROUTER
from .ports import Gpus, Router, Server, Service, UnitState
from .router import RouterError

POLL = 0.02  # seconds
_RELEASE = re.compile(r"/releases/([^/]+)/")


def look(
    service: Service,
    server: Server,
    gpus: Gpus,
    record: Mapping[str, Any],
    *,
    asked: str = "",
    files: Mapping[str, str] | None = None,
    router: Router | None = None,
    timeout: float = 10.0,
    least_tokens: int = 32,
) -> dict[str, Any]:
    """Everything of one unit. `record` is what the restarts left; `asked` the config_id that should run, '' for any; `files` maps the
    paths of the unit's files to the digests that they should have; a generation gets `timeout` seconds.

    `reason` says why the unit would have to be worked on to be as asked, '' where it is; `drift` what differs from what was declared
    or started; `settled` whether what runs was proven and nothing of it has changed since; `replaces` whether something settled would
    make way for something else, so that it is worth keeping to come back to.
    """
    state = service.state()
    found: dict[str, Any] = {
        "unit": service.name,
        "active": state.active if state.exists else "missing",
        "since": _since(state.main_pid),
        "restarts": state.restarts,
        "instance": state.invocation,
        "release": _release(state.main_pid),
        **_answers(server if state.active == "active" else None, timeout, least_tokens),
        **_vram(gpus),
    }
    found["in_router"] = _in_router(router)
    started = dict(record.get("started") or {})
    same = state.active == "active" and started.get("invocation") == state.invocation
    changed = same and started.get("definition") != service.definition()
    found["settled"] = bool(found["healthy"] and same and not changed and _proven(started, found["loaded"]))
    found["config_started"] = started.get("config_id") or ""
    found["last_failure"] = dict(record.get("last_failure") or {}) if started.get("proof") != "ready" else {}
    found["serving"] = found["healthy"] and found["in_router"] is not False
    found["expected"] = _expected(record, asked)
    found["drift"] = _drift(found, state, asked, changed)
    found["reason"] = _reason(found, state, started if same else {}, files or {})
    found["replaces"] = bool(found["settled"] and found["reason"] not in ("", OUT_OF_ROUTER))
    return found


def _proven(started: Mapping[str, Any], loaded: str) -> bool:
    return started.get("proof") == "ready" and started.get("config_id") in ("", loaded)


def _drift(found: Mapping[str, Any], state: UnitState, asked: str, changed: bool) -> list[str]:
    told = []
    if asked and found["loaded"] and found["loaded"] != asked:
        told.append(f"configuration {found['loaded']} runs, {asked} is asked")
    if changed:
        told.append("the unit's definition changed since it was started")
    return told


def _reason(found: Mapping[str, Any], state: UnitState, started: Mapping[str, Any], files: Mapping[str, str]) -> str:
    if not state.exists:
        return "the unit is not there yet"
    if state.active != "active":
        return f"the unit is {state.active}"
    if not found["healthy"]:
        return f"the engine does not generate: {found['health']}"
    if found["drift"]:
        return str(found["drift"][0])
    if started and started.get("proof") != "ready":
        return f"the running instance was never proven ready (its start is {started.get('proof')})"
    other = [path for path, wanted in files.items() if digest(path) != wanted]
    if other:
        return f"{', '.join(os.path.basename(path) for path in other)} would change"
    return OUT_OF_ROUTER if found["in_router"] is False else ""


def _answers(server: Server | None, timeout: float, least: int) -> dict[str, Any]:
    """What the engine says: a generation is the only proof of health."""
    silent = {"healthy": False, "health": "not running", "loaded": "", "version": "", "generation_tok_s": None, "running": None}
    if server is None:
        return {**silent, "accept_length": None, "tok_s": None}
    request, deadline = server.ask(), time.monotonic() + timeout
    while (answer := request.result()) is None and time.monotonic() < deadline:
        time.sleep(POLL)
    info = server.info() if answer is not None and answer.status else {}
    good = answer is not None and not answer.error and answer.tokens >= least
    told = f"{answer.tokens} tokens in {answer.seconds:.2f} s" if answer else f"no answer in {timeout:g} s"
    return {
        "healthy": good,
        "health": (answer.error if answer else "") or told,
        "loaded": str((answer.weight_version if answer else None) or info.get("weight_version") or ""),
        "version": str(info.get("version") or ""),
        "generation_tok_s": round(answer.tokens / answer.seconds, 1) if answer and good and answer.seconds > 0 else None,
        "running": server.running_requests() if good else None,
        **_gauges(info),
    }


def _gauges(info: Mapping[str, Any]) -> dict[str, Any]:
    """Accept length and output token/s as the engine's own state tells them, over its ranks; None where it does not."""
    states = [one for one in info.get("internal_states") or [] if isinstance(one, Mapping)]
    lengths = [float(one["avg_spec_accept_length"]) for one in states if isinstance(one.get("avg_spec_accept_length"), (int, float))]
    speeds = [float(one["last_gen_throughput"]) for one in states if isinstance(one.get("last_gen_throughput"), (int, float))]
    return {
        "accept_length": round(sum(lengths) / len(lengths), 2) if lengths else None,
        "tok_s": round(sum(speeds), 1) if speeds else None,
    }


def _vram(gpus: Gpus) -> dict[str, Any]:
    try:
        boards = gpus.read()
    except GpuError as error:
        return {"vram_mib": [], "gpus": str(error)}
    return {"vram_mib": [one.used_mib for one in boards], "gpus": f"{len(boards)}x {boards[0].name}" if boards else "none"}


def _in_router(router: Router | None) -> bool | None:
    """None without a router, and where it does not answer: then nobody knows."""
    try:
        return router.serves() if router else None
    except RouterError:
        return None


def _expected(record: Mapping[str, Any], asked: str) -> float | None:
    """Seconds that a load of this configuration took last; the longest of others where it never ran."""
    history = {key: float(one["load_seconds"]) for key, one in (record.get("history") or {}).items() if one.get("load_seconds")}
    return history.get(asked) or max(history.values(), default=None)


def digest(path: str | Path) -> str:
    """SHA-256 of a file, '' where it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def _since(pid: int) -> float | None:
    """When the process began, in seconds since 1970."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        booted = next(int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
    except (OSError, ValueError, StopIteration, IndexError):
        return None
    return round(booted + ticks / os.sysconf("SC_CLK_TCK"), 1)


def _release(pid: int) -> str:
    """The release that the process was started from, or its interpreter's path where that is no release of role sglang."""
    try:
        first: Sequence[bytes] = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    path = os.fsdecode(first[0])
    named = _RELEASE.search(path)
    return named[1] if named else path

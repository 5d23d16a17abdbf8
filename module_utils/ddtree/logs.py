"""The engine's log: figures of its decode and prefill lines, lines that end a start, progress of a load, secrets taken out.

Takes every shape since SGLang 0.4, with or without the prefix of journald, of a container runtime or of Ray: each figure is
found by its own name, so that fields may come, go and change places.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
# journald (short-iso, short-iso-precise, short-unix, short) or a container's runtime, then Ray, then SGLang's own `[date time DP0 TP0] `.
_JOURNAL = re.compile(rf"^(?:{_TIME}|\d{{9,11}}\.\d{{1,6}}|[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d) \S+ [^\s:\[]+(?:\[\d+\])?: ")
_CONTAINER = re.compile(rf"^(?:[\w.-]+ +\| )?(?:{_TIME} (?:std(?:out|err) [FP] )?)?")
_STAMP = re.compile(rf"^(?:[\w.-]+ +\| )?\[?({_TIME}|\d{{9,11}}\.\d{{1,6}}(?= ))")
_ISO = re.compile(r"(\d+)-(\d+)-(\d+)[T ](\d+):(\d+):(\d+)(?:[.,](\d+))?(?:(Z)|([+-])(\d\d):?(\d\d))?")
_RAY = re.compile(r"^\((?:\w+) pid=\d+(?:, ip=[\d.:a-f]+)?\) ")
_OWN = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)((?: [A-Z_]+\d+)*)\] ?")
_RANK = re.compile(r" ([A-Z_]+)(\d+)")
_BATCH = re.compile(r"^(Decode|Prefill) batch(?: \[(\d+)\])?[.,]")
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?=%?(?:,|\s*$|\s+#))")

# name in the result: its names in the line. A name counts only where a field begins.
_FIELDS: dict[str, tuple[str, ...]] = {
    "running": ("#running-req",), "queued": ("#queue-req",), "tokens": ("#token", "#full token"),
    "token_usage": ("token usage", "full token usage"), "accept_length": ("accept len",), "accept_rate": ("accept rate",),
    "cap_length": ("cap len",), "block_accept_length": ("block accept len",), "throughput": ("gen throughput (token/s)",),
    "input_throughput": ("input throughput (token/s)",), "new_sequences": ("#new-seq",), "new_tokens": ("#new-token",),
    "cached_tokens": ("#cached-token",), "pending_tokens": ("#pending-token",), "retracted": ("#retracted-req",),
}  # fmt: skip
# A field begins after a comma, or after the words `batch.`/`batch,`; old lines separate some only by a space and `#`.
_PLACES = [
    (key, re.compile(r"(?:^|,\s*|\s(?=#))" + re.escape(name) + r":[ \t]*([^,\s]*)"))
    for key, names in _FIELDS.items() for name in names
]  # fmt: skip
# The last of them ends every shape or nearly so: a line that lacks it was cut, and its last number may be half a number.
_LEAST_FIELDS = {"decode": ("running", "throughput", "queued"), "prefill": ("new_sequences", "new_tokens", "queued")}


@dataclass(frozen=True)
class Batch:
    """One decode or prefill line. `values` has the figures by the names of this module; `ranks` e.g. {"DP": 1, "TP": 0}."""

    kind: str  # decode or prefill
    values: dict[str, float]
    ranks: dict[str, int] = field(default_factory=dict)
    iteration: int | None = None


@dataclass
class Reading:
    """What a piece of log holds: `batches` that can be trusted, and how many lines were cut off or had impossible figures."""

    batches: list[Batch] = field(default_factory=list)
    rejected: int = 0
    suppressed: int = 0  # lines that journald says it dropped


def message(line: str) -> tuple[str, dict[str, int]]:
    """The engine's own words of a line, without colours and prefixes, and the ranks of its prefix."""
    text = _ANSI.sub("", line).strip("\r\n\x00 ")
    text = _RAY.sub("", _outer(text), count=1)
    own = _OWN.match(text)
    if not own:
        return text, {}
    ranks = {name: int(number) for name, number in _RANK.findall(own.group(2)) if len(number) < 10}
    return text[own.end() :], ranks


def _outer(text: str) -> str:
    """A line without what journald or a container's runtime puts before it."""
    journal = _JOURNAL.match(text)
    return text[journal.end() :] if journal else _CONTAINER.sub("", text, count=1)


def when(line: str, offset: float | None = None) -> float | None:
    """The time of a line in seconds of the epoch: the outer stamp, else the engine's own, whole seconds mostly; None without one.

    A stamp without a zone is in the zone of this machine, or `offset` seconds east of Greenwich.
    """
    text = _ANSI.sub("", line).lstrip("\r\n\x00 ")
    for part in (text, _RAY.sub("", _outer(text), count=1)):
        found = _STAMP.match(part)
        if found:
            return _epoch(found.group(1), offset)
    return None


def _epoch(stamp: str, offset: float | None) -> float | None:
    iso = _ISO.match(stamp)
    if iso is None:
        return float(stamp)
    zone = None if offset is None else datetime.timezone(datetime.timedelta(seconds=offset))
    if iso.group(8) or iso.group(9):
        minutes = int(iso.group(10) or 0) * 60 + int(iso.group(11) or 0)
        zone = datetime.timezone(datetime.timedelta(minutes=-minutes if iso.group(9) == "-" else minutes)) if minutes < 1440 else None
    try:
        year, month, day, hour, minute, second = (int(iso.group(at)) for at in range(1, 7))
        whole = datetime.datetime(year, month, day, hour, minute, second, tzinfo=zone)
        return whole.timestamp() + float(f"0.{iso.group(7) or 0}")
    except (ValueError, OverflowError, OSError):
        return None


def batch(line: str) -> Batch | None:
    """The figures of a decode or prefill line; None for any other line.

    Raises ValueError when the line is one, but is cut off or holds nan, inf or a negative number.
    """
    if "batch" not in line:
        return None
    text, ranks = message(line)
    head = _BATCH.match(text)
    if not head:
        return None
    kind, rest = head.group(1).lower(), text[head.end() :].strip().rstrip(",")
    values: dict[str, float] = {}
    for key, place in _PLACES:
        found = place.search(rest)
        if found is None or key in values:
            continue
        number = _NUMBER.match(rest, found.start(1))
        value = float(number.group()) if number else math.nan
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"{key} is {found.group(1)!r}")
        values[key] = value
    missing = [key for key in _LEAST_FIELDS[kind] if key not in values]
    if missing:
        raise ValueError(f"the line ends before {missing[0]}")
    return Batch(kind, values, ranks, int(head.group(2)) if head.group(2) else None)


_SUPPRESSED = re.compile(r"Suppressed (\d{1,12}) messages from ")


def read(lines: Iterable[str]) -> Reading:
    """All batch lines of a log. Lines that cannot be trusted are counted, never turned into a figure."""
    found = Reading()
    for line in lines:
        lost = _SUPPRESSED.search(line)
        if lost:
            found.suppressed += int(lost.group(1))
            continue
        try:
            one = batch(line)
        except ValueError:
            found.rejected += 1
            continue
        if one:
            found.batches.append(one)
    return found


@dataclass(frozen=True)
class Accepted:
    """The accept length of a time's decode lines; None where `why` says so.

    Each line counts by its running requests, since it stands for a fixed number of steps of each. Unlike the count over
    requests, the engine's leaves out the token that a prefill gives.
    """

    accept_length: float | None
    lines: int = 0  # that were counted
    ranks: int = 0  # that they came from
    lost: int = 0  # lines of that time that were cut off, impossible, or dropped by journald
    why: str = ""


def accepted(lines: Iterable[str], begin: float, end: float, fresh: bool = False, offset: float | None = None) -> Accepted:
    """The accept length that the lines between two times tell, both in seconds of the epoch by the clock of the lines.

    A line covers the steps since the one before, so the first of each rank reaches back before `begin` and is left out, unless the
    counters were reset then (`fresh`: the cache was flushed). Of ranks that tell the same, e.g. TP0 and TP1, one counts.
    """
    told: dict[int, dict[tuple[tuple[str, int], ...], list[Batch]]] = {}
    lost = decoded = silent = zero = 0
    for line in (part for whole in lines for part in whole.split("\r")):
        if "batch" not in line and "Suppressed" not in line:
            continue
        at = when(line, offset)
        if at is None or not begin <= at <= end:
            continue
        found = read([line])
        lost += found.rejected + found.suppressed
        for one in found.batches:
            if one.kind == "decode":
                decoded += 1
                same = tuple(sorted((name, rank) for name, rank in one.ranks.items() if name != "DP"))
                told.setdefault(one.ranks.get("DP", 0), {}).setdefault(same, []).append(one)
    weighted = total = 0.0
    counted = ranks = 0
    for copies in told.values():
        of_rank = copies[min(copies)]
        silent += sum("accept_length" not in one.values for one in of_rank)
        accepts = [(one.values["accept_length"], max(1.0, one.values["running"])) for one in of_rank[0 if fresh else 1 :]
                   if "accept_length" in one.values]  # fmt: skip
        zero += sum(accept < 1 for accept, _ in accepts)
        good = [(accept, weight) for accept, weight in accepts if accept >= 1]
        counted, ranks = counted + len(good), ranks + bool(good)
        weighted, total = weighted + sum(accept * weight for accept, weight in good), total + sum(weight for _, weight in good)
    if counted:
        return Accepted(weighted / total, counted, ranks, lost)
    if zero:
        why = "its lines say an accept length below 1: this build does not count it"
    elif silent:
        why = "its decode lines have no accept length: it runs without speculation"
    elif decoded:
        why = "its only decode lines of this time reach back before it: the time is shorter than the engine's decode log interval"
    else:
        why = "it logged no decode line in this time"
    return Accepted(None, 0, 0, lost, why)


# -- the end of a start ----------------------------------------------------------------------------------------------------

_MORE_MEMORY = "lower --mem-fraction-static or --max-running-requests, or free the GPUs"
# Cause, pattern on the engine's own words, what to do. The cause comes before the traceback's consequences ("SIGQUIT received"),
# so `Scheduler hit an exception` is not in the list: its own last line names the cause.
FATAL: tuple[tuple[str, re.Pattern[str], str], ...] = tuple((cause, re.compile(pattern), hint) for cause, pattern, hint in (
    ("bad_flags", r"^[\w. /-]+: error: (unrecognized arguments|argument \S+: |the following arguments are required|ambiguous option)",
     "this build does not take the flag: choose the dialect of the installed build, or correct the extra arguments"),
    ("invalid_config", r"^ValueError: Unknown speculative algorithm name",
     "this build has no such algorithm: choose the dialect of the installed build"),
    ("invalid_config", r"^(ValueError|AssertionError|NotImplementedError|TypeError|RuntimeError): .*"
     r"(speculative|DDTREE|DFLASH|draft|attention.backend|page.size|tp.size|context.length|max_running_requests|server_args)",
     "the engine refuses this combination of values: correct the point or the extra arguments"),
    ("invalid_config", r"^(OSError|FileNotFoundError|ValueError): .*(does not appear to have a file named|is not a local folder|"
     r"Can't load the configuration|[Uu]nrecognized model|config\.json)", "the model or the drafter cannot be read at its path"),
    ("out_of_memory", r"^(torch\.)?(cuda\.)?OutOfMemoryError: ", _MORE_MEMORY),
    ("out_of_memory", r"^RuntimeError: (CUDA out of memory|CUDA error: out of memory|Not enough memory|NCCL.*out of memory)", _MORE_MEMORY),
    ("out_of_memory", r"^(ValueError|RuntimeError): .*(increase|reduce|raise).*mem[-_]fraction[-_]static", _MORE_MEMORY),
    ("out_of_memory", r"^.*(Out of memory: Killed process|oom-kill:|killed by the OOM killer)",
     "the host has too little memory for this load"),
    ("port_in_use", r"^(ERROR: +)?\[Errno 98\] .*address already in use", "another process owns the port: stop it, or choose another port"),
    ("port_in_use", r"^(OSError|RuntimeError|ValueError|zmq\.error\.ZMQError): .*"
     r"(Address already in use|EADDRINUSE|[Pp]ort \d+ is (not available|already in use))",
     "another process owns the port, or one that the engine derives from it"),
    ("crashed", r"^(Received sigquit from a child process|SIGQUIT received\.|Initialization failed\. warmup error|"
     r"Subprocess \S+ \(pid=\d+\) crashed with exit code)", "read the log before this line"),
    ("crashed", r"^RuntimeError: Rank \d+ scheduler died during initialization",
     "read the log before this line; exit code -9 is a SIGKILL, often the kernel's when the host's memory is used up (dmesg)"),
    ("crashed", r"^(Fatal Python error: |.*\bSegmentation fault\b \(core dumped\))", "read the log before this line"),
))  # fmt: skip


def fatal(line: str) -> tuple[str, str] | None:
    """(cause, what to do) when this line makes it certain that the start fails, else None. The cause is a word of lifecycle.CAUSES."""
    text, _ = message(line)
    for cause, pattern, hint in FATAL:
        if pattern.match(text):
            return cause, hint
    return None


# -- how far a load is -----------------------------------------------------------------------------------------------------

READY_LINE = "The server is fired up and ready to roll!"
# Share of a usual load that is over when the line appears; the words are shown as they are.
_STEPS: tuple[tuple[re.Pattern[str], str, int], ...] = tuple((re.compile(pattern), words, share) for pattern, words, share in (
    (r"^server_args=|^launch_server", "reading arguments", 2), (r"^Init torch distributed begin", "connecting ranks", 4),
    (r"^Load weight begin", "loading weights", 8), (r"^Load weight end", "weights loaded", 70),
    (r"^KV Cache is allocated", "allocating the KV cache", 74), (r"^Memory pool end", "memory pool ready", 76),
    (r"^Capture .*graph begin", "capturing CUDA graphs", 78), (r"^Capture .*graph end", "CUDA graphs captured", 92),
    (r"^max_total_num_tokens=", "scheduler ready", 94),
    (r"^(INFO: +)?(Started server process|Application startup complete)", "opening the port", 96),
    (r"^(INFO: +)?Uvicorn running on", "warming up", 97), (re.escape(READY_LINE), "ready", 100),
))  # fmt: skip
_SHARDS = re.compile(r"(?:Loading|shards?)[^\r\n]{0,80}?(\d{1,3})%")


def progress(line: str) -> tuple[str, int] | None:
    """(words, percent of a usual load) when the line tells how far a start is, else None."""
    text, _ = message(line)
    for pattern, words, share in _STEPS:
        if pattern.match(text):
            return words, share
    shards = _SHARDS.findall(text)
    if shards and ("checkpoint" in text.lower() or "shard" in text.lower()):
        return "loading weights", 8 + round(62 * min(100, int(shards[-1])) / 100)
    return None


# -- secrets ---------------------------------------------------------------------------------------------------------------

HIDDEN = "***"
_LEAST_SECRET = 4  # shorter values would tear up ordinary words


def redact(text: str, secrets: Iterable[str | None]) -> str:
    """The text with every secret replaced by ***, wherever it stands; also as JSON and percent encoding write it."""
    from json import dumps
    from urllib.parse import quote, quote_plus

    forms: set[str] = set()
    for secret in secrets:
        if secret and len(secret) >= _LEAST_SECRET:
            forms |= {secret, dumps(secret)[1:-1], quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1]}
    for form in sorted(forms, key=len, reverse=True):  # a longer secret first, so that no rest of it is left
        text = text.replace(form, HIDDEN)
    return text


def redact_all(value: Any, secrets: Iterable[str | None]) -> Any:
    """`redact` on every text in a structure of dicts and lists, keys included."""
    known = list(secrets)
    if isinstance(value, dict):
        return {redact(key, known) if isinstance(key, str) else key: redact_all(one, known) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_all(one, known) for one in value]
    return redact(value, known) if isinstance(value, str) else value

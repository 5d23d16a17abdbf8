"""Small things about processes: titles, dying with the parent, writing a log line at once."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import time

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def log(text: str, tag: str = "") -> None:
    """Write one line as SGLang's logger does: `[2026-12-01 03:23:59 TP0] text`, through the record factory of logging."""
    record = logging.getLogRecordFactory()("sglang", logging.INFO, __file__, 0, text, (), None)
    put(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}{f' {tag}' if tag else ''}] {record.getMessage()}")


def put(text: str) -> None:
    data = f"{text}\n".encode(errors="replace")
    with contextlib.suppress(OSError):  # a closed log must not end the engine
        while data:
            data = data[os.write(2, data) :]


def _prctl(option: int, value: int | bytes) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """SIGKILL this process when its parent goes, as SGLang's children ask for."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Take the promise of die_with_parent back, and leave the parent's session and its signals."""
    _prctl(_PR_SET_PDEATHSIG, 0)
    with contextlib.suppress(OSError):
        os.setsid()
    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)


def set_title(title: str) -> None:
    """Name the process in `comm` (15 characters) and, where the kernel shows where it lies, in its command line."""
    _prctl(_PR_SET_NAME, title.encode()[:15])
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end
        size = end - start
        if 0 < size < 1 << 20 and start > 4096:
            ctypes.memmove(start, title.encode()[: size - 1].ljust(size, b"\0"), size)
    except (OSError, IndexError, ValueError):
        return

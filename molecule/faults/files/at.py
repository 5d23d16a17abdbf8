"""Do something at the moment when the run of sglang_service on this host enters a phase.

    at.py PHASE say                 print a word and end, for who waits at the other end
    at.py PHASE kill                SIGKILL the process that holds the unit's lock: the module itself
    at.py PHASE cut SECONDS         end every SSH session and refuse new ones for so long
A progress file of an earlier run does not count.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STATE = Path("/var/lib/ddtree-ops")
PROGRESS, LOCK = STATE / "ddtree.progress", STATE / "ddtree.lock"


def reached(phase: str, began: float) -> bool:
    try:
        if PROGRESS.stat().st_mtime < began:
            return False
        events = [json.loads(line) for line in PROGRESS.read_text().splitlines()]
    except (OSError, ValueError):
        return False
    return any(event.get("phase") == phase and event.get("begin") for event in events)


def main() -> None:
    phase, what = sys.argv[1:3]
    began = time.time()
    print("watching", flush=True)
    while not reached(phase, began):
        time.sleep(0.002)
    if what == "say":
        print("reached", flush=True)
    elif what == "kill":
        os.kill(json.loads(LOCK.read_text())["pid"], signal.SIGKILL)
    else:
        subprocess.run(["systemctl", "stop", "ssh"], check=True)
        subprocess.run(["pkill", "-KILL", "sshd"], check=False)
        time.sleep(float(sys.argv[3]))
        subprocess.run(["systemctl", "start", "ssh"], check=True)


if __name__ == "__main__":
    main()

"""Restart a unit as scripts do and poll one path until it answers 200; print what was true at that moment.

poll.py UNIT PORT PATH block|no-block
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def show(unit: str) -> dict[str, str]:
    command = ["systemctl", "show", unit, "--property", "ActiveState,InvocationID,MainPID"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(line.split("=", 1) for line in text.splitlines())


def status(url: str, body: dict[str, Any] | None = None) -> int:
    """HTTP status, 0 where nobody answers within 2 s."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with _OPENER.open(request, timeout=2) as answer:
            answer.read()
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def main() -> None:
    unit, port, path, mode = sys.argv[1:]
    base = f"http://127.0.0.1:{port}"
    # The start limit is not what is shown here.
    subprocess.run(["systemctl", "reset-failed", unit], check=True)
    before = show(unit)
    began = time.monotonic()
    subprocess.run(["systemctl", "restart", *(["--no-block"] if mode == "no-block" else []), unit], check=True)
    while (found := status(base + path)) != 200 and time.monotonic() < began + 120:
        time.sleep(0.2)
    seconds = time.monotonic() - began
    generate = status(base + "/generate", {"text": "One", "sampling_params": {"temperature": 0, "max_new_tokens": 8}})
    after = show(unit)
    print(
        json.dumps(
            {
                "seconds": round(seconds, 2),
                "models_status": found,
                "generate_status": generate,
                "same_instance": before["InvocationID"] == after["InvocationID"],
                "before": before,
                "after": after,
            }
        )
    )


if __name__ == "__main__":
    main()

"""The truth server as a process of its own, and what its plans make true."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


class Truth:
    """Use as a context manager; `plan` sets the schedule of all answers from then on."""

    def __enter__(self) -> Truth:
        here = Path(__file__).resolve().parent
        self._process = subprocess.Popen(
            [sys.executable, str(here / "truth_server.py"), str(ROOT / "tests" / "fixtures" / "recordings")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.terminate()
        self._process.wait(10)

    @property
    def pid(self) -> int:
        return self._process.pid

    def plan(self, ttft: float, pace: float, sizes: list[int], tokens: int) -> None:
        self._call({"ttft": ttft, "pace": pace, "sizes": sizes, "tokens": tokens})

    def account(self) -> dict[str, Any]:
        """Since the plan was set."""
        return self._call(None)

    def _call(self, body: Any) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{self.url}/plan", data, timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

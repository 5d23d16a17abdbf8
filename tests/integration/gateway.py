"""A real sglang-router, and clients that never stop asking through it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

from simhost import free_port

_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
ASKED = {"text": "Tell me about trees.", "sampling_params": {"temperature": 0, "max_new_tokens": 100, "ignore_eos": True}}


class Gateway:
    """A router process without workers, at `address`; with `bind` 0.0.0.0 and an address of this machine, other hosts reach it too."""

    def __init__(self, folder: Path, *words: str, address: str = "127.0.0.1", bind: str = "127.0.0.1") -> None:
        self.port = free_port()
        self.url = f"http://{address}:{self.port}"
        with (folder / "router.log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sglang_router.launch_router", "--host", bind, "--port", str(self.port),
                 "--prometheus-port", str(free_port()), "--worker-startup-check-interval", "1", *words], stdout=log, stderr=log,
            )  # fmt: skip
        end = time.monotonic() + 30
        while self.call("/liveness") != 200:
            assert time.monotonic() < end and self.process.poll() is None, (folder / "router.log").read_text()[-2000:]
            time.sleep(0.1)

    def call(self, path: str, body: Any = None) -> int:
        """The status, or 0 when nobody answers."""
        asked = urllib.request.Request(self.url + path, json.dumps(body).encode() if body else None, {"Content-Type": "application/json"})
        try:
            with _opener.open(asked, timeout=60) as answer:
                answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)


class Clients:
    """Four clients that never stop asking; `seen` holds each status."""

    def __init__(self, gateway: Gateway, asked: Any = ASKED) -> None:
        self.seen: list[int] = []
        self._gateway, self._asked, self._over = gateway, asked, threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(4)]

    def _ask(self) -> None:
        while not self._over.is_set():
            self.seen.append(self._gateway.call("/generate", self._asked))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

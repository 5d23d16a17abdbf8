"""The engine over HTTP and its listening port: one proving generation, server_info, requests in flight."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .gpus import Holder, process
from .ports import Generation

PROMPT = "Count from one to one hundred in words, separated by commas."
_LISTEN = "0A"


class Sglang:
    """A server at `host:port`; `api_key` goes with every request, `admin_api_key` where only that one is accepted."""

    def __init__(self, host: str, port: int, api_key: str = "", admin_api_key: str = "", tokens: int = 32, timeout: float = 120.0) -> None:
        self.port = port
        self.url = f"http://{probe_address(host)}:{port}"
        self._key = api_key or admin_api_key
        self._tokens, self._timeout = tokens, timeout

    def listener(self) -> Holder | None:
        """The process that listens on the port, or None while nobody does."""
        inodes = _listening_inodes(self.port)
        return _owner(inodes) if inodes else None

    def ask(self) -> Ask:
        return Ask(self)

    def info(self) -> Mapping[str, Any]:
        """server_info with its secrets taken out; empty when the server does not answer it."""
        for path in ("/server_info", "/get_server_info"):
            try:
                answer = self._session().get(self.url + path, timeout=(2, 30))
                if answer.status_code == 200:
                    return without_secrets(answer.json())
            except (OSError, ValueError):
                continue
        return {}

    def running_requests(self) -> int | None:
        """Requests running and waiting, over all ranks; None when the server does not tell."""
        try:
            answer = self._session().get(f"{self.url}/v1/loads", timeout=(2, 5))
            loads = answer.json()["loads"]
            return sum(int(one.get("num_running_reqs", 0)) + int(one.get("num_waiting_reqs", 0)) for one in loads)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def generate(self) -> Generation:
        """One greedy generation of the wanted number of tokens; never raises."""
        body = {"text": PROMPT, "sampling_params": {"temperature": 0, "max_new_tokens": self._tokens, "ignore_eos": True}}
        began = time.monotonic()
        try:
            answer = self._session().post(f"{self.url}/generate", json=body, timeout=(2, self._timeout))
        except OSError as error:
            return Generation(error=f"no answer: {type(error).__name__}", retry=True, seconds=time.monotonic() - began)
        seconds = time.monotonic() - began
        if answer.status_code != 200:
            said = " ".join(answer.text.split())[:200]
            return Generation(
                status=answer.status_code, seconds=seconds, retry=answer.status_code >= 500, error=f"HTTP {answer.status_code} {said}"
            )
        try:
            meta = answer.json()["meta_info"]
            return Generation(
                tokens=int(meta["completion_tokens"]),
                weight_version=meta.get("weight_version"),
                verify_steps=meta.get("spec_verify_ct"),
                status=200,
                seconds=seconds,
            )
        except (ValueError, KeyError, TypeError):
            return Generation(status=200, seconds=seconds, error="the answer is no SGLang generation (another server on this port?)")

    def _session(self) -> Any:
        import requests

        session = requests.Session()
        session.trust_env = False  # a proxy variable must never answer for the engine
        if self._key:
            session.headers["Authorization"] = f"Bearer {self._key}"
        return session


class Ask:
    """A generation in flight in its own thread, so that a dead unit is noticed while the request hangs."""

    def __init__(self, server: Sglang) -> None:
        self._answer: Generation | None = None
        self._thread = threading.Thread(target=self._run, args=(server,), daemon=True)
        self._thread.start()

    def result(self) -> Generation | None:
        return self._answer

    def _run(self, server: Sglang) -> None:
        self._answer = server.generate()


def probe_address(host: str) -> str:
    """Where to knock for a server bound to `host`: a wildcard is no destination."""
    address = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}.get(host, host)
    return f"[{address}]" if ":" in address else address


def without_secrets(value: Any) -> Any:
    """server_info carries keys in clear at several places; take each out by value and by name."""
    secrets = {value.get(name) for name in ("api_key", "admin_api_key")} - {None, ""} if isinstance(value, dict) else set()

    def clean(part: Any) -> Any:
        if isinstance(part, dict):
            return {k: ("***" if k.endswith("api_key") and v else clean(v)) for k, v in part.items()}
        if isinstance(part, list):
            return [clean(one) for one in part]
        if isinstance(part, str):
            for secret in secrets:
                part = part.replace(str(secret), "***")
        return part

    return clean(value)


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if columns[3] == _LISTEN and int(columns[1].rpartition(":")[2], 16) == port:
                inodes.add(columns[9])
    return inodes


def _owner(inodes: set[str]) -> Holder | None:
    sockets = {f"socket:[{inode}]" for inode in inodes}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        if sockets & _links(entry / "fd"):
            return process(int(entry.name))
    return Holder(0, visible=False)


def _links(folder: Path) -> set[str]:
    links = set()
    try:
        for one in folder.iterdir():
            with contextlib.suppress(OSError):  # closed while we looked
                links.add(os.readlink(one))
    except OSError:
        pass  # gone, or another user's
    return links

"""A worker's place in the SGLang router (gateway API: GET, POST and DELETE /workers, of sglang-router 0.3)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from .server import probe_address

POLL = 0.1  # seconds


class RouterError(Exception):
    """The router does not do what it was asked; the message says which router and what it answered."""


class Router:
    """The router at `url`, and the worker in it that it reaches as `worker`.

    `api_key` is the control plane's; `worker_api_key` goes with the worker, for workers added later do not inherit the router's own.
    """

    def __init__(self, url: str, worker: str, api_key: str = "", worker_api_key: str = "", timeout: float = 30.0) -> None:
        self.url, self.worker = url.rstrip("/"), worker.rstrip("/")
        self._key, self._worker_key, self._timeout = api_key, worker_api_key, timeout

    def serves(self) -> bool:
        """Whether the router sends requests to the worker now."""
        return any(one.get("is_healthy") for one in self._found())

    def serving(self) -> list[str]:
        """The workers that the router sends requests to now."""
        return sorted({str(one.get("url", "")).rstrip("/") for one in self._workers() if one.get("is_healthy")})

    def withdraw(self) -> bool:
        """Take the worker out and wait until it is; what the router has sent it already goes on. False if it was not in."""
        found = self._found()
        for one in found:
            self._ask("DELETE", f"/workers/{one['id']}", missing_ok=True)
        self._until(lambda: not self._found(), "did not take the worker out")
        return bool(found)

    def enrol(self) -> bool:
        """Bring the worker in and wait until the router sends it requests. False if it did so already."""
        if self.serves():
            return False
        self.withdraw()  # one that the router holds for dead would wait for its next health check
        self._ask("POST", "/workers", {"url": self.worker, **({"api_key": self._worker_key} if self._worker_key else {})})
        self._until(self.serves, "did not take the worker in")
        return True

    def _found(self) -> list[dict[str, Any]]:
        return [one for one in self._workers() if str(one.get("url", "")).rstrip("/") == self.worker]

    def _workers(self) -> list[dict[str, Any]]:
        workers = self._ask("GET", "/workers").get("workers")
        if not isinstance(workers, list):
            raise RouterError(f"{self.url}/workers is no list of workers: is it an SGLang router?")
        return workers

    def _until(self, done: Any, failed: str) -> None:
        deadline = time.monotonic() + self._timeout
        while not done():
            if time.monotonic() > deadline:
                raise RouterError(f"the router at {self.url} {failed} {self.worker} within {self._timeout:.0f} s")
            time.sleep(POLL)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None, missing_ok: bool = False) -> dict[str, Any]:
        import requests

        session = requests.Session()
        session.trust_env = False  # a proxy variable must never answer for the router
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            answer = session.request(method, self.url + path, json=body, headers=headers, timeout=(2, 10))
        except OSError as error:
            raise RouterError(f"the router at {self.url} does not answer: {type(error).__name__}") from None
        if answer.status_code == 404 and missing_ok:
            return {}
        if not 200 <= answer.status_code < 300:
            said = " ".join(answer.text.split())[:200]
            raise RouterError(f"the router at {self.url} answered {method} /workers with {answer.status_code} {said}")
        try:
            found = answer.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise RouterError(f"{self.url}/workers is no list of workers: is it an SGLang router?")
        return found


def of_server(asked: Mapping[str, Any]) -> Router | None:
    """The router of a module's options router_url, router_api_key, router_worker, host, port and api_key, if there is one."""
    if not asked["router_url"]:
        return None
    worker = asked["router_worker"] or f"http://{probe_address(asked['host'])}:{asked['port']}"
    return Router(asked["router_url"], worker, asked["router_api_key"] or "", asked["api_key"] or "")

"""The module sglang_model against a hub of our own, with the real huggingface_hub: fetched, cut, gone on, proved, never replaced."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
HUB = "huggingface_hub==1.33.0"
COMMIT = "c" * 40
TOKEN = "hf_sentinel4711"
MODULE = f"""
import runpy, sys
import ansible.module_utils
ansible.module_utils.__path__.append({str(ROOT / "module_utils")!r})
sys.argv = ["sglang_model"]
runpy.run_path({str(ROOT / "library" / "sglang_model.py")!r}, run_name="__main__")
"""


def safetensors(length: int) -> bytes:
    header = json.dumps({"w": {"dtype": "U8", "shape": [length], "data_offsets": [0, length]}}).encode()
    return len(header).to_bytes(8, "little") + header + os.urandom(length)


class Hub:
    """One repository behind the hub's routes. `cut`: name to the bytes after which the connection breaks, once."""

    def __init__(self) -> None:
        self.files = {"config.json": b"{}", "model-1.safetensors": safetensors(3 << 20), "model-2.safetensors": safetensors(1000)}
        index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
        self.files["model.safetensors.index.json"] = json.dumps(index).encode()
        self.cut: dict[str, int] = {}
        self.gated, self.lies = False, False
        self.stall, self.stalled, self.over = "", threading.Event(), threading.Event()
        self.asked: list[tuple[str, str, str]] = []  # method, path, range
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None: ...
            def do_HEAD(self) -> None:
                hub.answer(self, body=False)

            def do_GET(self) -> None:
                hub.answer(self, body=True)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, request: BaseHTTPRequestHandler, body: bool) -> None:
        path = request.path.partition("?")[0]
        self.asked.append((request.command, path, request.headers.get("Range", "")))
        if self.gated and request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.say(request, 403, {"X-Error-Code": "GatedRepo"}, b"{}")
        if path.startswith(f"/api/models/org/model/tree/{COMMIT}"):
            return self.say(request, 200, {}, json.dumps([self.entry(name) for name in self.files]).encode())
        if path.startswith("/api/models/org/model"):
            told = {"id": "org/model", "modelId": "org/model", "sha": COMMIT, "siblings": [self.sibling(name) for name in self.files]}
            return self.say(request, 200, {}, json.dumps(told).encode())
        name = path.rpartition("/")[2]
        if f"/org/model/resolve/{COMMIT}/" not in path or name not in self.files:
            return self.say(request, 404, {"X-Error-Code": "RepoNotFound"}, b"{}")
        content = self.files[name]
        if body and name == self.stall:
            self.stalled.set()
            self.over.wait(30)
        first = int((request.headers.get("Range") or "bytes=0-")[6:].split("-")[0])
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{self.digest(name)}"', "Accept-Ranges": "bytes"}
        if first:
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
        return self.say(request, 206 if first else 200, headers, content[first:], body, self.cut.pop(name, None) if body else None)

    def say(
        self,
        request: BaseHTTPRequestHandler,
        status: int,
        headers: dict[str, str],
        content: bytes,
        body: bool = True,
        cut: int | None = None,
    ) -> None:
        request.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            request.send_header(key, value)
        request.end_headers()
        if body:
            request.wfile.write(content if cut is None else content[:cut])
        if cut is not None:
            request.close_connection = True

    def sibling(self, name: str) -> dict[str, Any]:
        size = len(self.files[name])
        told: dict[str, Any] = {"rfilename": name, "size": size, "blobId": self.git(name)}
        if name.endswith(".safetensors"):
            told["lfs"] = {"sha256": "0" * 64 if self.lies else self.digest(name), "size": size, "pointerSize": 100}
        return told

    def entry(self, name: str) -> dict[str, Any]:
        told = self.sibling(name)
        lfs = {"lfs": {**told["lfs"], "oid": told["lfs"]["sha256"]}} if "lfs" in told else {}
        return {"type": "file", "path": name, "size": told["size"], "oid": told["blobId"], **lfs}

    def digest(self, name: str) -> str:
        return hashlib.sha256(self.files[name]).hexdigest() if name.endswith(".safetensors") else self.git(name)

    def git(self, name: str) -> str:
        return hashlib.sha1(f"blob {len(self.files[name])}\0".encode() + self.files[name]).hexdigest()

    def fetched(self) -> list[str]:
        return sorted({path.rpartition("/")[2] for method, path, _ in self.asked if method == "GET" and "/resolve/" in path})


@pytest.fixture
def hub() -> Iterator[Hub]:
    one = Hub()
    yield one
    one.over.set()
    one.server.shutdown()
    one.server.server_close()


@pytest.fixture(scope="session")
def packages() -> Path:
    """The real huggingface_hub, beside the project's own environment, for only hosts need it."""
    folder = ROOT / ".cache" / HUB.replace("==", "-")
    if not (folder / "huggingface_hub").is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(folder), HUB]
        subprocess.run(command, check=True)
    return folder


class Fetch:
    def __init__(self, hub: Hub, packages: Path, path: Path) -> None:
        self.hub, self.packages, self.path = hub, packages, path

    def start(self, repo: str = "org/model", check: bool = False, **more: Any) -> subprocess.Popen[str]:
        args = {"path": str(self.path), "repo": repo, "_ansible_check_mode": check, "_ansible_diff": True, **more}
        environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        environment |= {"HF_ENDPOINT": self.hub.url, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(self.path.parent / "hf"),
                        "PYTHONPATH": str(self.packages), "HF_HUB_DOWNLOAD_TIMEOUT": "40"}  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-c", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )
        assert process.stdin
        process.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": args}))
        process.stdin.close()
        process.stdin = None
        return process

    def __call__(self, repo: str = "org/model", check: bool = False, **more: Any) -> dict[str, Any]:
        out, err = self.start(repo, check, **more).communicate(timeout=120)
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        assert TOKEN not in out + err
        return found

    def holds(self) -> bool:
        return all((self.path / name).read_bytes() == content for name, content in self.hub.files.items())


@pytest.fixture
def fetch(hub: Hub, packages: Path, tmp_path: Path) -> Fetch:
    return Fetch(hub, packages, tmp_path / "models" / "one")


def test_a_model_comes_once(fetch: Fetch, hub: Hub) -> None:
    planned = fetch(check=True)
    assert planned["changed"] and len(planned["fetched"]) == 4 and not fetch.path.exists()
    first = fetch()
    assert first["changed"] and first["commit"] == COMMIT and len(first["fetched"]) == 4 and fetch.holds()
    assert first["fetched_bytes"] == sum(len(content) for content in hub.files.values())
    hub.asked.clear()
    again = fetch()
    assert (again["changed"], again["commit"], hub.asked) == (False, COMMIT, []), "a whole folder needs no network"
    assert fetch(repo="")["changed"] is False


def test_a_connection_that_breaks_goes_on_from_its_middle(fetch: Fetch, hub: Hub) -> None:
    hub.files["model-1.safetensors"] = safetensors(24 << 20)  # the package reads 10 MiB at a time
    hub.cut = {"model-1.safetensors": 21 << 20}
    assert fetch()["changed"] and fetch.holds()
    assert [asked for _, path, asked in hub.asked if path.endswith("model-1.safetensors") and asked] == [f"bytes={20 << 20}-"]


def test_a_run_that_was_killed_goes_on_where_it_stopped(fetch: Fetch, hub: Hub) -> None:
    hub.stall = "model-2.safetensors"
    process = fetch.start(workers=1)
    hub.stalled.wait(30)
    process.kill()
    process.communicate()
    hub.stall = ""
    before = hub.fetched()
    assert "model-1.safetensors" in before and not (fetch.path / ".ddtree-model.json").exists()
    hub.asked.clear()
    assert "model-2.safetensors" in fetch()["fetched"] and fetch.holds()
    assert "model-1.safetensors" not in hub.fetched()


def test_what_is_there_whole_is_not_fetched_and_what_went_comes_back(fetch: Fetch, hub: Hub) -> None:
    fetch.path.mkdir(parents=True)
    (fetch.path / "model-1.safetensors").write_bytes(hub.files["model-1.safetensors"])
    (fetch.path / "own-notes.txt").write_text("mine")
    assert fetch()["fetched"] == ["config.json", "model-2.safetensors", "model.safetensors.index.json"]
    assert "model-1.safetensors" not in hub.fetched()
    (fetch.path / "model-2.safetensors").unlink()
    assert fetch(repo="")["msg"].endswith("is not whole: 1 files are missing, model-2.safetensors first.")
    assert fetch()["fetched"] == ["model-2.safetensors"] and fetch.holds()
    assert (fetch.path / "own-notes.txt").read_text() == "mine"


def test_a_file_of_other_content_is_not_replaced(fetch: Fetch, hub: Hub) -> None:
    fetch.path.mkdir(parents=True)
    (fetch.path / "config.json").write_text('{"mine": true}')
    found = fetch()
    assert "has 1 files of other content, config.json first; none is replaced: move them away" in found["msg"]
    assert (fetch.path / "config.json").read_text() == '{"mine": true}' and hub.fetched() == []


def test_another_commit_or_model_goes_to_another_folder(fetch: Fetch) -> None:
    fetch()
    assert "it holds commit cccccccccccc, dddddddddddd is asked" in fetch(revision="d" * 40)["msg"]
    assert "it holds org/model, org/other is asked" in fetch(repo="org/other")["msg"]


def test_a_file_with_another_digest_than_stated_is_no_success(fetch: Fetch, hub: Hub) -> None:
    hub.lies = True
    found = fetch()
    assert found["failed"] and "came with another digest than the hub states" in found["msg"]
    assert not (fetch.path / ".ddtree-model.json").exists()


def test_patterns_leave_files_out(fetch: Fetch, hub: Hub) -> None:
    hub.files["figure.png"] = b"\0" * 100
    assert "figure.png" not in fetch(allow=["*.json", "*.safetensors"])["fetched"]
    assert not (fetch.path / "figure.png").exists()


def test_patterns_that_leave_weights_out_are_no_model(fetch: Fetch) -> None:
    assert "its index names 2 files that are not there" in fetch(allow=["*.json"])["msg"]


def test_a_gated_model_wants_a_token(fetch: Fetch, hub: Hub) -> None:
    hub.gated = True
    assert "it is gated: accept its terms on the hub and give a token in sglang_models_token" in fetch()["msg"]
    assert fetch(token=TOKEN)["changed"] and fetch.holds()


def test_a_hub_that_is_away_is_one_sentence(fetch: Fetch, hub: Hub) -> None:
    hub.server.shutdown()
    hub.server.server_close()
    found = fetch()
    assert found["msg"].startswith("the hub does not list org/model at main:") and "\n" not in found["msg"]

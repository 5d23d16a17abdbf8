"""The server port over what a real SGLang 0.5.17 answered, and over what else may stand on its port."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ddtree.server import Sglang, probe_address, without_secrets

RECORDED = Path(__file__).resolve().parents[1] / "fixtures" / "recordings"
HTTP = json.loads((RECORDED / "http.json").read_text())
INFO = json.loads((RECORDED / "server_info.json").read_text())
LOADS = {"loads": [{**dict.fromkeys(HTTP["load_keys"], 0), "num_running_reqs": 3, "num_waiting_reqs": 2}] * 2}


class Replay:
    """An HTTP server whose answers are set by path: (status, JSON or text)."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[tuple[str, Any, str]] = []
        replay = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer()

            def do_POST(self) -> None:
                self.answer()

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                replay.asked.append((self.path, body, self.headers.get("Authorization", "")))
                status, said = replay.answers.get(self.path, (404, HTTP["not_found"]))
                text = (said if isinstance(said, str) else json.dumps(said)).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def replay() -> Iterator[Replay]:
    one = Replay()
    yield one
    one.server.shutdown()
    one.server.server_close()


def test_the_recorded_generation(replay: Replay) -> None:
    replay.answers["/generate"] = (200, HTTP["generate"])
    answer = Sglang("0.0.0.0", replay.port, api_key="sk-1", tokens=24).generate()
    meta = HTTP["generate"]["meta_info"]
    assert (answer.tokens, answer.weight_version, answer.verify_steps) == (24, "cfg-abc123", meta["spec_verify_ct"])
    assert answer.status == 200 and not answer.error
    _, body, key = replay.asked[0]
    assert body["sampling_params"] == {"temperature": 0, "max_new_tokens": 24, "ignore_eos": True} and key == "Bearer sk-1"


@pytest.mark.parametrize(
    ("status", "said", "retry"),
    [
        (400, HTTP["too_long"], False),
        (401, {"error": "Unauthorized"}, False),
        (503, "", True),
        (200, HTTP["models"], False),
        (200, "<html>nginx</html>", False),
    ],
)
def test_what_is_no_generation_is_an_error_and_only_what_may_pass_is_tried_again(
    replay: Replay, status: int, said: Any, retry: bool
) -> None:
    replay.answers["/generate"] = (status, said)
    answer = Sglang("127.0.0.1", replay.port).generate()
    assert answer.error and answer.retry == retry and answer.tokens == 0


def test_the_recorded_server_info_loses_nothing_but_its_keys(replay: Replay) -> None:
    keyed = {**INFO, "api_key": "sk-sentinel", "launch_command": "serve --api-key sk-sentinel", "inner": {"admin_api_key": "adm"}}
    replay.answers["/server_info"] = (200, keyed)
    info = Sglang("127.0.0.1", replay.port).info()
    assert "sk-sentinel" not in json.dumps(info) and info["inner"] == {"admin_api_key": "***"}
    assert {key: info[key] for key in INFO if key not in ("api_key", "admin_api_key")} == {
        key: INFO[key] for key in INFO if key not in ("api_key", "admin_api_key")
    }
    assert info["speculative_draft_window_size"] == 2048 and info["max_total_num_tokens"] == 986185


def test_older_builds_answer_server_info_under_its_old_path(replay: Replay) -> None:
    replay.answers["/get_server_info"] = (200, INFO)
    assert Sglang("127.0.0.1", replay.port).info()["weight_version"] == "cfg-abc123"


def test_requests_in_flight_are_summed_over_ranks(replay: Replay) -> None:
    replay.answers["/v1/loads"] = (200, LOADS)
    assert Sglang("127.0.0.1", replay.port).running_requests() == 10
    replay.answers["/v1/loads"] = (404, HTTP["not_found"])
    assert Sglang("127.0.0.1", replay.port).running_requests() is None


def test_the_listener_is_named_by_its_process(replay: Replay) -> None:
    listener = Sglang("127.0.0.1", replay.port).listener()
    assert listener is not None and listener.pid == os.getpid()


def test_a_closed_port_has_no_listener_and_no_answer(replay: Replay) -> None:
    replay.server.shutdown()
    replay.server.server_close()
    server = Sglang("127.0.0.1", replay.port)
    assert server.listener() is None and server.info() == {} and server.running_requests() is None
    assert server.generate().retry


@pytest.mark.parametrize(
    ("host", "address"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("localhost", "127.0.0.1"), ("10.0.0.5", "10.0.0.5")]
)
def test_where_to_knock(host: str, address: str) -> None:
    assert probe_address(host) == address


def test_a_key_is_taken_out_wherever_it_stands() -> None:
    said = without_secrets({"api_key": "k1", "list": ["a k1 b", {"x_api_key": "other"}], "admin_api_key": None})
    assert said == {"api_key": "***", "list": ["a *** b", {"x_api_key": "***"}], "admin_api_key": None}

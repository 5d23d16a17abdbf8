"""A small SGLang of known speed, over real HTTP, that can be told to misbehave."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web


def count(text: str) -> int:
    return len(re.findall(r" ?\w{1,4}|[^\w\s]|\s", text))


@dataclass
class Fake:
    """Each request waits `ttft` for one token, then gets `step` more every `pace` seconds. Use as a context manager."""

    ttft: float = 0.02
    pace: float = 0.01
    step: int = 4
    usage: str = "continuous"  # continuous, end or none
    reasoning: int = 0  # chunks that are reasoning
    stop_after: int | None = None  # tokens at which answers end by themselves
    hang_after: int | None = None  # requests from which on nothing comes
    fail_after: int | None = None  # requests from which on 500 is answered
    break_after: int | None = None  # tokens after which the connection is cut
    dies_after: int | None = None  # requests after which every connection is cut, in the middle of an answer
    log: Path | None = None  # where a dying server says why
    flush_busy: int = 0  # times that flushing is refused
    flush_status: int = 400
    tokenizer: bool = True
    template: int = 0  # tokens that every prompt gets on top
    cached: int = 0
    strangers: int = 0  # finished requests of others, in the counters
    running: int = 0  # what /v1/loads tells besides ours
    spec: bool = True
    limit: int = 64
    context: int = 16384
    key: str = ""
    answer: str = ""  # of requests that are not streamed
    finish: str = "stop"
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    peers: set[Any] = field(default_factory=set)  # connections that were made
    flushed: int = 0
    started: int = 0
    in_flight: int = 0
    most: int = 0
    dead: bool = False
    tokens: int = 0
    steps: int = 0
    finished: int = 0

    def __enter__(self) -> Fake:
        ready = threading.Event()
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(0.0005)  # client and server share one interpreter
        self._loop = asyncio.new_event_loop()

        def serve() -> None:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(self._start())
            ready.set()
            self._loop.run_forever()

        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        sys.setswitchinterval(self._interval)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _start(self) -> None:
        @web.middleware
        async def keyed(request: web.Request, handler: Any) -> web.StreamResponse:
            given = request.headers.get("Authorization", "")
            self.keys.add(given)
            self.peers.add(request.transport.get_extra_info("peername") if request.transport else None)
            if self.key and given != f"Bearer {self.key}":
                return web.json_response({"error": "Unauthorized"}, status=401)
            if self.dead and request.transport is not None:
                request.transport.abort()
            found: web.StreamResponse = await handler(request)
            return found

        app = web.Application(middlewares=[keyed], client_max_size=1 << 26)
        get, post = app.router.add_get, app.router.add_post
        get("/server_info", self._info)
        get("/v1/models", self._models)
        get("/v1/loads", self._loads)
        get("/metrics", self._metrics)
        post("/flush_cache", self._flush)
        post("/tokenize", self._tokenize)
        for path in ("/generate", "/v1/chat/completions", "/v1/completions"):
            post(path, self._generate)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "fake"}]})

    async def _loads(self, _: web.Request) -> web.Response:
        return web.json_response({"loads": [{"num_running_reqs": self.in_flight + self.running, "num_waiting_reqs": 0}]})

    async def _info(self, _: web.Request) -> web.Response:
        ranks = [{"effective_max_running_requests_per_dp": self.limit}]
        return web.json_response({"max_running_requests": self.limit, "context_length": self.context, "version": "fake",
                                  "served_model_name": "fake", "internal_states": ranks})  # fmt: skip

    async def _metrics(self, http: web.Request) -> web.Response:
        self.strangers *= 2
        lines = [f'sglang:generation_tokens_total{{is_streaming="true"}} {self.tokens}.0', f"sglang:spec_verify_calls_total {self.steps}.0",
                 f'sglang:num_requests_total{{model_name="fake"}} {self.finished + self.strangers}.0', "# HELP x y"]  # fmt: skip
        found = web.Response(text="\n".join(lines))
        if "gzip" in http.headers.get("Accept-Encoding", ""):  # as the real one does
            found.enable_compression(web.ContentCoding.gzip)
        return found

    async def _flush(self, _: web.Request) -> web.Response:
        if self.flush_busy > 0:
            self.flush_busy -= 1
            return web.Response(text="requests are running", status=self.flush_status)
        self.flushed += 1
        return web.Response(text="Cache flushed.")

    async def _tokenize(self, http: web.Request) -> web.Response:
        if not self.tokenizer:
            return web.json_response({"detail": "Not Found"}, status=404)
        return web.json_response({"count": count((await http.json())["prompt"])})

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        body = await http.json()
        self.bodies.append(body)
        native, chat = http.path == "/generate", "chat" in http.path
        prompt = body["text"] if native else body["messages"][-1]["content"] if chat else body["prompt"]
        wanted = body["sampling_params"]["max_new_tokens"] if native else body["max_tokens"]
        size = count(prompt) + self.template
        if not body["stream"]:
            if wanted > 1:
                await asyncio.sleep(self.ttft + self.pace * -(-(wanted - 1) // self.step))
                self.started, self.finished, self.tokens = self.started + 1, self.finished + 1, self.tokens + wanted
            return self._whole(native, chat, size, wanted)
        self.started += 1
        if self.fail_after is not None and self.started > self.fail_after:
            return web.json_response({"error": {"message": "out of order"}}, status=500)
        if self.dies_after is not None and self.started > self.dies_after:
            self.dead = True
            if self.log:
                self.log.write_text(self.log.read_text() + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            return await self._stream(http, body, size, wanted)
        finally:
            self.in_flight -= 1

    def _whole(self, native: bool, chat: bool, size: int, wanted: int) -> web.Response:
        if native:
            meta = {"prompt_tokens": size, "completion_tokens": wanted, "finish_reason": {"type": self.finish}}
            return web.json_response({"text": self.answer, "meta_info": meta})
        said = {"message": {"content": self.answer or None}} if chat else {"text": self.answer}
        usage = {"prompt_tokens": size, "completion_tokens": wanted}
        return web.json_response({"choices": [{**said, "finish_reason": self.finish}], "usage": usage})

    async def _stream(self, http: web.Request, body: dict[str, Any], size: int, wanted: int) -> web.StreamResponse:
        native, chat = http.path == "/generate", "chat" in http.path
        loop, response = asyncio.get_running_loop(), web.StreamResponse()
        await response.prepare(http)
        total = min(wanted, self.stop_after or wanted)
        reason = "length" if total == wanted else "stop"
        due, done, steps, chunk = loop.time() + self.ttft, 1, 0, 0
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            if self.hang_after is not None and self.started > self.hang_after:
                await asyncio.sleep(60)
            over, chunk = done >= total, chunk + 1
            event = self._native(size, done, steps, over, reason) if native else self._openai(chat, size, done, over, reason, chunk)
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            if self.dead or (self.break_after is not None and done >= self.break_after):
                assert http.transport is not None
                http.transport.abort()
                return response
            if over:
                break
            due, done, steps = due + self.pace, min(total, done + self.step), steps + 1
        self.tokens, self.steps, self.finished = self.tokens + total, self.steps + steps, self.finished + 1
        if not native and self.usage != "none":
            usage = {"prompt_tokens": size, "completion_tokens": total, "prompt_tokens_details": {"cached_tokens": self.cached}}
            last: dict[str, Any] = {"choices": [], "usage": usage}
            if self.spec and steps and body.get("return_spec_tokens_details"):
                last["sglext"] = {"spec_tokens_details": {"spec_verify_ct": steps}}
            await response.write(b"data: " + json.dumps(last).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    def _native(self, size: int, done: int, steps: int, over: bool, reason: str) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "completion_tokens": done, "prompt_tokens": size, "cached_tokens": self.cached, "finish_reason": None, "weight_version": "abc",
        }  # fmt: skip
        if over:
            meta["finish_reason"] = {"type": reason}
            if self.spec and steps:
                meta["spec_verify_ct"] = steps
        return {"text": "word" * done, "meta_info": meta}

    def _openai(self, chat: bool, size: int, done: int, over: bool, reason: str, chunk: int) -> dict[str, Any]:
        words = "word " * (1 if chunk == 1 else self.step)
        place = "reasoning_content" if chunk <= self.reasoning else "content"
        said = {"delta": {"content": None, place: words}} if chat else {"text": words}
        event: dict[str, Any] = {"choices": [{**said, "finish_reason": reason if over else None}]}
        if self.usage == "continuous":
            event["usage"] = {"prompt_tokens": size, "completion_tokens": done}
        return event

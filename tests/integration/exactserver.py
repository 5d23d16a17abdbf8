"""A server whose figures are known: every answer follows an exact schedule, and its events look as the real engine's recorded ones.

    exactserver.py      prints its port, serves until its stdin ends

A request gets its first token `ttft` seconds after it came, then `sizes[k % len]` tokens every `pace` seconds until `tokens` are there.
Answers shorter than that, which are warm-ups, begin up to `pace` later, so that streams do not run in step. POST /plan sets these, and
begins the account anew; GET /plan tells the account: requests, chunks, how late writes were, CPU seconds. Moments are absolute, so that
being late once never makes the next moment later. Each event is encoded once for all requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

RECORDINGS = Path(__file__).resolve().parents[1] / "fixtures" / "recordings"
CONTEXT, RUNNING = 1 << 20, 1 << 16
WORD = " tree"  # one token of the answer
EARLY = 0.0007  # seconds; the event loop wakes up at whole milliseconds after the moment asked for
now = time.perf_counter


def count(text: str) -> int:
    """Tokens of a text: four characters each."""
    return -(-len(text) // 4)


@dataclass
class Plan:
    ttft: float = 0.1
    pace: float = 0.05
    sizes: list[int] = field(default_factory=lambda: [4])
    tokens: int = 97

    def steps(self, wanted: int) -> list[int]:
        """Tokens so far after the prefill and after each step, for an answer of at most `wanted`."""
        total, found = min(self.tokens, wanted), [1]
        while found[-1] < total:
            found.append(min(total, found[-1] + self.sizes[(len(found) - 1) % len(self.sizes)]))
        return found


class Server:
    def __init__(self, recordings: Path) -> None:
        recorded = json.loads((recordings / "http.json").read_text())
        self._native = recorded["generate_stream"][1]
        chat = [one for one in recorded["chat_stream"] if isinstance(one, dict)]
        self._role, self._delta = chat[0], chat[1]
        self._last, self._usage = chat[-2], chat[-1]
        self._whole = recorded["generate"]
        self.plan = Plan()
        self._encoded: dict[tuple[str, int, int, bool], list[bytes]] = {}
        self._phase = random.Random(1)
        self.in_flight = 0
        self._begin()

    def _begin(self) -> None:
        self.requests = self.chunks = 0
        self.late: list[float] = []
        self._cpu = time.process_time()

    # -- events, in the shapes of the recordings ------------------------------------------------------------------------

    def _events(self, kind: str, prompt: int, wanted: int, continuous: bool) -> list[bytes]:
        """What is written at each step; the last entry also ends the answer."""
        key = (kind, prompt, wanted, continuous)
        if key not in self._encoded:
            steps = self.plan.steps(wanted)
            make = self._native_events if kind == "generate" else self._openai_events
            self._encoded[key] = [b"".join(_sse(one) for one in at) for at in make(kind, prompt, steps, continuous)]
        return self._encoded[key]

    def _native_events(self, _: str, prompt: int, steps: list[int], __: bool) -> list[list[Any]]:
        out: list[list[Any]] = []
        for done in steps:
            meta = {**self._native["meta_info"], "prompt_tokens": prompt, "completion_tokens": done}
            out.append([{"text": WORD * done, "output_ids": [7] * done, "meta_info": meta}])
        final = out[-1][0]["meta_info"]
        final["finish_reason"] = {"type": "length", "length": steps[-1]}
        if len(steps) > 1:
            final["spec_verify_ct"] = len(steps) - 1
        out[-1].append("[DONE]")
        return out

    def _openai_events(self, kind: str, prompt: int, steps: list[int], continuous: bool) -> list[list[Any]]:
        chat, out, before = kind == "chat", list[list[Any]](), 0

        def usage(done: int) -> dict[str, Any]:
            told = {**self._usage["usage"], "prompt_tokens": prompt, "completion_tokens": done, "total_tokens": prompt + done}
            return {"usage": told}

        for done in steps:
            words = WORD * (done - before)
            choice = {**self._delta["choices"][0]}
            if chat:
                choice["delta"] = {**choice["delta"], "content": words}
            else:
                choice = {key: value for key, value in choice.items() if key != "delta"} | {"text": words}
            piece = {**self._delta, "choices": [choice], **(usage(done) if continuous else {})}
            out.append([{**self._role, **(usage(done) if continuous else {})}, piece] if chat and not before else [piece])
            before = done
        end = {**self._last, **(usage(before) if continuous else {})}
        if not chat:
            end["choices"] = [{"index": 0, "text": "", "logprobs": None, "finish_reason": "length", "matched_stop": None}]
        spec = {"sglext": {"spec_tokens_details": {"spec_verify_ct": len(steps) - 1}}} if len(steps) > 1 else {}
        out[-1] += [end, {**self._usage, **usage(before), **spec}, "[DONE]"]
        return out

    # -- endpoints ------------------------------------------------------------------------------------------------------

    async def generate(self, http: web.Request) -> web.StreamResponse:
        came = now()
        body = await http.json()
        kind = {"/generate": "generate", "/v1/completions": "completions"}.get(http.path, "chat")
        if kind == "generate":
            given, wanted = body.get("text"), body.get("sampling_params", {}).get("max_new_tokens", 128)
            prompt = len(body["input_ids"]) if given is None else count(given)
        else:
            given = body["prompt"] if kind == "completions" else "".join(_text(one["content"]) for one in body["messages"])
            prompt = len(given) if isinstance(given, list) else count(given)
            wanted = body.get("max_completion_tokens") or body.get("max_tokens") or 128
        self.in_flight += 1
        try:
            if not body.get("stream"):
                return await self._at_once(kind, prompt, int(wanted), came)
            continuous = bool((body.get("stream_options") or {}).get("continuous_usage_stats"))
            return await self._stream(http, self._events(kind, prompt, int(wanted), continuous), came)
        finally:
            self.in_flight -= 1
            self.requests += 1

    async def _stream(self, http: web.Request, events: list[bytes], came: float) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        due, pace, late = came + self.plan.ttft, self.plan.pace, self.late
        if len(events) < len(self.plan.steps(self.plan.tokens)):
            due += self._phase.random() * pace
        with contextlib.suppress(ConnectionError):  # a client may cut what it has seen enough of
            for event in events:
                await asyncio.sleep(due - now() - EARLY)
                late.append(now() - due)
                await response.write(event)
                self.chunks += 1
                due += pace
        return response

    async def _at_once(self, kind: str, prompt: int, wanted: int, came: float) -> web.Response:
        steps = self.plan.steps(wanted)
        if wanted > 1:
            await asyncio.sleep(came + self.plan.ttft + self.plan.pace * (len(steps) - 1) - now())
        if kind == "generate":
            meta = {**self._whole["meta_info"], "prompt_tokens": prompt, "completion_tokens": steps[-1]}
            return web.json_response({**self._whole, "text": WORD * steps[-1], "meta_info": meta})
        usage = {"prompt_tokens": prompt, "completion_tokens": steps[-1], "total_tokens": prompt + steps[-1]}
        said: dict[str, Any] = {"text": WORD} if kind == "completions" else {"message": {"role": "assistant", "content": WORD * steps[-1]}}
        choice = {"index": 0, **said, "finish_reason": "length"}
        return web.json_response({"id": "1", "object": "chat.completion", "model": "x", "created": 1, "choices": [choice], "usage": usage})

    async def set_plan(self, http: web.Request) -> web.Response:
        self.plan = Plan(**await http.json())
        self._encoded.clear()
        self._begin()
        gc.collect()
        return web.json_response({})

    async def tell(self, _: web.Request) -> web.Response:
        late = sorted(self.late) or [0.0]
        return web.json_response({
            "requests": self.requests, "chunks": self.chunks, "in_flight": self.in_flight, "cpu_s": time.process_time() - self._cpu,
            "late_ms": {f"p{level}": late[min(len(late) - 1, len(late) * level // 100)] * 1000 for level in (50, 99)},
        })  # fmt: skip

    def app(self) -> web.Application:
        info = {"version": "truth", "served_model_name": "x", "max_running_requests": RUNNING, "context_length": CONTEXT}
        models = {"object": "list", "data": [{"id": "x", "object": "model", "created": 1, "owned_by": "sglang", "root": "x"}]}
        app = web.Application(client_max_size=1 << 28)
        for path, value in {
            "/v1/models": models, "/model_info": {"model_path": "x"}, "/get_model_info": {"model_path": "x"}, "/server_info": info,
            "/get_server_info": info, "/health": {},
        }.items():  # fmt: skip
            app.router.add_get(path, _constant(value))
        app.router.add_get("/v1/loads", self.loads)
        app.router.add_get("/metrics", _constant(""))
        app.router.add_get("/plan", self.tell)
        app.router.add_post("/plan", self.set_plan)
        app.router.add_post("/flush_cache", self.flush)
        app.router.add_post("/tokenize", self.tokenize)
        for path in ("/generate", "/v1/chat/completions", "/v1/completions"):
            app.router.add_post(path, self.generate)
        return app

    async def flush(self, _: web.Request) -> web.Response:
        return web.Response(text="flushed" if not self.in_flight else "requests are running", status=400 if self.in_flight else 200)

    async def loads(self, _: web.Request) -> web.Response:
        return web.json_response({"loads": [{"num_running_reqs": self.in_flight, "num_waiting_reqs": 0}]})

    async def tokenize(self, http: web.Request) -> web.Response:
        return web.json_response({"count": count((await http.json())["prompt"])})


def _constant(value: Any) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=value) if isinstance(value, str) else web.json_response(value)

    return answer


def _sse(event: Any) -> bytes:
    text = event if isinstance(event, str) else json.dumps(event, separators=(",", ":"))
    return f"data: {text}\n\n".encode()


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(one.get("text", "") for one in content or [])


class Truth:
    """The server as a process of its own. Use as a context manager; `plan` sets the schedule of all answers from then on."""

    def __enter__(self) -> Truth:
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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


async def main() -> None:
    runner = web.AppRunner(Server(RECORDINGS).app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    print(runner.addresses[0][1], flush=True)
    gc.freeze()
    gc.disable()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())

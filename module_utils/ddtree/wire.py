"""The engine's HTTP as the load path speaks it: request bodies, event streams, counters. One aiohttp session for all of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from yarl import URL

from .logs import redact

PATHS = {"generate": "/generate", "chat": "/v1/chat/completions", "completions": "/v1/completions"}
READ_BUFFER = 1 << 22  # a native event carries the whole answer so far
# In JSON a quote inside a text is escaped, so these bytes are always the keys themselves, whatever the answer says.
_COUNT = re.compile(rb'"completion_tokens": ?(\d+)')
_UNFINISHED = re.compile(rb'"finish_reason": ?null')
NAME = re.compile(r"^(?:sglang[:_])?(\w+)(?:\{[^}]*\})? +([0-9.eE+-]+)")
END_WAIT = 1.0  # seconds
OVERLOAD = "overload"  # the kind of failure of an arrival that found too many requests in flight
clock = time.perf_counter


class ServerError(RuntimeError):
    """The server does not do what a measurement needs; the message is one sentence without secrets."""


@dataclass
class Record:
    """One request as the client saw it. Times are of `clock`, in seconds.

    `events`: (time, tokens so far) of each piece, by the engine's own count; `error` names the kind of failure, `cut` that the
    client ended the stream itself. `sent` is when its body left, in an open loop when it was due.
    """

    phase: str  # warmup, measured or filler
    wanted: int
    index: int = -1  # which prompt, counted from 0 without the warm-up
    sent: float = 0.0
    ended: float = 0.0
    events: list[tuple[float, int]] = field(default_factory=list)
    first_answer: float | None = None  # the first token that is no reasoning
    tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None  # None where the server does not tell
    verify_steps: int | None = None
    histogram: list[int] = field(default_factory=list)
    finish: str | None = None
    weight_version: str | None = None
    error: str | None = None
    detail: str = ""
    cut: bool = False
    streamed: bool = True
    spread: bool = False  # token counts came only at the end and were spread over the pieces by their length

    @property
    def ok(self) -> bool:
        return self.error is None and not self.cut and self.finish is not None


class Client:
    """Talks to one server. Use as an async context manager."""

    def __init__(self, url: str, api: str = "generate", api_key: str = "", admin_api_key: str = "", model: str = "",
                 idle_timeout: float = 120.0, thinking: bool = False) -> None:  # fmt: skip
        if api not in PATHS:
            raise ServerError(f"{api} is no API of the engine, choose one of {', '.join(PATHS)}")
        self.url, self.api, self.model, self.thinking = url.rstrip("/"), api, model, thinking
        self.secrets = [one for one in (api_key, admin_api_key) if one]
        self._key, self._admin = api_key, admin_api_key
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=idle_timeout)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Client:
        # No limit of connections; idle ones are closed before the server does it, which would look like a failed request.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0)
        # /metrics is compressed for whoever does not refuse it, and nothing is unpacked here: that would cost time within a stream.
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        self._session = aiohttp.ClientSession(
            connector=connector, headers=headers, timeout=self._timeout, read_bufsize=READ_BUFFER, trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False,
        )  # fmt: skip
        self._route = URL(self.url + PATHS[self.api])
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the client is used outside its context")
        return self._session

    # -- control -------------------------------------------------------------------------------------------------------

    async def call(self, method: str, path: str, body: Any = None, admin: bool = False, timeout: float = 60.0) -> tuple[int, str]:
        """(status, text). Raises ServerError when nobody answers."""
        headers = {"Authorization": f"Bearer {self._admin}"} if admin and self._admin else {}
        try:
            limit = aiohttp.ClientTimeout(total=timeout, sock_connect=10)
            async with self.session.request(method, self.url + path, json=body, headers=headers, timeout=limit) as answer:
                return answer.status, await answer.text(errors="replace")
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
            raise ServerError(f"{self.url} does not answer {path}: {self._words(error)}") from None

    async def info(self, timeout: float = 60.0) -> dict[str, Any]:
        """server_info. Raises ServerError when it cannot be had, with the reason that matters (no answer, key refused)."""
        status, text = 0, ""
        for path in ("/server_info", "/get_server_info"):
            status, text = await self.call("GET", path, timeout=timeout)
            if status == 200:
                try:
                    found = json.loads(text)
                except ValueError:
                    found = None
                if isinstance(found, dict):
                    return found
            if status in (401, 403):
                raise ServerError(f"{self.url} refuses the API key ({status} on {path})")
        raise ServerError(f"{self.url} has no server_info (status {status}): it is no SGLang server, or something answers in its place")

    async def name(self) -> str:
        """The first model that the server lists."""
        status, text = await self.call("GET", "/v1/models")
        try:
            return str(json.loads(text)["data"][0]["id"])
        except (ValueError, LookupError, TypeError):
            raise ServerError(f"{self.url} lists no model (status {status} on /v1/models): set the model's name") from None

    async def flush(self, timeout: float) -> str:
        """Empty the prefix cache once the server is idle; "" when done, else why not."""
        end = clock() + timeout
        while True:
            status, text = await self.call("POST", "/flush_cache", admin=True)
            if status == 200:
                return ""
            if status != 400 or clock() >= end:  # 400: requests are still running
                return f"/flush_cache gave {status} {redact(' '.join(text.split())[:120], self.secrets)}".rstrip()
            await asyncio.sleep(0.2)

    async def tokenize(self, text: str) -> int | None:
        """Tokens of a text by the engine's tokenizer; None when the server has no such endpoint."""
        status, answer = await self.call("POST", "/tokenize", {"model": self.model, "prompt": text})
        try:
            return int(json.loads(answer)["count"]) if status == 200 else None
        except (ValueError, LookupError, TypeError):
            return None

    async def in_flight(self) -> tuple[int, int] | None:
        """(running, waiting) requests over all ranks; None when the server does not tell."""
        try:
            status, text = await self.call("GET", "/v1/loads", timeout=5)
            loads = json.loads(text)["loads"]
            if status != 200:
                return None
            return sum(int(one["num_running_reqs"]) for one in loads), sum(int(one["num_waiting_reqs"]) for one in loads)
        except (ServerError, ValueError, LookupError, TypeError):
            return None

    async def counters(self) -> dict[str, float]:
        """Counters of /metrics by name, summed over their labels; empty when metrics are off."""
        try:
            status, text = await self.call("GET", "/metrics")
        except ServerError:
            return {}
        found: dict[str, float] = {}
        for line in text.splitlines() if status == 200 else ():
            match = NAME.match(line)
            if match and match.group(1).endswith("_total"):
                found[match.group(1)] = found.get(match.group(1), 0.0) + float(match.group(2))
        return found

    # -- generation ----------------------------------------------------------------------------------------------------

    def body(self, prompt: str, tokens: int, ignore_eos: bool, stream: bool = True) -> dict[str, Any]:
        """The request: greedy, at most `tokens` new tokens."""
        if self.api == "generate":
            sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": ignore_eos}
            return {"text": prompt, "sampling_params": sampling, "stream": stream}
        body: dict[str, Any] = {
            "model": self.model, "temperature": 0, "max_tokens": tokens, "ignore_eos": ignore_eos, "stream": stream,
            "return_spec_tokens_details": True,
        }  # fmt: skip
        if stream:
            body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        if self.api == "completions":
            return {**body, "prompt": prompt}
        # Templates know one of the two words, and ignore the other.
        kwargs = {"thinking": self.thinking, "enable_thinking": self.thinking}
        return {**body, "messages": [{"role": "user", "content": prompt}], "chat_template_kwargs": kwargs}

    async def run(self, record: Record, prompt: str, ignore_eos: bool, tally: list[int]) -> Record:
        """Run one request into `record`; never raises but when cancelled, which marks the record as cut. Never tries twice.

        `tally[0]` grows by each token as it comes.
        """
        reader = (_Native if self.api == "generate" else _OpenAI)(record, tally)
        body = _Body(json.dumps(self.body(prompt, record.wanted, ignore_eos, record.streamed)).encode(), record)
        try:
            async with self.session.post(self._route, data=body) as answer:
                if answer.status != 200:
                    record.detail = " ".join((await answer.text(errors="replace")).split())[:200]
                    record.error = f"http {answer.status}"
                elif record.streamed:
                    await self._stream(answer.content, reader)
                    reader.end()
                else:
                    reader.whole(await answer.read(), clock())
                    reader.end()
        except asyncio.CancelledError:
            record.cut = True
            raise
        except asyncio.TimeoutError as error:
            record.error, record.detail = "timeout", self._words(error)
        except aiohttp.ClientConnectorError as error:
            record.error, record.detail = "connect", self._words(error)
        except (aiohttp.ClientError, OSError) as error:
            record.error, record.detail = "disconnected", self._words(error)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            record.error, record.detail = "bad answer", self._words(error)
        finally:
            record.ended, record.sent = record.ended or clock(), abs(record.sent)
            record.detail = redact(record.detail, self.secrets)
        return record

    @staticmethod
    async def _stream(content: aiohttp.StreamReader, reader: _Reader) -> None:
        rest = b""
        async for piece in content.iter_any():
            now = clock()
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            for line in lines:
                if line.startswith(b"data:") and not reader.line(line[5:].strip(), now):
                    reader.record.ended = now
                    if not content.at_eof():  # the end of the body, without which the connection could not be used again
                        with contextlib.suppress(asyncio.TimeoutError):
                            await asyncio.wait_for(content.read(), END_WAIT)
                    return
        if rest.startswith(b"data:"):
            reader.line(rest[5:].strip(), clock())

    def _words(self, error: BaseException) -> str:
        return redact(f"{type(error).__name__}: {' '.join(str(error).split())[:160]}".rstrip(": "), self.secrets)


class _Body(aiohttp.BytesPayload):
    """A request's body; it notes when it really leaves, which is later than the call where many requests begin at once."""

    def __init__(self, value: bytes, record: Record) -> None:
        super().__init__(value, content_type="application/json")
        self._record = record
        record.sent = record.sent or -clock()  # not sent yet

    async def write(self, writer: Any) -> None:
        self._leave()
        await super().write(writer)

    async def write_with_length(self, writer: Any, content_length: int | None) -> None:
        self._leave()
        await super().write_with_length(writer, content_length)

    def _leave(self) -> None:
        if self._record.sent < 0:
            self._record.sent = clock()


class _Reader:
    """Feeds the events of a stream into a record. `line` returns False at the end mark."""

    def __init__(self, record: Record, tally: list[int]) -> None:
        self.record, self._tally = record, tally

    def line(self, data: bytes, now: float) -> bool:
        if self.quick():  # most events only tell a new count; parsing them whole would cost more than all the rest
            count = _COUNT.search(data)
            if count and _UNFINISHED.search(data):
                self.tokens(int(count.group(1)), now)
                return True
        if data == b"[DONE]":
            return False
        event = json.loads(data)
        if not isinstance(event, dict):
            raise ValueError("an event is no mapping")
        if event.get("error") or event.get("object") == "error":
            said = event["error"] if event.get("error") else event
            self.record.error, self.record.detail = "engine", str(said.get("message", said) if isinstance(said, Mapping) else said)[:200]
            return False
        self.event(event, now)
        return True

    def quick(self) -> bool:
        """Whether events that are not the last have nothing but their count to tell."""
        raise NotImplementedError

    def event(self, event: dict[str, Any], now: float) -> None:
        raise NotImplementedError

    def whole(self, data: bytes, now: float) -> None:
        """An answer that is not streamed."""
        event = json.loads(data)
        if not isinstance(event, dict):
            raise ValueError("the answer is no mapping")
        self.event(event, now)

    def tokens(self, count: int, now: float) -> None:
        last = self.record.events[-1][1] if self.record.events else 0
        if count > last:
            self.record.events.append((now, count))
            self._tally[0] += count - last

    def finish(self, reason: Any) -> None:
        if isinstance(reason, Mapping):
            self.record.detail = str(reason.get("message") or "")[:200]
            reason = reason.get("type")
        if reason:
            self.record.finish = str(reason)

    def spec(self, details: Mapping[str, Any]) -> None:
        steps, histogram = details.get("spec_verify_ct"), details.get("spec_correct_drafts_histogram")
        if isinstance(steps, int) and steps > 0:
            self.record.verify_steps = steps
        if isinstance(histogram, list):
            self.record.histogram = [int(one) for one in histogram]

    def end(self) -> None:
        record = self.record
        if record.error:
            return
        if record.finish == "abort":
            record.error = "engine"
        elif record.finish is None:
            record.error, record.detail = "incomplete", "the stream ended before the answer did"
        elif record.tokens is None or record.prompt_tokens is None:
            record.error, record.detail = "no usage", "the answer does not tell its number of tokens"
        elif record.tokens < 1 or not record.events:
            record.error, record.detail = "empty", "the answer has no token"


class _Native(_Reader):
    """/generate: each event carries the counts so far, the last one also the verify steps."""

    def quick(self) -> bool:
        return True

    def event(self, event: dict[str, Any], now: float) -> None:
        meta = event["meta_info"]
        record = self.record
        record.tokens = int(meta["completion_tokens"])
        self.tokens(record.tokens, now)
        if meta.get("finish_reason"):
            self.finish(meta["finish_reason"])
            self.spec(meta)
            record.prompt_tokens = int(meta["prompt_tokens"])
            record.cached_tokens = int(meta["cached_tokens"]) if meta.get("cached_tokens") is not None else None
            record.weight_version = meta.get("weight_version")


class _OpenAI(_Reader):
    """The OpenAI routes: counts in each event where the build has continuous usage, else one at the end."""

    def __init__(self, record: Record, tally: list[int]) -> None:
        super().__init__(record, tally)
        self._pieces: list[tuple[float, int]] = []  # time and characters
        self._continuous = False

    def quick(self) -> bool:
        return self._continuous and self.record.first_answer is not None

    def event(self, event: dict[str, Any], now: float) -> None:
        record = self.record
        for choice in event.get("choices") or []:
            delta = choice.get("delta") or choice.get("message") or {}
            answer = choice.get("text") or delta.get("content") or ""
            said = answer or delta.get("reasoning_content") or delta.get("reasoning") or ""
            if said:
                self._pieces.append((now, len(said)))
            if answer and record.first_answer is None:
                record.first_answer = now
            self.finish(choice.get("finish_reason"))
        usage = event.get("usage")
        if isinstance(usage, Mapping):
            if event.get("choices") and record.streamed:
                self._continuous = True
            record.tokens = int(usage["completion_tokens"])
            if record.tokens and (self._continuous or not record.streamed):
                self.tokens(record.tokens, now)
            record.prompt_tokens = int(usage["prompt_tokens"])
            details = usage.get("prompt_tokens_details")
            if isinstance(details, Mapping):
                record.cached_tokens = int(details.get("cached_tokens") or 0)
        self.spec((event.get("sglext") or {}).get("spec_tokens_details") or {})
        record.weight_version = (event.get("metadata") or {}).get("weight_version") or record.weight_version

    def end(self) -> None:
        if self.record.streamed and not self._continuous and self.record.tokens and self._pieces:
            self.record.spread = True
            characters, so_far = sum(size for _, size in self._pieces), 0
            for now, size in self._pieces:
                so_far += size
                self.tokens(max(1, round(self.record.tokens * so_far / characters)), now)
        super().end()

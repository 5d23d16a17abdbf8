"""The token clock: admits requests, waits out prefill and verify steps by absolute deadlines, and keeps the counters."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from . import speed, text
from .clock import now, until
from .faults import Faults
from .metrics import Metrics
from .plan import Carry, spread
from .tokenizer import EOS, token_id

NEW_RUN_AFTER = 0.25  # seconds of idleness after which the rounding of accept lengths starts afresh


@dataclass
class Request:
    """One generation. `wanted` is the limit of new tokens; the rest is filled in while it runs."""

    prompt: str
    prompt_ids: list[int]
    wanted: int
    ignore_eos: bool = False
    stop: list[str] = field(default_factory=list)
    stream: bool = False
    probe: bool = False  # the engine's own health check: no counters, no faults of answers
    warm_up: bool = False
    aborted: bool = False
    salt: int = 0
    rid: str = field(default_factory=lambda: uuid.uuid4().hex)
    received: float = field(default_factory=time.time)
    arrived: float = 0.0  # loop time at which its headers came; what parsing takes is part of the wait for the first token
    pieces: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    finish: dict[str, Any] = field(default_factory=dict)
    matched_text: str | None = None
    cached: int = 0
    prefix_key: int = 0
    done: int = 0  # tokens given so far
    verify_steps: int = 0
    histogram: list[int] = field(default_factory=list)
    began: float = 0.0  # wall clock: admitted
    first: float = 0.0
    ended: float = 0.0

    @property
    def context(self) -> int:
        return len(self.prompt_ids)

    @property
    def text(self) -> str:
        """The answer so far; what a stop word cut off is never shown."""
        found = "".join(self.pieces[: self.done])
        return found if self.matched_text is None else found[: len(self.matched_text)]

    @property
    def over(self) -> bool:
        return self.done >= len(self.pieces)


class PrefixCache:
    """Which prefixes of tokens have been seen, page size 1, least recently used out first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._seen: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def match(self, ids: list[int]) -> int:
        """Tokens of the longest known prefix; the last token is always computed."""
        found, key, seen = 0, 0, self._seen
        for one in ids[:-1]:
            key = hash((key, one))
            if key not in seen:
                break
            found += 1
        return found

    def insert(self, ids: list[int], after: int = 0) -> int:
        """Remember every prefix of `ids`, which follow the prefix with the key `after`; returns the key of the whole."""
        key, seen = after, self._seen
        for one in ids:
            key = hash((key, one))
            if key in seen:
                seen.move_to_end(key)
            else:
                seen[key] = None
        while len(seen) > self._capacity:
            seen.popitem(last=False)
        return key

    def clear(self) -> None:
        self._seen.clear()


class Engine:
    """`log` writes a line as the scheduler; `max_tokens` is the KV pool in tokens."""

    def __init__(self, config: speed.Config, faults: Faults, metrics: Metrics, log: Callable[[str], None], *, max_running: int,
                 max_tokens: int, log_interval: int = 40, radix: bool = True) -> None:  # fmt: skip
        self.config, self.faults, self.metrics, self._log = config, faults, metrics, log
        self.max_running, self.max_tokens, self._log_interval, self._radix = max_running, max_tokens, log_interval, radix
        self.running: dict[str, Request] = {}
        self.waiting: deque[tuple[Request, asyncio.Future[None]]] = deque()
        self.cache = PrefixCache(max_tokens)
        self.carry = Carry()
        self.serve_from = 0.0  # loop time before which no generation is served
        self.last_output = 0.0
        self.paused = False
        self._idle_since = 0.0
        self._phase = itertools.count(0, 5)
        self._errors = itertools.count(1)
        self._iterations = 0.0
        self._interval_steps = self._interval_tokens = 0
        self._interval_began = time.monotonic()
        self.gen_throughput = 0.0
        self.total_steps = self.total_tokens = 0
        self.accept_length: float | None = None  # of the last logged interval
        self.cumulative_accept_length: float | None = None
        self._verified_once = False

    # ---- what a request goes through -----------------------------------------------------------------------------

    async def run(self, request: Request) -> AsyncIterator[int]:
        """Yields the number of tokens given so far, after the prefill and after each verify step."""
        self._plan(request)
        await self._admit(request)
        try:
            async for done in self._tokens(request):
                yield done
            self._finished(request)
        finally:
            if not request.ended:
                self.metrics.aborted(request.probe)
            self.running.pop(request.rid, None)
            self._idle_since = now()
            self._wake()

    def fails(self) -> bool:
        """Whether the fault error_rate strikes this request."""
        rate = min(1.0, self.faults.seconds("error_rate"))
        if not rate:
            return False
        count = next(self._errors)
        return int(count * rate) > int((count - 1) * rate)

    def _plan(self, request: Request) -> None:
        mode = self.faults.get("coding", "right")
        pieces, ended = text.answer(request.prompt, request.wanted, request.ignore_eos, mode, request.salt)
        whole = "".join(pieces)
        cuts = [(whole.find(one), one) for one in request.stop if one and one in whole]
        if cuts:
            at, word = min(cuts)
            length, kept = 0, 0
            for kept, piece in enumerate(pieces, 1):  # noqa: B007  the stop word may end inside a piece
                length += len(piece)
                if length >= at + len(word):
                    break
            pieces, ended = pieces[:kept], True
            request.finish, request.matched_text = {"type": "stop", "matched": word}, whole[:at]
        elif ended:
            pieces = [*pieces, ""]
            request.finish = {"type": "stop", "matched": EOS}
        else:
            request.finish = {"type": "length", "length": len(pieces)}
        request.pieces = pieces
        request.ids = [token_id(piece) if piece else EOS for piece in pieces]

    async def _admit(self, request: Request) -> None:
        if not self.running and not self.waiting and now() - self._idle_since > NEW_RUN_AFTER:
            self.carry.owed = 0.0
        request.arrived = request.arrived or now()
        if self.waiting or not self._fits(request):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiting.append((request, turn))
            try:
                await turn
            except asyncio.CancelledError:
                self.waiting = deque(one for one in self.waiting if one[0] is not request)
                self.running.pop(request.rid, None)
                self._wake()
                raise
            request.arrived = now()
        else:
            self.running[request.rid] = request
        request.began = time.time()

    def _fits(self, request: Request) -> bool:
        if len(self.running) >= self.max_running:
            return False
        need = sum(one.context + len(one.pieces) for one in self.running.values()) + request.context + len(request.pieces)
        return need <= self.max_tokens or not self.running

    def _wake(self) -> None:
        while self.waiting and self._fits(self.waiting[0][0]):
            request, turn = self.waiting.popleft()
            if not turn.done():
                self.running[request.rid] = request
                turn.set_result(None)

    async def _tokens(self, request: Request) -> AsyncIterator[int]:
        began = request.arrived
        if self._radix:
            request.cached = self.cache.match(request.prompt_ids)
            request.prefix_key = self.cache.insert(request.prompt_ids)
        factor = max(1e-3, self.faults.seconds("speed", 1.0))
        deadline = began + speed.ttft_seconds(request.context - request.cached, self.config.tp) / factor
        deadline = max(deadline, self.serve_from)
        await until(deadline)
        deadline = await self._hang(request, deadline)
        request.done, request.first = 1, time.time()
        self._prefilled(request, deadline - began)
        yield 1
        total = len(request.pieces)
        accept = speed.accept_length(self.config, request.context)
        if self.config.algorithm == "NONE":
            counts = [1] * (total - 1)
        else:
            steps = self.carry.steps(total, accept, self.config.longest_step)
            counts = spread(total - 1, steps, self.config.longest_step, next(self._phase))
        # a step's share of the whole answer's time, so that the answer takes total / user_tok_s whatever was rounded
        share = total / (max(1, len(counts)) * accept) / factor
        pending = 0
        for at, count in enumerate(counts):
            deadline += share * speed.step_seconds(self.config, request.context, max(1, len(self.running)))
            if now() < deadline:
                if pending:  # steps whose moment passed while the loop was late come in one piece
                    yield request.done
                    pending = 0
                await until(deadline)
            if self.paused or self.faults.get("generation_hangs"):
                deadline = await self._hang(request, deadline)
            if request.aborted:
                request.pieces, request.ids = request.pieces[: request.done], request.ids[: request.done]
                request.finish, request.ended = {"type": "abort", "message": "Aborted by /abort_request"}, time.time()
                break
            request.done += count
            pending += count
            self._stepped(request, count)
            if at == len(counts) - 1:
                request.ended = time.time()
        if pending:
            yield request.done

    async def _hang(self, request: Request, deadline: float) -> float:
        while True:
            fault = self.faults.get("generation_hangs")
            hangs = bool(fault) and not (fault == "serve" and request.warm_up)
            if request.aborted or (not hangs and (not self.paused or request.probe)):
                return deadline
            await asyncio.sleep(0.1)
            deadline = now()

    # ---- counters ------------------------------------------------------------------------------------------------

    def _prefilled(self, request: Request, seconds: float) -> None:
        self.last_output = now()
        new = request.context - request.cached
        running = max(0, len(self.running) - 1)
        self._log(
            f"Prefill batch, #new-seq: 1, #new-token: {new}, #cached-token: {request.cached}, token usage: {self.usage():.2f}, "
            f"#running-req: {running}, #queue-req: {len(self.waiting)}, #pending-token: 0, cuda graph: {new > 1}, "
            f"input throughput (token/s): {new / max(seconds, 1e-6):.2f}"
        )

    def _stepped(self, request: Request, tokens: int) -> None:
        self.last_output = now()
        if self.config.algorithm != "NONE":
            request.verify_steps += 1
            correct = tokens - 1
            request.histogram.extend([0] * (correct + 1 - len(request.histogram)))
            request.histogram[correct] += 1
            if self.config.algorithm == "DDTREE" and not self._verified_once:
                self._verified_once = True
                self._log(f"DDTREE verify completed. accept_length_per_req=[{tokens}]")
        self._interval_steps += 1
        self._interval_tokens += tokens
        self._iterations += 1 / max(1, len(self.running))
        if self._iterations >= self._log_interval:
            self._log_decode()

    def _log_decode(self) -> None:
        took = time.monotonic() - self._interval_began
        self.gen_throughput = self._interval_tokens / max(took, 1e-6)
        spec = ""
        if self.config.algorithm != "NONE":
            self.total_steps += self._interval_steps
            self.total_tokens += self._interval_tokens
            self.accept_length = self._interval_tokens / self._interval_steps
            self.cumulative_accept_length = self.total_tokens / self.total_steps
            spec = f"accept len: {self.accept_length:.2f}, accept rate: {self.accept_rate():.2f}, "
        self._log(
            f"Decode batch, #running-req: {len(self.running)}, #token: {self.used_tokens()}, token usage: {self.usage():.2f}, {spec}"
            f"cuda graph: True, gen throughput (token/s): {self.gen_throughput:.2f}, #queue-req: {len(self.waiting)}"
        )
        self._iterations, self._interval_steps, self._interval_tokens = 0.0, 0, 0
        self._interval_began = time.monotonic()

    def accept_rate(self) -> float:
        """Correct drafts of the last interval over drafts of the block, whatever the tree's budget: as the real engine counts."""
        return ((self.accept_length or 1.0) - 1) / max(1, self.config.block - 1)

    def _finished(self, request: Request) -> None:
        request.ended = request.ended or time.time()
        if self._radix:
            self.cache.insert(request.ids, request.prefix_key)
        self.metrics.finished(request)

    def remaining(self) -> list[str]:
        """Ids of the clients' requests that run or wait; the engine's own probes do not hold up a drain."""
        return [one.rid for one in [*self.running.values(), *(one for one, _ in self.waiting)] if not one.probe]

    def abort(self, rid: str, everything: bool = False) -> None:
        for one in [*self.running.values(), *(one for one, _ in self.waiting)]:
            one.aborted = one.aborted or everything or one.rid == rid

    def used_tokens(self) -> int:
        return sum(one.context + one.done for one in self.running.values())

    def usage(self) -> float:
        return self.used_tokens() / max(1, self.max_tokens)

    def flush(self) -> bool:
        """Empty the prefix cache and the accept totals; False, doing nothing, while requests run or wait."""
        if self.running or self.waiting:
            return False
        self.cache.clear()
        self.carry.owed = 0.0
        self.total_steps = self.total_tokens = 0
        self._iterations, self._interval_steps, self._interval_tokens = 0.0, 0, 0  # the interval of the decode log begins anew as well
        self._interval_began = time.monotonic()
        self.cumulative_accept_length = None
        self._log("Cache flushed successfully!")
        return True

"""The load itself, in one process: slots that each keep one request in flight, or arrivals at a Poisson rate.

Each slot first takes a warm-up request, of a length that differs by slot, so that the slots do not run in step, and then one
request after the other until it is told to stop. Nothing drains in between: when enough has been measured the rest is cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .prompts import Book
from .stats import percentile
from .wire import OVERLOAD, Client, Record, clock

LAG_EVERY = 0.05  # seconds
EDGE_WAIT = 2.0  # seconds at most
AFTER_FAILURE = 0.05  # seconds; a slot that fails at once must not spin


@dataclass(frozen=True)
class Share:
    """What one of `processes` processes runs: it takes the prompts `first`, `first` + `step` and so on.

    Closed loop: the slots `slots` of `concurrency`. Open loop: `rate` requests per second of its own, at most `most` at once.
    """

    tokens: int
    concurrency: int
    slots: Sequence[int] = ()
    rate: float = 0.0
    most: int = 0
    first: int = 0
    step: int = 1
    streamed: bool = True
    ignore_eos: bool = False
    idle_timeout: float = 120.0
    seed: str = "0"


@dataclass
class Cost:
    """What the load cost the client: `cpu` seconds over `seconds`, and how late its event loop woke up."""

    cpu: float = 0.0
    seconds: float = 0.0
    lags: list[float] = field(default_factory=list)

    def told(self) -> dict[str, float]:
        return {
            "cpu": round(self.cpu / max(1e-9, self.seconds), 4),
            "cpu_s": round(self.cpu, 3),
            "lag_ms_p99": round(percentile(self.lags, 99) * 1000, 3) if self.lags else 0.0,
        }


class Slots:
    """Runs a share. `ended` hears of each request that ended by itself; `tally[0]` counts tokens as they come."""

    def __init__(self, client: Client, share: Share, book: Book, ended: Callable[[Record], None]) -> None:
        self._client, self._share, self._book, self._ended = client, share, book, ended
        self.records: list[Record] = []
        self.tally = [0]
        self.measuring = not share.rate  # an open loop is told when its warm-up is over
        self.cost = Cost()
        self._cpu = self._began = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._next, self._warmups = share.first, 0
        self._stopped = False

    @contextlib.asynccontextmanager
    async def running(self) -> Any:
        """The load runs inside; what is in flight at the end is cut."""
        with quiet_memory():
            self._cpu, self._began = time.process_time(), clock()
            sampler = asyncio.ensure_future(_lag(self.cost.lags))
            self._start()
            try:
                yield self
                self.cost.cpu, self.cost.seconds = time.process_time() - self._cpu, clock() - self._began
            finally:
                self._stopped = True
                left = [sampler, *self._tasks]
                for task in left:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)

    def measure(self) -> None:
        """The warm-up is over: an open loop counts its requests from now on, and so does the cost of the load."""
        self.measuring = True
        self.cost.lags.clear()
        self._cpu, self._began = time.process_time(), clock()

    async def close_window(self, end: float) -> None:
        """Let each stream show the piece it was at when the window ended: the part of it before the end belongs to the window.

        Requests that tell their tokens only at their end are waited for.
        """
        if not self._share.streamed or any(one.spread for one in self.records):
            self._stopped = True
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=self._share.idle_timeout)
            return
        limit = end + EDGE_WAIT
        while clock() < limit and any(not one.ended and one.events and one.events[-1][0] <= end for one in self.records):
            await asyncio.sleep(0.005)

    def _start(self) -> None:
        work = [self._arrivals()] if self._share.rate else [self._slot(at) for at in self._share.slots]
        for one in work:
            self._spawn(one)

    def _spawn(self, work: Any) -> None:
        self._tasks.add(asyncio.ensure_future(work))

    async def _slot(self, at: int) -> None:
        # Different lengths put the slots out of step; up to half an answer is enough, since a window then has the same gaps of each slot.
        share = (at + 1) / self._share.concurrency / 2
        await self._one(Record("warmup", max(1, round(self._share.tokens * share)), index=-1 - at))
        while not self._stopped:
            await self._one(self._record())

    async def _arrivals(self) -> None:
        pick = random.Random(f"{self._share.seed}/{self._share.first}")
        due = clock()
        while not self._stopped:
            due += pick.expovariate(self._share.rate)
            await asyncio.sleep(due - clock())
            record = self._record()
            record.sent = due  # waits caused by a busy client or server count: the user came when it was due
            open_now = {one for one in self._tasks if not one.done()}
            if len(open_now) > self._share.most:
                record.ended, record.error, record.detail = clock(), OVERLOAD, f"{len(open_now) - 1} requests were in flight"
                self.records.append(record)
                self._ended(record)
                continue
            self._tasks = {one for one in self._tasks if not one.done() or one.exception()}
            self._spawn(self._one(record))

    def _record(self) -> Record:
        if not self.measuring:
            self._warmups += 1
            return Record("warmup", self._share.tokens, index=-self._share.first - self._warmups * self._share.step)
        index, self._next = self._next, self._next + self._share.step
        return Record("measured", self._share.tokens, index=index)

    async def _one(self, record: Record) -> None:
        record.streamed = self._share.streamed
        self.records.append(record)
        try:
            await self._client.run(record, self._book.prompt(record.index), self._share.ignore_eos, self.tally)
        except Exception as error:  # a mistake of ours must end the cell with its name, not hang it
            record.error, record.detail = "load generator", repr(error)
        self._ended(record)
        if record.error and not self._share.rate:
            await asyncio.sleep(AFTER_FAILURE)


async def _lag(found: list[float]) -> None:
    """How late the event loop wakes up, in seconds."""
    while True:
        due = clock() + LAG_EVERY
        await asyncio.sleep(LAG_EVERY)
        found.append(max(0.0, clock() - due))


@contextlib.contextmanager
def quiet_memory() -> Iterator[None]:
    """No garbage collection inside: its pauses would be measured."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()

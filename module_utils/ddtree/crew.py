"""The load of one cell, in this process or spread over several, behind one interface.

Processes are forked before the load begins. They share a few numbers in memory and send each ended request through a pipe; which
prompt is whose is fixed from the start, so nothing is locked.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import mmap
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from .prompts import Book
from .slots import Cost, Share, Slots
from .wire import Client, Record

STREAMS_PER_PROCESS = 128
POLL = 0.005  # seconds between looks at what the leading process says
MEASURE, END, CUT, FIRST_TALLY = range(4)  # places in the shared memory


def processes_for(concurrency: int, asked: int = 0) -> int:
    """As many as asked; else one for each STREAMS_PER_PROCESS streams, but never more than half of the cores."""
    return asked or max(1, min(-(-concurrency // STREAMS_PER_PROCESS), (os.cpu_count() or 1) // 2))


def shares(whole: Share, processes: int) -> list[Share]:
    """The load cut into one share for each process."""
    return [
        replace(whole, slots=range(at, whole.concurrency, processes) if not whole.rate else (), rate=whole.rate / processes,
                most=-(-whole.most // processes), first=at, step=processes)
        for at in range(processes)
    ]  # fmt: skip


class Alone:
    """The load in this process."""

    processes = 1

    def __init__(self, make_client: Callable[[], Client], share: Share, book: Book) -> None:
        self._make_client, self._share, self._book = make_client, share, book
        self.records: list[Record] = []
        self.costs: list[Cost] = []
        self._slots: Slots | None = None

    @contextlib.asynccontextmanager
    async def running(self, ended: Callable[[Record], None]) -> Any:
        """The load runs inside; what is in flight at the end is cut, and what it brought is in `records`."""
        async with self._make_client() as client:
            self._slots = slots = Slots(client, self._share, self._book, ended)
            async with slots.running():
                yield self
        self.records, self.costs = slots.records, [slots.cost]

    def measure(self) -> None:
        """See Slots.measure."""
        if self._slots:
            self._slots.measure()

    def tokens(self) -> int:
        """All that have come so far."""
        return self._slots.tally[0] if self._slots else 0

    async def close_window(self, end: float) -> None:
        """See Slots.close_window."""
        if self._slots:
            await self._slots.close_window(end)


class Crew:
    """The load in several processes. Make it before an event loop runs: it forks."""

    def __init__(self, make_client: Callable[[], Client], parts: list[Share], book: Book) -> None:
        self.processes = len(parts)
        self.records: list[Record] = []
        self.costs: list[Cost] = []
        memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._shared = (ctypes.c_double * (FIRST_TALLY + self.processes)).from_buffer(memory)
        fork = multiprocessing.get_context("fork")
        self._pipes, self._workers = [], []
        for at, part in enumerate(parts):
            here, there = fork.Pipe(duplex=False)
            worker = fork.Process(target=_work, args=(make_client, part, book, self._shared, at, there), daemon=True)
            worker.start()
            there.close()
            self._pipes.append(here)
            self._workers.append(worker)
        self._open = set(self._pipes)

    @contextlib.asynccontextmanager
    async def running(self, ended: Callable[[Record], None]) -> Any:
        """The load runs inside; what is in flight at the end is cut, and what it brought is in `records`."""
        loop = asyncio.get_running_loop()
        for pipe in self._pipes:
            loop.add_reader(pipe.fileno(), self._hear, pipe, ended)
        self._shared[CUT] = -1.0  # go
        try:
            yield self
        finally:
            self._shared[CUT] = 1.0
            limit = loop.time() + 30
            while self._open and loop.time() < limit:
                await asyncio.sleep(POLL)
            for pipe in self._pipes:
                loop.remove_reader(pipe.fileno())
            self.close()

    def close(self) -> None:
        for pipe, worker in zip(self._pipes, self._workers):
            pipe.close()
            if worker.is_alive():
                worker.terminate()
            worker.join(5)

    def measure(self) -> None:
        self._shared[MEASURE] = 1.0

    def tokens(self) -> int:
        return int(sum(self._shared[FIRST_TALLY:]))

    async def close_window(self, end: float) -> None:
        self._shared[END] = end
        while self._open and not all(tally < 0 for tally in self._shared[FIRST_TALLY:]):
            await asyncio.sleep(POLL)

    def _hear(self, pipe: Connection, ended: Callable[[Record], None]) -> None:
        try:
            while pipe.poll():
                said = pipe.recv()
                if isinstance(said, Record):
                    self.records.append(said)
                    ended(said)
                elif isinstance(said, Cost):
                    self.costs.append(said)
                else:
                    self.records += said
        except (EOFError, OSError):
            if pipe in self._open:
                asyncio.get_running_loop().remove_reader(pipe.fileno())
                self._open.discard(pipe)


def _work(make_client: Callable[[], Client], share: Share, book: Book, shared: Any, at: int, pipe: Connection) -> None:
    """The main function of one process of a crew."""
    leader = os.getppid()

    async def work() -> None:
        async with make_client() as client:
            slots = Slots(client, share, book, pipe.send)
            while shared[CUT] == 0.0:
                if os.getppid() != leader:
                    return
                await asyncio.sleep(POLL)
            async with slots.running():
                closing: asyncio.Future[None] | None = None
                measuring = False
                while shared[CUT] <= 0.0 and os.getppid() == leader:
                    if shared[MEASURE] > 0 and not measuring:
                        measuring = True
                        slots.measure()
                    if shared[END] > 0 and closing is None:
                        closing = asyncio.ensure_future(slots.close_window(shared[END]))
                    over = closing is not None and closing.done()
                    shared[FIRST_TALLY + at] = -1.0 if over else float(slots.tally[0])
                    await asyncio.sleep(POLL)
            pipe.send([one for one in slots.records if one.cut or not one.ended])
            pipe.send(slots.cost)

    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        asyncio.run(work())
    pipe.close()

"""The child processes: one scheduler per tensor-parallel rank, which loads, holds its GPU's VRAM and writes the scheduler's log
lines, and one detokenizer, which only exists. The token clock runs in the main process (docs/simulator.md says why)."""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from .faults import Faults
from .flags import ServerArgs
from .holders import Board, Holder, used_mib
from .process import die_with_parent, log, outlive_parent, put, set_title
from .speed import Config

GIB = 1024 * 1024 * 1024
MIB_PER_GIB = 1024
CONTEXT_MIB = 500  # CUDA context, NCCL and buffers of one rank
GRAPH_GB = {"prefill": 0.98, "decode": 0.0, "target_verify": 0.62, "draft_prefill": 0.0, "draft_decode": 0.21, "draft_extend": 0.0}
SHUTDOWN = b"\0shutdown\n"


class Shared:
    """What ranks tell each other and the main process, in shared memory: per rank its stage and free GiB, and the pool's size."""

    SIZE = 4096
    STARTING, WEIGHTS, READY = 0, 1, 2

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self.SIZE)

    def stage(self, rank: int) -> int:
        return self._memory[64 + rank]

    def set_stage(self, rank: int, stage: int) -> None:
        self._memory[64 + rank] = stage

    def free(self, rank: int) -> float:
        return float(struct.unpack_from("d", self._memory, 512 + 8 * rank)[0])

    def set_free(self, rank: int, gib: float) -> None:
        struct.pack_into("d", self._memory, 512 + 8 * rank, gib)

    @property
    def up(self) -> bool:
        """Set by the main process once it is ready for requests."""
        return bool(self._memory[8])

    @up.setter
    def up(self, value: bool) -> None:
        self._memory[8] = int(value)

    @property
    def pool_gib(self) -> float:
        return float(struct.unpack_from("d", self._memory, 16)[0])

    @pool_gib.setter
    def pool_gib(self, value: float) -> None:
        struct.pack_into("d", self._memory, 16, value)

    @property
    def pool_tokens(self) -> int:
        """0 until known, -1 when no memory is left for it."""
        return int(struct.unpack_from("q", self._memory, 0)[0])

    @pool_tokens.setter
    def pool_tokens(self, value: int) -> None:
        struct.pack_into("q", self._memory, 0, value)


@dataclass(frozen=True)
class Load:
    """What the ranks have to load, and when. `seconds` is the real length of the load from `began` (monotonic)."""

    args: ServerArgs
    config: Config
    boards: list[Board]
    weight_gib: float  # of one rank
    draft_gib: float
    kv_bytes: int  # of one token on one rank, target and drafter
    draft_kv_bytes: int
    model_class: str
    began: float
    seconds: float
    strike: bool  # whether a crash fault is due in this start


class Rank:
    """One scheduler process, from fork to exit."""

    def __init__(self, rank: int, load: Load, shared: Shared, state: Path, log_pipe: int, parent: int, close: list[int]) -> None:
        self.rank, self.load, self.shared, self.state, self.pipe, self.parent = rank, load, shared, state, log_pipe, parent
        self.gpu, self.close = load.boards[rank], close
        self.faults = Faults(state)
        self.holder: Holder  # made in the child, whose pid it bears
        self.tag = f"TP{rank}" if len(load.boards) > 1 else ""
        self.survives = False

    def run(self) -> NoReturn:
        die_with_parent(self.parent)
        for one in self.close:  # writing ends: while a child holds one, no other sees its pipe end
            os.close(one)
        self.holder = Holder(self.state, [self.gpu.index])
        for one in (signal.SIGQUIT, signal.SIGINT):
            signal.signal(one, signal.SIG_DFL)
        set_title(f"sglang::scheduler{f'_{self.tag}' if self.tag else ''}")
        try:
            self._load()
            self.shared.set_stage(self.rank, Shared.READY)
            self._serve()
        except Exception as error:
            self._report(error)
        finally:
            self.holder.release()
            os._exit(0)

    # ---- loading -------------------------------------------------------------------------------------------------

    def _say(self, text: str, all_ranks: bool = False) -> None:
        if self.rank == 0 or all_ranks:
            log(text, self.tag)

    def _at(self, fraction: float) -> None:
        """Wait until this part of the load has passed; a shorter load_seconds set meanwhile counts at once."""
        while True:
            self._tick()
            whole = self.faults.seconds("load_seconds", self.load.seconds)
            left = self.load.began + fraction * whole - time.monotonic()
            if self.faults.get("load_hangs") and fraction > 0.5:
                left = 0.2
            if left <= 0:
                return
            time.sleep(min(left, 0.1))

    def _tick(self) -> None:
        linger = self.faults.seconds("vram_linger_seconds")
        if self.holder.mib and linger != self.holder.linger:
            self.holder.hold(self.holder.mib, linger)
        self.holder.keep()
        survives = bool(self.faults.get("child_survives")) and self.rank == len(self.load.boards) - 1
        if survives and not self.survives:
            outlive_parent()
        self.survives = self.survives or survives

    def _grow(self, gib: float) -> None:
        self.holder.hold(self.holder.mib + round(gib * MIB_PER_GIB), self.faults.seconds("vram_linger_seconds"))

    def _available(self) -> float:
        return max(0.0, (self.gpu.usable_mib - used_mib(self.state, self.gpu.index)) / MIB_PER_GIB)

    def _need(self, gib: float, available: float) -> None:
        if gib > available or self.faults.get("out_of_memory"):
            raise OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {min(gib, 7.0):.2f} GiB. GPU {self.rank} has a total capacity of "
                f"{self.gpu.total_mib / MIB_PER_GIB:.2f} GiB of which {available % 1 * 0.9:.2f} GiB is free. Including non-PyTorch memory, "
                f"this process has {self.holder.mib / MIB_PER_GIB:.2f} GiB memory in use."
            )

    def _load(self) -> None:
        load, args, say = self.load, self.load.args, self._say
        self._at(0.08)
        say("Init torch distributed begin.", all_ranks=True)
        self._grow(CONTEXT_MIB / MIB_PER_GIB)
        self._at(0.09)
        say(f"Init torch distributed ends. elapsed={0.01 * load.seconds:.2f} s, mem usage=0.49 GB", all_ranks=True)
        before = self._available()
        self.shared.set_free(self.rank, before)
        self._weights(before)
        if load.strike and self.faults.get("crash_at") == "load" and self.rank == 0:
            raise RuntimeError("Simulated crash while loading (fault crash_at=load)")
        after = self._available()
        say(
            f"Load weight end. elapsed={0.65 * load.seconds:.2f} s, type={load.model_class}, avail mem={after:.2f} GB, "
            f"mem usage={load.weight_gib:.2f} GB.", all_ranks=True,
        )  # fmt: skip
        if load.config.algorithm != "NONE":
            self._draft()
        pool_gb = self._pool()
        self._graphs()
        free = self._available()
        say(
            f"max_total_num_tokens={self.shared.pool_tokens}, chunked_prefill_size={args['chunked_prefill_size']}, "
            f"max_prefill_tokens={args['max_prefill_tokens']}, max_running_requests={args['max_running_requests']}, "
            f"context_len={args['context_length']}, available_gpu_mem={free:.2f} GB"
        )
        say(
            "Tree cache initialized: source=default impl=RadixCache "
            "hybrid_swa=False hybrid_ssm=False hierarchical=False streaming_wrapped=False"
        )
        if self.rank == 0:
            self.shared.set_free(0, free)
            self.shared.pool_gib = pool_gb
        self._at(0.99)

    def _weights(self, before: float) -> None:
        self._at(0.10)
        self._say(f"Load weight begin. avail mem={before:.2f} GB", all_ranks=True)
        parts = 8
        for part in range(parts):
            self._need(self.load.weight_gib / parts, self._available())
            self._grow(self.load.weight_gib / parts)
            self._at(0.10 + 0.65 * (part + 1) / parts)
        self.shared.set_stage(self.rank, Shared.WEIGHTS)

    def _draft(self) -> None:
        load, say, args, config = self.load, self._say, self.load.args, self.load.config
        before = self._available()
        say(f"Load weight begin. avail mem={before:.2f} GB", all_ranks=True)
        self._need(load.draft_gib, before)
        self._grow(load.draft_gib)
        self._at(0.78)
        say(
            f"Load weight end. elapsed={0.03 * load.seconds:.2f} s, type=DFlashDraftModel, avail mem={before - load.draft_gib:.2f} GB, "
            f"mem usage={load.draft_gib:.2f} GB.", all_ranks=True,
        )  # fmt: skip
        say(
            f"Initialized DFLASH draft runner. attention_backend={args['speculative_draft_attention_backend']}, model=DFlashDraftModel, "
            f"block_size={config.block}, draft_window_size={config.window}, compact_cache={config.window is not None}"
        )
        say("DFLASH draft runner ready. mask_token=<|MASK|>, mask_token_id=163838, mask_token_id_override=163838")
        say("DFLASH fused KV materialization enabled. n_layers=6, num_kv_heads=8, head_dim=128")
        if config.algorithm == "DDTREE":
            say(f"Initialized DDTree worker. block_size={config.block}, tree_budget={config.budget}, max_tree_nodes={config.budget + 1}")

    def _pool(self) -> float:
        """Allocate the KV pool; its size follows from the least free GPU, so a foreign process shrinks it. Returns GiB per rank."""
        load, ranks = self.load, range(len(self.load.boards))
        while any(self.shared.stage(one) < Shared.WEIGHTS for one in ranks):
            self._tick()
            time.sleep(0.01)
        self._at(0.79)
        if self.rank == 0:
            fraction = float(load.args["mem_fraction_static"])
            room = min(self.shared.free(one) for one in ranks) * fraction - load.weight_gib - load.draft_gib
            tokens = int(room * GIB / load.kv_bytes)
            if load.args["max_total_tokens"]:
                tokens = min(tokens, int(load.args["max_total_tokens"]))
            self.shared.pool_tokens = tokens if tokens > 0 else -1
        while not self.shared.pool_tokens:
            self._tick()
            time.sleep(0.01)
        tokens = self.shared.pool_tokens
        if tokens < 0:
            if self.rank:
                time.sleep(30)  # rank 0 reports, the main process ends all
            raise RuntimeError(
                "Not enough memory. Please try to increase --mem-fraction-static. Current value: "
                f"self.server_args.mem_fraction_static={load.args['mem_fraction_static']}"
            )
        own, draft = (tokens * one / GIB for one in (load.kv_bytes - load.draft_kv_bytes, load.draft_kv_bytes))
        self._need(own + draft, self._available())
        self._grow(own)
        self._say(f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, KV size: {own:.2f} GB", all_ranks=True)
        self._say(f"Memory pool end. avail mem={self._available():.2f} GB")
        if draft:
            self._grow(draft)
            self._say(
                f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, K size: {draft / 2:.2f} GB, V size: {draft / 2:.2f} GB"
            )
            self._say(f"Memory pool end. avail mem={self._available():.2f} GB")
        return own + draft

    def _graphs(self) -> None:
        load, say = self.load, self._say
        sizes = load.args["cuda_graph_config"]["decode"]["bs"]
        speculative = load.config.algorithm != "NONE"
        stages = [("target prefill", "backend=breakable", 0.98, 0.80, 0.90)]
        if speculative:
            say("Overriding draft attention backend to triton.")
            stages.append(("target verify", f"backend=full, num_tokens_per_req={load.config.width}, bs={sizes}", 0.62, 0.90, 0.95))
            stages.append(("draft verify", f"backend=full, num_tokens_per_req={load.config.block}, bs={sizes}", 0.21, 0.95, 0.98))
        else:
            stages.append(("target decode", f"backend=full, num_tokens_per_req=1, bs={sizes}", 0.62, 0.90, 0.98))
        for name, what, gib, begin, end in stages:
            self._at(begin)
            before = self._available()
            say(f"Capture {name} CUDA graph begin. {what}, avail mem={before:.2f} GB")
            self._need(gib, before)
            self._grow(gib)
            self._at(end)
            say(
                f"Capture {name} CUDA graph end. elapsed={(end - begin) * load.seconds:.2f} s, mem usage={gib:.2f} GB, "
                f"avail mem={self._available():.2f} GB."
            )

    # ---- serving -------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Hold the VRAM and write what the token clock sends, until the pipe ends, a shutdown comes or a fault strikes."""
        buffer, watching = b"", True
        began: float | None = None
        while True:
            self._tick()
            if self.rank == 0 and self.load.strike and self.faults.get("crash_at") == "serve":
                began = began or (time.monotonic() if self.shared.up else None)
                if began and time.monotonic() - began >= self.faults.seconds("crash_after_seconds", 1.0):
                    raise RuntimeError("Simulated crash while serving (fault crash_at=serve)")
            if not watching:
                if not self.faults.get("child_survives"):
                    return
                time.sleep(0.1)
                continue
            readable, _, _ = select.select([self.pipe], [], [], 0.1)
            if not readable:
                continue
            data = os.read(self.pipe, 65536)
            buffer += data
            if (not data or SHUTDOWN.strip() in buffer) and not self.survives:
                return
            watching = bool(data)
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                if not line.startswith(b"\0"):
                    self._say(line.decode(errors="replace"))

    def _report(self, error: Exception) -> None:
        import traceback

        log(f"Scheduler hit an exception: {''.join(traceback.format_exception(type(error), error, error.__traceback__))}", self.tag)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.parent, signal.SIGQUIT)
        for _ in range(100):
            self.holder.keep()
            time.sleep(0.1)


class OutOfMemoryError(RuntimeError):
    """Printed as torch prints its own."""


OutOfMemoryError.__module__ = "torch"
OutOfMemoryError.__qualname__ = "OutOfMemoryError"


def fork(child: Callable[[], Any]) -> int:
    """Run `child` in a new process, which never returns; gives its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        child()
    except BaseException as error:
        put(f"child failed: {error!r}")
    os._exit(1)


def detokenizer(parent: int) -> NoReturn:
    """The detokenizer of the process tree; its work is done in the main process."""
    die_with_parent(parent)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    set_title("sglang::detokenizer")
    while True:
        time.sleep(60)

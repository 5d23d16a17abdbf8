"""The main process: parse, load through child processes, serve, drain, die. Times of the life cycle are scaled, tokens are not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from . import ranks
from .faults import Faults
from .flags import ServerArgs, model_config, prepare_server_args, speed_config, stock_build
from .holders import boards
from .process import log, put
from .state import Settings, settings, state_dir

IMPORTS_SECONDS = 20.0  # unscaled, as measured on a real host
DRAIN_POLL_SECONDS = 5.0
CRASH_SETTLE_SECONDS = 5.0
WATCHDOG_SECONDS = 0.2  # real: scaled it would spin


class Launch:
    """One start of the engine: its arguments, children and phase."""

    STARTING, UP, UNHEALTHY = "Starting", "Up", "UnHealthy"

    def __init__(self, argv: list[str], args: ServerArgs, state: Path, scale: Settings, began: float) -> None:
        self.args, self.state, self.scale, self.began = args, state, scale, began
        self.faults = Faults(state)
        self.launch_command = shlex.join([sys.executable, "-m", "sglang.launch_server", *argv])
        self.config = speed_config(args)
        self.status = self.STARTING
        self.draining = False
        self.shared = ranks.Shared()
        self.children: dict[int, str] = {}
        self.pipes: list[int] = []
        self.pid = os.getpid()
        self.launch_id = f"{self.pid}-{time.time_ns()}"
        self.accelerator, self.strike = "", False
        self._sigterm = False
        self.startup_time: dict[str, Any] = {}
        self.memory: dict[str, Any] = {}

    # ---- children ------------------------------------------------------------------------------------------------

    def start_children(self, load: ranks.Load) -> None:
        parent = os.getpid()
        signal.signal(signal.SIGQUIT, lambda *_: self.die(settle=False))  # a child may fail before the last is forked
        for rank in range(len(load.boards)):
            read, write = os.pipe()
            os.set_blocking(write, False)
            self.pipes.append(write)
            child = ranks.Rank(rank, load, self.shared, self.state, read, parent, close=self.pipes)
            self.children[ranks.fork(child.run)] = f"scheduler_{rank}"
            os.close(read)
        self.children[ranks.fork(lambda: ranks.detokenizer(parent))] = "detokenizer"

    @property
    def ends_like_0517(self) -> bool:
        return self.faults.get("ends_like") == "0.5.17"

    @property
    def scheduler_pid(self) -> int:
        return next(iter(self.children))

    def scheduler_log(self, line: str) -> None:
        """Have rank 0 write a log line; dropped when its pipe is full."""
        with contextlib.suppress(OSError):
            os.write(self.pipes[0], line.encode(errors="replace") + b"\n")

    def dead_child(self) -> tuple[int, str, int] | None:
        """(pid, name, exit code as Popen gives it) of a child that has ended, else None."""
        for pid in list(self.children):
            try:
                found, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                found, status = pid, 0
            if found:
                return pid, self.children.pop(pid), os.waitstatus_to_exitcode(status)
        return None

    def kill_tree(self, include_self: bool = True) -> None:
        log(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent={include_self}, pid={os.getpid()}")
        survivor = list(self.children)[-2] if self.faults.get("child_survives") and len(self.children) > 1 else None
        for pid in self.children:
            if pid != survivor:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if include_self:
            os.kill(os.getpid(), signal.SIGKILL)

    def die(self, settle: bool) -> NoReturn:
        """What a dead child leads to: the main process kills its whole tree, itself included."""
        if settle:
            log("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
            log("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
            time.sleep(self.scale.scaled(CRASH_SETTLE_SECONDS))
            log("No live scheduler processes found; skipping py-spy and CUDA coredump.")
        else:
            log("Received sigquit from a child process. It usually means the child failed.")
        self.kill_tree()
        os._exit(137)

    def stop_children(self) -> None:
        """Ask the schedulers to end and free their VRAM; kill those that stay, except one a fault lets live."""
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                os.write(pipe, ranks.SHUTDOWN)
        end = time.monotonic() + max(1.0, self.scale.scaled(15.0))
        while time.monotonic() < end and any(name.startswith("scheduler") for name in self.children.values()):
            if not self.dead_child():
                if self.faults.get("child_survives") and len(self.children) <= 2:
                    break
                time.sleep(0.01)
        self.kill_tree(include_self=False)

    # ---- loading -------------------------------------------------------------------------------------------------

    def wait_loaded(self, load: ranks.Load) -> None:
        """Returns when every rank is ready. A rank that fails ends this process with signal 9."""
        count = len(load.boards)
        while any(self.shared.stage(rank) < ranks.Shared.READY for rank in range(count)):
            dead = self.dead_child()
            if dead:
                if self.ends_like_0517 and dead[2] < 0:
                    self.kill_tree(include_self=False)
                    raise RuntimeError(
                        f"Rank {dead[1].rpartition('_')[2]} scheduler died during initialization (exit code: {dead[2]}). "
                        "If exit code is -9 (SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
                    )
                log(f"Subprocess {dead[1]} (pid={dead[0]}) crashed with exit code {dead[2]}. Triggering SIGQUIT for cleanup...")
                self.die(settle=False)
            time.sleep(0.02)
        took = time.monotonic() - self.began
        graph = {"prefill": 0.10, "decode": 0.0, "target_verify": 0.05, "draft_prefill": 0.0, "draft_decode": 0.03, "draft_extend": 0.0}
        if load.config.algorithm == "NONE":
            graph.update(decode=0.08, target_verify=0.0, draft_decode=0.0)
        self.startup_time = {
            "load_weight": 0.68 * load.seconds, "kv_cache_allocation": 0.01 * load.seconds, "scheduler_e2e": 0.9 * took,
            "cuda_graph": {key: share * load.seconds for key, share in graph.items()}, "tokenizer_e2e": took,
        }  # fmt: skip
        pool = self.shared.pool_gib
        used = {key: (gib if graph[key] or key == "prefill" else 0.0) for key, gib in ranks.GRAPH_GB.items()}
        self.memory = {
            "weight": round(load.weight_gib, 3), "kvcache": round(pool, 3), "startup_available": round(self.shared.free(0), 3),
            "token_capacity": self.shared.pool_tokens, "token_capacity_swa": None, "graph": used,
        }  # fmt: skip
        times = self.startup_time
        log(
            f"Engine startup timings (s): load_weight={times['load_weight']:.2f}, kv_cache_allocation={times['kv_cache_allocation']:.2f}, "
            f"scheduler_e2e={times['scheduler_e2e']:.2f}, "
            f"cuda_graph={{{', '.join(f'{key}={value:.2f}' for key, value in times['cuda_graph'].items())}}}, tokenizer_e2e={took:.2f}"
        )

    # ---- serving -------------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        log(text)

    def install_sigterm(self) -> None:
        if not self._sigterm:
            self._sigterm = True
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.on_sigterm)

    def on_sigterm(self) -> None:
        """Start the drain; installed by the first request or control call, as the real engine does."""
        if self.faults.get("ignore_sigterm") or self.draining:
            return
        log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self.draining = True

    async def watchdog(self) -> None:
        while True:
            await asyncio.sleep(WATCHDOG_SECONDS)
            dead = self.dead_child()
            if dead:
                log(f"Subprocess {dead[1]} (pid={dead[0]}) crashed with exit code {dead[2]}. Triggering SIGQUIT for cleanup...")
                self.die(settle=True)

    async def drained(self, remaining: Any) -> None:
        """Returns when the engine may exit: SIGTERM came and, at a poll, no request was left and the fault's time was over."""
        while not self.draining:
            await asyncio.sleep(0.01)
        began = time.monotonic()
        while True:
            await asyncio.sleep(self.scale.scaled(DRAIN_POLL_SECONDS))
            if os.environ.get("SGL_FORCE_SHUTDOWN") == "1" or self.status == self.UNHEALTHY:
                return
            rids = remaining()
            log(f"Gracefully exiting... Remaining number of requests {len(rids)}. Remaining requests remaining_rids={rids[:10]}.")
            if not rids and time.monotonic() - began >= self.faults.seconds("drain_seconds"):
                return


def _strikes(faults: Faults, state: Path) -> bool:
    """Whether a crash fault is due in this start; crash_times counts the starts that it struck."""
    times = faults.get("crash_times")
    if times is None:
        return True
    path = state / "crashes"
    count = int(path.read_text()) if path.exists() else 0
    if count >= int(times):
        return False
    if faults.get("crash_at") or faults.get("crash_loop"):
        path.write_text(str(count + 1))
    return True


def _wrong(args: ServerArgs, faults: Faults) -> None:
    """Load other arguments than those asked for, when the fault says so."""
    fault = faults.get("wrong_config")
    if not fault:
        return
    if not isinstance(fault, dict):
        fault = {"speculative_draft_window_size": 512} if args["speculative_algorithm"] else {"weight_version": "stale"}
    args.update(fault)


def launch(argv: list[str]) -> int:
    """Run the engine; returns the exit code where it ends by itself."""
    began = time.monotonic()
    put(f"{os.path.abspath(sys.argv[0])}:56: UserWarning: 'python -m sglang.launch_server' is still supported, but 'sglang serve' is the "
        "recommended entrypoint.\n  Example: sglang serve --model-path <model> [options]\n  warnings.warn(")  # fmt: skip
    state = state_dir()
    scale = settings(state)
    faults = Faults(state)
    seconds = faults.seconds("load_seconds", scale.scaled(scale.load_seconds))
    time.sleep(min(scale.scaled(IMPORTS_SECONDS), seconds * 0.06))
    if faults.get("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    args = prepare_server_args(argv, stock_build())
    strike = _strikes(faults, state)
    if faults.get("crash_loop") and strike:
        raise ImportError("cannot import name 'sgl_kernel' (simulated: fault crash_loop)")
    devices = _devices(args, state)
    asked = ServerArgs(args)
    _wrong(args, faults)
    log(f"server_args={asked.line()}")
    config = speed_config(args)
    if config.algorithm != "NONE" and "--max-running-requests" not in " ".join(argv):
        log(
            "Max running requests is reset to 48 for speculative decoding. "
            "You can override this by explicitly setting --max-running-requests."
        )
    if config.algorithm == "DDTREE" and config.window is not None:
        log("--speculative-draft-window-size has no effect with --speculative-algorithm DDTREE; it is used by EAGLE, EAGLE3 and DFLASH.")
    log("Using default HuggingFace chat template with detected content format: string")
    model, drafter = model_config(args["model_path"]), model_config(args["speculative_draft_model_path"])
    sizes, draft = (
        model.get("simulated", {}),
        drafter.get("simulated", {}) if config.algorithm != "NONE" else {"weight_gib": 0, "kv_bytes": 0},
    )
    tp = args["tp_size"]
    draft_kv = int(draft.get("kv_bytes", 3072))
    load = ranks.Load(
        args=args, config=config, boards=devices, weight_gib=float(sizes.get("weight_gib", 554.3)) / tp,
        draft_gib=float(draft.get("weight_gib", 6.48)) / tp, kv_bytes=int(sizes.get("kv_bytes", 70272)) + draft_kv, draft_kv_bytes=draft_kv,
        model_class=(model.get("architectures") or ["KimiK25ForConditionalGeneration"])[0], began=began, seconds=seconds, strike=strike,
    )  # fmt: skip
    this = Launch(argv, args, state, scale, began)
    this.accelerator, this.strike = devices[0].name, strike
    this.start_children(load)
    this.wait_loaded(load)
    from .server import serve  # aiohttp is imported only now: the children stay small

    return asyncio.run(serve(this))


def _devices(args: ServerArgs, state: Path) -> list[Any]:
    """The GPUs of the ranks, CUDA_VISIBLE_DEVICES and --base-gpu-id honoured. Raises RuntimeError as CUDA would."""
    found = boards(state)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        wanted = [int(one) for one in visible.split(",") if one.strip().isdigit()]
        found = [board for index in wanted for board in found if board.index == index]
    if not found:
        raise RuntimeError("No CUDA GPUs are available")
    first, count = args["base_gpu_id"], args["tp_size"]
    if first + count > len(found):
        raise RuntimeError(f"CUDA error: invalid device ordinal (tp_size={count}, {len(found)} GPUs are visible)")
    return found[first : first + count]

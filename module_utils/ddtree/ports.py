"""What a restart needs of a machine, as four ports (service, gpus, server, clock) and, where there is one, the router; and their words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .gpus import Gpu, Holder

PHASES = ("inspect", "drain", "stop", "release", "start", "load", "generate", "verify")
CAUSES = (
    "bad_flags",
    "invalid_config",
    "port_in_use",
    "foreign_vram",
    "stop_timeout",
    "vram_not_released",
    "crashed",
    "crash_loop",
    "out_of_memory",
    "load_timeout",
    "generation_failed",
    "config_mismatch",
    "old_instance",
    "no_gpu",
    "busy",
    "host_lost",
    "router_unreachable",
)


class RestartError(Exception):
    """A phase that cannot succeed any more.

    `cause` is one word of CAUSES, `message` says what was seen, `remedy` what to do, `evidence` holds pids, MiB and logs.
    """

    def __init__(self, phase: str, cause: str, message: str, remedy: str, **evidence: Any) -> None:
        assert phase in PHASES and cause in CAUSES, (phase, cause)
        super().__init__(message)
        self.phase, self.cause, self.message, self.remedy, self.evidence = phase, cause, message, remedy, evidence

    def as_dict(self) -> dict[str, Any]:
        return {
            "phase": self.phase,
            "cause": self.cause,
            "message": self.message,
            "remedy": self.remedy,
            "evidence": self.evidence,
        }


@dataclass(frozen=True)
class UnitState:
    """What the service manager says of the unit at one moment."""

    exists: bool = True
    masked: bool = False
    active: str = "inactive"  # active, activating, deactivating, inactive, failed
    sub: str = "dead"
    result: str = "success"  # success, exit-code, signal, timeout, core-dump, oom-kill, start-limit-hit
    invocation: str = ""  # names one start of the unit; empty when it never ran
    main_pid: int = 0
    restarts: int = 0  # automatic restarts by the manager
    exit_status: str = ""  # how the main process ended, in the manager's words

    @property
    def stopped(self) -> bool:
        return self.active in ("inactive", "failed")


@dataclass(frozen=True)
class Generation:
    """One answer to the proving request; `error` is set when none came."""

    tokens: int = 0
    weight_version: str | None = None
    verify_steps: int | None = None
    status: int = 0
    seconds: float = 0.0
    error: str = ""
    retry: bool = False  # the failure may pass (connection refused or reset, 5xx while starting)


class Service(Protocol):
    """The unit, through its manager."""

    name: str

    def state(self) -> UnitState: ...
    def stop(self) -> None: ...
    def start(self) -> None: ...
    def pids(self) -> set[int]: ...
    def kill_remaining(self) -> None: ...
    def definition(self) -> str: ...
    def changed_since_start(self) -> bool: ...
    def log(self, state: UnitState) -> list[str]:
        """All lines of that invocation so far, oldest first."""
        ...


class Gpus(Protocol):
    """The GPUs that the unit uses, and nothing else."""

    def read(self) -> list[Gpu]: ...


class Request(Protocol):
    """A generation in flight."""

    def result(self) -> Generation | None: ...


class Server(Protocol):
    """The engine's port and its answers."""

    def listener(self) -> Holder | None: ...
    def ask(self) -> Request: ...
    def info(self) -> Mapping[str, Any]: ...
    def running_requests(self) -> int | None: ...


class Router(Protocol):
    """The unit's place among the workers of a router; each raises RouterError."""

    def serves(self) -> bool: ...
    def withdraw(self) -> bool: ...
    def enrol(self) -> bool: ...


class Clock(Protocol):
    def now(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True)
class Want:
    """What is asked of the unit."""

    state: str = "started"  # started, restarted, stopped, probed
    config_id: str = ""
    expect: Mapping[str, Any] = field(default_factory=dict)  # server_info fields that prove the configuration
    log_proofs: Sequence[str] = ()  # regular expressions of lines that a start of this configuration logs
    min_tokens: int = 32
    drain_timeout: float = 30.0
    stop_timeout: float = 240.0
    release_timeout: float = 120.0
    ready_timeout: float = 900.0
    generate_timeout: float = 120.0
    idle_mib: int = 1024  # a GPU below this, or below what others held before, counts as free
    check: bool = False  # predict only


@dataclass
class Outcome:
    """What happened, in facts."""

    changed: bool = False
    reason: str = ""
    phases: list[dict[str, Any]] = field(default_factory=list)
    before: UnitState = field(default_factory=UnitState)
    after: UnitState = field(default_factory=UnitState)
    vram_before: list[int] = field(default_factory=list)
    vram_after: list[int] = field(default_factory=list)
    ready: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    cut_off_requests: int = 0
    killed: bool = False
    notes: list[str] = field(default_factory=list)

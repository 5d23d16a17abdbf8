"""A whole host in memory: a unit, its GPUs, its port and its clock, with every delay and fault drawn by the test."""

from __future__ import annotations

from dataclasses import dataclass, field

from ddtree.gpus import Gpu, GpuError, Holder
from ddtree.lifecycle import Lifecycle
from ddtree.ports import Generation, UnitState, Want
from ddtree.router import RouterError

LOADED_MIB = 90_000
NEVER = float("inf")


@dataclass
class Plan:
    """How instances behave, in seconds from the moment in question."""

    drain: float = 1.0  # SIGTERM to exit
    vram_lag: float = 0.5  # exit to VRAM free
    port_lag: float = 0.0  # exit to port free
    load: float = 5.0  # start to port open
    generate_after: float = 1.0  # port open to first generation
    crash_after: float = NEVER  # start to death
    fatal_after: float = NEVER  # start to fatal log line
    restart_always: bool = False
    hang: bool = False
    loads_config: str | None = None  # another configuration than asked
    child_survives: float = 0.0  # seconds that a child outlives the main process
    ignores_sigterm: bool = False
    ends_by_signal: bool = False  # kills itself at the end of its own drain, as SGLang 0.5.17 does
    unit_stop_timeout: float = 60.0


@dataclass
class Instance:
    """One run of the engine."""

    number: int
    plan: Plan
    config: str
    started: float
    stop_asked: float = NEVER

    @property
    def pid(self) -> int:
        return 1000 * self.number

    @property
    def died(self) -> float:
        by_stop = self.stop_asked + (self.plan.unit_stop_timeout if self.plan.ignores_sigterm else self.plan.drain)
        return min(self.started + self.plan.crash_after, by_stop)

    @property
    def port_open(self) -> float:
        return self.started + self.plan.load

    def listens(self, now: float) -> bool:
        return self.port_open <= now < self.died + self.plan.port_lag and self.port_open < self.died

    def holds_vram(self, now: float) -> bool:
        return self.started <= now < self.died + self.plan.vram_lag


@dataclass
class World:
    """The four ports at once; `old` runs already unless told otherwise."""

    old: Plan = field(default_factory=Plan)
    new: Plan = field(default_factory=Plan)
    running: bool = True
    asked: str = "newcfg"
    foreign_mib: dict[int, int] = field(default_factory=dict)  # GPU index -> MiB held by somebody else
    foreign_listener: bool = False
    in_flight: float = 0.0  # seconds from now that requests of the old instance still need
    lost_gpu: bool = False
    time: float = 0.0
    name: str = "ddtree.service"

    def __post_init__(self) -> None:
        self.instances: list[Instance] = []
        self.killed: set[int] = set()
        self.calls: list[str] = []
        self.definition_text = "unit"
        self.changed = False  # whether its files are younger than the main process
        if self.running:
            self.instances.append(Instance(1, self.old, "oldcfg", started=-1000.0))

    # -- clock
    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self._auto_restart()

    # -- service
    def _auto_restart(self) -> None:
        last = self.current
        while last and last.plan.restart_always and last.stop_asked == NEVER and self.time >= last.died + 1.0:
            last = Instance(last.number + 1, last.plan, last.config, started=last.died + 1.0)
            self.instances.append(last)

    @property
    def current(self) -> Instance | None:
        return self.instances[-1] if self.instances else None

    def state(self) -> UnitState:
        self._auto_restart()
        one = self.current
        if one is None:
            return UnitState()
        crashed = one.died < one.stop_asked
        restarts = sum(1 for other in self.instances if other.started > one.started - 1e9) - 1
        if self.time < one.died:
            asked = self.time >= one.stop_asked
            return UnitState(
                active="deactivating" if asked else "active",
                sub="running",
                invocation=f"inv{one.number}",
                main_pid=one.pid,
                restarts=restarts if one.plan.restart_always else 0,
            )
        if crashed and one.plan.restart_always and one.stop_asked == NEVER:
            return UnitState(active="activating", sub="auto-restart", result="exit-code", invocation=f"inv{one.number}")
        result = "timeout" if one.plan.ignores_sigterm else "signal" if one.plan.ends_by_signal else "success"
        return UnitState(
            active="failed" if crashed else "inactive",
            result="exit-code" if crashed else result,
            invocation=f"inv{one.number}",
            exit_status="status 1" if crashed else "",
        )

    def stop(self) -> None:
        self.calls.append("stop")
        if self.current:
            self.current.stop_asked = min(self.current.stop_asked, self.time)

    def start(self) -> None:
        self.calls.append("start")
        self.vram_at_start = self.used(0)
        self.pids_at_start = self.pids()
        config = self.new.loads_config or self.asked
        self.instances.append(Instance(len(self.instances) + 1, self.new, config, started=self.time))

    def pids(self) -> set[int]:
        found = set()
        for one in self.instances:
            if one.started <= self.time < one.died:
                found |= {one.pid, one.pid + 1}
            elif self.time < one.died + one.plan.child_survives and one.pid + 1 not in self.killed:
                found.add(one.pid + 1)
        return found

    def kill_remaining(self) -> None:
        self.calls.append("kill_remaining")
        self.killed |= self.pids()

    def definition(self) -> str:
        return self.definition_text

    def changed_since_start(self) -> bool:
        return self.changed

    def log(self, state: UnitState) -> list[str]:
        one = next((one for one in self.instances if f"inv{one.number}" == state.invocation), None)
        if one and self.time >= one.started + one.plan.fatal_after:
            return ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."]
        return []

    # -- gpus
    def used(self, index: int) -> int:
        return LOADED_MIB * sum(one.holds_vram(self.time) for one in self.instances) + self.foreign_mib.get(index, 0)

    def read(self) -> list[Gpu]:
        if self.lost_gpu:
            raise GpuError("GPU 5: GPU is lost", "reset or reseat the board, or reboot the host")
        gpus = []
        for index in range(8):
            holders = [
                Holder(one.pid + 1, "sglang::scheduler", "root", LOADED_MIB)
                for one in self.instances
                if one.started <= self.time and one.pid + 1 in self.pids()
            ]
            if index in self.foreign_mib:
                holders.append(Holder(77, "python train.py", "eve", self.foreign_mib[index]))
            gpus.append(Gpu(index, f"GPU-{index}", "fake", 97_887, self.used(index), tuple(holders)))
        return gpus

    # -- server
    def listener(self) -> Holder | None:
        if self.foreign_listener:
            return Holder(99, "nginx", "www")
        for one in self.instances:
            if one.listens(self.time):
                return Holder(one.pid, "sglang", "root")
        return None

    def ask(self) -> FakeRequest:
        return FakeRequest(self, next((one for one in self.instances if one.listens(self.time)), None))

    def info(self) -> dict[str, object]:
        one = self.current
        return {"speculative_draft_window_size": 2048 if one and one.config == self.asked else 512, "max_total_num_tokens": 986185}

    def running_requests(self) -> int | None:
        return 3 if self.time < self.in_flight else 0


@dataclass
class FakeRequest:
    """Answers when the instance that took it can generate; breaks when that instance dies."""

    world: World
    taker: Instance | None

    def result(self) -> Generation | None:
        if self.taker is None:
            return Generation(error="no answer: ConnectionError", retry=True)
        if self.world.time >= self.taker.died:
            return Generation(error="no answer: ConnectionError", retry=True)
        if self.taker.plan.hang or self.world.time < self.taker.port_open + self.taker.plan.generate_after:
            return None
        return Generation(tokens=32, weight_version=self.taker.config, verify_steps=9, status=200, seconds=0.3)


@dataclass
class FakeRouter:
    """Sends requests to the unit's port while `member`; what it lets in must be able to answer."""

    world: World
    member: bool = True
    reachable: bool = True

    def _ask(self) -> None:
        if not self.reachable:
            raise RouterError("the router does not answer")

    def serves(self) -> bool:
        self._ask()
        return self.member

    def withdraw(self) -> bool:
        self._ask()
        self.world.calls.append("withdraw")
        was, self.member = self.member, False
        return was

    def enrol(self) -> bool:
        self._ask()
        if self.member:
            return False
        self.world.calls.append("enrol")
        one = self.world.current
        assert one and one.listens(self.world.time) and self.world.time >= one.port_open + one.plan.generate_after, (
            "let in before it was ready"
        )
        self.member = True
        return True


def lifecycle(world: World, record: dict | None = None, router: FakeRouter | None = None, **want: object) -> Lifecycle:
    """A run over that world."""
    asked: dict[str, object] = {"state": "restarted", "config_id": world.asked, "expect": {"speculative_draft_window_size": 2048}}
    asked.update(want)
    return Lifecycle(world, world, world, world, Want(**asked), {} if record is None else record, router=router)  # type: ignore[arg-type]

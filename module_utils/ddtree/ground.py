"""The ground that an instance needs: the unit's GPUs and its port. Whoever else stands on it is named, and never touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .gpus import Gpu, GpuError, Holder
from .phases import Phases
from .ports import Gpus, RestartError, Server
from .vram import Vram


class Ground:
    """Looks at GPUs and port, and refuses what would spoil a start. With `strict`, another tenant's VRAM is refused too."""

    def __init__(self, gpus: Gpus, server: Server, phases: Phases, idle_mib: int, strict: bool) -> None:
        self._gpus, self._server, self._phases, self._strict = gpus, server, phases, strict
        self._vram = Vram(idle_mib, strict=strict)

    @property
    def own(self) -> set[int]:
        """The unit's processes at the first look."""
        return self._vram.own

    def first_look(self, own: set[int]) -> list[int]:
        """MiB in use per GPU before anything changes, while the unit's own processes are known."""
        gpus = self._read()
        self._vram.first_look(gpus, own)
        return [gpu.used_mib for gpu in gpus]

    def used_mib(self) -> list[int]:
        return [gpu.used_mib for gpu in self._read()]

    def refuse_foreign(self) -> None:
        """Raise where another tenant or another server is in the way; nothing was stopped yet."""
        self._refuse_tenants(self._read())
        listener = self._server.listener()
        if listener and listener.pid not in self.own:
            raise self._phases.failure(
                "port_in_use",
                f"the port belongs to {listener}, which is not a process of this unit",
                "end that process or give the unit another port; nothing was stopped",
                listener=str(listener),
            )

    def require_own(self, listener: Holder, pids: set[int]) -> None:
        """Raise where the port belongs to another than the unit's processes `pids`."""
        if listener.pid not in pids:
            raise self._not_ours(
                listener,
                f"the port belongs to {listener}, not to the invocation that was started",
                "end that process or give the unit another port",
            )

    def taken(self) -> tuple[str, RestartError] | None:
        """None once GPUs and port are free; else what still holds them, and the failure if nobody will wait longer."""
        gpus, listener = self._read(), self._server.listener()
        held = self._vram.held(gpus)
        if self._strict:
            self._refuse_tenants(gpus)
        if listener:
            failure = self._not_ours(listener, f"the port is still held by {listener}", "end that process")
            return "the port is still held", failure
        if held:
            return f"GPUs {sorted(held)} hold up to {max(held.values())} MiB", self._not_released(gpus, held)
        return None

    def _not_ours(self, listener: Holder, message: str, remedy: str) -> RestartError:
        cause = "old_instance" if listener.pid in self.own else "port_in_use"
        return self._phases.failure(cause, message, remedy, listener=str(listener))

    def _not_released(self, gpus: Sequence[Gpu], held: Mapping[int, int]) -> RestartError:
        names = sorted({f"{holder}" for gpu in gpus if gpu.index in held for holder in gpu.holders})
        who = ", ".join(names) if names else "no process that can be seen from here (another pid namespace or user, or a driver leak)"
        said = ", ".join(f"GPU {index}: {mib} MiB" for index, mib in held.items())
        return self._phases.failure(
            "vram_not_released",
            f"VRAM is still held after the stop: {said}; by {who}",
            "nothing was started; find the holder (fuser -v /dev/nvidia*), or reset or reboot if there is none",
            held_mib=dict(held),
            holders=names,
        )

    def _refuse_tenants(self, gpus: Sequence[Gpu]) -> None:
        strangers = self._vram.strangers(gpus)
        if strangers:
            said = "; ".join(f"GPU {gpu.index}: {holder} holds {holder.mib or gpu.used_mib} MiB" for gpu, holder in strangers)
            raise self._phases.failure(
                "foreign_vram",
                f"another process holds this unit's GPUs: {said}",
                "end it, or give the unit other GPUs; nothing foreign was touched",
                holders=[{"gpu": gpu.index, "pid": h.pid, "name": h.name, "mib": h.mib} for gpu, h in strangers],
            )

    def _read(self) -> list[Gpu]:
        try:
            return self._gpus.read()
        except GpuError as error:
            raise self._phases.failure("no_gpu", str(error), error.remedy) from error

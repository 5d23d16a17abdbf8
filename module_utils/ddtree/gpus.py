"""The GPUs of one host through NVML, read one by one so that a lost board does not hide the others; nvidia-smi where NVML cannot load."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

MIB = 1024 * 1024
_SECRET_FLAG = re.compile(r"--?[\w-]*(key|token|secret|password)", re.IGNORECASE)


class GpuError(Exception):
    """The GPUs cannot be read or are not as the unit needs them; `remedy` says what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


class LibraryMissingError(GpuError):
    """NVML or its Python binding is not there, which says nothing about the GPUs."""


@dataclass(frozen=True)
class Holder:
    """A process that holds something of ours: VRAM or the port. `mib` is None where the driver does not tell."""

    pid: int
    name: str = ""
    user: str = ""
    mib: int | None = None
    graphics: bool = False
    visible: bool = True  # False: the pid does not exist in this pid namespace

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.name or 'not visible from here'}{', user ' + self.user if self.user else ''})"


@dataclass(frozen=True)
class Gpu:
    """One board: MiB in use without the driver's reserve, and who holds it."""

    index: int
    uuid: str
    name: str
    total_mib: int
    used_mib: int
    holders: tuple[Holder, ...] = ()


def without_keys(argv: Iterable[str]) -> list[str]:
    """A command line without the values of flags that carry a key, a token or a password."""
    shown: list[str] = []
    for one in argv:
        secret = bool(shown) and "=" not in shown[-1] and _SECRET_FLAG.fullmatch(shown[-1]) is not None
        flag, sign, _ = one.partition("=")
        shown.append("***" if secret else f"{flag}=***" if sign and _SECRET_FLAG.fullmatch(flag) else one)
    return shown


def process(pid: int, **known: Any) -> Holder:
    """Name a process as an operator would: its title and user."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            argv = without_keys(part for part in file.read().decode(errors="replace").split("\0") if part)
        with open(f"/proc/{pid}/comm") as file:
            name = " ".join(argv)[:120] or file.read().strip()
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return Holder(pid, visible=False, **known)
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return Holder(pid, name=name, user=user, **known)


class Nvml:
    """The GPUs `wanted` (indices or UUIDs; empty = all) of this host."""

    def __init__(self, wanted: Sequence[str] = (), load: Callable[[], Any] | None = None) -> None:
        self.wanted = list(wanted)
        self._load = load or _import_pynvml
        self._nvml: Any = None

    def read(self) -> list[Gpu]:
        """Read each wanted GPU now. Raises GpuError if any of them cannot be read: half a view is no view."""
        try:
            nvml = self.library()
        except LibraryMissingError:
            if not shutil.which("nvidia-smi"):
                raise
            return Smi(self.wanted).read()
        handles = self._handles(nvml)
        gpus, lost = [], []
        for index, handle in handles:
            try:
                gpus.append(read_board(nvml, index, handle))
            except nvml.NVMLError as error:
                lost.append(f"GPU {index}: {error}")
        if lost:
            raise GpuError(
                f"{len(lost)} of {len(handles)} GPUs cannot be read: {'; '.join(lost)}",
                "reset or reseat the board, or reboot the host; MIG must be off",
            )
        return gpus

    def driver(self) -> str:
        """The driver's version."""
        try:
            return str(self.library().nvmlSystemGetDriverVersion())
        except LibraryMissingError:
            return _smi("--query-gpu=driver_version").splitlines()[0].strip()

    def library(self) -> Any:
        """NVML, started. Raises GpuError."""
        if self._nvml is None:
            nvml = self._load()
            try:
                nvml.nvmlInit()
            except nvml.NVMLError as error:
                kind = LibraryMissingError if isinstance(error, nvml.NVMLError_LibraryNotFound) else GpuError
                raise kind(f"NVML does not start: {error}", _remedy(nvml, error)) from error
            self._nvml = nvml
        return self._nvml

    def _handles(self, nvml: Any) -> list[tuple[int, Any]]:
        count = nvml.nvmlDeviceGetCount()
        wanted = self.wanted or [str(index) for index in range(count)]
        if not wanted:
            raise GpuError("the driver lists no GPU", "check lspci and the driver")
        found = []
        for one in wanted:
            try:
                if one.isdigit():
                    if int(one) >= count:
                        raise GpuError(f"GPU {one} is asked for, the host has {count}", "set the unit's GPUs to those the host has")
                    found.append((int(one), nvml.nvmlDeviceGetHandleByIndex(int(one))))
                else:
                    handle = nvml.nvmlDeviceGetHandleByUUID(one)
                    found.append((nvml.nvmlDeviceGetIndex(handle), handle))
            except nvml.NVMLError as error:
                raise GpuError(f"GPU {one} cannot be opened: {error}", "reset or reseat the board, or reboot the host") from error
        return found


class Smi:
    """The same through nvidia-smi. A cell that is no number is an error, never 0."""

    def __init__(self, wanted: Sequence[str] = (), run: Callable[..., str] | None = None) -> None:
        self.wanted, self._run = list(wanted), run or _smi

    def read(self) -> list[Gpu]:
        """Read each wanted GPU now. Raises GpuError as Nvml does."""
        rows = _rows(self._run("--query-gpu=index,uuid,name,memory.total,memory.used"))
        apps = _rows(self._run("--query-compute-apps=gpu_uuid,pid,used_memory"))
        gpus = []
        for index, uuid, name, total, used in (row for row in rows if len(row) == 5):
            if self.wanted and index not in self.wanted and uuid not in self.wanted:
                continue
            if not (total.isdigit() and used.isdigit()):
                raise GpuError(
                    f"GPU {index}: nvidia-smi gives {used!r} for the memory in use", "MIG must be off, and the board must report its memory"
                )
            holders = tuple(process(int(pid), mib=int(mib) if mib.isdigit() else None) for board, pid, mib in apps if board == uuid)
            gpus.append(Gpu(int(index), uuid, name, int(total), int(used), holders))
        missing = set(self.wanted) - {str(gpu.index) for gpu in gpus} - {gpu.uuid for gpu in gpus}
        if missing or not gpus:
            raise GpuError(
                f"GPUs {sorted(missing) or 'of any kind'} are not listed by nvidia-smi", "reset or reseat the board, or reboot the host"
            )
        return gpus


def _rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]


def _smi(query: str) -> str:
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GpuError(f"nvidia-smi cannot be run: {error}", "install the NVIDIA driver") from error
    if done.returncode:
        raise GpuError(f"nvidia-smi failed: {done.stdout.strip() or done.stderr.strip()}", "check the driver; reboot after an upgrade")
    return done.stdout


def read_board(nvml: Any, index: int, handle: Any) -> Gpu:
    """One board now; raises NVML's own error."""
    memory = _memory(nvml, handle)
    return Gpu(
        index=index,
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        name=str(nvml.nvmlDeviceGetName(handle)),
        total_mib=memory.total // MIB,
        used_mib=memory.used // MIB,
        holders=_holders(nvml, handle),
    )


def _memory(nvml: Any, handle: Any) -> Any:
    """Version 2 leaves the driver's reserve out of `used`; version 1 counts it, so it is only the last resort."""
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_InvalidArgument, nvml.NVMLError_ArgumentVersionMismatch):
        return nvml.nvmlDeviceGetMemoryInfo(handle)


def _holders(nvml: Any, handle: Any) -> tuple[Holder, ...]:
    seen: dict[int, Holder] = {}
    for ask, graphics in (
        (nvml.nvmlDeviceGetGraphicsRunningProcesses, True),
        (nvml.nvmlDeviceGetComputeRunningProcesses, False),
    ):
        try:
            listed = ask(handle)
        except nvml.NVMLError:
            continue  # names only; the board's own figure decides
        for one in listed:
            used = one.usedGpuMemory
            seen[one.pid] = process(one.pid, mib=None if used is None else used // MIB, graphics=graphics)
    return tuple(seen.values())


def _remedy(nvml: Any, error: Any) -> str:
    if isinstance(error, nvml.NVMLError_LibRmVersionMismatch):
        return "driver and library differ after an upgrade: reboot; a running engine was left alone, since it could not start again"
    if isinstance(error, nvml.NVMLError_LibraryNotFound):
        return "install the NVIDIA driver, or put the folder of libnvidia-ml.so.1 into gpu_host_environment.LD_LIBRARY_PATH"
    if isinstance(error, nvml.NVMLError_DriverNotLoaded):
        return "load the nvidia kernel module"
    return "check nvidia-smi on the host"


def _import_pynvml() -> Any:
    try:
        import pynvml
    except ImportError as error:
        raise LibraryMissingError(
            "Python package nvidia-ml-py is missing", "run the role gpu_host: it installs the toolkit's venv"
        ) from error
    return pynvml

"""systemd and supervisord behind one small interface: state, stop, start, pids, definition and log of one unit."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .ports import UnitState

_SHOWN = (
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "InvocationID",
    "MainPID",
    "NRestarts",
    "ExecMainCode",
    "ExecMainStatus",
    "ControlGroup",
    "FragmentPath",
    "DropInPaths",
    "EnvironmentFiles",
    "NeedDaemonReload",
    "ExecMainStartTimestampMonotonic",
)
_CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")
_ANY_LINE = re.compile(r"^(\w+)=(.*)")
_SECRET_LINE = re.compile(r"^(\w*(?:KEY|TOKEN|SECRET|PASSWORD)\w*)=(.*)", re.IGNORECASE)


class ServiceError(Exception):
    """The manager itself failed; the message says which command and what it answered."""


class Systemd:
    """One systemd unit, through systemctl, journalctl and its control group."""

    def __init__(self, unit: str, secrets: Sequence[str] = ()) -> None:
        self._secrets = secrets
        self.name = unit if "." in unit else f"{unit}.service"
        self._log = _Journal()
        self._group = ""  # where it was last seen: systemctl forgets it with the last process

    def state(self) -> UnitState:
        shown = self._show()
        code, status = shown.get("ExecMainCode", "0"), shown.get("ExecMainStatus", "0")
        died = {"1": f"status {status}", "2": f"signal {status}", "3": f"signal {status} (core dumped)"}
        return UnitState(
            exists=shown.get("LoadState") not in ("not-found", "bad-setting", "error"),
            masked=shown.get("LoadState") == "masked",
            active=shown.get("ActiveState", "inactive"),
            sub=shown.get("SubState", "dead"),
            result=shown.get("Result", "success"),
            invocation=shown.get("InvocationID", ""),
            main_pid=int(shown.get("MainPID") or 0),
            restarts=int(shown.get("NRestarts") or 0),
            exit_status=died.get(code, ""),
        )

    def stop(self) -> None:
        _command(["systemctl", "stop", "--no-block", self.name])

    def start(self) -> None:
        """Never a restart: daemon-reload where files changed, forget earlier failures, start."""
        if self._show().get("NeedDaemonReload") == "yes":
            _command(["systemctl", "daemon-reload"])
        subprocess.run(["systemctl", "reset-failed", self.name], capture_output=True, check=False)
        _command(["systemctl", "start", "--no-block", self.name])

    def pids(self) -> set[int]:
        if not self._group:
            self._show()
        return _group_pids(self._group) if self._group else set()

    def kill_remaining(self) -> None:
        """End what the manager left in the unit's own control group."""
        _command(["systemctl", "kill", "--kill-who=all", "--signal=SIGKILL", self.name])

    def definition(self) -> str:
        """What a start would use: unit, drop-ins and environment files, without comments, with secrets as digests."""
        return _definition(_files(self._show()), self._secrets)

    def changed_since_start(self) -> bool:
        """Whether a file of the definition is younger than the main process."""
        shown = self._show()
        age = time.clock_gettime(time.CLOCK_MONOTONIC) - int(shown.get("ExecMainStartTimestampMonotonic") or 0) / 1e6
        return _any_younger(_files(shown), time.time() - age)

    def log(self, state: UnitState) -> list[str]:
        return self._log.lines(state.invocation)

    def _show(self) -> dict[str, str]:
        text = _command(["systemctl", "show", self.name, f"--property={','.join(_SHOWN)}"])
        shown: dict[str, str] = {}
        for line in text.splitlines():
            key, _, value = line.partition("=")
            shown[key] = f"{shown[key]} {value}" if key in shown else value
        self._group = shown.get("ControlGroup") or self._group
        return shown


class _Journal:
    """The lines of one invocation, read on from where the last look ended."""

    def __init__(self) -> None:
        self._invocation, self._cursor = "", ""
        self._lines: list[str] = []

    def lines(self, invocation: str) -> list[str]:
        if invocation != self._invocation:
            self._invocation, self._cursor, self._lines = invocation, "", []
        if not invocation:
            return []
        since = [f"--after-cursor={self._cursor}"] if self._cursor else []
        text = _command(
            [
                "journalctl",
                "--quiet",
                "--no-pager",
                "--output=cat",
                "--all",
                "--show-cursor",
                *since,
                f"_SYSTEMD_INVOCATION_ID={invocation}",
                "+",
                f"INVOCATION_ID={invocation}",
            ],
            may_be_empty=True,  # journalctl ends with 1 when it has no entry yet
        )
        for line in text.splitlines():
            if line.startswith("-- cursor: "):
                self._cursor = line[len("-- cursor: ") :]
            else:
                self._lines.append(line)
        return self._lines


class Supervisor:
    """One supervisord program, for hosts whose PID 1 is not systemd. An invocation is the start time and the pid."""

    def __init__(self, program: str, config: str, socket: str, secrets: Sequence[str] = ()) -> None:
        self._secrets = secrets
        self.name, self._config, self._socket = program, config, socket
        self._last_seen: tuple[int, str] = (0, "")
        self._stop_asked = 0.0

    def state(self) -> UnitState:
        found = self._info()
        if found is None:
            return UnitState(exists=os.path.exists(self._program_file()))
        name = found["statename"]
        active = {
            "RUNNING": "active",
            "STARTING": "activating",
            "BACKOFF": "activating",
            "STOPPING": "deactivating",
            "FATAL": "failed",
            "EXITED": "failed",
            "STOPPED": "inactive",
        }.get(name, "inactive")
        clean = name in ("STOPPED", "RUNNING", "STARTING", "STOPPING")
        return UnitState(
            active=active,
            sub="auto-restart" if name == "BACKOFF" else name.lower(),
            result="timeout" if self._was_killed(found) else "success" if clean else "exit-code",
            invocation=self._invocation(found),
            main_pid=int(found["pid"]),
            exit_status=f"status {found['exitstatus']}" if name in ("EXITED", "FATAL", "BACKOFF") else "",
        )

    def _invocation(self, found: Any) -> str:
        """Start time and pid; supervisord forgets the pid of an ended instance, so the last one seen is kept."""
        if found["pid"]:
            self._last_seen = (found["start"], f"{found['start']}-{found['pid']}")
        seen, invocation = self._last_seen
        return invocation if seen == found["start"] else f"{found['start']}-ended"

    def _was_killed(self, found: Any) -> bool:
        """supervisord sends SIGKILL once stopwaitsecs are over."""
        if found["statename"] != "STOPPED" or not self._stop_asked:
            return False
        with self._server() as server:
            config = next(one for one in server.supervisor.getAllConfigInfo() if one["name"] == self.name)
        return bool(found["stop"] + 1 - self._stop_asked >= config["stopwaitsecs"])

    def stop(self) -> None:
        self._stop_asked = time.time()
        found = self._info()
        if found and found["statename"] in ("RUNNING", "STARTING", "BACKOFF"):
            with self._server() as server:
                server.supervisor.stopProcess(self.name, False)

    def start(self) -> None:
        with self._server() as server:
            _, changed, _ = server.supervisor.reloadConfig()[0]
            if self.name in changed:
                server.supervisor.removeProcessGroup(self.name)
            if self._info() is None:
                server.supervisor.addProcessGroup(self.name)
            with contextlib.suppress(FileNotFoundError):
                os.replace(self._log_file(), f"{self._log_file()}.1")  # the log then holds this instance only
            server.supervisor.startProcess(self.name, False)

    def pids(self) -> set[int]:
        """Every process that carries supervisord's own mark, also one whose parent has gone."""
        marks = {f"SUPERVISOR_PROCESS_NAME={self.name}", f"SUPERVISOR_SERVER_URL=unix://{self._socket}"}
        found = set()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                environment = set((entry / "environ").read_bytes().decode(errors="replace").split("\0"))
            except OSError:
                continue
            if marks <= environment and not _zombie(int(entry.name)):
                found.add(int(entry.name))
        return found

    def kill_remaining(self) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def definition(self) -> str:
        return _definition([self._program_file()], self._secrets)

    def changed_since_start(self) -> bool:
        found = self._info()
        return bool(found) and _any_younger([self._program_file()], found["start"])

    def log(self, state: UnitState) -> list[str]:
        """The program's log file: each start begins a new one."""
        try:
            return Path(self._log_file()).read_text(errors="replace").splitlines()
        except OSError:
            return []

    def _program_file(self) -> str:
        return os.path.join(os.path.dirname(self._config), "conf.d", f"{self.name}.conf")

    def _log_file(self) -> str:
        return os.path.join(os.path.dirname(self._config), "log", f"{self.name}.log")

    def _info(self) -> Any:
        import xmlrpc.client

        try:
            with self._server() as server:
                return server.supervisor.getProcessInfo(self.name)
        except xmlrpc.client.Fault as fault:
            if "BAD_NAME" in str(fault):
                return None
            raise ServiceError(f"supervisord refused a question about {self.name}: {fault}") from fault

    @contextlib.contextmanager
    def _server(self) -> Iterator[Any]:
        import xmlrpc.client

        try:
            from supervisor.xmlrpc import SupervisorTransport
        except ImportError as error:
            raise ServiceError("Python package supervisor is missing: run the role gpu_host, it installs the toolkit's venv") from error
        server = xmlrpc.client.ServerProxy("http://localhost", transport=SupervisorTransport(None, None, f"unix://{self._socket}"))
        try:
            yield server
        except OSError as error:
            raise ServiceError(
                f"supervisord does not answer on {self._socket}: {error}; run the role ddtree_server, it starts it"
            ) from error


def _files(shown: dict[str, str]) -> list[str]:
    """Unit, drop-ins and environment files."""
    paths = [shown.get("FragmentPath", ""), *shown.get("DropInPaths", "").split()]
    paths += re.findall(r"(\S+) \(ignore_errors=\w+\)", shown.get("EnvironmentFiles", ""))
    return [path for path in paths if path]


def _any_younger(paths: Sequence[str], since: float) -> bool:
    for path in paths:
        with contextlib.suppress(OSError):
            if os.stat(path).st_ctime > since:  # not mtime: a copy may bring an old one along
                return True
    return False


def _definition(paths: Sequence[str], secrets: Sequence[str]) -> str:
    """The files' meaningful lines; a secret, by value or by the look of its name, becomes a digest, so that a new key is a change."""
    lines = []
    for path in paths:
        try:
            text = Path(path).read_text(errors="replace")
        except OSError as error:
            lines.append(f"# {path}: {error.strerror}")
            continue
        for secret in secrets:
            for written in (secret, secret.replace("%", "%%")):  # supervisord's files double the sign
                text = text.replace(written, _digest(secret))
        sign = _ANY_LINE if path.endswith(".keys") else _SECRET_LINE
        meant = [line.rstrip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("#", ";"))]
        lines += [sign.sub(lambda found: f"{found[1]}={_digest(found[2])}", line) for line in meant]
    return "\n".join(lines)


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _group_pids(group: str, roots: Sequence[str] = _CGROUPS) -> set[int]:
    """Processes of a control group and the groups below it, on cgroup v2, v1 and hybrid hosts."""
    pids: set[int] = set()
    # os.walk passes over what goes away while it looks, as a group does when its unit stops.
    for folder in (folder for root in roots for folder, _, _ in os.walk(root + group)):
        with contextlib.suppress(OSError):
            pids |= {int(pid) for pid in Path(folder, "cgroup.procs").read_text().split()}
    return {pid for pid in pids if not _zombie(pid)}


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _command(argv: Sequence[str], may_be_empty: bool = False) -> str:
    try:
        done = subprocess.run(list(argv), capture_output=True, text=True, errors="replace", timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceError(f"{argv[0]} cannot be run: {error}") from error
    if done.returncode and not (may_be_empty and not done.stdout and not done.stderr):
        raise ServiceError(f"{' '.join(argv[:3])} answered {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout

"""Runs a program nobody vouches for, away from everything, and hears what its function returned.

The values wanted never enter the sandbox: the program's answers come out and are compared outside, so that nothing it patches,
prints or raises can make it pass.

    systemd   a transient unit: DynamicUser, nothing to see but /usr read-only, no network, no devices, no other process, limits of
              its control group for memory, tasks, CPU and time
    bwrap     bubblewrap: new user, PID, network, IPC and mount namespaces, empty root with /usr read-only
    unshare   the same namespaces and root by util-linux alone, for hosts without the two
    none      only limits of resources and a process group: files, network and other processes are open to the program
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KINDS = ("systemd", "bwrap", "unshare")
OUTPUT_LIMIT = 1 << 16
CPU_SECONDS, WALL_SECONDS = 5, 15
MEMORY_MIB, PROCESSES, FILE_MIB, TMP_MIB = 256, 8, 1, 16
_RUNS = itertools.count()

# Reads its job from stdin, then has none; answers on a copy of stdout that it keeps for itself.
DRIVER = r"""
import json, os, resource, sys
job = json.loads(sys.stdin.buffer.read())
out, null = os.dup(1), os.open("/dev/null", os.O_RDWR)
for one in (0, 1, 2):
    os.dup2(null, one)
os.environ.clear()
for name, value in job["limits"].items():
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value + (name == "CPU")))
write, leave, dumps, kind, text = os.write, os._exit, json.dumps, type, str
def tell(**said):
    said["nonce"] = job["nonce"]
    write(out, dumps(said).encode())
    leave(0)
def words(error):
    try:
        return (kind(error).__name__ + ": " + text(error))[:200]
    except BaseException:
        return "an exception that cannot be shown"
space = {"__name__": "solution"}
try:
    exec(compile(job["code"], "solution.py", "exec"), space)
    function = space[job["entry"]]
except BaseException as error:
    tell(broken=words(error))
found = []
for arguments in job["calls"]:
    try:
        found.append(["value", dumps(function(*arguments))[:4000]])
    except BaseException as error:
        found.append(["raised", words(error)])
tell(found=found)
"""

# An empty root over /tmp with /usr read-only, then no capability at all; $@ is the program. The shell stays as the namespace's
# first process: signals to itself do nothing there, and everything ends with it.
_UNSHARE = r"""
set -e
mount -t tmpfs -o size=16m,mode=755,nosuid,nodev tmpfs /tmp
cd /tmp
mkdir usr proc dev tmp
mount --rbind /usr usr
mount -o remount,bind,ro,nosuid,nodev usr
for one in bin sbin lib lib64 lib32; do
  if [ -L /$one ]; then
    ln -s usr/$one $one
  elif [ -d /$one ]; then
    mkdir $one
    mount --rbind /$one $one
    mount -o remount,bind,ro,nosuid,nodev $one
  fi
done
mount -t proc -o nosuid,nodev,noexec proc proc
echo 0 > proc/sys/user/max_user_namespaces || :
: > dev/null
mount --bind /dev/null dev/null
mount -t tmpfs -o size=16m,mode=1777,nosuid,nodev tmpfs tmp
mount -o remount,ro,bind .
pivot_root . .
umount -l .
cd /tmp
status=0
setpriv --no-new-privs --inh-caps=-all --ambient-caps=-all --bounding-set=-all -- "$@" || status=$?
exit $status
"""


@dataclass(frozen=True)
class Answer:
    """What came out. `found`: for each call ["value", JSON text] or ["raised", words]; `broken`: why the program did not load."""

    state: str  # answered, timeout (by the clock), cpu (its CPU time is used up), silent or noisy
    found: list[list[str]] | None = None
    broken: str = ""
    exit_status: int | None = None


@dataclass(frozen=True)
class Sandbox:
    """One way to run programs; see the module's docstring for the kinds."""

    kind: str
    python: str
    cpu_seconds: int = CPU_SECONDS
    wall_seconds: float = WALL_SECONDS

    def run(self, code: str, entry: str, calls: Sequence[Sequence[Any]]) -> Answer:
        """Load `code` and call `entry` with each of `calls`. Returns soon after `wall_seconds` at the latest, with nothing left running.

        Several may run at once, in threads. Raises OSError where the sandbox's program cannot be started.
        """
        nonce = secrets.token_hex(16)
        limits = {"CPU": self.cpu_seconds, "AS": MEMORY_MIB << 20, "FSIZE": FILE_MIB << 20, "NOFILE": 64, "CORE": 0, "NPROC": PROCESSES}
        if self.kind == "none":
            del limits["NPROC"]  # it would count the user's other processes too
        job = json.dumps({"nonce": nonce, "code": code, "entry": entry, "calls": list(calls), "limits": limits}).encode()
        folder = tempfile.mkdtemp(prefix="ddtree-code-") if self.kind == "none" else "/"
        began = time.monotonic()
        try:
            # A user of its own for each run where we may choose: NPROC counts a user's processes, and not root's.
            uid = 64000 + (os.getpid() + next(_RUNS)) % 1000
            drop: dict[str, Any] = {"user": uid, "group": uid, "extra_groups": []} if os.geteuid() == 0 and self._drops() else {}
            process = subprocess.Popen(
                self._command(nonce), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, start_new_session=True,
                stderr=subprocess.PIPE if self.kind == "systemd" else subprocess.DEVNULL,
                env={"PATH": "/usr/bin:/usr/sbin:/bin:/sbin", "PYTHONHASHSEED": "0"}, **drop,
            )  # fmt: skip
            status, told = None, b""
            try:
                output = _exchange(process, job, began + self.wall_seconds)
                ended = output is not None and len(output) <= OUTPUT_LIMIT
                if ended:
                    status = process.wait(max(0.1, began + self.wall_seconds - time.monotonic()))
                    told = process.stderr.read() if process.stderr else b""
            except subprocess.TimeoutExpired:
                output = None  # it has closed its end and goes on
            finally:
                self._end(process, nonce)
        finally:
            if folder != "/":
                shutil.rmtree(folder, ignore_errors=True)
        # The kernel sends XCPU at the limit, and KILL a second later to a program that does not heed it.
        late = time.monotonic() - began >= self.cpu_seconds + 1
        return _read(output, nonce, status, _ended_by("XCPU", status, told) or (late and _ended_by("KILL", status, told)))

    def _drops(self) -> bool:
        return self.kind in ("bwrap", "unshare")

    def _command(self, nonce: str) -> list[str]:
        program = [self.python, "-s", "-S", "-c", DRIVER]
        if self.kind == "bwrap":
            return [*_bwrap(self.python), *program]
        if self.kind == "unshare":
            return ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts",
                    "--cgroup", "--", "/bin/sh", "-c", _UNSHARE, "sh", *program]  # fmt: skip
        if self.kind == "systemd":
            return [*_systemd_run(nonce, self.wall_seconds), *program]
        if self.kind != "none":
            raise ValueError(f"{self.kind} is no sandbox")
        return program

    def _end(self, process: subprocess.Popen[bytes], nonce: str) -> None:
        left = process.poll() is None
        if left or self.kind == "none":
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()
        if self.kind == "systemd" and left:  # else systemd-run has seen the unit end
            subprocess.run(["systemctl", "stop", _unit(nonce)], stdin=subprocess.DEVNULL, capture_output=True, check=False)


def candidates() -> list[str]:
    """The kinds whose programs this host has, best first; whether they work is for a trial run to say."""
    found = []
    if os.geteuid() == 0 and os.path.isdir("/run/systemd/system") and shutil.which("systemd-run"):
        found.append("systemd")
    found += ["bwrap"] if shutil.which("bwrap") else []
    found += ["unshare"] if shutil.which("unshare") and shutil.which("setpriv") else []
    return found


def interpreter() -> str:
    """A Python that a sandbox can see: below /usr if there is one."""
    own = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    for path in (own, "/usr/bin/python3", "/usr/local/bin/python3"):
        if os.path.realpath(path).startswith("/usr/") and os.access(path, os.X_OK):
            return path
    return own


@functools.lru_cache(maxsize=1)
def _no_more_namespaces() -> list[str]:
    """The option of newer versions that lets nothing inside make a user namespace of its own."""
    told = subprocess.run(["bwrap", "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return ["--unshare-user", "--disable-userns"] if "--disable-userns" in told.stdout + told.stderr else []


def _bwrap(python: str) -> list[str]:
    command = ["bwrap", "--unshare-all", *_no_more_namespaces(), "--die-with-parent", "--new-session", "--clearenv", "--setenv",
               "PYTHONHASHSEED", "0", "--cap-drop", "ALL", "--uid", "65534", "--gid", "65534", "--ro-bind", "/usr", "/usr"]  # fmt: skip
    for name in ("bin", "sbin", "lib", "lib64", "lib32"):
        if os.path.islink(f"/{name}"):
            command += ["--symlink", f"usr/{name}", f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            command += ["--ro-bind", f"/{name}", f"/{name}"]
    if not python.startswith("/usr/"):
        command += ["--ro-bind", sys.base_prefix, sys.base_prefix]
    command += [
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--remount-ro",
        "/dev",
        "--size",
        str(TMP_MIB << 20),
        "--tmpfs",
        "/tmp",
        "--remount-ro",
        "/",
    ]
    return [*command, "--chdir", "/tmp", "--"]


def _unit(nonce: str) -> str:
    return f"ddtree-code-{nonce[:12]}.service"


def _systemd_run(nonce: str, wall: float) -> list[str]:
    # No more than it takes: each option with a filter of system calls costs 10 ms a start. What is not here (clock, modules, kernel
    # log, real time) takes capabilities, of which there are none, or calls that the filter has not.
    yes = ("DynamicUser", "PrivateNetwork", "PrivateDevices", "PrivateIPC", "PrivateUsers", "ProtectHome", "ProtectKernelTunables",
           "ProtectControlGroups", "ProtectHostname", "NoNewPrivileges", "RestrictNamespaces")  # fmt: skip
    # DynamicUser brings folders for temporary files that are as large as the host's disk; this one is small, and gone with the unit.
    scratch = f"/run:rw,size={TMP_MIB}M,mode=1777"
    properties: Mapping[str, str] = {
        **dict.fromkeys(yes, "yes"), "ProtectSystem": "strict", "ProtectProc": "invisible", "ProcSubset": "pid",
        "RestrictAddressFamilies": "AF_UNIX", "CapabilityBoundingSet": "", "SystemCallFilter": "@system-service",
        "SystemCallErrorNumber": "EPERM", "SystemCallArchitectures": "native",
        "TemporaryFileSystem": " ".join([scratch, *(f"{one}:ro" for one in _private())]),
        "InaccessiblePaths": "-/tmp -/var/tmp -/sys -/dev/shm -/dev/mqueue -/dev/hugepages", "WorkingDirectory": "/run",
        "MemoryMax": f"{MEMORY_MIB}M", "MemorySwapMax": "0", "TasksMax": str(PROCESSES), "CPUQuota": "100%",
        "RuntimeMaxSec": f"{wall:.0f}", "KillSignal": "SIGKILL", "OOMPolicy": "kill", "UMask": "0077",
    }  # fmt: skip
    settings = [part for key, value in properties.items() for part in ("-p", f"{key}={value}")]
    return ["systemd-run", "--pipe", "--wait", "--collect", "--service-type=exec", f"--unit={_unit(nonce)}",
            "--setenv=PYTHONHASHSEED=0", *settings, "--"]  # fmt: skip


def _private() -> list[str]:
    """Folders of the root that become empty ones; DynamicUser brings the host's root back over an empty one."""
    shown = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "proc", "dev", "sys", "tmp", "run")
    paths = sorted(f"/{name}" for name in os.listdir("/") if name not in shown)
    return [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]


def _exchange(process: subprocess.Popen[bytes], job: bytes, end: float) -> bytes | None:
    """Send the job and read what comes back; None when the time is over, more than OUTPUT_LIMIT bytes when the program floods."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the pipes are missing")
    to, back, output = process.stdin.fileno(), process.stdout.fileno(), b""
    os.set_blocking(to, False)
    with selectors.DefaultSelector() as ready:
        ready.register(to, selectors.EVENT_WRITE)
        ready.register(back, selectors.EVENT_READ)
        while True:
            left = end - time.monotonic()
            if left <= 0:
                return None
            for key, _ in ready.select(left):
                if key.fd == to:
                    try:
                        job = job[os.write(to, job) :]
                    except BrokenPipeError:
                        job = b""
                    if not job:
                        ready.unregister(to)
                        process.stdin.close()
                else:
                    piece = os.read(back, 1 << 16)
                    output += piece
                    if not piece or len(output) > OUTPUT_LIMIT:
                        return output


def _ended_by(name: str, status: int | None, told: bytes) -> bool:
    """Whether a signal ended the program, by an exit status or systemd-run's words."""
    number = signal.Signals[f"SIG{name}"]
    return status in (-number, 128 + number) or f"status={name}".encode() in told


def _read(output: bytes | None, nonce: str, status: int | None, long: bool) -> Answer:
    if output is None:
        return Answer("timeout", exit_status=status)
    if not output:
        return Answer("cpu" if long else "silent", exit_status=status)
    try:
        said = json.loads(output)
        if said["nonce"] != nonce:
            raise ValueError("the mark is missing")
        if "broken" in said:
            return Answer("answered", broken=str(said["broken"]) or "broken", exit_status=status)
        return Answer("answered", [[str(one[0]), str(one[1])] for one in said["found"]], exit_status=status)
    except (ValueError, LookupError, TypeError, RecursionError):
        return Answer("noisy", exit_status=status)

"""Answers that a coding check must survive, with what must become of each, and a look at a host before and after.

Runs on a host by itself too: `python3 hostile.py KIND` judges all answers in that sandbox and prints one JSON object.
"""
# ruff: noqa: E501  a program is easier to read in its table's row

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddtree.codecheck import Reply, choose, judge_all, self_check
from ddtree.coding_set import ALL
from ddtree.coding_tasks import ORIGIN
from ddtree.sandbox import Sandbox

FIB = "def fib(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a"
RIGHT = FIB + "\n"
WRONG = "def fib(n):\n    return n\n"
F = "```"
TASK = {task.name: task for task in ORIGIN}["fib"]
SECRET = "/etc/ddtree-hostile.env"
KEY = "a-key-that-nobody-may-see"


def block(code: str, tag: str = "python") -> str:
    return f"{F}{tag}\n{code}\n{F}"


# Programs, each to be put into a block: what must become of it. Several outcomes where sandboxes stop it in different ways.
PROGRAMS: dict[str, tuple[str, str]] = {
    "fork bomb": ("import os\ndef fib(n):\n    while True:\n        os.fork()\n", "error failed timeout"),
    "fork bomb at import": ("import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n" + RIGHT, "timeout"),
    "thread bomb": ("import threading, time\ndef fib(n):\n    while True:\n        threading.Thread(target=time.sleep, args=(60,)).start()\n",
                    "error failed timeout"),
    "endless loop": ("def fib(n):\n    while True:\n        pass\n", "timeout"),
    "endless loop at import": ("while True:\n    pass\n" + RIGHT, "timeout"),
    "sleeps": ("import time\ndef fib(n):\n    time.sleep(600)\n", "timeout"),
    "stops itself": ("import os, signal\ndef fib(n):\n    os.kill(os.getpid(), signal.SIGSTOP)\n", "timeout failed error"),
    "ignores signals": ("import signal\nfor one in range(1, 65):\n    try:\n        signal.signal(one, signal.SIG_IGN)\n    except Exception:\n"
                        "        pass\ndef fib(n):\n    while True:\n        pass\n", "timeout"),
    "endless output": ("def fib(n):\n    while True:\n        print('x' * 10000)\n", "timeout"),
    "floods the answer": ("import os\ndef fib(n):\n    for fd in range(3, 64):\n        try:\n            while True:\n"
                          "                os.write(fd, b'x' * 4096)\n        except OSError:\n            pass\n    return 'flooded'\n",
                          "error failed timeout"),
    "forges an answer": ("import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b'{\"nonce\": \"\", \"found\": []}')\n"
                         "    except OSError:\n        pass\nos._exit(0)\n" + RIGHT, "error"),
    "forges with the nonce": ("import sys, os, json\nf = sys._getframe(1).f_globals\nos.write(f['out'], json.dumps({'nonce': f['job']['nonce'], 'found': "
                              "[['value', '0']] * len(f['job']['calls'])}).encode())\nos._exit(0)\ndef fib(n):\n    return 0\n", "failed"),
    "prints the verdict": ("print('ok fib 9/9 passed')\nprint('PASSED')\nimport os\nos._exit(0)\ndef fib(n):\n    return 0\n", "error"),
    "exit 0": ("import os\nos._exit(0)\n" + RIGHT, "error"),
    "sys.exit at import": ("import sys\nsys.exit(0)\n" + RIGHT, "error"),
    "os._exit in a case": ("import os\ndef fib(n):\n    os._exit(0)\n", "error"),
    "sys.exit in a case": ("import sys\ndef fib(n):\n    sys.exit(0)\n", "failed"),
    "kills itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n" + RIGHT, "error"),
    "kills everybody": ("import os, signal\ndef fib(n):\n    os.kill(-1, signal.SIGKILL)\n    return 'alive'\n", "error failed"),
    "kills its parent": ("import os, signal\ndef fib(n):\n    os.kill(os.getppid(), signal.SIGKILL)\n    return 'alive'\n", "error failed"),
    "leaves a child behind": ("import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(61234)\n    os._exit(0)\n" + RIGHT, "passed timeout error"),
    "raises at import": ("raise RuntimeError('no')\n" + RIGHT, "error"),
    "reads stdin": ("answer = input()\n" + RIGHT, "error"),
    "reads stdin in a case": ("def fib(n):\n    return int(input())\n", "failed"),
    "memory": ("hog = []\ndef fib(n):\n    while True:\n        hog.append(bytearray(1 << 27))\n", "failed error"),
    "much memory at import": ("hog = 'x' * (1 << 40)\n" + RIGHT, "error"),
    "deep recursion": ("def fib(n):\n    return fib(n + 1)\n", "failed error"),
    "recursion without a limit": ("import sys\nsys.setrecursionlimit(1 << 30)\ndef fib(n):\n    return fib(n + 1)\n", "error failed timeout"),
    "equal to everything": ("class Same(int):\n    def __eq__(self, other):\n        return True\n    __hash__ = int.__hash__\ndef fib(n):\n    return Same(7)\n",
                            "failed"),
    "patches the builtins": ("import builtins, json, os, sys\nbuiltins.print = lambda *a, **k: None\njson.dumps = lambda *a: '1'\nbuiltins.len = lambda x: 0\n"
                             "builtins.type = lambda x: None\ndef fib(n):\n    return 1\n", "failed"),
    "patches the driver": ("import __main__\n__main__.dumps = lambda *a, **k: '{}'\n__main__.job['calls'].clear()\n__main__.found = []\ndef fib(n):\n    return 0\n",
                           "failed error"),
    "clears the cases": ("import sys\nsys._getframe(1).f_globals['job']['calls'].clear()\ndef fib(n):\n    return 0\n", "error"),
    "patches json and exits": ("import atexit, json, os\njson.loads = None\natexit.register(os._exit, 0)\ndef fib(n):\n    return '0'\n", "failed"),
    "is no function": ("fib = 5\n", "failed"),
    "does not return JSON": ("def fib(n):\n    return {1, 2}\n", "failed"),
    "returns nothing": ("def fib(n):\n    print(n)\n", "failed"),
    "returns True for 1": ("def fib(n):\n    return True if n in (1, 2) else [0, 1, 1][n % 3]\n", "failed"),
    "returns itself": ("def fib(n):\n    x = []\n    x.append(x)\n    return x\n", "failed error"),
    "returns not a number": ("def fib(n):\n    return float('nan')\n", "failed"),
    "raises what cannot be shown": ("class Odd(BaseException):\n    def __str__(self):\n        raise self\ndef fib(n):\n    raise Odd()\n", "failed"),
    "returns much": ("def fib(n):\n    return 'x' * 1_000_000\n", "failed"),
    "another signature": ("def fib():\n    return 0\n", "failed"),
    "reads /etc": ("def fib(n):\n    return open('/etc/passwd').read()\n", "failed"),
    "reads the env file": (f"def fib(n):\n    return open({SECRET!r}).read()\n", "failed"),
    "uses the network": ("import socket\ndef fib(n):\n    return socket.create_connection(('127.0.0.1', 22), 1).recv(9).decode()\n", "failed"),
    "asks a name server": ("import socket\ndef fib(n):\n    return socket.gethostbyname('example.org')\n", "failed"),
    "writes outside": ("def fib(n):\n    for path in ('/usr/ddtree-escaped', '/etc/ddtree-escaped', '/ddtree-escaped'):\n        open(path, 'w').write('x')\n    return 0\n", "failed"),
    "fills the disk": ("def fib(n):\n    at = 0\n    while True:\n        at += 1\n        open(f'ddtree-escaped-{at}', 'w').write('x' * (1 << 20))\n", "failed error"),
    "mounts": ("import ctypes\ndef fib(n):\n    return [ctypes.CDLL(None).mount(b'x', b'/usr', b'tmpfs', 0, 0)] * 9\n", "failed"),
    "runs a shell": ("import subprocess\ndef fib(n):\n    subprocess.run('touch /tmp/ddtree-escaped; nohup sleep 61234 &', shell=True)\n    return 0\n", "failed"),
    "crashes the interpreter": ("import ctypes\ndef fib(n):\n    ctypes.string_at(0)\n", "error"),
    "unicode names": ("def fib(n):\n    größe, naïve = 0, 1\n    for _ in range(n):\n        größe, naïve = naïve, größe + naïve\n    return größe  # ✓ 斐波那契\n", "passed"),
    "tabs": (FIB.replace("    ", "\t") + "\n", "passed"),
    "tabs and spaces mixed": ("def fib(n):\n\tif n < 2:\n        return n\n\treturn fib(n - 1)\n", "error"),
    "coding cookie": ("# -*- coding: rot13 -*-\n" + RIGHT, "passed"),
    "null bytes": ("def fib(n):\n    return '\x00'\n", "error"),
    "lone surrogate": ("def fib(n):\n    return '\ud800'\n", "error"),
}  # fmt: skip
REPLIES: dict[str, tuple[Reply, str]] = {
    "right": (Reply(block(RIGHT)), "passed"),
    "right, cut after it": (Reply(block(RIGHT) + "\n\nIt works sin", "length"), "passed"),
    "wrong": (Reply(block(WRONG)), "failed"),
    "wrong, cut": (Reply(block(WRONG) + "\n\nWait, I", "length"), "truncated"),
    "no fence": (Reply(RIGHT), "passed"),
    "prose around, no fence": (Reply(f"Here is it:\n\n{FIB}\n\nIt runs in linear time."), "passed"),
    "three fences": (Reply(f"{block('pip install x', 'bash')}\n{block(RIGHT)}\n{block('0 1 1 2', 'text')}"), "passed"),
    "draft, then answer": (Reply(f"{block(WRONG)}\nNo:\n{block(RIGHT)}"), "passed"),
    "answer, then usage": (Reply(f"{block(RIGHT)}\nUse it:\n{block('print(fib(int(input())))')}"), "passed"),
    "tildes": (Reply(f"~~~py\n{RIGHT}~~~"), "passed"),
    "fence of five in a list": (Reply("1. So:\n" + "\n".join(f"   {line}" for line in f"`````Python3 x\n{RIGHT}`````".split("\n"))), "passed"),
    "unclosed fence": (Reply(f"{F}python\n{RIGHT}"), "passed"),
    "fence in a docstring": (Reply(block(RIGHT.replace("def fib(n):\n", f'def fib(n):\n    """Use:\n\n    {F}\n    fib(3)\n    {F}\n    """\n'))), "passed"),
    "CRLF": (Reply(block(RIGHT).replace("\n", "\r\n")), "passed"),
    "invisible letters": (Reply("\ufeff" + block(RIGHT.replace("    ", "\u00a0" * 4).replace("fib(n)", "fib\u200b(n)"))), "passed"),
    "cut in the middle of a string": (Reply(f"{F}python\ndef fib(n):\n    x = 'cut in the mid", "length"), "truncated"),
    "cut in the middle of a string, it says it is done": (Reply(f"{F}python\ndef fib(n):\n    x = 'cut in the mid"), "error"),
    "no code": (Reply("I cannot help with that."), "error"),
    "other code": (Reply(block("def other(n):\n    return n")), "error"),
    "empty": (Reply(""), "empty"),
    "white space": (Reply(" \n\t\n"), "empty"),
    "empty, cut": (Reply("", "length"), "truncated"),
    "all in the reasoning field": (Reply("", reasoning=f"Maybe {block(RIGHT)}"), "empty"),
    "cut in the reasoning field": (Reply("", "length", f"Maybe {block(RIGHT)}"), "truncated"),
    "answer beside a reasoning field": (Reply(block(RIGHT), reasoning=block(WRONG)), "passed"),
    "reasoning in tags": (Reply(f"<think>Maybe {block(WRONG)} no</think>\n{block(RIGHT)}"), "passed"),
    "reasoning that ends only": (Reply(f"maybe {block(WRONG)}</think>{block(RIGHT)}"), "passed"),
    "Kimi's reasoning": (Reply(f"◁think▷ {block(WRONG)} ◁/think▷ {block(RIGHT)}"), "passed"),
    "Mistral's reasoning": (Reply(f"[THINK]{block(WRONG)}[/THINK]{block(RIGHT)}"), "passed"),
    "cut in the reasoning's tags": (Reply(f"<think>Maybe {block(RIGHT)}", "length"), "truncated"),
    "the engine failed": (Reply(error="the engine answered 500: boom"), "error"),
    "the engine did not answer in time": (Reply(error="timeout"), "timeout"),
    **{name: (Reply(block(code)), outcome) for name, (code, outcome) in PROGRAMS.items()},
}  # fmt: skip


def judged(sandbox: Sandbox) -> dict[str, Any]:
    """All of the table: {harness: what is wrong with it, entries: by name, seconds}."""
    began = time.monotonic()
    harness = self_check(sandbox, ALL)
    short = replace(sandbox, cpu_seconds=1, wall_seconds=4.0)
    entries = judge_all([(TASK, reply) for reply, _ in REPLIES.values()], short)
    return {"harness": harness, "entries": dict(zip(REPLIES, entries)), "seconds": round(time.monotonic() - began, 1)}


# -- what a program can see and do, and what is left of it -----------------------------------------------------------------

WAYS_OUT = f"""
import json, os, socket, subprocess
def attempt(what):
    try:
        return str(what())[:80]
    except BaseException as error:
        return "no: " + type(error).__name__
def write(path):
    with open(path, "w") as out:
        out.write("here")
    return "wrote"
def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(1)
        one.connect(address)
    return "connected"
def fib(n):
    ways = {{
        "passwd": lambda: open("/etc/passwd").read(), "secret": lambda: open({SECRET!r}).read(), "root": lambda: os.listdir("/root")[0],
        "home": lambda: os.listdir("/home")[0], "opt": lambda: os.listdir("/opt")[0], "var": lambda: os.listdir("/var/log")[0],
        "usr": lambda: write("/usr/ddtree-escaped"), "top": lambda: write("/ddtree-escaped"), "dev": lambda: write("/dev/ddtree-escaped"),
        "shm": lambda: write("/dev/shm/ddtree-escaped"), "var tmp": lambda: write("/var/tmp/ddtree-escaped"), "sys": lambda: os.listdir("/sys/class")[0],
        "ssh": lambda: connect(socket.AF_INET, ("127.0.0.1", 22)), "loopback": lambda: connect(socket.AF_INET, ("127.0.0.1", 1)),
        "dbus": lambda: connect(socket.AF_UNIX, "/run/dbus/system_bus_socket"), "systemd": lambda: connect(socket.AF_UNIX, "/run/systemd/private"),
        "packets": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW), "init": lambda: os.readlink("/proc/1/root") if os.getppid() != 1 else 1 / 0,
        "sudo": lambda: subprocess.run(["sudo", "-n", "id"], check=True), "su": lambda: os.setuid(0) if os.getuid() else 1 / 0,
        "mount": lambda: subprocess.run(["mount", "-t", "tmpfs", "x", "/usr"], check=True),
        "namespace": lambda: subprocess.run(["unshare", "--user", "true"], check=True), "limits": lambda: __import__("resource").setrlimit(0, (-1, -1)),
        "gpu": lambda: [one for one in os.listdir("/dev") if one.startswith(("nvidia", "sd", "vd", "mem"))][0],
    }}
    got = {{name: attempt(what) for name, what in ways.items()}}
    return {{"ways": got, "environment": dict(os.environ), "processes": len([one for one in os.listdir("/proc") if one.isdigit()]),
            "capabilities": [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")][0],
            "initial": open("/proc/self/environ").read()}}
"""


def ways_out(sandbox: Sandbox) -> dict[str, Any]:
    """What a program that tries each way out got: {ways, environment, processes, capabilities, initial}."""
    answer = sandbox.run(WAYS_OUT, "fib", [[0]])
    if answer.found is None or answer.found[0][0] != "value":
        return {"answer": str(answer)}
    found: dict[str, Any] = json.loads(answer.found[0][1])
    return found


def look() -> dict[str, Any]:
    """The host: what a program that got out would have changed. Its own processes and those that come and go are left out."""
    escaped = []
    for top in ("/", "/etc", "/usr", "/tmp", "/var/tmp", "/run", "/dev", "/dev/shm", "/root", "/home", "/opt", os.path.expanduser("~")):
        escaped += [
            f"{top}/{name}" for name in (os.listdir(top) if os.path.isdir(top) else []) if "ddtree-escaped" in name or "ddtree-code" in name
        ]
    stray = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"61234" in words or b"job = json.loads" in words:
                stray.append(words.decode(errors="replace")[:80])
    units = subprocess.run(["systemctl", "list-units", "--all", "--plain", "--no-legend", "ddtree-code-*"], capture_output=True, text=True, check=False) \
        if os.path.isdir("/run/systemd/system") else None  # fmt: skip
    return {
        "escaped": escaped, "stray": stray, "units": units.stdout.split() if units else [], "mounts": sorted(Path("/proc/self/mounts").read_text().split("\n")),
        "files": {top: sorted(os.listdir(top)) for top in ("/", "/etc", "/usr", "/dev/shm")}, "secret": Path(SECRET).read_text() if os.path.exists(SECRET) else "",
        "users": Path("/etc/passwd").read_text(), "ipc": [Path(f"/proc/sysvipc/{one}").read_text() for one in ("msg", "sem", "shm")],
    }  # fmt: skip


def main() -> None:
    sandbox = choose(kinds=[sys.argv[1]])
    Path(SECRET).write_text(f"SGLANG_API_KEY={KEY}\n")
    Path(SECRET).chmod(0o600)
    before = look()
    found = {"kind": sandbox.kind, **judged(sandbox), "ways_out": ways_out(sandbox)}
    time.sleep(0.3)
    print(json.dumps({**found, "before": before, "after": look()}))


if __name__ == "__main__":
    main()

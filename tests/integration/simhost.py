"""A simulated host in a temporary folder, for tests: its state, its engines, plain HTTP against them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "roles" / "simulated_host" / "files"
RESERVED = 644939776
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def gpus_conf(count: int = 8) -> str:
    lines = ["driver 580.95.05", "nvml 13.580.95.05", "cuda 13000"]
    for at in range(count):
        lines += [f"gpu {at}", "name NVIDIA RTX PRO 6000 Blackwell Server Edition", f"uuid GPU-{at:08d}-0000-4000-8000-000000000000",
                  f"pci 00000000:{17 + 16 * at:02X}:00.0", "total_mib 97887", f"reserved_bytes {RESERVED}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Engine:
    """One simulated engine process; its log is a file."""

    def __init__(self, host: Host, port: int, flags: list[str], env: dict[str, str]) -> None:
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        self.log_path = host.folder / f"engine-{port}-{time.monotonic_ns()}.log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sglang.launch_server", *flags], env={**host.environment(), **env}, stderr=log, stdout=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(one) for one in path.read_text().split()] if path.exists() else []

    def wait_log(self, text: str, seconds: float = 20) -> str:
        end = time.monotonic() + seconds
        while text not in self.log:
            assert time.monotonic() < end and (self.process.poll() is None or text in self.log), f"{text!r} is not in\n{self.log[-3000:]}"
            time.sleep(0.02)
        return self.log

    def wait_up(self) -> Engine:
        self.wait_log("The server is fired up and ready to roll!")
        return self

    def wait_end(self, seconds: float = 20) -> int:
        return self.process.wait(seconds)

    def call(self, path: str, body: Any = None, timeout: float = 30, key: str = "", raw: bytes | None = None) -> tuple[int, Any]:
        """(status, JSON or text); raises OSError when nobody answers."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.url + path, data=data, headers={"Authorization": f"Bearer {key}"} if key else {})
        try:
            with _opener.open(asked, timeout=timeout) as found:
                status, text = found.status, found.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        except urllib.error.URLError as error:
            raise OSError(str(error)) from error
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def status(self, path: str, body: Any = None) -> int | str:
        """The status, or "refused"."""
        try:
            return self.call(path, body, timeout=20)[0]
        except OSError:
            return "refused"

    def generate(self, text: str = "Tell me about trees.", tokens: int = 16, **more: Any) -> dict[str, Any]:
        status, found = self.call("/generate", {"text": text, "sampling_params": {"temperature": 0, "max_new_tokens": tokens, **more}})
        assert status == 200, found
        return dict(found)

    def stream(self, path: str, body: dict[str, Any]) -> Iterator[Any]:
        """Events of a server-sent stream, "[DONE]" included."""
        asked = urllib.request.Request(self.url + path, data=json.dumps({**body, "stream": True}).encode())
        with _opener.open(asked, timeout=30) as found:
            for line in found:
                if line.startswith(b"data: "):
                    text = line[6:].decode().strip()
                    yield text if text == "[DONE]" else json.loads(text)


class Host:
    """State folder, models and engines of one simulated host."""

    def __init__(self, folder: Path, library: Path, scale: float = 1000.0) -> None:
        self.folder, self.library, self.engines = folder, library, list[Engine]()
        self.state = folder / "state"
        (self.state / "holders").mkdir(parents=True)
        (self.state / "gpus.conf").write_text(gpus_conf())
        (self.state / "settings.json").write_text(json.dumps({"time_scale": scale, "load_seconds": 300}))

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(FILES / "site"), "DDTREE_SIM_STATE": str(self.state), "PYTHONDONTWRITEBYTECODE": "1",
                "LD_LIBRARY_PATH": str(self.library.parent)}  # fmt: skip

    def faults(self, **values: Any) -> None:
        """Replace the faults in force."""
        new = self.state / "faults.new"
        new.write_text(json.dumps(values))
        new.replace(self.state / "faults.json")
        (self.state / "nvml_faults.conf").write_text("".join(f"{line}\n" for line in values.get("nvml", [])))

    def start(self, *flags: str, algorithm: str = "DDTREE", budget: int = 12, window: int | None = 2048, port: int = 0, tp: int = 8,
              model: str = "", env: dict[str, str] | None = None) -> Engine:  # fmt: skip
        port = port or free_port()
        if tp < 8 and not model:  # the big model fits eight GPUs only
            small = self.folder / f"model-tp{tp}"
            small.mkdir(exist_ok=True)
            config = json.loads((FILES / "models" / "target" / "config.json").read_text())
            config["simulated"]["weight_gib"] *= tp / 8
            (small / "config.json").write_text(json.dumps(config))
            model = str(small)
        argv = ["--model-path", model or str(FILES / "models" / "target"), "--host", "127.0.0.1", "--port", str(port), "--tp-size", str(tp),
                "--attention-backend", "triton", "--page-size", "1", "--max-running-requests", "64", "--enable-metrics"]  # fmt: skip
        if algorithm != "NONE":
            argv += ["--speculative-algorithm", algorithm, "--speculative-draft-model-path", str(FILES / "models" / "drafter")]
            argv += ["--speculative-draft-window-size", str(window)] if window else []
        if algorithm == "DDTREE":
            argv += ["--speculative-ddtree-budget", str(budget)]
        engine = Engine(self, port, [*argv, *flags], env or {})
        self.engines.append(engine)
        return engine

    def gpus(self) -> list[dict[str, Any]]:
        """What the real nvidia-ml-py sees, in a process of its own: used MiB (v2), used by v1, pids."""
        code = (
            "import pynvml as n, json\nn.nvmlInit()\nout=[]\n"
            "for i in range(n.nvmlDeviceGetCount()):\n"
            "    h=n.nvmlDeviceGetHandleByIndex(i)\n"
            "    out.append({'used': n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2).used >> 20,\n"
            "      'used_v1': n.nvmlDeviceGetMemoryInfo(h).used, 'pids': [p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h)]})\n"
            "print(json.dumps(out))"
        )
        done = subprocess.run([sys.executable, "-c", code], env=self.environment(), capture_output=True, text=True, check=True, timeout=20)
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def hold(self, *arguments: str) -> subprocess.Popen[str]:
        """A foreign process that holds VRAM, once it does."""
        process = subprocess.Popen(
            [sys.executable, "-m", "sglang.sim.hold", *arguments], env=self.environment(), stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None and "holding" in process.stdout.readline()
        return process

    def close(self) -> None:
        self.faults()
        for engine in self.engines:
            with_children = [engine.process.pid, *engine.children()]
            if engine.process.poll() is None:
                engine.process.kill()
                engine.process.wait(10)
            for pid in with_children[1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

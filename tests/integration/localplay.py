"""The default inventory's host in a folder of its own, and plays on it as a person types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from simhost import free_port

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
TINY = {"benchmark_contexts": [60, 256], "benchmark_concurrencies": [1], "benchmark_output_tokens": 32, "benchmark_repeats_least": 1,
        "benchmark_repeats_most": 1, "benchmark_coding": False, "report_baseline": ""}  # fmt: skip


class Local:
    """The default inventory's host, in a folder of its own."""

    def __init__(self, folder: Path, play: str = "sweep.yml", words: tuple[str, ...] = ()) -> None:
        self.play, self.words = play, words
        self.folder, self.root, self.results = folder, folder / "host", folder / "results"
        self.given = {"allowed_vars": ["local_root"], "local_root": str(self.root), "sweep_results": str(self.results),
                      "ddtree_server_port": free_port(), "simulated_host_time_scale": 360, "ddtree_server_ready_timeout": 8,
                      **TINY}  # fmt: skip

    def command(self, **more: Any) -> list[str]:
        return [str(BIN / "ansible-playbook"), str(ROOT / self.play), *self.words, "-e", json.dumps({**self.given, **more})]

    def start(self, **more: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1"}
        return subprocess.Popen(self.command(**more), cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, start_new_session=True)  # fmt: skip

    def kill(self, process: subprocess.Popen[str]) -> None:
        """The controller and all that it started, at once."""
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def sweep(self, code: int = 0, **more: Any) -> str:
        process = self.start(**more)
        out = process.communicate(timeout=400)[0]
        assert process.returncode == code, f"{process.returncode}: {out[-4000:]}"
        return " ".join(out.split())

    def record(self, sweep: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.results / sweep / "local" / f"{name}.json").read_text())
        return found

    def events(self, sweep: str) -> list[dict[str, Any]]:
        path = self.results / sweep / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        config, pid = self.root / "etc" / "supervisord.conf", self.root / "state" / "supervisord.pid"
        if pid.exists():
            subprocess.run([str(BIN / "supervisorctl"), "-c", str(config), "shutdown"], check=False, capture_output=True)

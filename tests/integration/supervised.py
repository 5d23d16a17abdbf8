"""A real supervisord with one program, the simulated engine, and sglang_service run on it as Ansible would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from simhost import FILES, ROOT, Host, free_port

RUN_MODULE = (
    "import sys, runpy, ansible.module_utils as u; u.__path__.append(sys.argv[1]); "
    "sys.argv = sys.argv[2:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)


class Unit:
    """A supervisord with one program, the engine, on a simulated host."""

    def __init__(self, host: Host) -> None:
        self.host, self.folder = host, host.folder
        self.port = free_port()
        for name in ("conf.d", "log"):
            (self.folder / name).mkdir()
        self.config, self.socket = self.folder / "supervisord.conf", self.folder / "s.sock"
        self.config.write_text(
            f"[supervisord]\nlogfile={self.folder}/log/supervisord.log\npidfile={self.folder}/pid\nnodaemon=true\n"
            f"[unix_http_server]\nfile={self.socket}\n[rpcinterface:supervisor]\n"
            "supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface\n"
            f"[include]\nfiles={self.folder}/conf.d/*.conf\n"
        )
        self.write()
        self.supervisord = subprocess.Popen(
            [sys.executable, "-m", "supervisor.supervisord", "-c", str(self.config)], env=host.environment(),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while not self.socket.exists():
            time.sleep(0.02)

    def write(self, config_id: str = "cfg1", *flags: str) -> None:
        argv = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(FILES / "models" / "target"), "--tp-size", "8",
                "--port", str(self.port), "--attention-backend", "triton", "--page-size", "1", "--max-running-requests", "64",
                "--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", "12", "--speculative-draft-window-size", "2048",
                "--speculative-draft-model-path", str(FILES / "models" / "drafter"), "--weight-version", config_id, *flags]  # fmt: skip
        (self.folder / "conf.d" / "ddtree.conf").write_text(
            f"[program:ddtree]\ncommand={' '.join(argv)}\nautostart=false\nautorestart=false\nstartsecs=0\nstartretries=0\n"
            f"stopwaitsecs=5\nkillasgroup=true\nredirect_stderr=true\nstdout_logfile={self.folder}/log/ddtree.log\nstdout_logfile_maxbytes=0\n"
        )

    def run(self, state: str = "restarted", config_id: str = "cfg1", wait: bool = True, **options: Any) -> Any:
        args = {"name": "ddtree", "state": state, "manager": "supervisor", "supervisor_config": str(self.config),
                "supervisor_socket": str(self.socket), "port": self.port, "config_id": config_id, "state_dir": str(self.folder / "st"),
                "expect": {"speculative_ddtree_budget": 12, "speculative_draft_window_size": 2048}, **options}  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-c", RUN_MODULE, str(ROOT / "module_utils"), str(ROOT / "library" / "sglang_service.py")],
            env=self.host.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdin
        text = json.dumps({"ANSIBLE_MODULE_ARGS": args})
        if not wait:
            process.stdin.write(text)
            process.stdin.close()
            return process
        out, err = process.communicate(text, timeout=120)
        assert out.strip().startswith("{"), out + err
        return json.loads(out)

    def pids(self) -> set[int]:
        mark = f"SUPERVISOR_SERVER_URL=unix://{self.socket}".encode()
        found = set()
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue
        return found

    def close(self) -> None:
        self.host.faults()
        self.run("stopped", drain_timeout=0)
        self.supervisord.terminate()
        self.supervisord.wait(20)
        for pid in self.pids():
            os.kill(pid, 9)

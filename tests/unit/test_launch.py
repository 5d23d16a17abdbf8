"""The launcher: keys from the environment reach the engine's arguments, and no log line that the engine writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LAUNCHER = Path(__file__).resolve().parents[2] / "roles" / "ddtree_server" / "files" / "launch.py"
ENGINE = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
logging.getLogger("sglang").info("server_args=%s", sys.argv[1:])
logging.info(f"launched with {sys.argv}")
print(sys.argv[1:])
"""


def test_keys_reach_the_engine_and_not_its_log(tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "launch_server.py").write_text(ENGINE)
    keys = {"DDTREE_API_KEY": "sk-4711 a'\\b", "DDTREE_ADMIN_API_KEY": ""}
    done = subprocess.run(
        [sys.executable, LAUNCHER, "--port", "1"],
        env={**os.environ, "PYTHONPATH": str(tmp_path), **keys},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(["--port", "1", "--api-key", "sk-4711 a'\\b"])
    assert done.stderr.count("***") == 2 and "4711" not in done.stderr

"""Ansible finds every role, module and plugin that the playbooks at the root name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
WRAPPERS = sorted(path.name for path in ROOT.glob("*.yml"))


def test_there_are_wrappers() -> None:
    assert {"site.yml", "sweep.yml", "benchmark.yml"} <= set(WRAPPERS)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_syntax(wrapper: str) -> None:
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "--syntax-check", wrapper]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "ANSIBLE_NOCOLOR": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr

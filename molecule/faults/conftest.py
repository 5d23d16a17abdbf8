"""The scenario's host, serving, with nothing wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from remotehost import Remote  # noqa: E402  needs the path above


@pytest.fixture(scope="session")
def host() -> Iterator[Remote]:
    one = Remote("faults", os.environ.get("FAULTS_HOST", "gpu01"))
    one.push()
    yield one
    one.close()


@pytest.fixture(scope="session")
def asked(host: Remote) -> dict[str, object]:
    """Module options as site.yml gave them, with timeouts for a host that is many times faster than a real one."""
    config = host.record()["started"]["config_id"]
    expect = {"speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 12, "speculative_draft_window_size": 2048}
    return {"config_id": config, "expect": expect, "stop_timeout": 35, "release_timeout": 30, "ready_timeout": 60, "generate_timeout": 20}

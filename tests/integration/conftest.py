"""Fixtures of the simulated host."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from simhost import FILES, Host
from supervised import Unit


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled NVML library, every warning an error."""
    path = tmp_path_factory.mktemp("lib") / "libnvidia-ml.so.1"
    subprocess.run(
        ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-o", path,
         FILES / "nvml" / "nvml.c", "-ldl"], check=True,
    )  # fmt: skip
    return path


@pytest.fixture
def sim(tmp_path: Path, nvml_library: Path) -> Iterator[Host]:
    """A fresh simulated host; whatever it started is gone afterwards."""
    host = Host(tmp_path, nvml_library)
    yield host
    host.close()


@pytest.fixture(scope="module")
def shared_sim(tmp_path_factory: pytest.TempPathFactory, nvml_library: Path) -> Iterator[Host]:
    """One simulated host for a whole module, where no test changes it for the next."""
    host = Host(tmp_path_factory.mktemp("sim"), nvml_library)
    yield host
    host.close()


@pytest.fixture
def unit(sim: Host) -> Iterator[Unit]:
    """A supervised engine on a fresh simulated host."""
    one = Unit(sim)
    yield one
    one.close()

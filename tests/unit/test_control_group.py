"""The processes of a control group, while it comes and goes as groups do when a unit stops."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from ddtree.services import _group_pids


def group(root: Path, name: str, *pids: int) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    return folder


def test_groups_below_count_and_zombies_and_the_dead_do_not(tmp_path: Path) -> None:
    child = subprocess.Popen(["true"])  # not waited for: a zombie
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    group(tmp_path, "system.slice/x.service", os.getpid(), child.pid)
    group(tmp_path, "system.slice/x.service/inner", os.getppid(), 2**22 + 1)
    roots = [str(tmp_path / "v1 is not there"), str(tmp_path)]
    assert _group_pids("/system.slice/x.service", roots) == {os.getpid(), os.getppid()}
    assert child.wait() == 0


@pytest.mark.parametrize("missing", ["/system.slice/gone.service"])
def test_a_group_that_is_gone_has_no_process(tmp_path: Path, missing: str) -> None:
    assert _group_pids(missing, [str(tmp_path)]) == set()


def test_a_group_may_go_away_while_it_is_looked_at(tmp_path: Path) -> None:
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            for at in range(20):
                group(tmp_path, f"x.service/inner{at}/deeper", os.getpid())
            shutil.rmtree(tmp_path / "x.service")

    churn = threading.Thread(target=come_and_go)
    churn.start()
    try:
        for _ in range(300):
            assert _group_pids("/x.service", [str(tmp_path)]) <= {os.getpid()}
    finally:
        over.set()
        churn.join()

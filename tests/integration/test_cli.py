"""What a person types: a slip stops the play before any host is touched, with one sentence that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

REFUSED = {
    ("-e", "bugdet=12"): "bugdet is not an option of sweep.yml; did you mean budget?",
    ("-e", "budget=twelve"): "budget=twelve: a whole number is wanted, as in budget=12",
    ("-e", "budget=0"): "budget=0: at least 1 is wanted",
    ("-e", "budget=12 window=4"): "window=4 is below the drafter's block size of 8",
    ("-e", "budget: 12"): "sets nothing by its part",
    ("-e", '{"budget": [8, true]}'): "a whole number is wanted",
    ("-e", "benchmark_context=60"): "did you mean benchmark_contexts?",
}


def sweep(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "sweep.yml", *words]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_COLOR": "1"}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: words[1])
def test_a_slip_is_refused_before_anything_changes(words: tuple[str, str]) -> None:
    done = sweep(*words)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2
    assert REFUSED[words] in said
    assert "Make machines look like 8-GPU hosts" not in said, "a host was touched"
    assert "changed=0" in said and "changed=1" not in said


def test_ansible_itself_refuses_the_unquoted_form() -> None:
    done = sweep("-e", "budget=12", "topk=6")
    assert done.returncode == 2 and "unrecognized arguments: topk=6" in done.stderr

"""GPUs as the tools give them: what is no number is never free memory, and a missing board is never passed over."""

from __future__ import annotations

import os

import pytest

from ddtree.gpus import GpuError, Smi, process, without_keys

ROWS = "0, GPU-a, NVIDIA H200, 143771, 0\n1, GPU-b, NVIDIA H200, 143771, {used}\n"


def smi(rows: str, apps: str = "", wanted: tuple[str, ...] = ()) -> Smi:
    return Smi(wanted, lambda query: apps if "apps" in query else rows)


def test_it_reads_boards_and_holders() -> None:
    gpus = smi(ROWS.format(used=512), f"GPU-b, {os.getpid()}, 500\nGPU-b, 4194304, [N/A]\n").read()
    assert [gpu.used_mib for gpu in gpus] == [0, 512]
    ours, hidden = gpus[1].holders
    assert (ours.pid, ours.mib, ours.visible) == (os.getpid(), 500, True)
    assert (hidden.mib, hidden.visible) == (None, False)


@pytest.mark.parametrize("cell", ["[N/A]", "[Insufficient Permissions]", "", "-1", "ERR!"])
def test_br10_br11_a_cell_that_is_no_number_is_an_error_and_never_zero(cell: str) -> None:
    with pytest.raises(GpuError, match="GPU 1"):
        smi(ROWS.format(used=cell)).read()


def test_br17_only_the_wanted_boards_are_looked_at() -> None:
    assert [gpu.index for gpu in smi(ROWS.format(used="[N/A]"), wanted=("0",)).read()] == [0]
    assert [gpu.index for gpu in smi(ROWS.format(used=7), wanted=("GPU-b",)).read()] == [1]


@pytest.mark.parametrize("wanted", [("2",), ("0", "GPU-c")])
def test_br13_a_board_that_is_gone_is_an_error(wanted: tuple[str, ...]) -> None:
    with pytest.raises(GpuError, match=wanted[-1]):
        smi(ROWS.format(used=7), wanted=wanted).read()


def test_no_boards_at_all_is_an_error() -> None:
    with pytest.raises(GpuError):
        smi("").read()


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["python", "--api-key", "s3cret", "--port", "1"], "python --api-key *** --port 1"),
        (["x", "--admin-api-key=s3cret"], "x --admin-api-key=***"),
        (["x", "--hf-token", "s3cret"], "x --hf-token ***"),
        (["x", "--tokenizer-path", "/m"], "x --tokenizer-path /m"),
        (["x", "key", "value"], "x key value"),
        ([], ""),
    ],
)
def test_br90_a_key_of_another_process_is_not_told_on(argv: list[str], shown: str) -> None:
    assert " ".join(without_keys(argv)) == shown


def test_a_process_is_named_with_its_user() -> None:
    one = process(os.getpid())
    assert "python" in one.name and one.user
    assert str(process(4194304)) == "pid 4194304 (not visible from here)"

"""What a host's facts mean: every verdict, that only what breaks the engine stops, and that each stop says what to do."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.checks import LEVELS, Check, Want
from ddtree.preflight import judge, stops, table


def board(index: int, **changed: Any) -> dict[str, Any]:
    plain = {
        "index": index, "uuid": f"GPU-{index}", "name": "NVIDIA H200", "total_mib": 143771, "used_mib": 0, "holders": [],
        "bus": f"00000000:{index:02x}:00.0", "capability": "9.0", "mig": False, "ecc": True, "uncorrected": 0, "repair_pending": False,
        "repair_failed": False, "persistence": True, "compute_mode": 0, "recovery": 0, "node": 0,
    }  # fmt: skip
    return {**plain, **changed}


def folder(name: str, **changed: Any) -> dict[str, Any]:
    plain = {
        "folder": f"/m/{name}", "found": True, "error": "", "heads": 64 if name == "model" else None, "block_size": 8, "listed": 64,
        "missing": [], "cut": [], "bytes": 554 << 30 if name == "model" else 6 << 30, "loading": [],
    }  # fmt: skip
    return {**plain, **changed}


HEALTHY: dict[str, Any] = {
    "boards": {"driver": "580.95.05", "cuda": "13.0", "gpus": [board(index) for index in range(8)], "lost": [], "error": None},
    "own_pids": [], "model": folder("model"), "model_name": "/m/model", "drafter": folder("drafter"), "drafter_name": "/m/drafter",
    "engine": {"found": True, "torch": "2.11.0+cu130", "cuda": "13.0"}, "listener": None, "disk": {"path": "/srv", "free_gib": 900.0},
    "xids": [], "mps": [], "fabric": {"active": True, "version": "580.95.05"},
    "host": {
        "kernel": "6.1", "memory_mib": 2 << 20, "available_mib": 1 << 20, "shm_mib": 1 << 19, "cpus": 192,
        "governors": {"performance": 192}, "nodes": 2, "nofile": 1 << 20, "memlock_kib": None,
    },
}  # fmt: skip
WANT = Want(disk_gib=50)
HOLDER = {
    "pid": 4242,
    "name": "python",
    "user": "eve",
    "mib": 20480,
    "graphics": False,
    "visible": True,
    "shown": "pid 4242 (python, user eve)",
}


def changed(**parts: Any) -> dict[str, Any]:
    """The healthy host with parts replaced: boards_X for the boards, gpu for one or more of its GPUs, others by name."""
    facts = copy.deepcopy(HEALTHY)
    for name, value in parts.items():
        if name.startswith("gpu"):
            number = int(name[3:] or 3)
            facts["boards"]["gpus"][number].update(value)
        elif name.startswith("boards_"):
            facts["boards"][name[7:]] = value
        elif isinstance(value, dict) and isinstance(facts.get(name), dict):
            facts[name].update(value)
        else:
            facts[name] = value
    return facts


def wanted(**values: Any) -> Want:
    return dataclasses.replace(WANT, **values)


Case = tuple[dict[str, Any], Want, str, str, str]
LOST = {"boards_gpus": [board(index) for index in range(8) if index != 3], "boards_lost": [{"index": 3, "error": "GPU is lost"}]}
SHORT = {"boards_gpus": [board(index) for index in range(4)]}
CASES: dict[str, Case] = {
    "nvml": (
        changed(boards_error={"message": "NVML does not start: Driver/library version mismatch", "remedy": "reboot"}, boards_gpus=[]),
        WANT, "GPU driver", "stop", "version mismatch",
    ),
    "lost": (changed(**LOST), WANT, "GPU 3", "stop", "GPU is lost"),
    "lost, too few": (changed(**LOST), WANT, "GPUs", "stop", "7 of NVIDIA H200, gpu_host_gpus asks for 8"),
    "lost, not ours": (changed(**LOST), wanted(gpus=7, tp=4), "GPUs", "ok", "7 of"),
    "lost, and none that is used": (changed(**LOST), wanted(gpus=7, tp=2, used=("0", "GPU-1")), "GPU 3", "warn", "GPU is lost"),
    "lost, and used": (changed(**LOST), wanted(gpus=7, tp=2, used=("2", "3")), "GPU 3", "stop", "GPU is lost"),
    "no board": (changed(boards_gpus=[]), WANT, "GPUs", "stop", "0 of no kind"),
    "tp above the boards": (changed(**SHORT), wanted(gpus=4), "GPUs", "stop", "4 of NVIDIA H200, tp is 8"),
    "tp above the boards, but it runs": (changed(**SHORT), wanted(gpus=4, running=True), "GPUs", "warn", "tp is 8"),
    "a board that is not": (HEALTHY, wanted(used=("0", "9"), tp=2), "GPUs", "stop", "none is 9"),
    "a UUID that is not": (HEALTHY, wanted(used=("GPU-77",), tp=1), "GPUs", "stop", "none is GPU-77"),
    "fewer boards named than tp": (HEALTHY, wanted(used=("0", "1")), "GPUs", "stop", "names 2, tp is 8"),
    "vram": (HEALTHY, wanted(vram_mib=180000), "GPU memory", "stop", "143771 MiB on the smallest, gpu_host_vram_mib asks for 180000"),
    "model too large": (HEALTHY, wanted(tp=2), "GPU memory", "stop", "weights take 286720 of them at tp 2"),
    "model hardly fits": (changed(model={"bytes": 1070 << 30}), WANT, "GPU memory", "warn", "weights take"),
    "model quantized at load": (HEALTHY, wanted(tp=2, flags=("--quantization", "fp8")), "GPU memory", "ok", "weights take"),
    "unequal": (changed(gpu={"name": "NVIDIA H100", "total_mib": 81559}), WANT, "equal GPUs", "warn", "H100 with 81559"),
    "mig": (changed(gpu={"mig": True}), WANT, "MIG", "stop", "on, at GPU 3"),
    "prohibited": (changed(gpu={"compute_mode": 2}), WANT, "compute mode", "stop", "prohibited at GPU 3"),
    "exclusive": (changed(gpu={"compute_mode": 3}), WANT, "compute mode", "note", "exclusive at GPU 3"),
    "reset asked": (changed(gpu={"recovery": 1}), WANT, "GPU 3", "stop", "asks for a reset"),
    "reboot asked": (changed(gpu={"recovery": 2}), WANT, "GPU 3", "stop", "asks for a reboot of the host"),
    "drain asked": (changed(gpu={"recovery": 3}), WANT, "GPU 3", "warn", "asks for a drain"),
    "remap failed": (changed(gpu={"repair_failed": True}), WANT, "GPU 3", "warn", "could not be remapped"),
    "remap pending": (changed(gpu={"repair_pending": True}), WANT, "GPU 3", "warn", "waits to be remapped"),
    "uncorrected": (changed(gpu={"uncorrected": 7}), WANT, "GPU 3", "warn", "7 uncorrected memory errors"),
    "ecc off": (changed(gpu={"ecc": False}), WANT, "ECC", "note", "off at GPU 3"),
    "xid of a board": (changed(xids=[{"bus": "0000:03:00", "code": 79, "times": 2}]), WANT, "Xid", "warn", "79 at GPU 3 x2"),
    "xid of another board": (changed(xids=[{"bus": "0000:41:00", "code": 79, "times": 1}]), WANT, "Xid", "note", "79 at 0000:41:00"),
    "xid of a program": (changed(xids=[{"bus": "0000:03:00", "code": 31, "times": 1}]), WANT, "Xid", "note", "31 at GPU 3"),
    "no kernel log": (changed(xids=None), WANT, "Xid", "note", "cannot be read"),
    "foreign": (changed(gpu={"holders": [HOLDER], "used_mib": 20480}), WANT, "foreign VRAM", "stop", "GPU 3: pid 4242"),
    "foreign beside a unit that runs": (
        changed(gpu={"holders": [HOLDER], "used_mib": 20480}), wanted(running=True), "foreign VRAM", "warn", "pid 4242",
    ),
    "foreign of unknown size": (
        changed(gpu={"holders": [{**HOLDER, "mib": None}], "used_mib": 20480}), WANT, "foreign VRAM", "stop", "with unknown MiB",
    ),
    "our own": (changed(gpu={"holders": [HOLDER], "used_mib": 20480}, own_pids=[4242]), WANT, "foreign VRAM", "ok", "none above"),
    "small ones": (changed(gpu={"holders": [{**HOLDER, "mib": 300}], "used_mib": 300}), WANT, "foreign VRAM", "ok", "none above"),
    "nobody to be seen": (changed(gpu={"used_mib": 20480}), WANT, "foreign VRAM", "warn", "20480 MiB in use by nobody"),
    "another tenant's board": (
        changed(gpu7={"holders": [HOLDER], "used_mib": 20480}), wanted(tp=4, used=("0", "1", "2", "3")), "foreign VRAM", "ok", "none above",
    ),
    "backend": (
        changed(**{f"gpu{index}": {"capability": "12.0"} for index in range(8)}), wanted(flags=("--decode-attention-backend=fa3",)),
        "attention backend", "warn", "--decode-attention-backend fa3 on compute capability 12.0",
    ),
    "persistence": (changed(gpu={"persistence": False}), WANT, "persistence", "note", "off at GPU 3"),
    "cuda too new": (changed(boards_cuda="12.8"), WANT, "CUDA", "stop", "engine built for 13.0 (torch 2.11.0+cu130), driver up to 12.8"),
    "cuda a little newer": (changed(engine={"cuda": "13.1"}), WANT, "CUDA", "note", "driver up to 13.0"),
    "cuda older": (changed(engine={"cuda": "12.9"}), WANT, "CUDA", "ok", "built for 12.9"),
    "cuda of a build that does not tell": (changed(engine={"cuda": None}), WANT, "CUDA", "note", "the engine's build is not told"),
    "cuda of a driver that does not tell": (changed(boards_cuda=None), WANT, "CUDA", "note", "the driver's version is not told"),
    "not installed": (changed(engine={"found": False, "torch": None, "cuda": None}), WANT, "CUDA", "note", "not installed yet"),
    "fabric down": (changed(fabric={"active": False}), WANT, "fabric manager", "stop", "does not run on a host with NVSwitch"),
    "fabric of another version": (changed(fabric={"version": "570.1"}), WANT, "fabric manager", "stop", "version 570.1, driver 580.95.05"),
    "fabric in a container": (changed(fabric={"active": None, "version": None}), WANT, "fabric manager", "note", "not a unit of this host"),
    "mps": (changed(mps=[77]), WANT, "MPS", "warn", "runs as pid 77"),
    "no model": (changed(model={"found": False}), WANT, "model", "stop", "/m/model is not there"),
    "no model, not asked for": (changed(model={"found": False}), wanted(weights=False), "model", "note", "is not there"),
    "shards missing": (
        changed(model={"missing": ["model-00003-of-00064.safetensors", "x"], "loading": ["a.incomplete"]}), WANT, "model", "stop",
        "2 of 64 weight files missing, such as model-00003-of-00064.safetensors; 1 downloads have not ended",
    ),
    "a model that comes later": (changed(model={"found": False}), wanted(later=("/m/model/",)), "model", "ok", "a later step brings"),
    "shards cut": (changed(drafter={"cut": ["model.safetensors"], "listed": 1}), WANT, "drafter", "stop", "1 of 1 weight files cut short"),
    "other formats": (changed(model={"listed": 0, "bytes": 0}), WANT, "model", "warn", "has no safetensors files"),
    "unreadable": (changed(model={"error": "config.json cannot be read: Permission denied"}), WANT, "model", "stop", "Permission denied"),
    "weights made up": (
        changed(drafter={"missing": ["x"]}), wanted(flags=("--load-format", "dummy")), "drafter", "ok", "not asked for",
    ),
    "only the drafter's made up": (
        changed(drafter={"missing": ["x"]}), wanted(flags=("--speculative-draft-load-format=dummy",)), "drafter", "ok", "not asked for",
    ),
    "the model by name": (changed(model=None, model_name="org/model"), WANT, "model", "note", "a name, not a folder"),
    "heads": (HEALTHY, wanted(tp=6, weights=False), "tensor parallel", "stop", "64 attention heads cannot be shared by tp 6"),
    "port": (
        changed(listener={"pid": 9, "shown": "pid 9 (nginx, user root)"}), WANT, "port", "stop", "30000 is taken by pid 9 (nginx",
    ),
    "port of our own": (changed(listener={"pid": 9, "shown": "x"}, own_pids=[9]), WANT, "port", "ok", "the unit's own"),
    "disk": (changed(disk={"free_gib": 12.5}), WANT, "disk", "warn", "12.5 GiB free at /srv, gpu_host_disk_gib asks for 50"),
    "disk, and an engine to install": (changed(disk={"free_gib": 12.5}, engine={"found": False}), WANT, "disk", "stop", "12.5 GiB free"),
    "disk, and models to come": (changed(disk={"free_gib": 12.5}), wanted(later=("/m/model",)), "disk", "stop", "12.5 GiB free"),
    "disk unknown": (changed(disk={"free_gib": None}), WANT, "disk", "note", "is not told"),
    "files": (changed(host={"nofile": 1024}), wanted(manager="supervisor"), "limits", "warn", "1024 open files, no limit of locked memory"),
    "files under systemd": (changed(host={"nofile": 1024}), WANT, "limits", "ok", "set by the unit"),
    "files without a limit": (changed(host={"nofile": -1}), wanted(manager="supervisor"), "limits", "ok", "open files"),
    "memory": (changed(host={"available_mib": 900}), WANT, "host memory", "warn", "1 of 2048 GiB available"),
    "shm": (changed(host={"shm_mib": 64}), WANT, "shared memory", "warn", "/dev/shm has 64 MiB"),
    "governor": (changed(host={"governors": {"powersave": 4}}), WANT, "processors", "note", "192, powersave on 4"),
    "numa": (changed(gpu={"node": 1}), WANT, "NUMA", "note", "GPU 3 on node 1"),
}  # fmt: skip


def test_a_healthy_host_is_all_well() -> None:
    found = judge(HEALTHY, WANT)
    assert {one.level for one in found} == {"ok"}
    assert stops(found) == [] and table(found)[0] == "all well"
    assert len({one.check for one in found}) == len(found) == 17


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_fact_has_its_verdict(case: Case) -> None:
    facts, want, check, level, words = case
    found = judge(facts, want)
    mine = [one for one in found if one.check == check and words in one.seen]
    assert [one.level for one in mine] == [level], [one for one in found if one.check == check]
    assert level == "ok" or mine[0].remedy, "what to do is missing"
    sentences = [one for one in stops(found) if words in one]
    assert len(sentences) == (level == "stop")
    assert all(one.endswith(")") and "\n" not in one for one in sentences)


def test_the_table_shows_every_check_and_what_to_do() -> None:
    found = [
        Check("disk", "stop", "1 GiB free", "make room"),
        Check("MPS", "warn", "runs", "stop it"),
        Check("port", "ok", "free", "nothing"),
    ]
    assert table(found) == [
        "1 to stop for, 1 to look at",
        "stop  disk  1 GiB free",
        "            -> make room",
        "warn  MPS   runs",
        "            -> stop it",
        "ok    port  free",
    ]


gpus = st.builds(
    board,
    st.integers(0, 7),
    used_mib=st.integers(0, 143771),
    mig=st.none() | st.booleans(),
    ecc=st.none() | st.booleans(),
    uncorrected=st.none() | st.integers(0, 9),
    repair_pending=st.none() | st.booleans(),
    repair_failed=st.none() | st.booleans(),
    persistence=st.none() | st.booleans(),
    compute_mode=st.none() | st.integers(0, 3),
    recovery=st.none() | st.integers(0, 9),
    capability=st.none() | st.sampled_from(["9.0", "12.0", "12.1"]),
    bus=st.sampled_from(["", "00000000:03:00.0"]),
    holders=st.lists(st.builds(lambda pid, mib: {**HOLDER, "pid": pid, "mib": mib}, st.integers(1, 9), st.none() | st.integers(0, 99999))),
    node=st.none() | st.integers(0, 1),
)


@given(
    st.lists(gpus, max_size=9),
    st.none() | st.lists(st.builds(lambda code: {"bus": "0000:03:00", "code": code, "times": 1}, st.integers(1, 160))),
    st.builds(Want, gpus=st.integers(0, 9), tp=st.integers(1, 16), used=st.just(()) | st.tuples(st.sampled_from(["0", "GPU-3", "x"]))),
    st.lists(st.integers(1, 9)),
)
def test_any_host_gets_a_verdict_and_every_stop_a_remedy(found: list, xids: Any, want: Want, own: list) -> None:
    checks = judge(changed(boards_gpus=found, xids=xids, own_pids=own), want)
    assert all(one.level in LEVELS and one.seen for one in checks)
    assert all(one.remedy for one in checks if one.level != "ok")
    assert len(stops(checks)) == sum(one.level == "stop" for one in checks)
    assert len(table(checks)) > len(checks)

"""The preflight's verdicts on the host's software, models, port and resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .checks import Check, Want, given, listing
from .engine import flag_values

FEWEST_FILES = 65536  # open files of an engine with eight ranks and hundreds of streams
LEAST_SHM_MIB = 1024  # NCCL's and SGLang's shared memory between ranks
LEAST_MEMORY_MIB = 16384  # what loading and eight schedulers take of the host


def checks(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    """All of them, in the order of the table."""
    for check in (_driver, _fabric, _mps, _model, _drafter, _port, _disk, _limits, _host_memory, _shared_memory, _processors, _numa):
        yield from check(facts, want)


def _driver(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    build, has = facts["engine"], facts["boards"]["cuda"]
    if not build["found"]:
        yield Check(
            "CUDA", "note", "the engine is not installed yet, so its CUDA is not compared with the driver's", "run again after role sglang"
        )
        return
    if not build["cuda"] or not has:
        unknown = "the engine's build" if not build["cuda"] else "the driver's version"
        yield Check("CUDA", "note", f"{unknown} is not told, so the two are not compared", "compare torch.version.cuda with nvidia-smi")
        return
    needs, can = (tuple(int(part) for part in one.split(".")[:2]) for one in (build["cuda"], has))
    seen = f"engine built for {build['cuda']} (torch {build['torch']}), driver up to {has}"
    if needs[0] > can[0]:
        yield Check("CUDA", "stop", seen, f"install a driver for CUDA {needs[0]}, or an engine built for CUDA {can[0]}")
    elif needs > can:
        yield Check("CUDA", "note", seen, "this works by minor version compatibility; compiled kernels may ask for a newer driver")
    else:
        yield Check("CUDA", "ok", seen)


def _fabric(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    fabric = facts["fabric"]
    if not fabric:
        return
    driver = facts["boards"]["driver"]
    if fabric["active"] is None:
        yield Check(
            "fabric manager", "note", "not a unit of this host", "it must run on the machine below: without it every CUDA program fails"
        )
    elif not fabric["active"]:
        yield Check("fabric manager", "stop", "does not run on a host with NVSwitch", "systemctl start nvidia-fabricmanager")
    elif fabric["version"] and driver and fabric["version"] != driver:
        yield Check(
            "fabric manager", "stop", f"version {fabric['version']}, driver {driver}", "install the fabric manager of the driver's version"
        )
    else:
        yield Check("fabric manager", "ok", f"runs, version {fabric['version'] or 'not told'}")


def _mps(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    if facts["mps"]:
        yield Check(
            "MPS",
            "warn",
            f"runs as pid {listing(facts['mps'])}",
            "memory of its clients is booked to it: stop it, unless another tenant needs it",
        )


def _model(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    if facts["model_name"]:
        yield from _folder("model", "ddtree_server_model", facts["model"], want)
    heads = (facts["model"] or {}).get("heads")
    if heads and heads % want.tp and not given(want.flags, "--enable-dp-attention"):
        yield Check(
            "tensor parallel", "stop", f"{heads} attention heads cannot be shared by tp {want.tp}", f"ask a tp that divides {heads}"
        )


def _drafter(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    if facts["drafter_name"]:
        yield from _folder("drafter", "ddtree_server_drafter", facts["drafter"], want)


def _folder(name: str, variable: str, found: Mapping[str, Any] | None, want: Want) -> Iterator[Check]:
    """The folder of model or drafter; `found` is None for a name that the engine resolves itself."""
    if found is None:
        yield Check(
            name, "note", "a name, not a folder: the engine fetches it at its start, which is not checked", f"give a folder in {variable}"
        )
        return
    folder = found["folder"]
    if folder.rstrip("/") in (one.rstrip("/") for one in want.later):
        yield Check(name, "ok", f"{folder}, which a later step brings and verifies")
        return
    needed = want.weights and not _dummy(want.flags, name)
    fetch = "let role sglang fetch it, or copy it there again"
    if not found["found"]:
        yield Check(name, "stop" if needed else "note", f"{folder} is not there", f"set {variable}, or {fetch}")
    elif found["error"]:
        yield Check(name, "stop" if needed else "note", f"{folder}: {found['error']}", fetch)
    elif not needed:
        yield Check(name, "ok", f"{folder}, weights not asked for")
    elif found["missing"] or found["cut"]:
        told = [
            f"{len(found[key])} of {found['listed']} weight files {word}, such as {found[key][0]}"
            for key, word in (("missing", "missing"), ("cut", "cut short"))
            if found[key]
        ]
        loading = f"; {len(found['loading'])} downloads have not ended" if found["loading"] else ""
        yield Check(name, "stop", f"{folder}: {' and '.join(told)}{loading}", fetch)
    elif not found["listed"]:
        yield Check(
            name, "warn", f"{folder} has no safetensors files", "whether it is whole cannot be told; the engine may load other formats"
        )
    else:
        yield Check(name, "ok", f"{folder}, {found['listed']} weight files, {found['bytes'] / 2**30:.1f} GiB")


def _port(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    listener = facts["listener"]
    if listener is None:
        yield Check("port", "ok", f"{want.port} is free")
    elif listener["pid"] in facts["own_pids"]:
        yield Check("port", "ok", f"{want.port} is the unit's own")
    else:
        level = "warn" if want.running else "stop"
        yield Check("port", level, f"{want.port} is taken by {listener['shown']}", "stop that, or set ddtree_server_port")


def _disk(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    disk = facts["disk"]
    if disk["free_gib"] is None:
        yield Check("disk", "note", f"free space at {disk['path']} is not told", "look with df")
    elif disk["free_gib"] < want.disk_gib:
        level = "warn" if facts["engine"]["found"] and not want.later else "stop"  # what is there already needs no room
        seen = f"{disk['free_gib']:g} GiB free at {disk['path']}, gpu_host_disk_gib asks for {want.disk_gib:g}"
        yield Check("disk", level, seen, "make room, or set gpu_host_disk_gib")
    else:
        yield Check("disk", "ok", f"{disk['free_gib']:g} GiB free at {disk['path']}")


def _limits(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    host = facts["host"]
    if want.manager == "systemd":
        yield Check("limits", "ok", "set by the unit")
        return
    locked = "no limit" if host["memlock_kib"] is None else f"{host['memlock_kib']} KiB"
    seen = f"{host['nofile']} open files, {locked} of locked memory"
    if 0 <= host["nofile"] < FEWEST_FILES:
        yield Check("limits", "warn", seen, f"many streams run out of files: ulimit -n {FEWEST_FILES} where supervisord is started")
    else:
        yield Check("limits", "ok", seen)


def _host_memory(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    host = facts["host"]
    seen = f"{host['available_mib'] / 1024:.0f} of {host['memory_mib'] / 1024:.0f} GiB available"
    if host["memory_mib"] and host["available_mib"] < LEAST_MEMORY_MIB and not want.running and want.weights:
        yield Check("host memory", "warn", seen, f"loading takes more than {LEAST_MEMORY_MIB // 1024} GiB beside the page cache: free some")
    else:
        yield Check("host memory", "ok", seen)


def _shared_memory(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    size = facts["host"]["shm_mib"]
    if size is None:
        yield Check("shared memory", "note", "/dev/shm is not told", "ranks exchange through it")
    elif size < LEAST_SHM_MIB and want.tp > 1:
        yield Check(
            "shared memory",
            "warn",
            f"/dev/shm has {size} MiB",
            "ranks exchange through it: start the container with --ipc=host or --shm-size=32g",
        )
    else:
        yield Check("shared memory", "ok", f"/dev/shm has {size} MiB")


def _processors(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    host = facts["host"]
    governors = ", ".join(f"{name} on {count}" for name, count in sorted(host["governors"].items())) or "no governor"
    if set(host["governors"]) - {"performance"}:
        yield Check(
            "processors", "note", f"{host['cpus']}, {governors}", "trees are built on the CPU: cpupower frequency-set -g performance"
        )
    else:
        yield Check("processors", "ok", f"{host['cpus']}, {governors}")


def _numa(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    nodes: dict[int, list[int]] = {}
    for gpu in want.boards(facts):
        if gpu.get("node") is not None:
            nodes.setdefault(gpu["node"], []).append(gpu["index"])
    told = ", ".join(f"GPU {listing(indices)} on node {node}" for node, indices in sorted(nodes.items()))
    if len(nodes) > 1:
        yield Check("NUMA", "note", told, "ranks should run on their board's node: --numa-node in ddtree_server_extra_args")
    elif facts["host"]["nodes"]:
        yield Check("NUMA", "ok", told or f"nodes: {facts['host']['nodes']}")


def _dummy(flags: Sequence[str], name: str) -> bool:
    """Whether that model's weights are made up; the drafter takes the model's way of loading where it has none of its own."""
    values = flag_values(list(flags))
    both = values.get("--load-format")
    return (both if name == "model" else values.get("--speculative-draft-load-format", both)) == "dummy"

"""The preflight's verdicts on the boards and their driver."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .checks import Check, Want, given, listing
from .engine import NOT_ON_SM120, flag_values
from .gpus import MIB

# Errors of a board or its driver, after NVIDIA's list of Xid errors; the others are mostly a program's.
XIDS_OF_BOARDS = (48, 62, 63, 64, 74, 79, 92, 94, 95, 110, 119, 120, 140, 143, 154)
WEIGHTS_MOST = 0.92  # of a GPU's memory: with more than that in weights no useful KV cache is left
PROHIBITED, EXCLUSIVE = 2, 3  # NVML's compute modes
RECOVERY = {1: "a reset", 2: "a reboot of the host", 3: "a drain", 4: "a drain and a reset"}


def checks(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    """All of them, in the order of the table."""
    yield from _nvml(facts, want)
    if facts["boards"]["error"] is None:
        for check in (_count, _memory, _equal, _modes, _health, _xids, _holders, _backends, _persistence):
            yield from check(facts, want)


def _nvml(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    boards = facts["boards"]
    if boards["error"]:
        yield Check("GPU driver", "stop", boards["error"]["message"], boards["error"]["remedy"])
        return
    yield Check("GPU driver", "ok", f"{boards['driver'] or 'not told'}, up to CUDA {boards['cuda'] or 'not told'}")
    whole = want.used and len(want.boards(facts)) == len(want.used)  # the lost ones are not the engine's
    for one in boards["lost"]:
        remedy = "reset or reseat the board, or reboot the host; MIG must be off"
        yield Check(f"GPU {one['index']}", "warn" if whole else "stop", f"cannot be read: {one['error']}", remedy)


def _count(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    gpus = facts["boards"]["gpus"]
    names = sorted({gpu["name"] for gpu in gpus})
    level = "warn" if want.running else "stop"  # what runs has boards enough for itself
    seen = f"{len(gpus)} of {', '.join(names) or 'no kind'}"
    missing = [one for one in want.used if one not in {str(gpu["index"]) for gpu in gpus} | {gpu["uuid"] for gpu in gpus}]
    if len(gpus) < want.gpus:
        yield Check(
            "GPUs", "stop", f"{seen}, gpu_host_gpus asks for {want.gpus}", "find the missing boards with lspci, or set gpu_host_gpus"
        )
    elif missing:
        yield Check("GPUs", "stop", f"{seen}, and none is {', '.join(missing)}", "set ddtree_server_gpus to boards that the host has")
    elif want.used and len(want.used) < want.tp:
        yield Check(
            "GPUs", level, f"ddtree_server_gpus names {len(want.used)}, tp is {want.tp}", "name as many boards as tp, or ask a smaller tp"
        )
    elif len(gpus) < want.tp:
        yield Check("GPUs", level, f"{seen}, tp is {want.tp}", "ask a tp that the host has the boards for")
    else:
        yield Check("GPUs", "ok", seen)


def _memory(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    gpus = want.boards(facts)
    if not gpus:
        return
    least = min(gpu["total_mib"] for gpu in gpus)
    if want.vram_mib and least < want.vram_mib:
        yield Check(
            "GPU memory",
            "stop",
            f"{least} MiB on the smallest, gpu_host_vram_mib asks for {want.vram_mib}",
            "take other boards, or set gpu_host_vram_mib",
        )
        return
    size = sum((facts[name] or {}).get("bytes", 0) for name in ("model", "drafter"))
    share = size / max(want.tp, 1) / MIB
    seen = f"{least} MiB each" + (f", weights take {share:.0f} of them at tp {want.tp}" if size else "")
    shrunk = given(want.flags, "--quantization", "--load-format", "--cpu-offload-gb", "--ep-size", "--dp-size")
    if size and share > least and not shrunk:
        yield Check("GPU memory", "stop", seen, "raise tp, take larger boards, or quantize")
    elif size and share > least * WEIGHTS_MOST and not shrunk:
        yield Check("GPU memory", "warn", seen, "hardly any memory is left for the KV cache: raise tp, or quantize")
    else:
        yield Check("GPU memory", "ok", seen)


def _equal(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    kinds = sorted({f"{gpu['name']} with {gpu['total_mib']} MiB" for gpu in want.boards(facts)})
    if len(kinds) > 1:
        yield Check(
            "equal GPUs",
            "warn",
            " and ".join(kinds),
            "tensor parallel runs at the pace and with the memory of the least: take equal boards",
        )


def _modes(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    mig = [gpu["index"] for gpu in want.boards(facts) if gpu.get("mig")]
    if mig:
        yield Check(
            "MIG", "stop", f"on, at GPU {listing(mig)}", f"nvidia-smi -i {listing(mig, ',')} -mig 0, once nobody uses the instances"
        )
    prohibited = [gpu["index"] for gpu in want.boards(facts) if gpu.get("compute_mode") == PROHIBITED]
    if prohibited:
        yield Check(
            "compute mode", "stop", f"prohibited at GPU {listing(prohibited)}", f"nvidia-smi -i {listing(prohibited, ',')} -c DEFAULT"
        )
    exclusive = [gpu["index"] for gpu in want.boards(facts) if gpu.get("compute_mode") == EXCLUSIVE]
    if exclusive:
        yield Check("compute mode", "note", f"exclusive at GPU {listing(exclusive)}", "nothing else can use the board beside the engine")


def _health(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    gpus = want.boards(facts)
    for gpu in gpus:
        asked = gpu.get("recovery")
        if asked:
            level = "stop" if asked in (1, 2) else "warn"
            yield Check(
                f"GPU {gpu['index']}", level, f"its driver asks for {RECOVERY.get(asked, 'a repair')}", "do that first, then run again"
            )
        if gpu.get("repair_failed"):
            yield Check(f"GPU {gpu['index']}", "warn", "a memory row could not be remapped", "have the board replaced")
        if gpu.get("repair_pending"):
            yield Check(
                f"GPU {gpu['index']}",
                "warn",
                "a memory row waits to be remapped",
                f"nvidia-smi --gpu-reset -i {gpu['index']} while it is free",
            )
        if gpu.get("uncorrected"):
            yield Check(
                f"GPU {gpu['index']}", "warn", f"{gpu['uncorrected']} uncorrected memory errors since the driver was loaded",
                "reset the board while it is free, and have it replaced if they come back",
            )  # fmt: skip
    off, told = [gpu["index"] for gpu in gpus if gpu.get("ecc") is False], [gpu for gpu in gpus if gpu.get("ecc") is not None]
    if off:
        yield Check("ECC", "note", f"off at GPU {listing(off)}", "memory errors go unseen there: nvidia-smi -e 1, then reboot")
    elif told:
        yield Check("ECC", "ok", f"on, {sum(gpu.get('uncorrected') or 0 for gpu in gpus)} uncorrected errors")


def _xids(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    if facts["xids"] is None:
        yield Check("Xid", "note", "the kernel's log cannot be read", "let the user of Ansible read it (group systemd-journal, or root)")
        return
    ours = {_bus(gpu["bus"]): gpu["index"] for gpu in want.boards(facts) if gpu.get("bus")}
    bad: list[str] = []
    known: list[str] = []
    for one in facts["xids"]:
        where = ours.get(_bus(one["bus"]))
        text = f"{one['code']} at {one['bus'] if where is None else f'GPU {where}'}" + (f" x{one['times']}" if one["times"] > 1 else "")
        (bad if one["code"] in XIDS_OF_BOARDS and (where is not None or not ours) else known).append(text)
    if bad:
        yield Check(
            "Xid",
            "warn",
            f"since boot: {', '.join(bad)}",
            "look these up in NVIDIA's list of Xid errors: reset the board, and replace it if they come back",
        )
    if known:
        yield Check("Xid", "note", f"since boot: {', '.join(known)}", "errors of programs or of boards that the engine does not use")
    if not facts["xids"]:
        yield Check("Xid", "ok", "none since boot")


def _holders(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    own = set(facts["own_pids"])
    level = "warn" if want.running else "stop"
    found = False
    for gpu in want.boards(facts):
        others = [one for one in gpu["holders"] if one["pid"] not in own]
        ours = any(one["pid"] in own for one in gpu["holders"])
        big = [one for one in others if (one["mib"] if one["mib"] is not None else 0 if ours else gpu["used_mib"]) > want.idle_mib]
        if big:
            found = True
            shown = ", ".join(f"{one['shown']} with {one['mib'] if one['mib'] is not None else 'unknown'} MiB" for one in big)
            yield Check(
                "foreign VRAM", level, f"GPU {gpu['index']}: {shown}", "stop that, or give the engine other boards by ddtree_server_gpus"
            )
        elif gpu["used_mib"] > want.idle_mib and not ours and not want.running:
            found = True
            yield Check(
                "foreign VRAM", "warn", f"GPU {gpu['index']}: {gpu['used_mib']} MiB in use by nobody who can be seen from here",
                "look from the host itself (another container or user), or wait until the driver gives it back",
            )  # fmt: skip
    if not found:
        yield Check("foreign VRAM", "ok", f"none above {want.idle_mib} MiB")


def _backends(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    new = [gpu for gpu in want.boards(facts) if str(gpu.get("capability") or "").startswith("12")]
    for flag, value in flag_values(list(want.flags)).items() if new else ():
        if flag.endswith("attention-backend") and value in NOT_ON_SM120:
            yield Check(
                "attention backend", "warn", f"{flag} {value} on compute capability {new[0]['capability']}", "take triton or flashinfer"
            )


def _persistence(facts: Mapping[str, Any], want: Want) -> Iterator[Check]:
    off = [gpu["index"] for gpu in want.boards(facts) if gpu.get("persistence") is False]
    if off:
        yield Check(
            "persistence",
            "note",
            f"off at GPU {listing(off)}",
            "each start first wakes the board: nvidia-smi -pm 1, or the unit nvidia-persistenced",
        )


def _bus(name: str) -> str:
    """A PCI address as short as the kernel's log has it: 0000:41:00."""
    match = re.search(r"([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})", name.lower())
    return ":".join(match.groups()) if match else name.lower()

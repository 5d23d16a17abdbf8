"""What must fit together in an inventory: points, flags, dialects and boards of one host, and hosts that share a machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from .dialects import DialectError, merged
from .engine import EngineError, Server, render
from .inventory import GROUP, Inventory, Value, value_of
from .inventory_values import complaint, short
from .points import Point, PointError, arguments, environment, expand
from .quoting import one_line

DIALECTS, DEFAULTS = "ddtree_server_dialects", "point_defaults"
# Any value will do to see whether the rest fits, where the point itself comes from the command line.
STAND_INS = {"budget": 16, "topk": 4}
_UUID = re.compile(r"(GPU|MIG)-[0-9a-zA-Z-]+")


def rules(inventory: Inventory) -> list[str]:
    """A sentence for each thing that does not fit, distinct; a value that is wrong in itself is left out, as it was told already."""
    inventory = replace(inventory, hosts={host: _sound(inventory, one) for host, one in inventory.hosts.items()})
    found: list[str] = []
    for host in inventory.groups.get(GROUP, ()):
        variables = inventory.hosts.get(host, {})
        found += (f"{where or host}: {said}" for where, said in _host(inventory, variables))
    return list(dict.fromkeys(map(one_line, [*found, *_machines(inventory)])))


def _host(inventory: Inventory, variables: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """(where, sentence) for one host."""
    given = {name: variables[name] for name in (DIALECTS, DEFAULTS, "ddtree_server_extra_args", "ddtree_server_env") if name in variables}
    where = {name: one.where for name, one in given.items()}
    try:
        args = arguments(value_of(variables, "ddtree_server_extra_args"), "ddtree_server_extra_args")
    except PointError as error:
        args = ()
        yield where.get("ddtree_server_extra_args", ""), str(error)
    try:
        env = environment(value_of(variables, "ddtree_server_env"), "ddtree_server_env")
    except PointError as error:
        env = ()
        yield where.get("ddtree_server_env", ""), str(error)
    try:
        table = merged(value_of(variables, DIALECTS))
    except DialectError as error:
        yield where.get(DIALECTS, ""), str(error)
        return
    defaults = value_of(variables, DEFAULTS) or {}
    try:
        if not isinstance(defaults, Mapping):
            raise PointError(f"is {short(defaults)}: a mapping such as {{budget: 12, topk: 6}} is wanted")
        points = expand({}, defaults, table)
    except PointError as error:
        yield where.get(DEFAULTS, ""), f"{DEFAULTS}: {error}"
        return
    block = _number(value_of(variables, "ddtree_server_block_size", 0)) or 1
    server = Server("/p", "/m", "/d", block_size=block, extra_args=args, extra_env=env)
    for point in points:
        try:
            render(_whole(point, table), server, table)
        except EngineError as error:
            yield _blame(str(error), where), f"{error}"
            break
    yield from _boards(inventory, variables, points)


def _sound(inventory: Inventory, variables: Mapping[str, Value]) -> dict[str, Value]:
    options = inventory.options
    return {name: one for name, one in variables.items() if name not in options or not complaint(name, one.value, options[name])}


def _whole(point: Point, table: Mapping[str, Mapping[str, Any]]) -> Point:
    """The point with what it needs and does not say."""
    needs = table[point.dialect].get("needs") or []
    missing: dict[str, Any] = {axis: STAND_INS[axis] for axis in needs if axis in STAND_INS and getattr(point, axis) is None}
    return replace(point, **missing)


def _blame(error: str, where: Mapping[str, str]) -> str:
    """The place of the variable that the sentence is about."""
    if "extra_args" in error or error.startswith("--"):
        return where.get("ddtree_server_extra_args", "")
    if "environment" in error:
        return where.get("ddtree_server_env", "")
    return where.get(DEFAULTS, "")


def _boards(inventory: Inventory, variables: Mapping[str, Value], points: list[Point]) -> Iterator[tuple[str, str]]:
    """What the engine's boards must be; a tensor parallel size of the command line is judged with the points."""
    used, has = _used(variables), _number(value_of(variables, "gpu_host_gpus", 8))
    where = variables["ddtree_server_gpus"].where if used else variables["gpu_host_gpus"].where if "gpu_host_gpus" in variables else ""
    for one in used:
        if not one.isdigit() and not _UUID.fullmatch(one):
            yield where, f"ddtree_server_gpus names {short(one)}: an index such as 3 or a UUID such as GPU-5e1f is wanted"
        elif one.isdigit() and int(one) >= has:
            yield where, f"ddtree_server_gpus names GPU {one}, and gpu_host_gpus says that the host has {has}: they count from 0"
    twice = sorted({one for one in used if used.count(one) > 1})
    if twice:
        yield where, f"ddtree_server_gpus names {', '.join(twice)} twice"
    if "tp" in inventory.asked or "points" in inventory.asked:
        return
    most = max(point.tp for point in points)
    if used and len(used) < most:
        yield where, f"ddtree_server_gpus names {len(used)} boards, and tp is {most}: name as many, or set point_defaults.tp"
    elif not used and has < most:
        yield where, f"gpu_host_gpus is {has}, and tp is {most}: set point_defaults.tp to what the host can run"


def _machines(inventory: Inventory) -> Iterator[str]:
    """Hosts of the inventory that are one machine must not be one unit, one port or the same boards."""
    seen: dict[str, list[str]] = {}
    for host in inventory.groups.get(GROUP, ()):
        variables = inventory.hosts.get(host, {})
        address = str(value_of(variables, "ansible_host", host)) + ":" + str(value_of(variables, "ansible_port", ""))
        seen.setdefault(address, []).append(host)
    for hosts in seen.values():
        for index, two in enumerate(hosts):
            for one in hosts[:index]:
                first, second = inventory.hosts[one], inventory.hosts[two]
                for name, default, what in (("ddtree_server_unit", "ddtree", "unit"), ("ddtree_server_port", 30000, "port")):
                    if str(value_of(first, name, default)) == str(value_of(second, name, default)):
                        yield f"{one} and {two} are one machine with one {what}, {value_of(first, name, default)}: give each its own {name}"
                shared = sorted(set(_used(first)) & set(_used(second)))
                if shared:
                    yield f"{one} and {two} are one machine, and both take GPU {', '.join(shared)}: give each its own ddtree_server_gpus"


def _used(variables: Mapping[str, Value]) -> list[str]:
    value = value_of(variables, "ddtree_server_gpus") or []
    return [str(one).strip() for one in (value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [])]


def _number(value: Any) -> int:
    return int(str(value)) if str(value).isdigit() else 0

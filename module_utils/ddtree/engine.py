"""From a point to the engine's command line: rendering by dialect, derived values, constraints, and what
proves the load.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .dialects import AXES, BUILTIN, MAX_TOPK, DialectError, fill, groups, placeholders
from .points import Point, PointError, arguments, environment, whole_number

API_KEY_ENV = "DDTREE_API_KEY"
ADMIN_API_KEY_ENV = "DDTREE_ADMIN_API_KEY"
SILENT_MAX_RUNNING = 48
# Attention backends that do not run on compute capability 12.x (RTX PRO 6000 Blackwell).
NOT_ON_SM120 = ("fa3", "fa4", "trtllm_mla", "trtllm_mha", "flashmla", "cutlass_mla")
# Flags that a variable or the point sets, and which one.
_OWNED = {
    "--model-path": "ddtree_server_model",
    "--model": "ddtree_server_model",
    "--host": "ddtree_server_host",
    "--port": "ddtree_server_port",
    "--tp-size": "tp",
    "--tensor-parallel-size": "tp",
    "--tp": "tp",
    "--weight-version": "the point itself",
    "--api-key": "ddtree_server_api_key",
    "--admin-api-key": "ddtree_server_admin_api_key",
    "--speculative-draft-model-path": "ddtree_server_drafter",
    "--speculative-draft-model": "ddtree_server_drafter",
    "--speculative-algorithm": "dialect",
}


class EngineError(ValueError):
    """The point cannot run on this engine; the message is one sentence."""


@dataclass(frozen=True)
class Server:
    """What all points of a host share. `api_key` and `admin_api_key` only say that there is one: no key is
    ever held here.
    """

    python: str
    model: str
    drafter: str = ""
    host: str = "127.0.0.1"
    port: int = 30000
    block_size: int = 8
    max_running_requests: int = 64
    api_key: bool = False
    admin_api_key: bool = False
    extra_args: tuple[str, ...] = ()
    extra_env: tuple[tuple[str, str], ...] = ()
    weight_version: bool = True  # the build knows --weight-version
    concurrency: int = 0  # highest that will be measured; 0 for unknown
    compute_capability: str = ""  # of the GPUs, "12.0"

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Server:
        """Read from a mapping of these fields, strings and all. Raises EngineError."""
        known = cls.__dataclass_fields__
        values: dict[str, Any] = {}
        for key, value in given.items():
            if str(key) not in known:
                raise EngineError(f"the server has the unknown key {str(key)!r}: known are {', '.join(known)}")
            values[str(key)] = _server_value(str(key), value)
        for key in ("python", "model"):
            if not values.get(key):
                raise EngineError(f"the server has no {key}: set ddtree_server_{key}")
        return cls(**values)


@dataclass(frozen=True)
class Launch:
    """A rendered start. `expect`: server_info fields that prove it; `log_proofs`: regular expressions of
    start-log lines; `secret_flags`: flags whose value is an environment variable, kept out of argv; `key`:
    equal for equal engine configurations."""

    argv: list[str]
    env: dict[str, str]
    config_id: str
    derived: dict[str, Any]
    expect: dict[str, Any]
    log_proofs: list[str]
    warnings: list[str]
    secret_flags: dict[str, str] = field(default_factory=dict)
    key: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain types."""
        return asdict(self)


def render(point: Point, server: Server, dialects: Mapping[str, Mapping[str, Any]] = BUILTIN) -> Launch:
    """The start of `point` on `server`; the same input gives the same bytes. Raises EngineError."""
    if point.dialect not in dialects:
        raise EngineError(f"dialect {point.dialect!r} is not known: known are {', '.join(dialects)}")
    dialect = dialects[point.dialect]
    derived = derive(point, server.block_size, dialect)
    _constraints(point, server, dialect)
    values = _values(point, server, derived)
    try:
        spoken = _dialect_args(dialect, values, point.dialect)
        proofs = [_proof(one, values, point.dialect) for one in dialect.get("log_proofs") or []]
        expect = {
            key: fill(one, values, f"dialect {point.dialect}") if isinstance(one, str) else one
            for key, one in (dialect.get("expect") or {}).items()
        }
        told = {key: fill(str(one), values, f"dialect {point.dialect}") for key, one in (dialect.get("env") or {}).items()}
    except DialectError as error:
        raise EngineError(str(error)) from None
    extra = [*server.extra_args, *point.extra_args]
    _no_owned_flag(extra, spoken)
    common = _common_args(server, point, dialect, extra)
    _backends(point, dialect, derived, _effective(common, extra), server)
    env = {
        **dict(server.extra_env),
        **{key: str(one) for key, one in told.items() if one is not None},
        **dict(point.extra_env),
    }
    argv = [server.python, "-m", "sglang.launch_server", *common, *spoken]
    config_id = _hash([argv, extra, sorted(env.items())])
    if server.weight_version:
        argv += ["--weight-version", config_id]
    axes = {"budget": point.budget, "window": point.window, "effective_topk": derived["effective_topk"]}
    others = {name: one for name, one in env.items() if name not in told or name in dict(point.extra_env)}
    rest = [one for one in argv if one != config_id] if dialect.get("derive") == "spine_tree" else [config_id]
    return Launch(
        argv=argv + extra,
        env=dict(sorted(env.items())),
        config_id=config_id,
        derived=derived,
        expect=expect,
        log_proofs=proofs,
        warnings=_warnings(point, server, dialect, derived, _effective(common, extra)),
        secret_flags=_secret_flags(server),
        key=_hash([point.dialect, derived["mode"], axes, rest, extra, sorted(others.items())]),
    )


def derive(point: Point, block: int, dialect: Mapping[str, Any]) -> dict[str, Any]:
    """{mode: none|chain|spine|tree, effective_topk, verify_width, block_size}: what the engine makes of the
    point.

    verify_width is in tokens per request and verify step, the anchor included.
    """
    rule, budget, topk = dialect.get("derive"), point.budget, point.topk
    mode, effective, width = "chain", 1, block
    if rule == "none":
        mode, effective, width = "none", 1, 1
    elif rule == "spine_tree" and budget is not None:
        spine = budget <= block - 1
        mode, width = ("spine" if spine else "tree"), budget + 1
        effective = 1 if spine else min(max(budget // max(block - 1, 1) + 1, 2), topk or MAX_TOPK)
    elif rule == "tree" and (budget or topk):
        mode, effective, width = "tree", topk or 1, (budget + 1 if budget else block)
    elif rule == "nodes":
        mode, effective, width = ("tree" if (topk or 1) > 1 else "chain"), topk or 1, budget or block
    return {"mode": mode, "effective_topk": effective, "verify_width": width, "block_size": block}


def engine_key(launch: Launch) -> str:
    """Equal for two launches that the engine resolves to the same configuration."""
    return launch.key


def collapse(points: Iterable[Point], server: Server, dialects: Mapping[str, Mapping[str, Any]] = BUILTIN) -> list[dict[str, Any]]:
    """[{point, aliases, launch}] in the order asked: points that resolve to one engine configuration run
    once, under the first's name.
    """
    found: dict[str, dict[str, Any]] = {}
    for point in points:
        try:
            launch = render(point, server, dialects)
        except EngineError as error:
            raise EngineError(f"{point.name}: {error}") from None
        if engine_key(launch) in found:
            found[engine_key(launch)]["aliases"].append(point.name)
        else:
            found[engine_key(launch)] = {"point": point, "aliases": [], "launch": launch}
    return list(found.values())


# -- parts


def _server_value(key: str, value: Any) -> Any:
    try:
        if key == "extra_args":
            return arguments(value, "ddtree_server_extra_args")
        if key == "extra_env":
            return environment(value, "ddtree_server_env")
        if key in ("port", "block_size", "max_running_requests"):
            return whole_number(f"ddtree_server_{key}", value)
        if key == "concurrency":
            return whole_number(key, value) if value else 0
    except PointError as error:
        raise EngineError(str(error)) from None
    return bool(value) if key in ("api_key", "admin_api_key", "weight_version") else str(value or "")


def _values(point: Point, server: Server, derived: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "model": server.model,
        "drafter": server.drafter or None,
        "block": server.block_size,
        "tp": point.tp,
        "budget": point.budget,
        "topk": point.topk,
        "window": point.window,
        "verify_width": derived["verify_width"],
        "effective_topk": derived["effective_topk"],
    }


def _dialect_args(dialect: Mapping[str, Any], values: Mapping[str, Any], name: str) -> list[str]:
    if name == "custom" and not dialect.get("args") and not dialect.get("env"):
        raise EngineError("dialect custom has no templates: give ddtree_server_dialects.custom.args or .env, see docs/points.md")
    args: list[str] = []
    for group in groups(dialect):
        if any("drafter" in placeholders(one) for one in group) and values["drafter"] is None:
            raise EngineError(f"dialect {name} needs a draft model: set ddtree_server_drafter")
        filled = [fill(one, values, f"dialect {name}") for one in group]
        if all(one is not None for one in filled):
            args += [str(one) for one in filled]
    return args


def _proof(template: str, values: Mapping[str, Any], name: str) -> str:
    """A log proof with its values put in as literal text; the engine's log writes None for a value that is
    not set.
    """
    for key in placeholders(template):
        if key not in values:
            raise DialectError(f"dialect {name} has the unknown placeholder {{{key}}} in log_proofs; known are {', '.join(sorted(values))}")
        template = template.replace(f"{{{key}}}", re.escape(str(values[key])))
    return template


def _common_args(server: Server, point: Point, dialect: Mapping[str, Any], extra: list[str]) -> list[str]:
    """The flags of every point, without those that extra arguments set themselves."""
    pairs: list[list[str]] = [
        ["--model-path", server.model],
        ["--host", server.host],
        ["--port", str(server.port)],
        ["--tp-size", str(point.tp)],
    ]
    if dialect.get("attention_backends"):
        pairs.append(["--attention-backend", str(dialect["attention_backends"][0])])
    if dialect.get("page_size"):
        pairs.append(["--page-size", str(dialect["page_size"])])
    pairs += [["--max-running-requests", str(server.max_running_requests)], ["--enable-metrics"]]
    given = set(_flags(extra))
    return [one for pair in pairs if pair[0] not in given for one in pair]


def _constraints(point: Point, server: Server, dialect: Mapping[str, Any]) -> None:
    axes = dialect.get("axes") or []
    for axis in AXES:
        value = getattr(point, axis)
        if value is not None and axis not in axes:
            raise EngineError(f"{axis}={value} means nothing to dialect {point.dialect}: leave it out or ask another dialect")
        if value is None and axis in (dialect.get("needs") or []):
            raise EngineError(f'dialect {point.dialect} needs a {axis}, as in -e "{axis}={12 if axis == "budget" else 4}"')
        limits = (dialect.get("limits") or {}).get(axis) or {}
        if value is None:
            continue
        if limits.get("min_block") and value < server.block_size:
            raise EngineError(f"{axis}={value} is below the drafter's block size of {server.block_size}: the engine would refuse to start")
        if value < limits.get("min", value) or value > limits.get("max", value):
            raise EngineError(f"{axis}={value} is outside {limits.get('min', 1)} to {limits.get('max', 'any')} of dialect {point.dialect}")
        if limits.get("choices") and value not in limits["choices"]:
            raise EngineError(
                f"{axis}={value} is none of {', '.join(str(one) for one in limits['choices'])}, which dialect {point.dialect} takes"
            )


def _backends(
    point: Point,
    dialect: Mapping[str, Any],
    derived: Mapping[str, Any],
    flags: Mapping[str, str],
    server: Server,
) -> None:
    """What extra arguments may not undo: the page size and the backends without which the engine refuses this
    dialect.
    """
    page = dialect.get("page_size")
    if page and flags.get("--page-size") != str(page):
        raise EngineError(f"dialect {point.dialect} needs --page-size {page}, and extra_args asks {flags.get('--page-size')}")
    allowed = dialect.get("tree_attention_backends") if derived["mode"] == "tree" else None
    for flag in ("--attention-backend", "--prefill-attention-backend", "--decode-attention-backend"):
        wanted = allowed or (dialect.get("attention_backends") if derived["mode"] == "tree" else None)
        if wanted and flag in flags and flags[flag] not in wanted:
            raise EngineError(f"{flag} {flags[flag]} does not run the full tree of dialect {point.dialect}: {' or '.join(wanted)} does")
    if flags.get("--pp-size", flags.get("--pipeline-parallel-size", "1")) != "1" and derived["mode"] != "none":
        raise EngineError("speculation runs with a pipeline size of 1 only: take --pp-size out of extra_args")


def _no_owned_flag(extra: list[str], spoken: list[str]) -> None:
    for flag in _flags(extra):
        if flag in _OWNED:
            raise EngineError(f"extra_args has {flag}, which comes from {_OWNED[flag]}: set it there")
        if flag in _flags(spoken):
            raise EngineError(f"extra_args has {flag}, which comes from the point: set budget, topk or window instead")


def _warnings(
    point: Point,
    server: Server,
    dialect: Mapping[str, Any],
    derived: Mapping[str, Any],
    flags: Mapping[str, str],
) -> list[str]:
    notes = [str(one) for one in dialect.get("notes") or []]
    if derived["mode"] == "spine" and point.topk:
        notes.append(
            f"topk {point.topk} has no part in it: budget {point.budget} is below block {server.block_size}, so a chain is verified"
        )
    elif dialect.get("derive") == "spine_tree" and point.topk and derived["effective_topk"] != point.topk:
        notes.append(
            f"topk {point.topk} is a ceiling only: at budget {point.budget} and block {server.block_size} "
            f"the engine uses {derived['effective_topk']}"
        )
    running = flags.get("--max-running-requests", "")
    if server.concurrency and running.isdigit() and int(running) < server.concurrency:
        notes.append(
            f"max_running_requests {running} is below concurrency {server.concurrency}: the rest would queue and be measured as slow"
        )
    if server.compute_capability.startswith("12"):
        for flag, value in flags.items():
            if flag.endswith("attention-backend") and value in NOT_ON_SM120:
                notes.append(f"{flag} {value} does not run on compute capability {server.compute_capability}: triton does")
    return notes


def _secret_flags(server: Server) -> dict[str, str]:
    flags = {"--api-key": API_KEY_ENV} if server.api_key else {}
    return {**flags, **({"--admin-api-key": ADMIN_API_KEY_ENV} if server.admin_api_key else {})}


def _flags(args: Iterable[str]) -> list[str]:
    return [one.split("=", 1)[0] for one in args if one.startswith("--")]


def _effective(common: list[str], extra: list[str]) -> dict[str, str]:
    """Flag to value as argparse would read it: the last one wins."""
    found: dict[str, str] = {}
    args = common + extra
    for index, one in enumerate(args):
        if one.startswith("--"):
            flag, sign, value = one.partition("=")
            following = args[index + 1] if index + 1 < len(args) else ""
            found[flag] = value if sign else ("" if following.startswith("--") else following)
    return found


def _hash(material: Any) -> str:
    return hashlib.sha256(json.dumps(material, ensure_ascii=True, sort_keys=True).encode()).hexdigest()[:12]

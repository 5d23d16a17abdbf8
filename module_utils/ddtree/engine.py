"""From a point to the engine's command line: rendering by dialect, derived values, constraints, and what
proves the load.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .derived import RULES, derive
from .dialect_table import AXES, BUILTIN, fill, fill_pattern, groups, placeholders, templates
from .points import Point, PointError, arguments, environment, whole_number

API_KEY_ENV = "DDTREE_API_KEY"
ADMIN_API_KEY_ENV = "DDTREE_ADMIN_API_KEY"
# What the engine takes where nobody says, with speculation.
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
    block_size: int = 0  # of the drafter; 0 for unknown
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
    start-log lines; `secret_flags`: flags whose value is an environment variable, kept out of argv; `asked`: the
    arguments to ask the build about, those flags with a stand-in; `key`: equal for equal engine configurations."""

    argv: list[str]
    env: dict[str, str]
    config_id: str
    derived: dict[str, Any]
    expect: dict[str, Any]
    log_proofs: list[str]
    warnings: list[str]
    secret_flags: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    key: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain types."""
        return asdict(self)


def render(point: Point, server: Server, dialects: Mapping[str, Mapping[str, Any]] = BUILTIN) -> Launch:
    """The start of `point` on `server`; the same input gives the same bytes. Raises EngineError."""
    if point.dialect not in dialects:
        raise EngineError(f"dialect {point.dialect!r} is not known: known are {', '.join(dialects)}")
    dialect = dialects[point.dialect]
    _drafter(point, server, dialect)
    extra = [*server.extra_args, *point.extra_args]
    block = _block(point, server, dialect, flag_values(extra))
    derived = derive(dialect.get("derive", "tree"), point.budget, point.topk, block)
    _constraints(point, block, dialect)
    values = _values(point, server, derived)
    spoken = _dialect_args(dialect, values)
    _no_owned_flag(extra, spoken)
    common = _common_args(server, point, dialect, extra)
    flags = flag_values(common + extra)
    _backends(point, dialect, derived, flags)
    env = _environment(point, server, dialect, values)
    secret_flags = _secret_flags(server)
    argv = [server.python, "-m", "sglang.launch_server", *common, *spoken]
    config_id = _hash([argv, extra, sorted(env.items())])
    if server.weight_version:
        argv += ["--weight-version", config_id]
    return Launch(
        argv=argv + extra,
        env=env,
        config_id=config_id,
        derived=derived,
        expect={key: fill(one, values) if isinstance(one, str) else one for key, one in (dialect.get("expect") or {}).items()},
        log_proofs=[fill_pattern(one, values) for one in dialect.get("log_proofs") or []],
        warnings=_warnings(point, server, dialect, derived, flags),
        secret_flags=secret_flags,
        asked=[*argv[3:], *extra, *(word for flag in secret_flags for word in (flag, "hidden"))],
        key=_key(point, server, dialect, values, [*common, *extra]) or config_id,
    )


def block_size(config: Any) -> int:
    """The block size that a DFLASH drafter's config.json states, in tokens, 0 where it states none; `config` is its text or mapping."""
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except ValueError:
            return 0
    if not isinstance(config, Mapping):
        return 0
    inner = config.get("dflash_config")
    found = inner.get("block_size") if isinstance(inner, Mapping) else None
    found = config.get("block_size") if found is None else found
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


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
        if key in ("port", "max_running_requests"):
            return whole_number(f"ddtree_server_{key}", value)
        if key in ("block_size", "concurrency"):
            return whole_number(f"ddtree_server_{key}" if key == "block_size" else key, value) if str(value or 0) != "0" else 0
    except PointError as error:
        raise EngineError(str(error)) from None
    return bool(value) if key in ("api_key", "admin_api_key", "weight_version") else str(value or "")


def _values(point: Point, server: Server, derived: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "model": server.model,
        "drafter": server.drafter or None,
        "block": derived["block_size"],
        "tp": point.tp,
        "budget": point.budget,
        "topk": point.topk,
        "window": point.window,
        "verify_width": derived["verify_width"],
        "effective_topk": derived["effective_topk"],
    }


def _drafter(point: Point, server: Server, dialect: Mapping[str, Any]) -> None:
    """Refuse a dialect that lacks what it is made of."""
    if point.dialect == "custom" and not dialect.get("args") and not dialect.get("env"):
        raise EngineError("dialect custom has no templates: give ddtree_server_dialects.custom.args or .env, see docs/dialects.md")
    if not server.drafter and any("drafter" in placeholders(one) for one in templates(dialect)):
        raise EngineError(f"dialect {point.dialect} needs a draft model: set ddtree_server_drafter")


def _block(point: Point, server: Server, dialect: Mapping[str, Any], flags: Mapping[str, str]) -> int:
    """The block size that this start drafts with: extra arguments change it, else it is the drafter's. 0 where nothing needs it."""
    for flag in ("--speculative-dflash-block-size", "--speculative-num-draft-tokens"):
        if flags.get(flag, "").isdigit():
            return int(flags[flag])
    limits = (dialect.get("limits") or {}).items()
    needed = RULES[dialect.get("derive", "tree")].block
    needed = needed or any(limit.get("min_block") and getattr(point, axis) is not None for axis, limit in limits)
    needed = needed or any("block" in placeholders(one) for one in templates(dialect))
    if needed and not server.block_size:
        raise EngineError(
            f"dialect {point.dialect} needs the drafter's block size, and no config.json in {server.drafter or 'ddtree_server_drafter'} "
            "on the host states it: set ddtree_server_block_size"
        )
    return server.block_size


def _dialect_args(dialect: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    args: list[str] = []
    for group in groups(dialect):
        filled = [fill(one, values) for one in group]
        if all(one is not None for one in filled):
            args += [str(one) for one in filled]
    return args


def _environment(point: Point, server: Server, dialect: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, str]:
    """The engine's own variables, sorted: the host's, then the dialect's, then the point's."""
    told = {key: fill(str(one), values) for key, one in (dialect.get("env") or {}).items()}
    env = {**dict(server.extra_env), **{key: str(one) for key, one in told.items() if one is not None}, **dict(point.extra_env)}
    for name in env:
        if name.startswith("SGLANG_SIMULATE_"):
            raise EngineError(f"the environment has {name}, with which the engine makes its accept length up: take it out")
    return dict(sorted(env.items()))


def _key(point: Point, server: Server, dialect: Mapping[str, Any], values: Mapping[str, Any], rest: list[str]) -> str:
    """What is equal for equal engine configurations, where the derived values are all that the engine takes from budget and topk."""
    if not RULES[dialect.get("derive", "tree")].canonical:
        return ""
    mode = derive(dialect["derive"], point.budget, point.topk, values["block"])
    seen = {**values, "budget": f"for width {mode['verify_width']}", "topk": f"of {mode['effective_topk']}"}
    return _hash([mode, rest, _dialect_args(dialect, seen), _environment(point, server, dialect, seen)])


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


def _constraints(point: Point, block: int, dialect: Mapping[str, Any]) -> None:
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
        if limits.get("min_block") and value < block:
            raise EngineError(f"{axis}={value} is below the drafter's block size of {block}: the engine would refuse to start")
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
    block = derived["block_size"]
    if derived["mode"] == "spine" and point.topk:
        notes.append(f"topk {point.topk} has no part in it: budget {point.budget} is below block {block}, so a chain is verified")
    elif dialect.get("derive") == "spine_tree" and point.topk and derived["effective_topk"] != point.topk:
        notes.append(
            f"topk {point.topk} is a ceiling only: at budget {point.budget} and block {block} the engine uses {derived['effective_topk']}"
        )
    elif dialect.get("derive") == "beam" and point.budget and point.budget > derived["verify_width"]:
        notes.append(f"budget {point.budget} is above the {derived['verify_width']} tokens of a full tree of width {point.topk}")
    if server.block_size and block != server.block_size:
        notes.append(f"extra arguments draft blocks of {block}, the drafter was made for {server.block_size}")
    running = flags.get("--max-running-requests", "")
    if server.concurrency and running.isdigit() and int(running) < server.concurrency:
        notes.append(
            f"max_running_requests {running} is below concurrency {server.concurrency}: the rest would queue and be measured as slow "
            f"(the engine's own default is {SILENT_MAX_RUNNING})"
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


def flag_values(args: list[str]) -> dict[str, str]:
    """Flag to value as argparse would read it: the last one wins."""
    found: dict[str, str] = {}
    for index, one in enumerate(args):
        if one.startswith("--"):
            flag, sign, value = one.partition("=")
            following = args[index + 1] if index + 1 < len(args) else ""
            found[flag] = value if sign else ("" if following.startswith("--") else following)
    return found


def _hash(material: Any) -> str:
    return hashlib.sha256(json.dumps(material, ensure_ascii=True, sort_keys=True).encode()).hexdigest()[:12]

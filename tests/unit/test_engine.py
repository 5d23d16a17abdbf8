"""The engine's command line by dialect, what it derives to, what is refused, and which points are one
engine.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.dialects import BUILTIN, DEFAULT_DIALECT, merged
from ddtree.engine import EngineError, Server, block_size, collapse, engine_key, render
from ddtree.points import Point

SERVER = Server(python="/opt/sglang/bin/python", model="/m/target", drafter="/m/drafter", block_size=8)
COMMON = [
    "/opt/sglang/bin/python",
    "-m",
    "sglang.launch_server",
    "--model-path",
    "/m/target",
    "--host",
    "127.0.0.1",
    "--port",
    "30000",
    "--tp-size",
    "8",
]
LIMITS = ["--max-running-requests", "64", "--enable-metrics"]
# The lines of the real engine's log, with its values: recordings of 0.5.17 and pull request 29907's format.
RUNNER = (
    "[2026-12-01 10:00:00 TP0] Initialized DFLASH draft runner. attention_backend=triton, "
    "model=Qwen3ForCausalLM, block_size=8, draft_window_size={}, compact_cache={}"
)
WORKER = "[2026-12-01 10:00:00 TP0] Initialized DDTree worker. block_size=8, tree_budget=12, max_tree_nodes=13"


def changed(**values: object) -> Server:
    return dataclasses.replace(SERVER, **values)  # type: ignore[arg-type]


def test_the_default_dialect_is_rendered_exactly() -> None:
    launch = render(Point(budget=12, topk=6), SERVER)
    assert launch.argv == [
        *COMMON,
        "--attention-backend",
        "triton",
        "--page-size",
        "1",
        *LIMITS,
        "--speculative-algorithm",
        "DDTREE",
        "--speculative-draft-model-path",
        "/m/drafter",
        "--speculative-ddtree-budget",
        "12",
        "--speculative-draft-window-size",
        "2048",
        "--weight-version",
        launch.config_id,
    ]
    assert launch.env == {"SGLANG_DDTREE_MAX_TOPK": "6"}
    assert re.fullmatch(r"[0-9a-f]{12}", launch.config_id)
    assert launch.derived == {"mode": "tree", "effective_topk": 2, "verify_width": 13, "block_size": 8}
    assert launch.expect == {
        "speculative_algorithm": "DDTREE",
        "speculative_ddtree_budget": 12,
        "speculative_num_draft_tokens": 8,
        "speculative_draft_window_size": 2048,
    }
    assert [bool(re.search(proof, line)) for proof, line in zip(launch.log_proofs, (RUNNER.format(2048, True), WORKER))] == [True, True]
    assert not re.search(launch.log_proofs[0], RUNNER.format(None, False))


def test_no_window_is_no_flag_and_is_proved_as_none() -> None:
    launch = render(Point(budget=12, window=None), SERVER)
    assert "--speculative-draft-window-size" not in launch.argv
    assert launch.expect["speculative_draft_window_size"] is None
    assert re.search(launch.log_proofs[0], RUNNER.format(None, False))
    assert not any(one in ("None", "none", "") for one in launch.argv)


@pytest.mark.parametrize(
    ("point", "spoken", "env"),
    [
        (Point(dialect="none", window=None), [], {}),
        (
            Point(dialect="dflash"),
            [
                "--speculative-algorithm",
                "DFLASH",
                "--speculative-draft-model-path",
                "/m/drafter",
                "--speculative-draft-window-size",
                "2048",
            ],
            {},
        ),
        (
            Point(dialect="pr31069", budget=32, topk=8),
            [
                "--speculative-algorithm",
                "DFLASH",
                "--speculative-draft-model-path",
                "/m/drafter",
                "--speculative-dflash-tree-verify",
                "--speculative-num-draft-tokens",
                "32",
                "--speculative-eagle-topk",
                "8",
                "--speculative-draft-window-size",
                "2048",
            ],
            {},
        ),
        (
            Point(dialect="jetspec", budget=16, topk=8, window=None),
            [
                "--speculative-algorithm",
                "DFLASH",
                "--speculative-draft-model-path",
                "/m/drafter",
                "--speculative-dflash-tree-budget",
                "16",
                "--speculative-dflash-tree-width",
                "8",
            ],
            {},
        ),
    ],
)
def test_other_dialects(point: Point, spoken: list[str], env: dict[str, str]) -> None:
    launch = render(point, SERVER)
    assert launch.argv == [*COMMON, *LIMITS, *spoken, "--weight-version", launch.config_id]
    assert launch.env == env


def test_pr36196_takes_its_budget_by_environment() -> None:
    launch = render(Point(dialect="pr36196", budget=32, topk=4), SERVER)
    assert launch.env == {"SGLANG_DFLASH_MAX_NUM_NODES": "32"}
    assert launch.argv[launch.argv.index("--speculative-dflash-tree-width") + 1] == "4"
    assert any("DFlash2" in warning for warning in launch.warnings)
    assert render(Point(dialect="pr36196", topk=4), SERVER).env == {}


def test_what_the_engine_sees_differently_is_never_collapsed() -> None:
    points = [
        Point(budget=12),
        Point(budget=13),
        Point(budget=12, window=None),
        Point(budget=12, tp=4),
        Point(dialect="dflash"),
        Point(dialect="none", window=None),
        Point(budget=12, extra_args=("--x",)),
        Point(budget=12, extra_env=(("A", "1"),)),
        Point(dialect="jetspec", budget=12, topk=2),
        Point(dialect="jetspec", budget=12, topk=4),
    ]
    assert [run["aliases"] for run in collapse(points, SERVER)] == [[]] * len(points)
    assert engine_key(render(points[0], SERVER)) != engine_key(render(points[0], changed(extra_args=("--y",))))


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"block_size": 8}, 8),
        ('{"block_size": 8, "dflash_config": {"mask_token_id": 3}}', 8),
        ({"block_size": 16, "dflash_config": {"block_size": 8}}, 8),
        ({"dflash_config": {}}, 0),
        ({"block_size": None}, 0),
        ({"block_size": True}, 0),
        ({"block_size": "8"}, 0),
        ({"block_size": -1}, 0),
        ("[8]", 0),
        ("{", 0),
        ("", 0),
    ],
)
def test_the_block_size_is_read_where_the_engine_reads_it(config: object, size: int) -> None:
    assert block_size(config) == size


def test_a_made_up_accept_length_is_refused() -> None:
    with pytest.raises(EngineError, match="SGLANG_SIMULATE_ACC_LEN"):
        render(Point(budget=12), changed(extra_env=(("SGLANG_SIMULATE_ACC_LEN", "4"),)))


def test_an_environment_that_sets_the_ceiling_itself_is_no_alias() -> None:
    ceiling = (("SGLANG_DDTREE_MAX_TOPK", "1"),)
    assert len(collapse([Point(budget=12, topk=6), Point(budget=12, topk=6, extra_env=ceiling)], SERVER)) == 2


@pytest.mark.parametrize(
    ("point", "server", "said"),
    [
        (Point(), SERVER, "dialect pr29907 needs a budget"),
        (Point(budget=12), changed(drafter=""), "needs a draft model: set ddtree_server_drafter"),
        (Point(budget=12, window=4), SERVER, "window=4 is below the drafter's block size of 8"),
        (Point(dialect="dflash", window=7), SERVER, "below the drafter's block size"),
        (Point(dialect="dflash", budget=12), SERVER, "budget=12 means nothing to dialect dflash"),
        (Point(dialect="none"), SERVER, "window=2048 means nothing to dialect none"),
        (Point(dialect="pr31069", budget=32, topk=5), SERVER, "topk=5 is none of 4, 8, 16"),
        (Point(dialect="pr31069", budget=32), SERVER, "needs a topk"),
        (Point(dialect="pr36196", budget=4, topk=2), SERVER, "budget=4 is below"),
        (Point(dialect="custom", budget=4), SERVER, "dialect custom has no templates"),
        (Point(dialect="nope"), SERVER, "dialect 'nope' is not known"),
        (Point(budget=12, extra_args=("--port", "1")), SERVER, "--port, which comes from ddtree_server_port"),
        (Point(budget=12, extra_args=("--tp=4",)), SERVER, "--tp, which comes from tp"),
        (
            Point(budget=12, extra_args=("--api-key", "x")),
            SERVER,
            "--api-key, which comes from ddtree_server_api_key",
        ),
        (
            Point(budget=12, extra_args=("--speculative-ddtree-budget", "4")),
            SERVER,
            "which comes from the point",
        ),
        (
            Point(budget=12, extra_args=("--page-size", "64")),
            SERVER,
            "needs --page-size 1, and extra_args asks 64",
        ),
        (
            Point(budget=12, extra_args=("--attention-backend=fa3",)),
            SERVER,
            "does not run the full tree of dialect pr29907",
        ),
        (
            Point(budget=12, extra_args=("--decode-attention-backend", "fa3")),
            SERVER,
            "does not run the full tree",
        ),
        (Point(budget=12, extra_args=("--pp-size", "2")), SERVER, "pipeline size of 1"),
    ],
)
def test_refuses_what_the_engine_would_after_its_load(point: Point, server: Server, said: str) -> None:
    with pytest.raises(EngineError, match=re.escape(said)):
        render(point, server)


def test_a_chain_of_pr29907_may_have_another_backend() -> None:
    launch = render(Point(budget=4, extra_args=("--attention-backend", "fa3")), SERVER)
    assert launch.argv.count("--attention-backend") == 1 and launch.argv[-2:] == [
        "--attention-backend",
        "fa3",
    ]


def test_extra_arguments_replace_common_ones_and_come_last() -> None:
    launch = render(
        Point(dialect="none", window=None, extra_args=("--max-running-requests", "16")),
        changed(extra_args=("--trust-remote-code",)),
    )
    assert launch.argv[-3:] == ["--trust-remote-code", "--max-running-requests", "16"]
    assert launch.argv.count("--max-running-requests") == 1


def test_warnings() -> None:
    assert "ceiling only" in render(Point(budget=12, topk=6), SERVER).warnings[0]
    assert render(Point(budget=12, topk=2), SERVER).warnings == []
    assert "below concurrency 128" in render(Point(budget=12), changed(concurrency=128)).warnings[0]
    twelve = changed(compute_capability="12.0", extra_args=("--speculative-draft-attention-backend", "fa4"))
    assert "compute capability 12.0" in render(Point(budget=12), twelve).warnings[0]


def test_keys_are_never_in_argv_environment_or_identity() -> None:
    server = Server.from_dict({"python": "/p", "model": "/m", "drafter": "/d", "block_size": 8, "api_key": True, "admin_api_key": True})
    launch = render(Point(budget=12), server)
    assert launch.secret_flags == {"--api-key": "DDTREE_API_KEY", "--admin-api-key": "DDTREE_ADMIN_API_KEY"}
    assert not any("api-key" in one for one in launch.argv)
    assert launch.config_id == render(Point(budget=12), dataclasses.replace(server, api_key=False, admin_api_key=False)).config_id


def test_the_identity_follows_argv_and_environment_alone() -> None:
    base = render(Point(budget=12, topk=6), SERVER)
    assert render(Point(budget=12, topk=6), SERVER) == base
    others = [
        render(Point(budget=12, topk=4), SERVER),
        render(Point(budget=13, topk=6), SERVER),
        render(Point(budget=12, topk=6), changed(port=1)),
        render(Point(budget=12, topk=6, extra_args=("--x",)), SERVER),
        render(Point(budget=12, topk=6, extra_env=(("A", "b"),)), SERVER),
    ]
    assert len({base.config_id, *(launch.config_id for launch in others)}) == 6
    assert "--weight-version" not in render(Point(budget=12), changed(weight_version=False)).argv


def test_a_dialect_of_ones_own() -> None:
    table = merged(
        {
            "mine": {
                "axes": ["budget", "topk"],
                "needs": ["budget"],
                "args": [["--tree", "{budget}/{topk}"], ["--always"]],
                "env": {"WIDTH": "{verify_width}"},
                "expect": {"tree_budget": "{budget}", "note": "b{budget}"},
            },
            "pr29907": {"page_size": None},
            "custom": {"args": ["--budget={budget}"]},
        }
    )
    launch = render(Point(dialect="mine", budget=12, topk=6, window=None), SERVER, table)
    assert launch.argv[-5:] == ["--tree", "12/6", "--always", "--weight-version", launch.config_id]
    assert launch.env == {"WIDTH": "13"} and launch.expect == {"tree_budget": 12, "note": "b12"}
    assert "--tree" not in render(Point(dialect="mine", budget=12, window=None), SERVER, table).argv
    assert "--page-size" not in render(Point(budget=12), SERVER, table).argv
    assert "--budget=9" in render(Point(dialect="custom", budget=9), SERVER, table).argv
    assert "page_size" in BUILTIN[DEFAULT_DIALECT]


@pytest.mark.parametrize(
    ("given_server", "said"),
    [
        ({"python": "/p"}, "set ddtree_server_model"),
        ({"python": "/p", "model": ""}, "set ddtree_server_model"),
        ({"python": "/p", "model": "/m", "prot": 1}, "unknown key 'prot'"),
        ({"python": "/p", "model": "/m", "port": "http"}, "ddtree_server_port=http: a whole number"),
        ({"python": "/p", "model": "/m", "block_size": "eight"}, "ddtree_server_block_size=eight"),
        ({"python": "/p", "model": "/m", "block_size": -8}, "ddtree_server_block_size=-8"),
        ({"python": "/p", "model": "/m", "extra_env": ["A"]}, "ddtree_server_env"),
    ],
)
def test_a_server_is_read_from_strings_or_refused(given_server: dict, said: str) -> None:
    with pytest.raises(EngineError, match=re.escape(said)):
        Server.from_dict(given_server)


def test_a_server_from_strings() -> None:
    server = Server.from_dict(
        {
            "python": "/p",
            "model": "/m",
            "port": "31000",
            "extra_args": "--a b",
            "extra_env": {"X": 1},
            "api_key": False,
        }
    )
    assert (server.port, server.extra_args, server.extra_env, server.api_key) == (
        31000,
        ("--a", "b"),
        (("X", "1"),),
        False,
    )


def test_every_stock_flag_exists_in_the_recorded_parser() -> None:
    listed = Path(__file__).resolve().parents[2] / "roles/simulated_host/files/site/sglang/sim/flags.txt"
    known = {line.split()[0] for line in listed.read_text().splitlines() if line.startswith("--")}
    for point in (Point(dialect="none", window=None), Point(dialect="dflash"), Point(budget=12, topk=6)):
        flags = {one for one in render(point, SERVER).argv if one.startswith("--")}
        assert flags - known <= {"--speculative-ddtree-budget"}, point


@given(st.integers(1, 200), st.none() | st.integers(1, 64), st.none() | st.integers(8, 4096), st.integers(2, 32))
def test_equal_keys_mean_equal_derived_values(budget: int, topk: int | None, window: int | None, block: int) -> None:
    server = changed(block_size=block)
    if window is not None and window < block:
        window = block
    one = render(Point(budget=budget, topk=topk, window=window), server)
    two = render(Point(budget=budget, topk=one.derived["effective_topk"], window=window), server)
    if one.derived["mode"] == "tree":
        assert two.derived == one.derived
    assert engine_key(one) == engine_key(two)
    assert 1 <= one.derived["effective_topk"] <= max(topk or 6, 1)

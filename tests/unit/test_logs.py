"""The engine's log lines, in every shape they have had."""
# ruff: noqa: E501  a log line is easier to compare whole

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree.logs import FATAL, accepted, batch, fatal, message, progress, read, redact, redact_all, when
from ddtree.ports import CAUSES

RECORDED = Path(__file__).resolve().parents[1] / "fixtures" / "recordings"
NOW = "Decode batch, #running-req: 3, #token: 28, token usage: 0.01, accept len: 3.25, accept rate: 0.32, cuda graph: True, gen throughput (token/s): 110.25, #queue-req: 2"
SHAPES = {
    "0.4": "Decode batch. #running-req: 3, #token: 28, token usage: 0.01, accept len: 3.25, gen throughput (token/s): 110.25, #queue-req: 2",
    "2025-05": "Decode batch. #running-req: 3, #token: 28, token usage: 0.01, accept len: 3.25, cuda graph: True, gen throughput (token/s): 110.25, #queue-req: 2",
    "2025-07": "Decode batch. #running-req: 3, #token: 28, token usage: 0.01, accept len: 3.25, cuda graph: True, gen throughput (token/s): 110.25, #queue-req: 2, timestamp: 2025-07-09T10:11:12.131415",
    "2025-09": "Decode batch. #running-req: 3, #token: 28, token usage: 0.01, accept len: 3.25, cuda graph: True, gen throughput (token/s): 110.25, #queue-req: 2, ",
    "2025-10": "Decode batch. #running-req: 3, #token: 28, token usage: 0.01, accept len: 3.25, accept rate: 0.32, cuda graph: True, gen throughput (token/s): 110.25, #queue-req: 2, ",
    "2025-11": "Decode batch, #running-req: 3, #token: 28, token usage: 0.01, accept len: 3.25, accept rate: 0.32, cuda graph: True, gen throughput (token/s): 110.25, #queue-req: 2, ",
    "0.5.23": NOW,
    "0.5.23, all": "Decode batch [812], #running-req: 3, #token: 28, token usage: 0.01, accept len: 3.25, accept rate: 0.32, cap len: 7.00, block accept len: 5.50, musa graph: False, gen throughput (token/s): 110.25, #queue-req: 2, est. decode TFLOPS/s (per GPU): 1.20, fwd occupancy: 0.9",
    "hybrid": "Decode batch, #running-req: 3, #full token: 28, full token usage: 0.01, #swa token: 99, swa token usage: 0.77, mamba num: 5, mamba usage: 0.50, accept len: 3.25, accept rate: 0.32, cuda graph: True, gen throughput (token/s): 110.25, #queue-req: 2",
    "PD": "Decode batch, #running-req: 3, #token: 28, token usage: 0.01, accept len: 3.25, accept rate: 0.32, pre-allocated usage: 0.44, #prealloc-req: 7, #transfer-req: 8, #retracted-req: 0, cuda graph: True, gen throughput (token/s): 110.25, #queue-req: 2",
}  # fmt: skip
PREFIXES = {
    "": {},
    "[2026-12-01 03:25:21] ": {},
    "[2026-12-01 03:25:21.123 DP1 PP0 TP3 EP2] ": {"DP": 1, "PP": 0, "TP": 3, "EP": 2},
    "(RayWorker pid=77, ip=10.0.0.2) [2026-12-01 03:25:21 TP0] ": {"TP": 0},
    "2026-12-01T03:25:21.661759+0000 vm python3[408]: [2026-12-01 03:25:21 TP0] ": {"TP": 0},
    "Dec 01 03:25:21 gpu-1 ddtree[408]: [2026-12-01 03:25:21] ": {},
    "\x1b[32m[2026-12-01 03:25:21 ATTN_CP1 MOE_DP2]\x1b[0m ": {"ATTN_CP": 1, "MOE_DP": 2},
    "1764559521.661759 gpu-1 python3[408]: [2026-12-01 03:25:21 DP3 TP0] ": {"DP": 3, "TP": 0},
    "2026-12-01T03:25:21.661759123Z [2026-12-01 03:25:21] ": {},
    "2026-12-01T03:25:21.661759123+01:00 stderr F [2026-12-01 03:25:21 TP0] ": {"TP": 0},
    "sglang-1  | [2026-12-01 03:25:21 DP1] ": {"DP": 1},
    "\x1b[2m2026-12-01T03:25:21+0000\x1b[0m vm ddtree[8]: \x1b[1;32m[2026-12-01 03:25:21,123 PP1]\x1b[0m \x1b[37m": {"PP": 1},
}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_and_prefix_gives_the_same_figures(shape: str, prefix: str) -> None:
    found = batch(prefix + SHAPES[shape] + "\n")
    assert found is not None and found.kind == "decode" and found.ranks == PREFIXES[prefix]
    wanted = {"running": 3, "tokens": 28, "token_usage": 0.01, "accept_length": 3.25, "throughput": 110.25, "queued": 2}
    assert {key: found.values[key] for key in wanted} == wanted


def test_block_accept_len_is_another_field() -> None:
    line = SHAPES["0.5.23, all"]
    found = batch(line)
    assert found is not None and found.iteration == 812
    assert (found.values["accept_length"], found.values["block_accept_length"], found.values["cap_length"]) == (3.25, 5.5, 7)
    only_block = batch(line.replace(", accept len: 3.25", ""))
    assert only_block is not None and "accept_length" not in only_block.values and only_block.values["block_accept_length"] == 5.5


PREFILL = [
    "[2026-12-01 03:25:18] Prefill batch, #new-seq: 1, #new-token: 2, #cached-token: 5, token usage: 0.00, #running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: True, input throughput (token/s): 1.53",
    "Prefill batch. #new-seq: 1, #new-token: 2, #cached-token: 5, cache hit rate: 12.00%, token usage: 0.00, #running-req: 0, #queue-req: 0",
    "Prefill batch. #new-seq: 1, #new-token: 2, #cached-token: 5, token usage: 0.00, #running-req: 0, #queue-req: 0, ",
    "Prefill batch [9], #new-seq: 1, #new-token: 2, #cached-token: 5, full token usage: 0.00, swa token usage: 0.10, mamba usage: 0.20, #running-req: 0, #queue-req: 0, #pending-token: 0, #replay-token: 3, cuda graph: False, input throughput (token/s): 1.53",
    "Prefill batch, #new-seq: 1, #new-token: 2, #cached-token: 5, token usage: 0.00, #unbootstrapped-req: 1, #queue-req: 0, #transferring-req: 4, input throughput (token/s): 1.53",
]  # fmt: skip


@pytest.mark.parametrize("line", PREFILL)
def test_prefill_lines(line: str) -> None:
    found = batch(line)
    assert found is not None and found.kind == "prefill" and "tokens" not in found.values
    assert [found.values[key] for key in ("new_sequences", "new_tokens", "cached_tokens", "queued")] == [1, 2, 5, 0]


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf", "-1.00", "NaN", "1e999", "", "3.2.1", "3,25x"])
def test_an_impossible_figure_rejects_the_line(bad: str) -> None:
    line = NOW.replace("accept len: 3.25", f"accept len: {bad}") if bad != "3,25x" else NOW.replace("110.25", "3x25")
    with pytest.raises(ValueError, match=r"accept_length|throughput"):
        batch(line)
    assert read([line, NOW]).rejected == 1 and len(read([line, NOW]).batches) == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_a_line_cut_anywhere_tells_nothing_or_the_truth(shape: str) -> None:
    """journald splits long lines and a reader may come in the middle of one: half a number is no number."""
    whole = SHAPES[shape]
    full = batch(whole)
    assert full is not None
    for cut in range(whole.index("#running"), len(whole)):
        found = read([whole[:cut]])
        assert len(found.batches) + found.rejected == 1
        for one in found.batches:  # from the last field of all builds on, which is the queue
            assert cut > whole.index("#queue-req: ") and {**one.values, "queued": 2} == full.values
    for begin in range(1, len(whole)):
        assert read([whole[begin:]]).batches == []
    assert [read([old[: old.index("#queue") + 3]]).rejected for old in PREFILL] == [1] * len(PREFILL)


def test_other_lines_and_dropped_lines() -> None:
    odd = [
        "",
        "\n",
        "\x00\x00",
        "x" * 200_000,
        "Decode batch size is 3",
        "INFO: batch, accept len: 9.99",
        "systemd[1]: Suppressed 812 messages from ddtree.service",
    ]
    found = read([*odd, NOW])
    assert (found.batches, found.rejected, found.suppressed) == ([batch(NOW)], 0, 812)


# -- accept length between two times ---------------------------------------------------------------------------------------

BASE = 1764559521.0  # 2025-12-01 03:25:21 UTC


def logged(at: float, accept: str = "3.25", running: int = 3, rank: str = "") -> str:
    line = NOW.replace("accept len: 3.25", f"accept len: {accept}").replace("#running-req: 3", f"#running-req: {running}")
    return f"{BASE + at:.6f} gpu-1 python3[408]: [2025-12-01 03:25:21{rank}] {line}"


def test_the_time_of_a_line() -> None:
    same = [
        "1764559521.250000 gpu-1 python3[4]: [2020-01-01 00:00:00] x", "2025-12-01T03:25:21.250+0000 vm p[4]: x",
        "2025-12-01T04:25:21.25+01:00 vm p[4]: x", "2025-11-30T22:55:21,250-0430 vm p[4]: x", "2025-12-01T03:25:21.250000000Z [2020-01-01 00:00:00] x",
        "\x1b[2m2025-12-01T03:25:21.250Z\x1b[0m stdout F x",
    ]  # fmt: skip
    assert [when(line) for line in same] == [BASE + 0.25] * len(same)
    own = ["[2025-12-01 05:25:21 DP0 TP3] x", "Dec 01 03:25:21 gpu-1 p[4]: [2025-12-01 05:25:21] x", "(Worker pid=7, ip=10.0.0.2) [2025-12-01 05:25:21] x",
           "sglang-1  | [2025-12-01 05:25:21] x"]  # fmt: skip
    assert [when(line, offset=7200) for line in own] == [BASE] * len(own)
    none = ["", "x", "[2025-13-41 25:61:61] x", "Decode batch, x", "12.5 x", "2025-12-01T03:25:21+99:99 vm p[4]: x", "[2025-12-01] x"]
    assert [when(line, 0) for line in none[:5]] == [None] * 5 and when(none[6]) is None
    when(none[5])


def test_lines_count_by_their_requests_and_the_first_reaches_back() -> None:
    lines = [logged(-5, "9.00"), logged(1, "8.00"), logged(2, "3.00", 1), logged(3, "5.00", 3), logged(11, "9.00")]
    found = accepted(lines, BASE, BASE + 10)
    assert (found.accept_length, found.lines, found.ranks, found.lost, found.why) == (4.5, 2, 1, 0, "")
    fresh = accepted(lines, BASE, BASE + 10, fresh=True)
    assert fresh.accept_length == pytest.approx((8 * 3 + 3 + 15) / 7) and fresh.lines == 3


def test_ranks_are_kept_apart_and_copies_counted_once() -> None:
    lines = []
    for rank, accept in ((" DP0 TP0", "2.00"), (" DP0 TP1", "2.00"), (" DP1 TP2", "4.00"), (" DP7 TP3", "6.00")):
        lines += [logged(at, "9.99" if at < 2 else accept, 2, rank) for at in (1, 2, 3)]
    found = accepted(sorted(lines), BASE, BASE + 10)
    assert (found.accept_length, found.lines, found.ranks) == (4.0, 6, 3)
    assert accepted([logged(1, rank=" DP0"), logged(2, rank=" DP1")], BASE, BASE + 10).accept_length is None


def test_why_there_is_none() -> None:
    plain = logged(2).replace("accept len: 3.25, accept rate: 0.32, ", "")
    for lines, words in (
        ([], "no decode line"), ([logged(-9), logged(30)], "no decode line"), ([logged(1)], "shorter than the engine's decode log interval"),
        ([plain], "without speculation"), ([logged(1), logged(2, "0.00")], "does not count it"), (["Decode batch, undated"], "no decode line"),
    ):  # fmt: skip
        found = accepted(lines, BASE, BASE + 10)
        assert found.accept_length is None and found.lines == 0 and words in found.why, found
    lost = accepted(
        [logged(1), logged(2, "nan"), logged(3)[:90], f"{BASE + 4:.1f} vm systemd-journald[1]: Suppressed 7 messages from x", logged(5)],
        BASE,
        BASE + 9,
    )
    assert (lost.accept_length, lost.lost) == (3.25, 9)


def test_a_line_after_a_progress_bar_counts() -> None:
    line = logged(2)
    stamp = line.split(": ", 1)[0]
    assert accepted([logged(1), f"{stamp}: Capturing batches: 100%|##########|\r{line}"], BASE, BASE + 9).lines == 1


def test_the_recorded_accept_length() -> None:
    lines = (RECORDED / "good.txt").read_text().splitlines()
    times = [at for line in lines if "Decode batch" in line for at in [when(line)] if at]
    found = accepted(lines, min(times) - 1, max(times) + 1, fresh=True)
    assert (found.accept_length, found.ranks) == (1.0, 1) and found.lines == len(times) > 0
    assert accepted(lines, min(times) + 1e-3, max(times)).accept_length is None


@given(
    st.lists(
        st.tuples(st.floats(0, 10), st.floats(1, 12).map(lambda one: round(one, 2)), st.integers(0, 64), st.integers(0, 3)), max_size=20
    ),
    st.floats(0, 10),
    st.floats(0, 10),
)
def test_an_accept_length_lies_between_those_of_its_lines(told: list[tuple[float, float, int, int]], one: float, two: float) -> None:
    begin, end = sorted((one, two))
    lines = [logged(at, f"{accept:.2f}", running, f" DP{rank}") for at, accept, running, rank in sorted(told)]
    found = accepted(lines, BASE + begin, BASE + end)
    inside = [accept for at, accept, _, _ in told if begin - 1e-6 <= at <= end + 1e-6]
    if found.accept_length is not None:
        assert min(inside) - 1e-9 <= found.accept_length <= max(inside) + 1e-9 and 0 < found.lines < len(inside)
    else:
        assert found.why and found.lines == 0


def test_the_recorded_log_has_one_decode_line_and_ends_in_a_crash() -> None:
    lines = (RECORDED / "good.txt").read_text().splitlines()
    decode = [one for one in read(lines).batches if one.kind == "decode"]
    assert [one.values["accept_length"] for one in decode] == [1.0] * len(decode) and decode
    causes = [found[0] for found in map(fatal, lines) if found]
    assert set(causes) <= {"crashed"}


text = st.text(max_size=300)
number = st.floats(0, 1e6).map(lambda value: f"{value:.2f}")


@given(text)
def test_no_line_breaks_the_parser(line: str) -> None:
    found = read([line, "Decode batch, " + line, NOW + line])
    assert all(math.isfinite(value) and value >= 0 for one in found.batches for value in one.values.values())
    for call in (fatal, progress, message):
        call(line)


@given(st.permutations(["#running-req", "#token", "token usage", "accept len", "accept rate", "block accept len", "gen throughput (token/s)", "#queue-req"]), st.lists(number, min_size=8, max_size=8), st.sampled_from(sorted(PREFIXES)), st.sampled_from([".", ","]), st.sampled_from(["", ", ", ","]))  # fmt: skip
def test_fields_are_found_in_any_order(names: list[str], numbers: list[str], prefix: str, sign: str, end: str) -> None:
    pairs = dict(zip(names, numbers))
    found = batch(f"{prefix}Decode batch{sign} " + ", ".join(f"{name}: {value}" for name, value in pairs.items()) + end)
    assert found is not None
    keys = {"#running-req": "running", "#token": "tokens", "token usage": "token_usage", "accept len": "accept_length", "accept rate": "accept_rate",
            "block accept len": "block_accept_length", "gen throughput (token/s)": "throughput", "#queue-req": "queued"}  # fmt: skip
    assert found.values == {keys[name]: float(value) for name, value in pairs.items()}


FATAL_LINES = [
    ("bad_flags", "sglang serve: error: unrecognized arguments: --speculative-ddtree-budget 12"),
    ("bad_flags", "launch_server.py: error: argument --tp-size: invalid int value: 'x'"),
    (
        "bad_flags",
        "2026-12-01T03:23:13.119629+0000 vm python3[68]: sglang serve: error: the following arguments are required: --model-path",
    ),
    ("invalid_config", "2026-12-01T03:23:31.096719+0000 vm python3[229]: ValueError: Unknown speculative algorithm name: DDTREE"),
    ("invalid_config", "ValueError: DDTREE speculative decoding requires page_size == 1"),
    ("invalid_config", "OSError: /models/x does not appear to have a file named config.json."),
    ("out_of_memory", "[2026-12-01 03:26:32 TP3] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    ("out_of_memory", "torch.cuda.OutOfMemoryError: CUDA out of memory."),
    ("out_of_memory", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
    (
        "port_in_use",
        "[2026-12-01 03:25:53] ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use",
    ),
    ("port_in_use", "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:5557')"),
    ("crashed", "[2026-12-01 03:25:57] SIGQUIT received. signum=None, frame=None. It usually means one child failed."),
    ("crashed", "[2026-12-01 03:25:57] Subprocess scheduler_0 (pid=408) crashed with exit code -9. Triggering SIGQUIT for cleanup..."),
    (
        "crashed",
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a common cause is "
        "the OS OOM killer.",
    ),
    ("crashed", "Initialization failed. warmup error: Traceback (most recent call last):"),
]
HARMLESS = [
    "[2026-12-01 03:25:21] The server is fired up and ready to roll!", "Scheduler hit an exception: Traceback (most recent call last):",
    "[2026-12-01 03:25:21] Receive: obj=GenerateReqInput(text='torch.OutOfMemoryError: CUDA out of memory. address already in use')",
    "Ignore import error when loading sglang.srt.models.inkling: No module named 'helion'", "",
    'INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 500 Internal Server Error',
    "[2026-12-01 03:24:01] Initialized DFLASH draft runner. attention_backend=triton, draft_window_size=2048",
]  # fmt: skip


@pytest.mark.parametrize(("cause", "line"), FATAL_LINES)
def test_lines_that_end_a_start(cause: str, line: str) -> None:
    found = fatal(line)
    assert found is not None and found[0] == cause and found[1]


@pytest.mark.parametrize("line", HARMLESS)
def test_lines_that_do_not(line: str) -> None:
    assert fatal(line) is None


def test_each_cause_is_one_that_a_restart_may_end_with() -> None:
    assert {cause for cause, _, _ in FATAL} <= set(CAUSES)


def test_the_recorded_busy_port() -> None:
    causes = [found[0] for found in map(fatal, (RECORDED / "portbusy_end.txt").read_text().splitlines()) if found]
    assert causes[:1] == ["port_in_use"]


def test_progress_of_the_recorded_load_only_rises() -> None:
    shown = [found for found in map(progress, (RECORDED / "good.txt").read_text().splitlines()) if found]
    assert shown[-1] == ("ready", 100) and len({words for words, _ in shown}) >= 5
    assert progress("Loading safetensors checkpoint shards:  50% Completed | 32/64 [00:10<00:10]") == ("loading weights", 39)
    assert progress("\rLoading safetensors checkpoint shards:   0% Completed\rLoading safetensors checkpoint shards: 100% Completed") == (
        "loading weights",
        70,
    )
    assert progress("Decode batch, #running-req: 1") is None


secret = st.text(min_size=4, max_size=20)


@given(st.lists(secret, min_size=1, max_size=4), st.lists(text, max_size=4))
def test_no_secret_is_left(secrets: list[str], around: list[str]) -> None:
    parts = [piece for one in secrets for piece in (one, json.dumps(one), *around)]
    assert not [one for one in secrets if one in redact(" ".join(parts), secrets) and one not in "*** ***"]


def test_redaction_in_structures_and_of_nothing() -> None:
    assert redact_all({"k3y-abc": ["Bearer k3y-abc", 3, None]}, ["k3y-abc", None, ""]) == {"***": ["Bearer ***", 3, None]}
    assert redact("nothing to hide", [None, "", "a"]) == "nothing to hide"
    assert redact("p%2Fq%2Br and p/q+r", ["p/q+r"]) == "*** and ***"
    assert not re.search("long", redact("longer-secret long", ["long", "longer-secret"]))

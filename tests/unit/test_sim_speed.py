"""The simulated engine's formula of speed and the way it spreads tokens over verify steps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parents[2] / "roles" / "simulated_host" / "files" / "site"))

from sglang.sim import plan, speed

ORIGIN = {(60, 1): 147.5, (1024, 1): 139.0, (4096, 1): 87.9, (60, 32): 696.8, (1024, 32): 672.6, (4096, 32): 417.7}
TREE, SMALL = speed.config(12, 6, 2048), speed.config(8, 4, 2048)


@pytest.mark.parametrize("output_tokens", [64, 128, 256])
@pytest.mark.parametrize("cell", ORIGIN)
def test_origin_figures(cell: tuple[int, int], output_tokens: int) -> None:
    assert speed.output_tok_s(TREE, *cell, output_tokens) == pytest.approx(ORIGIN[cell], rel=0.05)


def test_origin_figure_of_the_smaller_tree() -> None:
    assert speed.output_tok_s(SMALL, 60, 1) == pytest.approx(170, rel=0.05)


def test_order_of_the_kinds_at_one_stream() -> None:
    none = speed.output_tok_s(speed.config(algorithm="none"), 60, 1)
    chain = speed.output_tok_s(speed.config(algorithm="DFLASH"), 60, 1)
    assert none == pytest.approx(60, rel=0.05)
    assert none < chain < speed.output_tok_s(TREE, 60, 1) < speed.output_tok_s(SMALL, 60, 1)


def test_small_budgets_win_at_high_concurrency() -> None:
    def best(streams: int) -> int:
        return max((4, 8, 12, 16, 24), key=lambda budget: speed.output_tok_s(speed.config(budget, 6, 2048), 60, streams))

    assert best(1) == 8 and best(64) == 4


def test_accept_length_rises_with_the_budget_and_saturates() -> None:
    lengths = [speed.accept_length(speed.config(budget, 6, 2048), 60) for budget in (1, 4, 7, 8, 12, 16, 24, 35, 64)]
    assert lengths == sorted(lengths) and lengths[-1] < 8
    assert lengths[4] - lengths[3] > lengths[-1] - lengths[-2]


def test_effective_topk_as_the_build_derives_it() -> None:
    derived = {budget: speed.config(budget, 6).effective_topk for budget in (4, 7, 8, 12, 13, 14, 20, 21, 28, 35, 60)}
    assert derived == {4: 1, 7: 1, 8: 2, 12: 2, 13: 2, 14: 3, 20: 3, 21: 4, 28: 5, 35: 6, 60: 6}
    assert speed.config(35, 3).effective_topk == 3
    for budget in (4, 8, 12, 13):
        four, six = speed.config(budget, 4, 2048), speed.config(budget, 6, 2048)
        assert speed.output_tok_s(four, 1024, 16) == speed.output_tok_s(six, 1024, 16)
    assert speed.accept_length(speed.config(35, 2), 60) < speed.accept_length(speed.config(35, 6), 60)


def test_spine_of_the_whole_block_is_the_chain() -> None:
    spine, chain = speed.config(7, 6, 2048), speed.config(algorithm="DFLASH", window=2048)
    assert not spine.tree and spine.width == chain.width == 8
    assert speed.output_tok_s(spine, 1024, 8) == speed.output_tok_s(chain, 1024, 8)


def test_window_is_a_balance() -> None:
    def rate(window: int | None, context: int, streams: int) -> float:
        return speed.output_tok_s(speed.config(8, 4, window), context, streams)

    assert rate(2048, 1024, 1) == rate(4096, 1024, 1), "a window wider than the context changes nothing but the drafter's view"
    assert rate(128, 4096, 1) < rate(2048, 4096, 1) < rate(None, 4096, 1), "too small a window loses acceptance"
    assert rate(None, 8192, 64) < rate(4096, 8192, 64), "without one the drafter's attention costs more than it gives"


def test_fewer_gpus_are_slower() -> None:
    assert speed.output_tok_s(speed.config(12, tp=4), 60, 1) < speed.output_tok_s(TREE, 60, 1)


configs = st.builds(
    speed.config,
    st.integers(1, 64),
    st.integers(1, 8),
    st.one_of(st.none(), st.integers(8, 8192)),
    st.sampled_from(["NONE", "DFLASH", "DDTREE"]),
)


@given(configs, st.integers(1, 20000), st.integers(1, 128), st.integers(2, 2000))
def test_every_figure_is_sensible(cfg: speed.Config, context: int, streams: int, tokens: int) -> None:
    assert 1 <= speed.accept_length(cfg, context) <= cfg.longest_step
    assert 0.5 < speed.output_tok_s(cfg, context, streams, tokens) < 20000
    assert speed.step_seconds(cfg, context, streams) < speed.step_seconds(cfg, context, streams + 1)


@given(st.integers(2, 600), st.floats(1.0, 7.6), st.integers(1, 8), st.integers(0, 11))
def test_steps_sum_to_the_answer(tokens: int, accept: float, longest: int, phase: int) -> None:
    steps = plan.Carry().steps(tokens, min(accept, longest), longest)
    counts = plan.spread(tokens - 1, steps, longest, phase)
    assert len(counts) == steps and sum(counts) == tokens - 1
    assert all(1 <= one <= longest for one in counts)


@settings(max_examples=60)
@given(st.floats(1.2, 7.5), st.lists(st.integers(40, 300), min_size=6, max_size=12))
def test_accept_length_is_exact_over_a_short_run(accept: float, lengths: list[int]) -> None:
    carry = plan.Carry()
    steps = [carry.steps(one, accept, 8) for one in lengths]
    assert sum(lengths) / sum(steps) == pytest.approx(accept, abs=accept * (0.5 / sum(steps) + 1e-3), rel=0.011)


def test_steps_vary() -> None:
    counts = plan.spread(255, 51, 8)
    assert len(set(counts)) >= 4

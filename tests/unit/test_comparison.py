"""Two sweeps cell by cell: passages first, then repeats, then intervals."""

from __future__ import annotations

from typing import Any

import pytest

from ddtree.comparison import compare


def entry(speed: float, **kept: Any) -> dict[str, Any]:
    cell = {"output_tok_s": speed, "low": speed * 0.97, "high": speed * 1.03, "repeats": [], **kept}
    return {"name": "b12-k6-w2048", "aliases": [], "cells": {(60, 1): cell}}


def passages(speed: float) -> dict[str, Any]:
    """Passages that differ by half among each other and hardly at all between two measurements."""
    rows = [{"prompt": f"p{at}", "tokens": 200, "seconds": 200 / (speed * (0.75 + at / 40))} for at in range(20)]
    return {"seed": "0", "corpus": "prose", "per_prompt": rows}


def test_the_same_passages_tell_apart_what_intervals_do_not() -> None:
    blind = compare([entry(104.0)], [entry(100.0)])[0]
    paired = compare([entry(104.0, **passages(104.0))], [entry(100.0, **passages(100.0))])[0]
    assert (blind["verdict"], blind["method"]) == ("no difference shown", "both intervals")
    assert paired["verdict"] == "faster" and paired["low"] > 1 and paired["method"] != "both intervals"
    assert paired["ratio"] == pytest.approx(1.04)


def test_without_shared_passages_the_repeats_judge() -> None:
    def rates(speed: float) -> list[dict[str, float]]:
        return [{"output_tok_s": speed * factor} for factor in (0.995, 1.0, 1.005, 1.0)]

    slower = compare([entry(90.0, repeats=rates(90.0))], [entry(100.0, repeats=rates(100.0))])[0]
    assert slower["verdict"] == "slower" and slower["high"] < 1 and slower["method"] != "both intervals"


def test_one_repeat_is_too_little_and_the_intervals_are_taken() -> None:
    row = compare([entry(150.0, repeats=[{"output_tok_s": 150.0}])], [entry(100.0, repeats=[{"output_tok_s": 100.0}])])[0]
    assert (row["verdict"], row["method"]) == ("faster", "both intervals")

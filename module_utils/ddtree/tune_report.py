"""What a tuning found besides its winner: the path of the search, what each axis is worth, how sure the winner is, what to try next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import study
from .gauss import gain
from .tune_goal import Goal
from .tuning import Tuner

CLOSE = 0.02  # a share of speed that is as good as the best
DRAWS, MOST_DRAWN = 4000, 300
NEXT = 3


def summary(document: Mapping[str, Any], winner: str = "") -> dict[str, Any]:
    """{objective, minutes, spent, starts, configurations, ended, path, importance, confidence, next, front} of a study's document; the
    same document gives the same figures. `winner` is the report's own, whose confidence is told; else the study's.
    """
    tuner = study.tuner_of(document)
    spent = study.spent_minutes(document)
    return {
        "objective": tuner.goal.objective if not tuner.goal.pareto else "pareto", "bounds": dict(tuner.goal.bounds),
        "minutes": tuner.settings.minutes, "spent": round(spent, 1), "starts": len(tuner.mine),
        "earlier": len(tuner.trials) - len(tuner.mine),
        "configurations": len(tuner.space.free), "ended": document.get("ended") or "it was not ended: the same command goes on",
        "path": path(tuner), "importance": importance(tuner), "confidence": confidence(tuner, winner or tuner.best()),
        "next": promising(tuner), "front": tuner.front() if tuner.goal.pareto else [],
    }  # fmt: skip


def path(tuner: Tuner) -> list[dict[str, Any]]:
    """One row a start, in order: {start, host, name, stage, state, minutes, score, best, why}. `score` is tok/s over the screened
    cells, of a start that was cut off over those that it has.
    """
    rows, top = [], -math.inf
    for number, one in enumerate(sorted(tuner.mine, key=lambda one: one.number), 1):
        have = [cell for cell in tuner.screen if any((two["context"], two["concurrency"]) == cell for two in one.cells)]
        value = tuner.goal.value(one.cells, have) if have else None
        control = tuner.space.candidates[tuner.space.find(one.name)].control
        if value is not None and one.state == "ok" and not control:
            top = max(top, value)
        rows.append({
            "start": number, "host": one.host, "name": one.run or one.name, "stage": one.stage, "state": one.state,
            "minutes": round(one.minutes, 1),
            "score": math.exp(value) if value is not None else None, "best": math.exp(top) if top > -math.inf else None,
            "why": one.cause or one.why,
        })  # fmt: skip
    return rows


def importance(tuner: Tuner) -> dict[str, float]:
    """Each axis's share of the variance of log speed over the space, by its main effect in the model; `together` is the rest."""
    model = tuner.model()
    total = float(np.var(model.mean)) if model else 0.0
    if model is None or total <= 1e-12:
        return {}
    shares, centre = {}, float(np.mean(model.mean))
    for column, axis in enumerate(tuner.space.axes):
        places = tuner.space.grid.places[:, column]
        effects = [(float(np.mean(model.mean[places == one])) - centre, int(np.sum(places == one))) for one in np.unique(places)]
        shares[axis] = sum(effect**2 * count for effect, count in effects) / len(places) / total
    scale = max(sum(shares.values()), 1.0)  # where axes go together in the space, effects overlap
    shares = {axis: share / scale for axis, share in shares.items()}
    return {**dict(sorted(shares.items(), key=lambda one: -one[1])), "together": max(1 - sum(shares.values()), 0.0)}


def confidence(tuner: Tuner, winner: str) -> dict[str, Any] | None:
    """{name, starts, best, close}: the probability, by the model, that the winner is the best of the space, and that it is within
    CLOSE of it.
    """
    model, row = tuner.model(), tuner.space.row.get(tuner.space.find(winner))
    if model is None or row is None:
        return None
    able = [at for at in range(tuner.space.grid.size) if tuner.space.free[at] not in tuner.hopeless()]
    rows = sorted(able, key=lambda at: -float(model.mean[at] + 2 * model.spread[at]))[:MOST_DRAWN]
    if row not in rows:
        rows.append(row)
    draws = model.draws(rows, DRAWS)
    mine, top = draws[:, rows.index(row)], np.max(draws, axis=1)
    starts = sum(one.state == "ok" and tuner.space.find(one.name) == tuner.space.find(winner) for one in tuner.mine)
    return {"name": winner, "starts": starts, "best": round(float(np.mean(mine >= top)), 3),
            "close": round(float(np.mean(mine >= top + math.log1p(-CLOSE))), 3)}  # fmt: skip


def promising(tuner: Tuner, number: int = NEXT) -> list[dict[str, Any]]:
    """Configurations that were not started and are expected to gain most: {name, gain, score, spread}; shares of speed, and tok/s."""
    model = tuner.model()
    known = {tuner.space.find(one.name) for one in tuner.trials if one.state != "lost"} | tuner.hopeless()
    rows = [tuner.space.row[at] for at in tuner.space.free if at not in known]
    measured = [tuner.space.row[at] for at in tuner.space.free if at in known and at not in tuner.hopeless()]
    if model is None or not rows or not measured:
        return []
    gains = gain(model.mean[rows], model.spread[rows], float(np.max(model.mean[measured])))
    order = np.argsort(-gains, kind="stable")[:number]
    return [{"name": tuner.space.candidates[tuner.space.free[rows[at]]].name, "gain": float(gains[at]),
             "score": math.exp(float(model.mean[rows[at]])),
             "spread": float(model.spread[rows[at]])} for at in order]  # fmt: skip


def lines(found: Mapping[str, Any]) -> list[str]:
    """The findings in sentences."""
    told = [
        f"{found['starts']} starts for {found['configurations']} configurations in {found['spent']:g} of {found['minutes']:g} minutes; the "
        f"search ended: {found['ended']}"
    ]
    sure = found["confidence"]
    if sure:
        told.append(
            f"by the model, over the screened cells, {sure['name']} ({sure['starts']} start{'' if sure['starts'] == 1 else 's'}) is within "
            f"{CLOSE:.0%} of the best of the space with probability {sure['close']:.0%}, and the very best with {sure['best']:.0%}"
        )
    if found["importance"]:
        told.append("what log speed depends on: " + ", ".join(f"{axis} {share:.0%}" for axis, share in found["importance"].items()))
    if found["next"]:
        told.append("worth trying next: " + ", ".join(f"{one['name']} (expected gain {one['gain']:.2%})" for one in found["next"]))
    return told


def goal_of(document: Mapping[str, Any]) -> Goal:
    return study.settings_of(document["asked"]).goal

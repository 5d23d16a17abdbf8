"""The state folder: where it is and the settings in it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path


def state_dir() -> Path:
    """$DDTREE_SIM_STATE, else `state` beside the folder that this package is installed in."""
    given = os.environ.get("DDTREE_SIM_STATE")
    return Path(given) if given else Path(__file__).resolve().parents[3] / "state"


@dataclass(frozen=True)
class Settings:
    """`time_scale`: life-cycle times are real seconds divided by it. `load_seconds`: an unscaled cold load."""

    time_scale: float = 120.0
    load_seconds: float = 360.0

    def scaled(self, seconds: float) -> float:
        return seconds / self.time_scale


def settings(state: Path) -> Settings:
    """Read settings.json; DDTREE_SIM_TIME_SCALE wins over it. Raises SystemExit with one line when it is unreadable."""
    path = state / "settings.json"
    try:
        found = json.loads(path.read_text()) if path.exists() else {}
        scale = float(os.environ.get("DDTREE_SIM_TIME_SCALE") or found.get("time_scale", Settings.time_scale))
        load = float(found.get("load_seconds", Settings.load_seconds))
    except (OSError, ValueError) as error:
        raise SystemExit(f"simulated engine: {path} is unreadable: {error}") from None
    if scale <= 0:
        raise SystemExit(f"simulated engine: time_scale must be above 0, got {scale}")
    return Settings(scale, load)

"""Waiting for absolute moments, so that being late once never makes the next moment later."""

from __future__ import annotations

import asyncio


def now() -> float:
    """Seconds of the running loop's clock."""
    return asyncio.get_running_loop().time()


async def until(moment: float) -> None:
    """Sleep until `moment`; returns at once when it has passed."""
    left = moment - now()
    if left > 0:
        await asyncio.sleep(left)

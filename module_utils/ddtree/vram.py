"""Who holds the unit's GPUs, and when they count as free: what was there before and is not ours must not count against us."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .gpus import Gpu, Holder


class Vram:
    """The judgement over readings of the unit's GPUs; all figures in MiB without the driver's reserve.

    `idle_mib` is what a free GPU may hold. With `strict` another tenant's memory counts as held, as a start needs it; without, only
    what came or stayed beyond the first look does, as a mere stop needs it.
    """

    def __init__(self, idle_mib: int, strict: bool = True) -> None:
        self.idle_mib, self.strict = idle_mib, strict
        self.own: set[int] = set()
        self._others: dict[int, set[int]] = {}
        self._others_mib: dict[int, int] = {}

    def first_look(self, gpus: Sequence[Gpu], own: Iterable[int]) -> None:
        """Remember what others hold, while the unit's own processes are known."""
        self.own = set(own)
        for gpu in gpus:
            self._others[gpu.index] = {holder.pid for holder in gpu.holders} - self.own
            ours = sum(holder.mib or 0 for holder in gpu.holders if holder.pid in self.own)
            attributable = all(holder.mib is not None and holder.visible for holder in gpu.holders)
            self._others_mib[gpu.index] = max(gpu.used_mib - ours, 0) if attributable else 0

    def strangers(self, gpus: Sequence[Gpu]) -> list[tuple[Gpu, Holder]]:
        """Foreign processes that hold more than an idle GPU may; one of unknown size is judged by its board, if we have no part in it."""
        found = []
        for gpu in gpus:
            ours = any(holder.pid in self.own for holder in gpu.holders)
            for holder in gpu.holders:
                size = holder.mib if holder.mib is not None else 0 if ours else gpu.used_mib
                if holder.visible and holder.pid not in self.own and size > self.idle_mib:
                    found.append((gpu, holder))
        return found

    def held(self, gpus: Sequence[Gpu]) -> dict[int, int]:
        """GPU index to MiB for each GPU that is not free."""
        return {gpu.index: gpu.used_mib for gpu in gpus if not self._free(gpu)}

    def _free(self, gpu: Gpu) -> bool:
        newcomers = {holder.pid for holder in gpu.holders if not holder.graphics} - self._others.get(gpu.index, set())
        before = self._others_mib.get(gpu.index, 0)
        tolerated = min(before, 2 * self.idle_mib) if self.strict else before
        return gpu.used_mib <= max(self.idle_mib, tolerated + self.idle_mib // 4) and not newcomers

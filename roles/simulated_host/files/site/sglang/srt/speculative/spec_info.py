"""The algorithms, where the real package has them."""

from __future__ import annotations

from typing import ClassVar

from sglang.sim import flags


class SpeculativeAlgorithm:
    """Offers of the real enumeration what tells its names."""

    __members__: ClassVar[dict[str, str]] = {name: name for name in flags.algorithms(flags.stock_build())}

    @classmethod
    def from_string(cls, name: str) -> str:
        """Raises KeyError for a name that this build does not have."""
        return cls.__members__[name.upper()]

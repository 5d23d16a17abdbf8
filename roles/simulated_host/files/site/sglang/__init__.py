"""A simulated SGLang engine: same command line, life cycle, endpoints and log lines, no GPU (docs/simulator.md)."""

from __future__ import annotations

__version__ = "0.5.23+ddtree.sim"

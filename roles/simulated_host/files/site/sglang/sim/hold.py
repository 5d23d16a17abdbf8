"""Hold VRAM on simulated GPUs as a foreign process would, until SIGTERM or for --seconds.

python -m sglang.sim.hold --gpu 5 --mib 20480 [--linger S] [--seconds S] [--kind graphics] [--ghost PID]
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

from .holders import Holder
from .state import state_dir


def main() -> int:
    parser = argparse.ArgumentParser(prog="sglang.sim.hold", description="Hold VRAM on simulated GPUs.")
    parser.add_argument("--gpu", required=True, help="index, or several: 0,1,2")
    parser.add_argument("--mib", type=int, required=True)
    parser.add_argument("--linger", type=float, default=0.0, help="seconds the memory stays in use after the process has gone")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--kind", choices=("compute", "graphics"), default="compute")
    parser.add_argument("--ghost", type=int, metavar="PID", help="write a holder of a pid that does not exist here, then end")
    parser.add_argument("--state", type=Path, default=state_dir())
    asked = parser.parse_args()
    holder = Holder(asked.state, [int(one) for one in asked.gpu.split(",")], asked.ghost, asked.kind, asked.ghost is not None)
    holder.hold(asked.mib, asked.linger)
    print(f"holding {asked.mib} MiB on GPU {asked.gpu} as pid {holder.pid}", flush=True)
    if asked.ghost is not None:
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    end = time.monotonic() + asked.seconds
    try:
        while time.monotonic() < end:
            time.sleep(0.1)
            holder.keep()
    finally:
        holder.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())

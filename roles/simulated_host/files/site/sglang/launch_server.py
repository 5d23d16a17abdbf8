"""python -m sglang.launch_server FLAGS"""

from __future__ import annotations

import sys

from sglang.sim.lifecycle import launch

if __name__ == "__main__":
    sys.exit(launch(sys.argv[1:]))

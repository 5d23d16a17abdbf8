"""Make the toolkit's package importable as `ddtree` and, for modules, as `ansible.module_utils.ddtree`."""

from __future__ import annotations

import sys
from pathlib import Path

import ansible.module_utils
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "module_utils"), str(ROOT / "tests" / "unit")]
ansible.module_utils.__path__.append(str(ROOT / "module_utils"))

# A busy machine is slow, which says nothing about the code.
settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")

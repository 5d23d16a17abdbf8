#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_prune
short_description: Remove engine releases that nobody needs
description:
  - Keeps the newest releases, the one that C(current) names, and every one that a process was started from or that a unit or
    program would start. Everything else below C(releases) goes, installs that never ended included.
options:
  root:
    description: The folder that has C(releases) and C(current).
    type: path
    required: true
  keep:
    description: How many of the newest releases stay.
    type: int
    default: 3
  definitions:
    description: Folders whose units and programs are looked through, those put aside to go back to included; V(*) stands for any name.
    type: list
    elements: path
    default: [/etc/systemd/system, /run/systemd/system, /etc/ddtree-ops, /var/lib/ddtree-ops/kept-*]
attributes:
  check_mode:
    description: Tells what would go.
    support: full
  diff_mode:
    description: The list of releases.
    support: full
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Keep the two newest releases and what is in use
  sglang_prune:
    root: /opt/sglang
    keep: 2
"""

RETURN = r"""
removed:
  description: Names of the releases that went.
  returned: success
  type: list
  elements: str
kept:
  description: Names of the releases that are there.
  returned: success
  type: list
  elements: str
"""

import os
import shutil
from glob import glob
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ddtree.releases import RECORD, in_use, prunable


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "keep": {"type": "int", "default": 3},
            "definitions": {
                "type": "list",
                "elements": "path",
                "default": ["/etc/systemd/system", "/run/systemd/system", "/etc/ddtree-ops", "/var/lib/ddtree-ops/kept-*"],
            },
        },
        supports_check_mode=True,
    )
    root = Path(module.params["root"])
    if module.params["keep"] < 0:
        module.fail_json(msg=f"keep={module.params['keep']}: 0 or more is wanted")
    found: dict[str, float | None] = {}
    for path in (root / "releases").iterdir() if (root / "releases").is_dir() else []:
        if path.is_dir() and not path.is_symlink():
            record = path / RECORD
            found[path.name] = record.stat().st_mtime if record.exists() else None
    needed = in_use(root, found, [Path(one) for pattern in module.params["definitions"] for one in glob(pattern)])
    needed.add(Path(os.path.realpath(root / "current")).name)
    removed = prunable(found, module.params["keep"], needed)
    if not module.check_mode:
        for name in removed:
            path = root / "releases" / name
            (path / RECORD).unlink(missing_ok=True)  # half a release must not look like one
            shutil.rmtree(path)
    kept = sorted(set(found) - set(removed))
    before, after = ("".join(f"{name}\n" for name in names) for names in (sorted(found), kept))
    module.exit_json(changed=bool(removed), removed=removed, kept=kept, diff={"before": before, "after": after})


if __name__ == "__main__":
    main()

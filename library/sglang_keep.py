#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_keep
short_description: Put aside what a unit is made of, and put it back
description:
  - Copies the unit's files that exist, what ran, and where a link to the engine's release points, into a folder on the host; whole or
    not at all. It starts and stops nothing.
options:
  state:
    description: V(kept) puts aside, V(restored) puts back, V(promoted) gives what was put aside another name.
    type: str
    choices: [kept, restored, promoted]
    default: kept
  folder:
    description: Where it is put aside.
    type: path
    required: true
  target:
    description: The folder that it becomes; for V(promoted). What was there goes.
    type: path
  files:
    description: The files that the unit may have; for V(kept).
    type: list
    elements: path
    default: []
  link:
    description: The link to the engine's release; for V(kept).
    type: path
    default: ''
  active:
    description: The unit's state; for V(kept).
    type: str
    default: ''
  config_id:
    description: The configuration that it runs; for V(kept).
    type: str
    default: ''
  anew:
    description: Whether to replace what was put aside before under this name.
    type: bool
    default: false
attributes:
  check_mode:
    description: Tells what would change.
    support: full
  diff_mode:
    description: The files that differ are named in RV(differed).
    support: none
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Put the unit back to what it was
  sglang_keep:
    folder: /var/lib/ddtree-ops/kept-last-good
    state: restored
"""

RETURN = r"""
kept:
  description: What is put aside.
  returned: state is restored
  type: dict
  sample: {active: active, config_id: 5f1c0a9be234, files: [/etc/systemd/system/ddtree.service], link: {}}
differed:
  description: The paths that were put back.
  returned: state is restored
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ddtree.keeping import KeepError, keep, promote, put_back


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "default": "kept", "choices": ["kept", "restored", "promoted"]},
            "folder": {"type": "path", "required": True},
            "target": {"type": "path"},
            "files": {"type": "list", "elements": "path", "default": []},
            "link": {"type": "path", "default": ""},
            "active": {"type": "str", "default": ""},
            "config_id": {"type": "str", "default": ""},
            "anew": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
        required_if=[("state", "promoted", ["target"])],
    )
    asked = module.params
    try:
        if asked["state"] == "restored":
            kept, differed = put_back(asked["folder"], module.check_mode)
            module.exit_json(changed=bool(differed), kept=kept, differed=differed)
        if asked["state"] == "promoted":
            promote(asked["folder"], asked["target"], module.check_mode)
            module.exit_json(changed=False)
        note = {"active": asked["active"], "config_id": asked["config_id"]}
        if not module.check_mode:
            keep(asked["folder"], asked["files"], note, asked["link"], asked["anew"])
        module.exit_json(changed=False)  # what is put aside is gone again, or replaced, and changes nothing that runs
    except (KeepError, OSError) as error:
        module.fail_json(msg=str(error), phase="inspect", cause="nothing_kept")


if __name__ == "__main__":
    main()

#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_flags
short_description: Ask an installed SGLang whether it knows a command line
description:
  - Asks the build itself, with its own interpreter, for the flags of its parser and for the names of its speculative algorithms,
    and fails with one sentence about all that it would refuse, the likely right spelling included.
  - Needs no GPU and shows the build none, so that it never touches one that serves. Starts and stops nothing.
  - The answer of a build is kept in O(cache) under a fingerprint of its files, so that only the first question takes its imports' time.
options:
  python:
    description: The interpreter that has SGLang.
    type: path
    required: true
  argv:
    description: The engine's arguments, without interpreter and module; empty to ask only whether the build can answer.
    type: list
    elements: str
    default: []
  launches:
    description:
      - Many command lines at once, as a name to what the filter C(ddtree_launch) gives, of which C(asked) and C(env) are used.
      - What the build would refuse of them is returned in RV(refused); it is a failure if it would refuse them all.
    type: dict
    default: {}
  env:
    description: The environment that the engine gets; no secrets are needed here.
    type: dict
    default: {}
  user:
    description: The user to ask as, so that no cache gets another owner; empty for the one that runs the module.
    type: str
    default: ''
  cache:
    description: Folder of kept answers; empty for none.
    type: path
    default: ''
  timeout:
    description: Seconds that the build gets to answer. Cold imports of a real build take about 20.
    type: float
    default: 300
attributes:
  check_mode:
    description: It only reads. An interpreter or user that is not there yet is no failure then, and V(skipped) says so.
    support: full
  diff_mode:
    description: Nothing is changed on the host.
    support: none
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Ask whether the build knows a renamed flag
  sglang_flags:
    python: /opt/sglang/current/bin/python
    argv: [--model-path, /srv/models/target, --speculative-dflash-draft-window-size, '2048']

- name: Ask whether a build can be imported at all
  sglang_flags:
    python: /opt/sglang/current/bin/python
  register: build
"""

RETURN = r"""
version:
  description: Version of the build.
  returned: success
  type: str
fingerprint:
  description: Changes with the build's files and the packages beside them.
  returned: success
  type: str
algorithms:
  description: The speculative algorithms that the build knows.
  returned: success
  type: list
  elements: str
packages:
  description: Name to version of all packages of the interpreter.
  returned: success
  type: dict
flags:
  description: How many flags the build has.
  returned: success
  type: int
refused:
  description: Of O(launches), each that the build would refuse, as it would fail alone, with C(msg), C(phase), C(cause) and C(problems).
  returned: success
  type: dict
cached:
  description: Whether the answer was a kept one.
  returned: success
  type: bool
phase:
  description: Always C(flags).
  returned: failure
  type: str
cause:
  description: C(bad_flags) for a command line that the build would refuse, C(broken_build) for a build that cannot answer.
  returned: failure
  type: str
problems:
  description: What it would refuse, each with the flag, a sentence and the nearest right spelling.
  returned: failure
  type: list
  elements: dict
log_tail:
  description: The last lines that a broken build wrote.
  returned: failure
  type: list
  elements: str
"""

import os
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ddtree.flags import BuildError, Builds, algorithms_of, check, sentence


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "argv": {"type": "list", "elements": "str", "default": []},
            "launches": {"type": "dict", "default": {}},
            "env": {"type": "dict", "default": {}},
            "user": {"type": "str", "default": ""},
            "cache": {"type": "path", "default": ""},
            "timeout": {"type": "float", "default": 300},
        },
        supports_check_mode=True,
    )
    asked = module.params
    if module.check_mode and not os.path.exists(asked["python"]):
        module.exit_json(changed=False, skipped=True, msg=f"{asked['python']} is not there yet; its flags are checked once it is")
    environment = {str(name): str(value) for name, value in (asked["env"] or os.environ).items()}
    builds = Builds(asked["python"], environment, user=asked["user"], cache=asked["cache"], timeout=asked["timeout"])
    launches = asked["launches"] or {"": {"asked": asked["argv"], "env": {}}}
    refused: dict = {}
    told: dict = {}
    for name, launch in launches.items():
        try:
            build = builds.of({key: str(value) for key, value in launch["env"].items()})
            found = build.describe(algorithms_of(launch["asked"]))
        except BuildError as error:
            if module.check_mode and "there is no user" in str(error):
                module.exit_json(changed=False, skipped=True, msg=f"{error} yet; the flags are checked once there is")
            refused[name] = {"msg": f"{error}.", "phase": "flags", "cause": "broken_build", "problems": [], "log_tail": error.tail}
            continue
        kept = {key: found[key] for key in ("version", "fingerprint", "algorithms", "packages")}
        told = told or {**kept, "flags": len(found["flags"]), "cached": build.cached}
        problems = check(launch["asked"], found) if launch["asked"] else []
        if problems:
            said, listed = f"{sentence(problems, found, asked['python'])}.", [asdict(one) for one in problems]
            refused[name] = {"msg": said, "phase": "flags", "cause": "bad_flags", "problems": listed, "log_tail": []}
    if len(refused) == len(launches):
        module.fail_json(**next(iter(refused.values())))
    for name, why in refused.items():
        module.warn(f"{name} will not be started: {why['msg']}")
    module.exit_json(changed=False, refused=refused, **told)


if __name__ == "__main__":
    main()

#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: host_lease
short_description: Take a host for oneself, and give it back
description:
  - A lease on one unit of a host says who works on it, for what and until when. Somebody else is refused with a sentence until it is
    given back or its time is over; one's own is taken anew, so that a rerun of the same person goes on.
  - The module C(sglang_service) refuses a unit that is leased to somebody else, and lets one's own run for its whole time again.
options:
  name:
    description: The unit.
    type: str
    required: true
  state_dir:
    description: Folder of the lease on the host.
    type: path
    default: /var/lib/ddtree-ops
  state:
    description: V(taken) or V(released). In check mode V(taken) says only whether it could be.
    type: str
    choices: [taken, released]
    default: taken
  who:
    description: For whom; user@controller unless given.
    type: str
    default: ''
  what:
    description: For what, as a noun, such as a deploy.
    type: str
    default: work
  seconds:
    description: For how long.
    type: float
    default: 3600
attributes:
  check_mode:
    description: Nobody gets it then.
    support: full
  diff_mode:
    description: There is nothing but taken and free.
    support: none
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Take the host for an hour
  host_lease:
    name: ddtree
    what: a deploy
"""

RETURN = r"""
lease:
  description: The lease in force; empty when there is none.
  returned: success
  type: dict
  sample: {who: ada@ops1, what: a deploy, since: 1764687000.0, until: 1764690600.0, seconds: 3600}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ddtree.lease import LeaseError, Leases


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state_dir": {"type": "path", "default": "/var/lib/ddtree-ops"},
            "state": {"type": "str", "default": "taken", "choices": ["taken", "released"]},
            "who": {"type": "str", "default": ""},
            "what": {"type": "str", "default": "work"},
            "seconds": {"type": "float", "default": 3600},
        },
        supports_check_mode=True,
    )
    asked = module.params
    leases = Leases(asked["state_dir"], asked["name"])
    try:
        if module.check_mode:
            module.exit_json(changed=False, lease=(leases.require(asked["who"]) if asked["state"] == "taken" else leases.held()) or {})
        if asked["state"] == "released":
            leases.release(asked["who"])
        else:
            leases.take(asked["who"], asked["what"], asked["seconds"])
        module.exit_json(changed=False, lease=leases.held() or {})  # it is given back at the end
    except LeaseError as error:
        module.fail_json(msg=str(error), lease=error.lease)
    except (ValueError, OSError) as error:
        module.fail_json(msg=f"the lease in {asked['state_dir']} cannot be taken: {error}")


if __name__ == "__main__":
    main()

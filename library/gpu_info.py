#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Tell what a GPU host is, and whether the engine can run on it
description:
  - Reads each board through NVML, apart from the others, and what Linux tells of driver, models, port, disk and processors.
  - Judges each fact. It never fails because of one; RV(stops) has a sentence for each that would break the engine.
options:
  gpus:
    description: How many boards the host must have.
    type: int
    default: 8
  vram_mib:
    description: MiB that each board of the engine must have; 0 accepts any.
    type: int
    default: 0
  tp:
    description: Tensor parallel size of the engine.
    type: int
    default: 8
  used:
    description: Indices or UUIDs of the engine's boards; empty for the first O(tp).
    type: list
    elements: str
    default: []
  idle_mib:
    description: MiB that a foreign process may hold.
    type: int
    default: 1024
  model:
    description: The target model, a folder or a name.
    type: str
    default: ""
  drafter:
    description: The draft model, likewise.
    type: str
    default: ""
  weights:
    description: Whether the weights must be there already.
    type: bool
    default: true
  later:
    description: Model folders that a later step brings.
    type: list
    elements: path
    default: []
  flags:
    description: The engine's extra arguments, as a string, a list or a mapping; some of them change what is needed.
    type: raw
    default: []
  python:
    description: The engine's interpreter, whose CUDA build is compared with the driver.
    type: path
    default: /opt/sglang/current/bin/python
  port:
    description: The engine's port.
    type: int
    default: 30000
  host:
    description: The address that the engine binds.
    type: str
    default: 127.0.0.1
  unit:
    description: The engine's systemd unit or supervisord program; what its processes hold is not foreign.
    type: str
    default: ddtree
  manager:
    description: Who runs the unit.
    type: str
    choices: [systemd, supervisor]
    default: systemd
  supervisor_config:
    description: supervisord's configuration, where it is the manager.
    type: path
    default: ""
  supervisor_socket:
    description: supervisord's socket, where it is the manager.
    type: path
    default: ""
  disk_path:
    description: A folder on the file system of models and engine releases.
    type: path
    default: /
  disk_gib:
    description: GiB that must be free there.
    type: float
    default: 0
attributes:
  check_mode:
    description: It only reads.
    support: full
requirements: [nvidia-ml-py]
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Look at the host
  gpu_info:
    gpus: 8
    model: /srv/models/Kimi-K2.6
  register: __host
"""

RETURN = r"""
facts:
  description: What was seen, as it was seen; a fact that the host does not tell is null.
  returned: success
  type: dict
checks:
  description: One verdict per fact, with level ok, note, warn or stop.
  returned: success
  type: list
  elements: dict
  sample: [{check: GPUs, level: ok, seen: 8 of NVIDIA H200, remedy: ""}]
stops:
  description: A sentence for each fact that would break the engine.
  returned: success
  type: list
  elements: str
table:
  description: The same for people, as lines.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ddtree import modelfiles, survey
from ansible.module_utils.ddtree.checks import Want
from ansible.module_utils.ddtree.gpus import Nvml
from ansible.module_utils.ddtree.points import PointError, arguments
from ansible.module_utils.ddtree.preflight import judge, stops, table
from ansible.module_utils.ddtree.server import Sglang
from ansible.module_utils.ddtree.services import ServiceError, Supervisor, Systemd


def own_pids(asked: dict) -> list[int]:
    """The unit's processes; none where the unit or its manager is not there yet."""
    try:
        if asked["manager"] == "supervisor":
            return sorted(Supervisor(asked["unit"], asked["supervisor_config"], asked["supervisor_socket"]).pids())
        return sorted(Systemd(asked["unit"]).pids())
    except (ServiceError, OSError):
        return []


def model(name: str) -> dict | None:
    """A model's folder as it is; None for a name that is no folder."""
    return modelfiles.inspect(name) if name.startswith("/") else None


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "gpus": {"type": "int", "default": 8},
            "vram_mib": {"type": "int", "default": 0},
            "tp": {"type": "int", "default": 8},
            "used": {"type": "list", "elements": "str", "default": []},
            "idle_mib": {"type": "int", "default": 1024},
            "model": {"type": "str", "default": ""},
            "drafter": {"type": "str", "default": ""},
            "weights": {"type": "bool", "default": True},
            "later": {"type": "list", "elements": "path", "default": []},
            "flags": {"type": "raw", "default": []},
            "python": {"type": "path", "default": "/opt/sglang/current/bin/python"},
            "port": {"type": "int", "default": 30000},
            "host": {"type": "str", "default": "127.0.0.1"},
            "unit": {"type": "str", "default": "ddtree"},
            "manager": {"type": "str", "choices": ["systemd", "supervisor"], "default": "systemd"},
            "supervisor_config": {"type": "path", "default": ""},
            "supervisor_socket": {"type": "path", "default": ""},
            "disk_path": {"type": "path", "default": "/"},
            "disk_gib": {"type": "float", "default": 0},
        },
        supports_check_mode=True,
    )
    asked = module.params
    try:
        flags = arguments(asked["flags"], "ddtree_server_extra_args")
    except PointError as error:
        module.fail_json(msg=str(error))
    boards, own = survey.boards(Nvml()), own_pids(asked)
    for board in boards["gpus"]:
        board["node"] = survey.numa_node(board.get("bus") or "")
    listener = Sglang(asked["host"], asked["port"]).listener()
    facts = {
        "boards": boards,
        "own_pids": own,
        "model": model(asked["model"]),
        "model_name": asked["model"],
        "drafter": model(asked["drafter"]),
        "drafter_name": asked["drafter"],
        "engine": survey.engine_build(asked["python"]),
        "listener": None if listener is None else {**vars(listener), "shown": str(listener)},
        "disk": {"path": asked["disk_path"], "free_gib": survey.free_gib(asked["disk_path"])},
        "xids": survey.xids(),
        "mps": survey.mps(),
        "fabric": survey.fabric_manager(),
        "host": survey.host(),
    }
    want = Want(
        **{key: asked[key] for key in ("gpus", "vram_mib", "tp", "idle_mib", "disk_gib", "manager", "port", "weights")},
        used=tuple(asked["used"]),
        later=tuple(asked["later"]),
        flags=flags,
        running=bool(own),
    )
    found = judge(facts, want)
    module.exit_json(changed=False, facts=facts, checks=[one._asdict() for one in found], stops=stops(found), table=table(found))


if __name__ == "__main__":
    main()

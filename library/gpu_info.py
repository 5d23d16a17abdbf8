#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Read a host's GPUs through NVML
description:
  - Returns each GPU with its MiB in use (without the driver's reserve) and the processes that hold them.
  - Fails when a GPU that is asked for cannot be read.
options:
  gpus:
    description: Indices or UUIDs; empty means all of the host.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: It only reads.
    support: full
requirements: [nvidia-ml-py]
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Read the GPUs
  gpu_info:
  register: __gpus
"""

RETURN = r"""
driver:
  description: Version of the NVIDIA driver.
  returned: success
  type: str
gpus:
  description: One entry per GPU.
  returned: success
  type: list
  elements: dict
  sample: [{index: 0, uuid: GPU-5e, name: NVIDIA H200, total_mib: 143771, used_mib: 0, holders: []}]
remedy:
  description: What to do when they cannot be read.
  returned: failure
  type: str
"""

from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ddtree.gpus import GpuError, Nvml


def main() -> None:
    module = AnsibleModule(argument_spec={"gpus": {"type": "list", "elements": "str", "default": []}}, supports_check_mode=True)
    nvml = Nvml(module.params["gpus"])
    try:
        gpus = nvml.read()
        module.exit_json(changed=False, driver=nvml.driver(), gpus=[asdict(gpu) for gpu in gpus])
    except GpuError as error:
        module.fail_json(msg=f"{error}. {error.remedy}", cause="no_gpu", remedy=error.remedy)


if __name__ == "__main__":
    main()

#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: sweep_record
short_description: Merge a section into a sweep's result file
description:
  - Writes one point's result file on the controller; a reader sees the old file or the new one, never a part.
  - A section with another C(config_id) begins the file again, so that figures of two configurations are never
    mixed.
options:
  path:
    description: The result file; its folder is made.
    type: path
    required: true
  record:
    description:
      - Sections to merge. Each top-level key replaces its old value; C(cells) merge by context and
        concurrency.
    type: dict
    default: {}
  state:
    description: V(present) merges; V(absent) deletes the file, so that the point is measured again.
    type: str
    choices: [present, absent]
    default: present
  secrets:
    description: Texts that are replaced by *** wherever they stand in the record.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Tells what would change and writes nothing.
    support: full
  diff_mode:
    description: The file before and after.
    support: full
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Note the end
  sweep_record:
    path: results/first/host1/b12-k6-w2048.json
    record: {status: ok, finished: "2026-12-01T10:00:00Z"}
  delegate_to: localhost
"""

RETURN = r"""
path:
  description: The file.
  returned: always
  type: str
status:
  description: The record's status after the merge; empty while the point is unfinished.
  returned: state is present
  type: str
cells:
  description: How many cells the record has.
  returned: state is present
  type: int
"""

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ddtree.results import ResultError, merge, redact


def main() -> None:
    spec = {
        "path": {"type": "path", "required": True},
        "record": {"type": "dict", "default": {}},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "secrets": {"type": "list", "elements": "str", "default": [], "no_log": True},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    path, secrets = Path(module.params["path"]), module.params["secrets"]
    before = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    try:
        if module.params["state"] == "absent":
            if before and not module.check_mode:
                path.unlink()
            module.exit_json(changed=bool(before), path=str(path), diff=_diff(path, before, "", secrets))
        record, changed = merge(path, module.params["record"], secrets, write=not module.check_mode)
    except (ResultError, OSError) as error:
        module.fail_json(msg=redact(str(error), secrets))
    after = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    module.exit_json(
        changed=changed,
        path=str(path),
        status=record.get("status") or "",
        cells=len(record.get("cells") or []),
        diff=_diff(path, before, after, secrets),
    )


def _diff(path: Path, before: str, after: str, secrets: list[str]) -> dict[str, str]:
    return {
        "before_header": str(path),
        "after_header": str(path),
        "before": redact(before, secrets),
        "after": after,
    }


if __name__ == "__main__":
    main()

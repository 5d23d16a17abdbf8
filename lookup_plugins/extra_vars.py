"""The names of this run's extra variables, so that a playbook can refuse one that it does not know."""

from __future__ import annotations

from typing import Any

from ansible import context
from ansible.errors import AnsibleLookupError
from ansible.parsing.splitter import parse_kv
from ansible.plugins.lookup import LookupBase
from ansible.utils.vars import load_extra_vars

DOCUMENTATION = r"""
name: extra_vars
author: ddtree-ops (@ddtree-ops)
short_description: Names of the variables given with -e
description:
  - Returns the names that the command line's C(-e) set, in order.
  - Fails when a C(-e) set nothing at all, as C(-e 'budget: 12') does, which Ansible passes over in silence.
options:
  _terms:
    description: Not used.
"""

EXAMPLES = r"""
- name: Refuse names that this play does not know
  ansible.builtin.assert:
    that: query('extra_vars') | ddtree_check_names(known)
"""

RETURN = r"""
_raw:
  description: The names.
  type: list
  elements: str
"""


class LookupModule(LookupBase):
    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[str]:
        for given in context.CLIARGS.get("extra_vars") or ():
            _refuse_empty(str(given))
        return [str(name) for name in load_extra_vars(self._loader)]


def _refuse_empty(given: str) -> None:
    text = given.strip()
    if not text or text[0] in "@[{":
        return
    parsed = parse_kv(given)
    stray = str(parsed.get("_raw_params", "")).strip()
    if not stray:
        return
    if ":" in stray:
        raise AnsibleLookupError(
            f"-e {given!r} sets nothing by its part {stray!r}: write name=value, or YAML in braces as in -e '{{{stray}}}'"
        )
    raise AnsibleLookupError(f"-e {given!r} sets nothing by its part {stray!r}: write name=value")

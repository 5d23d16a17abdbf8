#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
DOCUMENTATION = r"""
module: sglang_source
short_description: Pin the source of an engine release and name the release after it
description:
  - Runs on the controller and touches no host. A branch, tag or pull request is resolved to its commit once in a run, so that all
    hosts get the same one; a checkout is built into a wheel there.
  - What cannot be pinned is told in one sentence.
options:
  source:
    description: Where the release comes from.
    type: str
    required: true
    choices: [git, pypi, path]
  version:
    description: For V(pypi), the pinned version.
    type: str
  git_url:
    description: For V(git), the repository.
    type: str
  git_ref:
    description: For V(git), a commit of 40 digits, a branch, a tag, or a pull request as C(pull/29907).
    type: str
  git_subdirectory:
    description: For V(git), the folder of the repository that is built.
    type: str
  path:
    description: For V(path), a wheel or a checkout on the controller.
    type: path
  constraints:
    description: A file of version constraints on the controller; its content is a part of the release's name.
    type: path
  packages:
    description: Further requirements of the release; a part of its name too.
    type: list
    elements: str
  python:
    description: The Python that the release is made with; a part of its name too.
    type: str
attributes:
  check_mode:
    description: It changes no host; only a checkout's wheel is not built then.
    support: full
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Pin what a pull request's head is now
  sglang_source:
    source: git
    git_url: https://github.com/sgl-project/sglang.git
    git_ref: pull/29907
    git_subdirectory: python
  register: source
"""

RETURN = r"""
id:
  description: Name of the release; the same for the same source, on every host and at any time.
  returned: success
  type: str
  sample: 93e9850e4300-1f0c3b7d
requirement:
  description: What pip or uv is asked for; empty for a path.
  returned: success
  type: str
wheel:
  description: For a path, the wheel on the controller; empty otherwise.
  returned: success
  type: str
record:
  description: What is recorded of the source, the commit included.
  returned: success
  type: dict
"""

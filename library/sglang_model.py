#!/usr/bin/python
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_model
short_description: See that a model lies whole in a folder, and fetch it if it does not
description:
  - Without O(repo) it only looks, at the record of an earlier fetch if there is one, at the safetensors index, and at the length that
    each weight file's own header states.
  - With O(repo) what is missing is fetched with huggingface_hub. A connection that breaks goes on from its middle, a run that was ended
    keeps every file that came whole. Each file is checked by the digest that the hub states, and a record of commit, sizes and digests is
    kept beside them, so that later runs need no network.
  - Nothing is deleted, and no whole file of another content is replaced. Hosts may share the folder; one fetches, the others wait.
options:
  path:
    description: The model's folder.
    type: path
    required: true
  repo:
    description: The hub's name of the model; empty to only look.
    type: str
    default: ''
  revision:
    description: A commit, tag or branch. What moves is resolved when it is fetched; a folder that is whole is not asked again.
    type: str
    default: main
  allow:
    description: Patterns of the files that are wanted; empty for all.
    type: list
    elements: str
    default: []
  token:
    description: The hub's token, for models that ask for one.
    type: str
  workers:
    description: Files that are fetched at a time.
    type: int
    default: 8
attributes:
  check_mode:
    description: Tells what would be fetched.
    support: full
  diff_mode:
    description: Files and bytes before and after.
    support: full
requirements: [huggingface_hub, where something is to be fetched]
author: [ddtree-ops (@ddtree-ops)]
"""

EXAMPLES = r"""
- name: Bring the drafter
  sglang_model:
    path: /srv/models/Kimi-K2.6-DFlash
    repo: z-lab/Kimi-K2.6-DFlash
    token: "{{ vault_hub_token }}"

- name: See that the target model is whole
  sglang_model:
    path: /srv/models/Kimi-K2.6
"""

RETURN = r"""
commit:
  description: The commit that the folder holds; empty where nothing was recorded.
  returned: success
  type: str
fetched:
  description: Names of the files that came.
  returned: success
  type: list
  elements: str
fetched_bytes:
  description: Their size.
  returned: success
  type: int
"""

import fcntl
import glob
import importlib
import os
from contextlib import contextmanager
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ddtree import models
from ansible.module_utils.ddtree.models import ModelError, Wanted


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "repo": {"type": "str", "default": ""},
            "revision": {"type": "str", "default": "main"},
            "allow": {"type": "list", "elements": "str", "default": []},
            "token": {"type": "str", "no_log": True},
            "workers": {"type": "int", "default": 8},
        },
        supports_check_mode=True,
    )
    path = Path(module.params["path"])
    try:
        if not module.params["repo"] or models.recorded(path):
            seen = models.look(path, module.params["repo"], module.params["revision"])
            if seen.problems or (seen.missing and not module.params["repo"]):
                raise ModelError(_not_whole(path, seen))
            if not seen.missing:
                module.exit_json(changed=False, commit=seen.commit, fetched=[], fetched_bytes=0)
        if module.check_mode:
            fetch(module, path)
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
        with alone(path):
            fetch(module, path)
    except ModelError as error:
        module.fail_json(msg=f"{error}.")


def fetch(module: AnsibleModule, path: Path) -> None:
    """Bring what is missing and prove it; ends the module."""
    asked = module.params
    commit, files = listed(asked["repo"], asked["revision"], asked["token"])
    known = models.trusted(path)
    held = models.look(path).commit
    if held and held != commit:
        raise ModelError(f"{path} holds commit {held[:12]} of {asked['repo']}, {commit[:12]} is asked: name another folder")
    wanted = models.chosen(files, asked["allow"])
    if not wanted:
        raise ModelError(f"{asked['repo']} has no file that matches {', '.join(asked['allow']) or 'anything'}")
    lacking = models.lacking(path, wanted, known)
    foreign = models.in_the_way(path, lacking)
    if foreign:
        raise ModelError(f"{path} has {len(foreign)} files of other content, {foreign[0]} first; none is replaced: move them away")
    total = sum(one.size for one in lacking)
    models.free_space(path, total)
    before, after = (f"{count} of {len(wanted)} files\n" for count in (len(wanted) - len(lacking), len(wanted)))
    result = {
        "changed": bool(lacking) or not models.recorded(path),
        "commit": commit,
        "fetched": [one.name for one in lacking],
        "fetched_bytes": total,
        "diff": {"before": before, "after": after},
    }
    if not module.check_mode:
        if lacking:
            download(asked, commit, path, lacking)
        broken = models.lacking(path, lacking, {})
        if broken:
            raise ModelError(
                f"{broken[0].name} of {asked['repo']} came with another digest than the hub states; move it away and run again"
            )
        models.write_record(path, asked["repo"], commit, wanted)
        seen = models.look(path)
        if seen.problems:
            raise ModelError(_not_whole(path, seen))
    module.exit_json(**result)


def listed(repo: str, revision: str, token: str | None) -> tuple[str, list[Wanted]]:
    """The commit that the revision is now, and the files of it."""
    hub = _hub()
    try:
        info = hub.HfApi().model_info(repo, revision=revision, files_metadata=True, token=token)
    except Exception as error:  # the package's errors differ between its versions
        raise ModelError(f"the hub does not list {repo} at {revision}: {_reason(error)}") from None
    files = []
    for one in info.siblings or []:
        lfs = getattr(one, "lfs", None)
        digest = (lfs.get("sha256") if isinstance(lfs, dict) else getattr(lfs, "sha256", "")) if lfs else ""
        files.append(Wanted(one.rfilename, int(one.size or 0), digest or "", "" if digest else str(one.blob_id or "")))
    return str(info.sha), files


def download(asked: dict, commit: str, path: Path, lacking: list[Wanted]) -> None:
    """By huggingface_hub: a connection that breaks goes on from its middle, a run that ended keeps the files that came whole."""
    try:
        _hub().snapshot_download(
            asked["repo"],
            revision=commit,
            local_dir=path,
            allow_patterns=[glob.escape(one.name) for one in lacking],
            max_workers=asked["workers"],
            token=asked["token"],
        )
    except Exception as error:
        raise ModelError(f"fetching {asked['repo']} ended early: {_reason(error)}; run it again, it goes on where it stopped") from None


@contextmanager
def alone(path: Path):
    """One run at a time in the folder, on this host or another that shares it."""
    with open(path / ".ddtree-model.lock", "w", encoding="ascii") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def _hub():
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError:
        raise ModelError("this Python has no huggingface_hub: name one that has it in sglang_models_python") from None


def _reason(error: Exception) -> str:
    name = type(error).__name__
    if name == "GatedRepoError":
        return "it is gated: accept its terms on the hub and give a token in sglang_models_token"
    if name in ("RepositoryNotFoundError", "RevisionNotFoundError"):
        return "there is no such repository or revision, or the token may not see it"
    return f"{name}: {' '.join(str(error).split())[:200]}"


def _not_whole(path: Path, seen: models.Seen) -> str:
    missing = [f"{len(seen.missing)} files are missing, {seen.missing[0]} first"] if seen.missing else []
    return f"the model in {path} is not whole: {'; '.join([*missing, *seen.problems])}"


if __name__ == "__main__":
    main()

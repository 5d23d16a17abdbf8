"""Pin the source of an engine release, on the controller; what cannot be pinned is one sentence, before any host changes."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "module_utils"))  # Ansible's setting module_utils is for modules only
from ddtree import releases  # noqa: E402


class ActionModule(ActionBase):
    """See library/sglang_source.py for the options."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        asked = self._task.args
        extra = {
            "packages": sorted(str(one) for one in asked.get("packages") or []),
            "constraints": _content(str(asked.get("constraints") or "")),
            "python": str(asked.get("python") or ""),
        }
        wheel = ""
        try:
            if asked["source"] == "pypi":
                release = releases.from_pypi(str(asked.get("version") or ""), extra)
            elif asked["source"] == "git":
                url, ref = str(asked.get("git_url") or ""), str(asked.get("git_ref") or "")
                release = releases.from_git(url, ref, self._commit(url, ref), str(asked.get("git_subdirectory") or ""), extra)
            elif asked["source"] == "path":
                path = Path(str(asked.get("path") or "")).expanduser()
                release = releases.from_path(str(path), extra)
                wheel = str(path) if path.is_file() else self._built(path, release.id)
            else:
                raise releases.ReleaseError(f"sglang_source={asked['source']!r} is none of {', '.join(releases.SOURCES)}")
        except releases.ReleaseError as error:
            raise AnsibleActionFail(str(error)) from None
        return {"changed": False, "id": release.id, "requirement": release.requirement, "wheel": wheel, "record": release.record}

    def _commit(self, url: str, ref: str) -> str:
        """Asked once in a run: the hosts of a fleet, and the batches of a roll, must not get two heads of a branch that moves."""
        kept = _run_folder() / f"commit-{_hash(url, ref)}"
        with open(kept, "a+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            commit = file.read()
            if not commit:
                commit = releases.resolve(url, ref)
                file.write(commit)
        return commit

    def _built(self, checkout: Path, name: str) -> str:
        """A checkout's wheel, built once in a run; empty in check mode."""
        if self._task.check_mode:
            return ""
        folder = _run_folder() / f"wheel-{name}"
        with open(f"{folder}.lock", "w", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not list(folder.glob("sglang-*.whl")):
                command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-input", "--wheel-dir", str(folder)]
                done = subprocess.run([*command, str(releases.project_of(checkout))], capture_output=True, text=True, check=False)
                if done.returncode or not list(folder.glob("sglang-*.whl")):
                    raise releases.ReleaseError(f"no wheel can be built of {checkout}: {releases.failure(done.stderr + done.stdout)}")
        return str(next(folder.glob("sglang-*.whl")))


def _run_folder() -> Path:
    """A folder that lives as long as this run of ansible-playbook, shared by its workers."""
    return Path(constants.DEFAULT_LOCAL_TMP)


def _content(path: str) -> str:
    if not path:
        return ""
    try:
        return _hash(Path(path).expanduser().read_text())
    except OSError as error:
        raise AnsibleActionFail(f"sglang_constraints={path!r} cannot be read on the controller: {error.strerror}") from None


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]

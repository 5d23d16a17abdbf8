"""The role sglang on this machine, without a network: what a repository's refs lead to, what is refused, and the way back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "molecule" / "install" / "files"))

from checkout import lay_out  # type: ignore[import-not-found]  # noqa: E402  needs the path above

PLAY = """
- hosts: localhost
  gather_facts: false
  connection: local
  tasks:
    - ansible.builtin.include_role: {name: sglang}
"""
DDTREE = ["--model-path", "/m", "--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", "12"]


class Role:
    """The role with a root of its own; `repository` has a commit for each of two versions, and a pull request 7."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.repository = folder, folder / "opt", folder / "repository"
        (folder / "play.yml").write_text(PLAY)
        (folder / "nothing").mkdir()
        self.repository.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        self.commits: dict[str, str] = {}
        for version in ("0.5.21", "0.5.22"):
            self.git("rm", "-r", "--quiet", "--ignore-unmatch", ".")
            lay_out(self.repository, version, imports=())
            self.git("add", "--all")
            self.git("commit", "--quiet", "--message", version)
            self.commits[version] = self.git("rev-parse", "HEAD")
        self.pull("0.5.21")

    def git(self, *words: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example"]
        done = subprocess.run(["git", "-C", str(self.repository), *identity, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def pull(self, version: str) -> None:
        """Move the pull request's head."""
        self.git("update-ref", "refs/pull/7/head", self.commits[version])

    def run(self, *words: str, fails: bool = False, **given: Any) -> tuple[str, int]:
        """(output in one line, changed tasks) with a git source, unless `given` says otherwise."""
        asked = {"ansible_python_interpreter": sys.executable, "sglang_root": str(self.root), "sglang_cache": str(self.root / "builds"),
                 "sglang_wheels": str(self.folder / "nothing"), "sglang_git_url": f"file://{self.repository}", "sglang_git_ref": "pull/7",
                 "sglang_base_python": sys.executable, "sglang_argv": DDTREE, **given}  # fmt: skip
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
            "NO_COLOR": "1",
        }
        command = [
            Path(sys.executable).with_name("ansible-playbook"),
            "-i",
            "localhost,",
            self.folder / "play.yml",
            "-e",
            json.dumps(asked),
            *words,
        ]
        done = subprocess.run(
            [str(word) for word in command], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
        )
        said = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, said[-4000:]
        changed = re.search(r"^localhost .* changed=(\d+)", said, re.M)
        return " ".join(said.split()), int(changed[1]) if changed else 0

    def current(self) -> str:
        return os.readlink(self.root / "current") if (self.root / "current").is_symlink() else ""

    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "current" / "release.json").read_text())
        return found


@pytest.fixture(scope="module")
def role(tmp_path_factory: pytest.TempPathFactory) -> Role:
    return Role(tmp_path_factory.mktemp("install"))


def test_a_pull_request_is_installed_at_its_commit_and_followed_when_it_moves(role: Role) -> None:
    planned, _ = role.run("--check")
    assert "failed=0" in planned and not role.root.exists()
    assert role.run()[1] > 0
    record = role.record()
    assert (record["version"], record["source"]["commit"], record["source"]["requested"]) == ("0.5.21", role.commits["0.5.21"], "pull/7")
    assert record["packages"]["sglang"].endswith(f"@{role.commits['0.5.21']}"), "pip itself says so"
    assert role.run()[1] == 0
    assert role.run("--check")[1] == 0
    first = role.current()
    role.pull("0.5.22")
    assert role.run()[1] > 0
    assert role.record()["version"] == "0.5.22" and role.current() != first
    assert role.run(sglang_git_ref=role.commits["0.5.21"])[1] == 1, "the way back is a change of the link"
    assert role.current() == first


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sglang_source": "pypi"}, "sglang_version='' is no pinned version: one is wanted, as in 0.5.23"),
        (
            {"sglang_source": "pypi", "sglang_version": "0.9.9"},
            "pip could not install sglang==0.9.9 on localhost: Could not find a version",
        ),
        ({"sglang_source": "path", "sglang_path": "/nowhere"}, "sglang_path='/nowhere' is neither a wheel of sglang nor a checkout of it"),
        ({"sglang_git_ref": "pull/8"}, "is neither a branch, a tag nor a pull request of the repository"),
        ({"sglang_git_ref": "93e9850e4"}, "looks like a shortened commit"),
        ({"sglang_constraints": "/nowhere"}, "sglang_constraints='/nowhere' cannot be read on the controller"),
        ({"sglang_base_python": "/no/python3"}, "/no/python3 cannot make an environment on localhost"),
        ({"sglang_source": "existing", "sglang_python": "/no/python3"}, "/no/python3 cannot be run: No such file or directory"),
    ],
    ids=lambda one: one if isinstance(one, str) else None,
)
def test_a_source_that_leads_nowhere_is_one_sentence(given: dict[str, Any], said: str, role: Role) -> None:
    before = role.current()
    told, _ = role.run(fails=True, sglang_installer="pip", **given)
    assert said in told and role.current() == before


def test_a_checkout_is_built_once_into_a_wheel(role: Role) -> None:
    checkout = lay_out(role.folder / "checkout", "0.5.30", imports=())
    role.run(sglang_source="path", sglang_path=str(checkout))
    record = role.record()
    assert record["version"] == "0.5.30" and record["source"]["sha256"]
    assert role.run(sglang_source="path", sglang_path=str(checkout))[1] == 0

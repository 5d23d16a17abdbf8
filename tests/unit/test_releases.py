"""A source is pinned, names its release, and only releases that nobody needs go."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree import releases
from ddtree.releases import ReleaseError, chosen, failure, from_git, from_path, from_pypi, in_use, prunable, resolve

COMMIT = "93e9850e430035f8a363fd881a6a0c5436b95108"
OTHER = "a" * 40
URL = "https://git.example/sglang.git"


# -- names


def test_a_name_tells_the_source_and_nothing_else() -> None:
    first = from_pypi("0.5.23", {"packages": []})
    assert first == from_pypi("0.5.23", {"packages": []})
    assert first.id.startswith("0.5.23-") and first.requirement == "sglang==0.5.23"
    others = {
        from_pypi("0.5.22", {"packages": []}).id,
        from_pypi("0.5.23", {"packages": ["x"]}).id,
        from_pypi("0.5.23", {"python": "3.12"}).id,
    }
    assert len({first.id, *others}) == 4
    assert from_pypi("0.5.23+cu129", {}).id.startswith("0.5.23+cu129-")


def test_a_commit_has_one_name_however_it_was_asked_for() -> None:
    by_commit, by_pull = (from_git(URL, ref, COMMIT, "python", {}) for ref in (COMMIT, "pull/29907"))
    assert by_commit.id == by_pull.id and by_commit.id.startswith("93e9850e4300-")
    assert by_pull.requirement == f"git+{URL}@{COMMIT}#subdirectory=python"
    assert by_pull.record["requested"] == "pull/29907" and by_pull.record["commit"] == COMMIT
    assert from_git(URL, COMMIT, COMMIT, "", {}).requirement.endswith(f"@{COMMIT}")


def test_a_password_is_in_the_requirement_only() -> None:
    release = from_git("https://me:hunter2@git.example/sglang.git", "main", COMMIT, "python", {})
    assert "hunter2" in release.requirement and "hunter2" not in str(release.record)
    assert release.id == from_git(URL, "main", COMMIT, "python", {}).id


@pytest.mark.parametrize("version", ["", "latest", "0.5.23; rm", ">=0.5", "0.5.*", "../x", "0.5.23 --index-url=x"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(ReleaseError, match="is no pinned version: one is wanted, as in"):
        from_pypi(version, {})


def test_a_wheel_and_a_checkout_are_named_by_content(tmp_path: Path) -> None:
    wheel = tmp_path / "sglang-0.5.21+local-cp311-cp311-manylinux_2_34_x86_64.whl"
    wheel.write_bytes(b"one")
    first = from_path(str(wheel), {})
    wheel.write_bytes(b"two")
    assert first.id.startswith("0.5.21+local-") and from_path(str(wheel), {}).id != first.id
    checkout = tmp_path / "checkout"
    (checkout / "python" / "sglang").mkdir(parents=True)
    (checkout / "python" / "pyproject.toml").write_text('[project]\nname = "sglang"\n')
    (checkout / "python" / "sglang" / "a.py").write_text("1")
    first = from_path(str(checkout), {})
    (checkout / ".git").mkdir()
    (checkout / ".git" / "index").write_text("moves with each look")
    (checkout / "python" / "sglang" / "__pycache__").mkdir()
    (checkout / "python" / "sglang" / "__pycache__" / "a.pyc").write_text("x")
    assert from_path(str(checkout), {}).id == first.id
    (checkout / "python" / "sglang" / "a.py").write_text("2")
    assert from_path(str(checkout), {}).id != first.id
    assert releases.project_of(checkout) == checkout / "python"


@pytest.mark.parametrize("name", ["", "nowhere", "torch-2.0-cp311-cp311-linux_x86_64.whl", "empty", "other"])
def test_what_is_neither_wheel_nor_checkout_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "torch-2.0-cp311-cp311-linux_x86_64.whl").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pyproject.toml").write_text('[project]\nname = "other"\n')
    with pytest.raises(ReleaseError, match="is neither a wheel of sglang nor a checkout of it"):
        from_path(str(tmp_path / name) if name else "", {})


# -- git


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """A repository with a branch, two kinds of tags, a pull request's head, and a name that is branch and tag; its commits by name."""
    folder = tmp_path_factory.mktemp("git")

    def git(*words: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example"]
        return subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet", "--initial-branch=main")
    commits = {}
    for name in ("one", "two", "three"):
        git("commit", "--quiet", "--allow-empty", "--message", name)
        commits[name] = git("rev-parse", "HEAD")
    git("tag", "light", commits["one"])
    git("tag", "--annotate", "v0.5.23", "--message", "x", commits["two"])
    git("update-ref", "refs/pull/7/head", commits["two"])
    git("branch", "both", commits["one"])
    git("tag", "both", commits["two"])
    return f"file://{folder}", commits


@pytest.mark.parametrize(
    ("ref", "name"), [("main", "three"), ("light", "one"), ("v0.5.23", "two"), ("pull/7", "two"), ("#7", "two"), ("7", "two")]
)
def test_what_moves_is_resolved_to_its_commit(ref: str, name: str, repository: tuple[str, dict[str, str]]) -> None:
    assert resolve(repository[0], ref) == repository[1][name]


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ("nowhere", "is neither a branch, a tag nor a pull request of the repository"),
        ("pull/8", "is neither a branch, a tag nor a pull request of the repository"),
        ("both", "is both a branch and a tag"),
        ("93e9850e4", "looks like a shortened commit, which a server cannot look up: give all 40 digits"),
        ("--upload-pack=touch /tmp/x", "names no commit, branch, tag or pull request"),
        ("a..b", "names no commit, branch, tag or pull request"),
        ("a b", "names no commit, branch, tag or pull request"),
        ("", "names no commit, branch, tag or pull request"),
    ],
)
def test_a_ref_that_cannot_be_pinned_is_one_sentence(ref: str, said: str, repository: tuple[str, dict[str, str]]) -> None:
    with pytest.raises(ReleaseError, match=said):
        resolve(repository[0], ref)


def test_a_commit_asks_nobody() -> None:
    assert resolve("https://nowhere.invalid/x.git", COMMIT) == COMMIT


@pytest.mark.parametrize("url", ["", "git@example:sglang.git", "ext::sh -c id", "https://x/ y", "https://x/y#z", "/srv/sglang"])
def test_a_url_that_pip_does_not_take_is_refused(url: str) -> None:
    with pytest.raises(ReleaseError, match=r"is no URL that pip and uv take"):
        resolve(url, "main")


def test_a_repository_that_is_away_is_told_without_a_password(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="git found no repository for main") as caught:
        resolve(f"file://me:hunter2@{tmp_path}/none", "main")
    assert "hunter2" not in str(caught.value)


def test_a_tag_object_is_not_taken_for_its_commit() -> None:
    listed = f"{OTHER}\trefs/tags/v1\n{COMMIT}\trefs/tags/v1^{{}}\n"
    assert chosen(listed, ["refs/heads/v1", "refs/tags/v1^{}", "refs/tags/v1"], "v1") == COMMIT


# -- why an installer failed


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "Looking in links: x\nERROR: Could not find a version\nERROR: No matching distribution found for sglang==9",
            "Could not find a version",
        ),
        (
            "WARNING: x\n  × No solution found when resolving dependencies:\n  ╰─▶ Because sglang==9 was not found\n      we conclude",
            "No solution found when",
        ),
        ("error: Failed to fetch: `x`\n  Caused by: y", "Failed to fetch: `x`"),
        ("Traceback\n  File x\nOSError: [Errno 28] No space left on device", "OSError: [Errno 28] No space left on device"),
        ("The virtual environment was not created successfully because ensurepip is not available.", "ensurepip is not available"),
        ("", "it said nothing"),
    ],
)
def test_the_line_that_tells_why_is_found(said: str, why: str) -> None:
    assert why in failure(said)


@given(st.text(max_size=300))
def test_any_output_gives_one_line(said: str) -> None:
    assert "\n" not in failure(said) and len(failure(said)) <= 500


# -- which may go

NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f"])


@given(st.dictionaries(NAMES, st.none() | st.floats(0, 9)), st.integers(0, 4), st.sets(NAMES))
def test_what_is_needed_and_the_newest_stay_and_the_rest_goes(found: dict[str, float | None], keep: int, needed: set[str]) -> None:
    removed = set(prunable(found, keep, needed))
    whole = {name: time for name, time in found.items() if time is not None}
    kept = set(found) - removed
    assert not removed & needed and removed <= set(found)
    assert {name for name, time in found.items() if time is None} - needed <= removed
    assert len(set(whole) & kept) >= min(keep, len(whole))
    for name in removed & set(whole):
        assert sum(time >= whole[name] for other, time in whole.items() if other in kept) >= keep


def test_a_release_is_in_use_by_a_process_a_unit_or_a_program(tmp_path: Path) -> None:
    root, proc, units, programs = (tmp_path / name for name in ("opt", "proc", "units", "etc"))
    for number, text in {"7": b"/x/opt", "8": b"none", "self": b""}.items():
        (proc / number).mkdir(parents=True)
        (proc / number / "cmdline").write_bytes(text)
    (proc / "7" / "cmdline").write_bytes(f"{root}/releases/runs-1/bin/python\0-m\0sglang".encode())
    (proc / "8" / "maps").write_text(f"7f00 r-xp {root}/releases/mapped-1/lib/x.so\n")
    units.mkdir()
    (units / "ddtree.service").write_text(f"ExecStart={root}/releases/unit-1/bin/python -m sglang")
    (programs / "conf.d").mkdir(parents=True)
    (programs / "conf.d" / "ddtree.conf").write_text(f"command = {root}/releases/program-1/bin/python")
    (programs / "notes.txt").write_text(f"{root}/releases/told-1/")
    names = ["runs-1", "runs-11", "mapped-1", "unit-1", "program-1", "told-1", "nobody-1"]
    assert in_use(root, names, [units, programs, tmp_path / "none"], proc) == {"runs-1", "mapped-1", "unit-1", "program-1"}

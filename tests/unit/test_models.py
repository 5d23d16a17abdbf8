"""A model's folder is whole or it is not, said in one sentence; what lies there is neither deleted nor replaced."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from ddtree import models
from ddtree.models import ModelError, Wanted


def safetensors(length: int) -> bytes:
    """A weight file of one tensor with `length` bytes."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [length], "data_offsets": [0, length]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(length)


def of(name: str, content: bytes, large: bool = False) -> Wanted:
    git = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
    return Wanted(name, len(content), hashlib.sha256(content).hexdigest() if large else "", "" if large else git)


INDEX = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}).encode()
CONTENT = {"config.json": b'{"num_attention_heads": 8}', "model-1.safetensors": safetensors(10), "model-2.safetensors": safetensors(20),
           "model.safetensors.index.json": INDEX}  # fmt: skip
FILES = [of(name, content, "model-" in name) for name, content in CONTENT.items()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in CONTENT.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.fixture
def kept(folder: Path) -> Path:
    models.write_record(folder, "org/model", "c" * 40, FILES)
    return folder


def test_a_whole_folder_is_whole_without_a_record(folder: Path) -> None:
    assert models.look(folder) == models.Seen("", 0, 0)
    assert models.lacking(folder, FILES, {}) == [] and models.in_the_way(folder, FILES) == []


def test_a_record_tells_commit_and_size(kept: Path) -> None:
    seen = models.look(kept, "org/model")
    assert (seen.commit, seen.files, seen.missing, seen.problems) == ("c" * 40, 4, (), ())
    assert seen.bytes == sum(len(content) for content in CONTENT.values())


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: (path / "model-2.safetensors").write_bytes(b"x"), "has 1 bytes, "),
        (lambda path: (path / "config.json").write_text("{"), "config.json"),
    ],
)
def test_a_file_that_changed_since_is_told(spoil: object, said: str, kept: Path) -> None:
    assert callable(spoil)
    spoil(kept)
    assert said in " ".join(models.look(kept).problems)


def test_files_that_went_are_missing_and_no_problem_of_another_kind(kept: Path) -> None:
    (kept / "model-1.safetensors").unlink()
    assert models.look(kept) == models.Seen("c" * 40, 4, models.look(kept).bytes, ("model-1.safetensors",), ())


@pytest.mark.parametrize(
    ("repo", "revision", "said"),
    [
        ("org/other", "main", "it holds org/model, org/other is asked"),
        ("org/model", "d" * 40, "it holds commit cccccccccccc, dddddddddddd is asked"),
    ],
)
def test_files_of_two_models_are_never_mixed(repo: str, revision: str, said: str, kept: Path) -> None:
    assert models.look(kept, repo, revision).problems == (said,)


def test_a_branch_that_moved_on_is_no_problem(kept: Path) -> None:
    assert models.look(kept, "org/model", "main").problems == ()


def test_weights_that_are_cut_or_missing_are_told_without_a_record(folder: Path) -> None:
    (folder / "model-1.safetensors").write_bytes(CONTENT["model-1.safetensors"][:-1])
    (folder / "model-2.safetensors").unlink()
    said = "; ".join(models.look(folder).problems)
    assert "its index names 1 files that are not there, model-2.safetensors first" in said
    assert "1 weight files are cut short, model-1.safetensors first" in said
    assert models.look(folder / "nowhere").problems == ("there is no such folder",)


def test_a_file_of_the_right_size_and_other_content_is_found_and_in_the_way(folder: Path) -> None:
    for name in ("model-1.safetensors", "config.json"):
        (folder / name).write_bytes(CONTENT[name][:-1] + b"!")
    assert sorted(one.name for one in models.lacking(folder, FILES, {})) == ["config.json", "model-1.safetensors"]
    assert sorted(models.in_the_way(folder, FILES)) == ["config.json", "model-1.safetensors"]
    assert (folder / "config.json").read_bytes().endswith(b"!")


def test_a_shorter_file_is_only_partly_there(folder: Path) -> None:
    (folder / "model-1.safetensors").write_bytes(b"x")
    assert [one.name for one in models.lacking(folder, FILES, {})] == ["model-1.safetensors"]
    assert models.in_the_way(folder, FILES) == []


def test_what_the_record_knows_is_not_read_again(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_digest", lambda file, total: pytest.fail(f"{file} was read"))
    assert models.lacking(kept, FILES, models.trusted(kept)) == []


def test_a_file_that_was_touched_since_is_read_again(kept: Path) -> None:
    file = kept / "model-1.safetensors"
    file.write_bytes(CONTENT["model-1.safetensors"][:-1] + b"!")
    assert [one.name for one in models.lacking(kept, FILES, models.trusted(kept))] == ["model-1.safetensors"]


def test_patterns_choose(folder: Path) -> None:
    assert [one.name for one in models.chosen(FILES, ["*.json"])] == ["config.json", "model.safetensors.index.json"]
    assert len(models.chosen(FILES, [])) == 4


def test_too_little_room_is_told_before_anything_comes(tmp_path: Path) -> None:
    def room(_: object) -> os.statvfs_result:
        return SimpleNamespace(f_bavail=1024, f_frsize=1 << 20)  # type: ignore[return-value]

    models.free_space(tmp_path / "not" / "yet", 1 << 30, room)
    with pytest.raises(ModelError, match=r"needs 2\.0 GiB more, its file system has 1\.0 GiB free; nothing was fetched"):
        models.free_space(tmp_path / "not" / "yet", 2 << 30, room)


def test_a_torn_record_is_none(folder: Path) -> None:
    (folder / models.RECORD).write_text('{"repo": ')
    assert not models.recorded(folder) and models.look(folder).problems == ()

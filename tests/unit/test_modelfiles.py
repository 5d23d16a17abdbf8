"""Whether a model's folder is whole: by its index, and by the length that each file's own header states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree.modelfiles import inspect


def tensors(size: int) -> bytes:
    """A safetensors file with one tensor of that many bytes."""
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


def model(folder: Path, shards: int = 3, config: Any = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": 64} if config is None else config))
    names = [f"model-{one:05}-of-{shards:05}.safetensors" for one in range(1, shards + 1)]
    for name in names:
        (folder / name).write_bytes(tensors(1000))
    index = {"metadata": {"total_size": 1000 * shards}, "weight_map": {f"layer.{one}": name for one, name in enumerate(names * 2)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_a_whole_model(tmp_path: Path) -> None:
    found = inspect(str(model(tmp_path / "m")))
    assert (found["found"], found["error"], found["listed"], found["bytes"]) == (True, "", 3, 3000)
    assert (found["missing"], found["cut"], found["loading"], found["heads"], found["block_size"]) == ([], [], [], 64, 0)


def test_what_is_missing_cut_or_still_loading_is_named(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", 4)
    first, second, third, _ = sorted(folder.glob("*-of-*"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    third.write_bytes(b"")
    (folder / ".cache" / "huggingface").mkdir(parents=True)
    (folder / ".cache" / "huggingface" / "x.incomplete").touch()
    found = inspect(str(folder))
    assert found["missing"] == [first.name] and found["cut"] == [second.name, third.name] and found["bytes"] == 1000
    assert found["loading"] == [".cache/huggingface/x.incomplete"]


def test_a_file_beside_the_index_does_not_count(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", 1)
    (folder / "extra.safetensors").write_bytes(b"no")
    assert inspect(str(folder))["cut"] == []


def test_without_an_index_every_safetensors_file_counts(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", 1, {"block_size": 8, "dflash_config": {}})
    (folder / "model.safetensors.index.json").unlink()
    found = inspect(str(folder))
    assert (found["listed"], found["bytes"], found["block_size"], found["heads"]) == (1, 1000, 8, None)


@pytest.mark.parametrize("config", [{"text_config": {"num_attention_heads": 64}}, {"language_config": {"num_attention_heads": 64}}])
def test_heads_of_a_model_with_sections(tmp_path: Path, config: dict) -> None:
    assert inspect(str(model(tmp_path / "m", 1, config)))["heads"] == 64


def test_no_folder_is_no_model(tmp_path: Path) -> None:
    assert inspect(str(tmp_path / "gone"))["found"] is False
    (tmp_path / "file").touch()
    assert inspect(str(tmp_path / "file"))["found"] is False


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("config.json", "", "config.json cannot be read"),
        ("config.json", "[]", "config.json cannot be read: it holds no mapping"),
        ("model.safetensors.index.json", "{", "the safetensors index cannot be read"),
        ("model.safetensors.index.json", '{"weight_map": []}', "the safetensors index cannot be read"),
        ("model.safetensors.index.json", "{}", "the safetensors index cannot be read"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "../../etc/passwd"}}', "names files outside the folder"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, name: str, text: str, said: str) -> None:
    folder = model(tmp_path / "m")
    (folder / name).write_text(text)
    assert said in inspect(str(folder))["error"]


@pytest.mark.parametrize(
    "header", ["[]", "3", '{"w": 3}', '{"w": {}}', '{"w": {"data_offsets": [0]}}', '{"w": {"data_offsets": [0, "x"]}}']
)
def test_a_header_that_makes_no_sense_is_cut(tmp_path: Path, header: str) -> None:
    folder = model(tmp_path / "m", 1)
    path = next(folder.glob("*-of-*"))
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(2000))
    assert inspect(str(folder))["cut"] == [path.name]


@settings(max_examples=60)
@given(st.binary(max_size=64) | st.integers(0, 80).map(lambda cut: tensors(20)[:cut]))
def test_any_bytes_are_whole_or_cut_and_never_an_exception(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = model(tmp_path_factory.mktemp("m"), 1)
    path = next(folder.glob("*-of-*"))
    path.write_bytes(data)
    assert inspect(str(folder))["cut"] == [path.name]

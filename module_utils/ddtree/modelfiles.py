"""A model's folder on this host: is it whole, by its safetensors index and by the length that each file's own header states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .engine import block_size

HEADER_MOST = 100 << 20  # bytes of a safetensors header; a larger one is no header


def inspect(folder: str) -> dict[str, Any]:
    """{folder, found, error, heads, block_size, listed, missing, cut, bytes, loading}, lists as file names.

    `listed` counts the weight files that the index names, `bytes` those of their tensors; `cut` are files shorter than their header says;
    `loading` are downloads that have not ended; `error` says why nothing could be judged. `heads` is None where config.json has none.
    """
    path = Path(folder)
    found: dict[str, Any] = {"folder": folder, "found": path.is_dir(), "error": "", "heads": None, "block_size": 0, "listed": 0}
    found.update(missing=[], cut=[], bytes=0, loading=[])
    if not found["found"]:
        return found
    try:
        config = _json(path / "config.json")
        found.update(heads=_heads(config), block_size=block_size(config))
    except (OSError, ValueError) as error:
        found["error"] = f"config.json cannot be read: {_reason(error)}"
        return found
    try:
        names = _listed(path)
    except (OSError, ValueError) as error:
        found["error"] = f"the safetensors index cannot be read: {_reason(error)}"
        return found
    found["listed"] = len(names)
    for name in names:
        try:
            size = _stated_bytes(path / name)
        except FileNotFoundError:
            found["missing"].append(name)
        except (OSError, ValueError):
            found["cut"].append(name)
        else:
            found["bytes"] += size
    found["loading"] = sorted(str(one.relative_to(path)) for one in path.rglob("*.incomplete"))
    return found


def _listed(path: Path) -> list[str]:
    """The weight files that belong to the model: those of its index, else every safetensors file."""
    indices = sorted(path.glob("*.safetensors.index.json"))
    if not indices:
        return sorted(one.name for one in path.glob("*.safetensors"))
    names: set[str] = set()
    for index in indices:
        weights = _json(index).get("weight_map")
        if not isinstance(weights, Mapping):
            raise ValueError("it has no weight_map")
        names |= {str(name) for name in weights.values()}
    if any(Path(name).name != name for name in names):
        raise ValueError("it names files outside the folder")
    return sorted(names)


def _stated_bytes(path: Path) -> int:
    """The bytes of the file's tensors by its header. Raises ValueError when the file is shorter than that, or no safetensors file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(HEADER_MOST, size - 8):
            raise ValueError("no whole header")
        header = json.loads(file.read(length))
    try:
        end = max((int(one["data_offsets"][1]) for name, one in header.items() if name != "__metadata__"), default=0)
    except (AttributeError, IndexError, KeyError, TypeError):
        raise ValueError("a header without offsets") from None
    if size < 8 + length + end:
        raise ValueError(f"{size} bytes of {8 + length + end}")
    return end


def _heads(config: Mapping[str, Any]) -> int | None:
    """Attention heads, also of a model whose language part has its own section."""
    for section in (config, config.get("text_config"), config.get("language_config"), config.get("llm_config")):
        heads = section.get("num_attention_heads") if isinstance(section, Mapping) else None
        if isinstance(heads, int) and not isinstance(heads, bool):
            return heads
    return None


def _json(path: Path) -> Mapping[str, Any]:
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, Mapping):
        raise ValueError("it holds no mapping")
    return found


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)

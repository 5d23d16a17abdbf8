"""A small deterministic tokenizer: pieces of at most four characters, which join to the text again."""

from __future__ import annotations

import re
import zlib

_PIECE = re.compile(r"<\|[a-z_]+\|>| {1,8}(?= )| ?\w{1,4}|[^\w\s]|\s")
VOCABULARY = 163584
EOS = 163586


def pieces(text: str) -> list[str]:
    """The text cut into tokens."""
    return _PIECE.findall(text)


_ids: dict[str, int] = {}
_texts: dict[int, str] = {}


def token_id(piece: str) -> int:
    """The same number for the same piece in every process, except where two pieces seen here collide."""
    found = _ids.get(piece)
    if found is None:
        found = zlib.crc32(piece.encode("utf-8", "surrogatepass")) % VOCABULARY
        while _texts.get(found, piece) != piece:
            found = (found + 1) % VOCABULARY
        if len(_ids) < 500_000:
            _ids[piece], _texts[found] = found, piece
    return found


def encode(text: str) -> list[int]:
    known = _ids
    return [known[piece] if piece in known else token_id(piece) for piece in pieces(text)]


def decode(ids: list[int]) -> str:
    """The text of tokens seen before; an unknown one is shown as a number."""
    return "".join("" if one == EOS else _texts.get(one, f" {one}") for one in ids)


def chat_prompt(messages: list[dict[str, object]]) -> str:
    """The chat template: content that is a list keeps its text parts."""
    out = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        out.append(f"<|im_start|>{message.get('role', 'user')}\n{content or ''}<|im_end|>\n")
    return "".join(out) + "<|im_start|>assistant\n"

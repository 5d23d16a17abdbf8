"""Answers to the coding prompts: right programs, and wrong, cut short or hostile ones when a fault asks for them."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

MODES = ("right", "wrong", "truncated", "hostile", "empty")

RIGHT = {
    "is_palindrome": '''def is_palindrome(s):
    """Return True if s reads the same both ways, ignoring case and anything but letters and digits."""
    kept = [c.lower() for c in str(s) if c.isalnum()]
    return kept == kept[::-1]
''',
    "fib": '''def fib(n):
    """Return the n-th Fibonacci number, with fib(0) == 0 and fib(1) == 1."""
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
''',
    "merge_sorted": '''def merge_sorted(a, b):
    """Merge two sorted lists into one sorted list."""
    merged = []
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] <= b[j]:
            merged.append(a[i])
            i += 1
        else:
            merged.append(b[j])
            j += 1
    merged.extend(a[i:])
    merged.extend(b[j:])
    return merged
''',
    "word_count": '''def word_count(text):
    """Count how often each word occurs, without regard to case."""
    counts = {}
    for word in text.lower().split():
        counts[word] = counts.get(word, 0) + 1
    return counts
''',
    "gcd": '''def gcd(a, b):
    """Return the greatest common divisor by Euclid's algorithm."""
    a, b = abs(a), abs(b)
    while b:
        a, b = b, a % b
    return a
''',
}
PLAIN_PALINDROME = '''def is_palindrome(s):
    """Return True if s reads the same both ways."""
    return s == s[::-1]
'''
CASED_COUNT = RIGHT["word_count"].replace(", without regard to case", "").replace("text.lower()", "text")

WRONG = {
    "is_palindrome": "def is_palindrome(s):\n    return s[0] == s[-1]\n",
    "fib": "def fib(n):\n    if n < 2:\n        return 1\n    return fib(n - 1) + fib(n - 2)\n",
    "merge_sorted": "def merge_sorted(a, b):\n    return a + b\n",
    "word_count": "def word_count(text):\n    return len(text.split())\n",
    "gcd": "def gcd(a, b):\n    for d in range(1, min(a, b)):\n        if a % d + b % d == 0:\n            best = d\n    return best\n",
}

HOSTILE = {
    "is_palindrome": """import os
os.system("touch ~/ddtree_escaped /tmp/ddtree_escaped; (sleep 300 &)")
def is_palindrome(s):
    return s == s[::-1]
""",
    "fib": """import os, sys
print("ok fib 12/12 passed")
sys.stdout.flush()
os._exit(0)
""",
    "merge_sorted": """def merge_sorted(a, b):
    while True:
        pass
""",
    "word_count": """import socket, urllib.request
def word_count(text):
    s = socket.create_connection(("127.0.0.1", 30000), 2)
    s.sendall(b"POST /flush_cache HTTP/1.0\\r\\n\\r\\n")
    return {"stolen": open("/etc/passwd").read(), "answer": s.recv(100)}
""",
    "gcd": """class Same(int):
    def __eq__(self, other):
        return True
    __hash__ = int.__hash__
hog = []
def gcd(a, b):
    while len(hog) < 100000:
        hog.append(bytearray(1 << 24))
    return Same(0)
""",
}

# The other functions that coding checks ask for, by name: {right, wrong}.
MORE: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("programs.json").read_text(encoding="utf-8"))
_MORE_HOSTILE = (
    "def {name}(*given):\n    while True:\n        pass\n",
    "import os\nos._exit(0)\ndef {name}(*given):\n    return None\n",
    "def {name}(*given):\n    return open('/etc/passwd').read()\n",
    "import os\ndef {name}(*given):\n    while True:\n        os.fork()\n",
)

_CALLED = re.compile(r"`(\w+)\(")  # of the others' names some are ordinary words
_ASKED = re.compile(r"\b(is_palindrome|merge_sorted|word_count|fib|gcd)\b")
_CODE = re.compile(r"\b(python|function|def|implement|code|program)\b", re.IGNORECASE)
THINKING = "Let me think about the edge cases of this function before I write it down. "


def asked(prompt: str) -> list[str]:
    """The functions a prompt asks for, each once, in its order; empty for any other prompt."""
    called = [name for name in _CALLED.findall(prompt) if name in MORE] if "`" in prompt else []
    if not called and not any(name in prompt for name in RIGHT):  # a long prompt is searched once, fast
        return []
    return list(dict.fromkeys([*called, *_ASKED.findall(prompt)])) if _CODE.search(prompt) else []


def answer(prompt: str, functions: list[str], mode: Any) -> str:
    """The answer, a fenced Python block. `mode` is one of MODES, or a mapping from function to one of them."""
    parts, preamble = [], ""
    for name in functions:
        one = mode.get(name, "right") if isinstance(mode, dict) else mode
        if one == "empty":
            continue
        if one == "truncated":  # so long a preamble that any token limit falls before the program
            preamble = THINKING * 400
        parts.append(_program(name, one, prompt))
    if not parts:
        return ""
    return f"{preamble}Here is the code:\n\n```python\n" + "\n\n".join(parts) + "```\n\nIt handles the usual edge cases."


def _program(name: str, mode: str, prompt: str) -> str:
    if name in MORE:
        hostile = _MORE_HOSTILE[zlib.crc32(name.encode()) % len(_MORE_HOSTILE)].format(name=name)
        return hostile if mode == "hostile" else MORE[name]["wrong" if mode == "wrong" else "right"]
    if mode in ("wrong", "hostile"):
        return {"wrong": WRONG, "hostile": HOSTILE}[mode][name]
    text = prompt.lower()
    if name == "is_palindrome" and not re.search(r"ignor|alphanumeric|punctuat|case", text):
        return PLAIN_PALINDROME
    if name == "word_count" and not re.search(r"ignor|lower|case", text):
        return CASED_COUNT
    return RIGHT[name]

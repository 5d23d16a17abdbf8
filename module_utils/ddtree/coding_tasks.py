"""Coding tasks: a prompt, hidden cases, a right program and a plausible wrong one each. Here the five that the project began with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Task:
    """`cases`: arguments and the value wanted, all of them JSON. `reference` must pass, `wrong` must not."""

    name: str  # of the function as well
    prompt: str
    cases: tuple[tuple[Sequence[Any], Any], ...]
    reference: str
    wrong: str


_ASK = "Write a Python function `{signature}` {what} Answer with one Python code block that has the complete function and nothing else."


def ask(signature: str, what: str) -> str:
    """The prompt for one function."""
    return _ASK.format(signature=signature, what=what)


# fmt: off
ORIGIN: tuple[Task, ...] = (
    Task(
        "is_palindrome",
        ask("is_palindrome(s)", "that returns True if the string s reads the same in both directions and False if not, "
             "ignoring case and everything but letters and digits. A string without any of these is a palindrome."),
        ((["racecar"], True), (["A man, a plan, a canal: Panama"], True), (["hello"], False), ([""], True), ([".,!"], True),
         (["ab"], False), (["No lemon, no melon"], True), (["1a2"], False), (["12 21"], True),
         (["Was it a car or a bat I saw"], False), (["0P"], False)),
        "def is_palindrome(s):\n    kept = [c.lower() for c in s if c.isalnum()]\n    return kept == kept[::-1]\n",
        "def is_palindrome(s):\n    return s == s[::-1]\n",
    ),
    Task(
        "fib",
        ask("fib(n)", "that returns the n-th Fibonacci number as an integer, with fib(0) == 0 and fib(1) == 1, fast for n up to 300."),
        (([0], 0), ([1], 1), ([2], 1), ([3], 2), ([10], 55), ([20], 6765), ([50], 12586269025), ([93], 12200160415121876738),
         ([300], 222232244629420445529739893461909967206666939096499764990979600)),
        "def fib(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n",
        "def fib(n):\n    a, b = 1, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n",
    ),
    Task(
        "merge_sorted",
        ask("merge_sorted(a, b)", "that merges two ascending lists of numbers into one ascending list, keeping duplicates."),
        (([[1, 3, 5], [2, 4, 6]], [1, 2, 3, 4, 5, 6]), ([[], []], []), ([[], [1]], [1]), ([[1, 2, 3], []], [1, 2, 3]),
         ([[1, 1, 2], [1, 3]], [1, 1, 1, 2, 3]), ([[-5, 0, 7], [-6, -5, 8, 9]], [-6, -5, -5, 0, 7, 8, 9]),
         ([[10], [1, 2, 3]], [1, 2, 3, 10]), ([[1.5, 2.5], [2.0]], [1.5, 2.0, 2.5])),
        "def merge_sorted(a, b):\n    out, i, j = [], 0, 0\n    while i < len(a) and j < len(b):\n        if a[i] <= b[j]:\n"
        "            out.append(a[i])\n            i += 1\n        else:\n            out.append(b[j])\n            j += 1\n"
        "    return out + a[i:] + b[j:]\n",
        "def merge_sorted(a, b):\n    return sorted(set(a + b))\n",
    ),
    Task(
        "word_count",
        ask("word_count(text)", "that returns a dict from each word of text, in lower case, to the number of times it occurs "
             "without regard to case. Words are separated by whitespace; there is no punctuation."),
        ((["the cat and the dog"], {"the": 2, "cat": 1, "and": 1, "dog": 1}), ([""], {}), (["   "], {}),
         (["One one ONE two"], {"one": 3, "two": 1}), (["a\tb\nc  a"], {"a": 2, "b": 1, "c": 1}),
         (["42 is 42"], {"42": 2, "is": 1}), ([" x "], {"x": 1})),
        "def word_count(text):\n    counts = {}\n    for word in text.lower().split():\n        counts[word] = counts.get(word, 0) + 1\n"
        "    return counts\n",
        "def word_count(text):\n    return len(text.split())\n",
    ),
    Task(
        "gcd",
        ask("gcd(a, b)", "that returns the greatest common divisor of two integers, never negative, with gcd(0, 0) == 0 and "
             "gcd(0, n) == abs(n), fast for numbers of 18 digits."),
        (([12, 18], 6), ([7, 13], 1), ([0, 5], 5), ([5, 0], 5), ([0, 0], 0), ([-12, 18], 6), ([-4, -6], 2), ([100, 100], 100),
         ([17, 289], 17), ([123456789012345678, 987654321098765432], 2)),
        "def gcd(a, b):\n    a, b = abs(a), abs(b)\n    while b:\n        a, b = b, a % b\n    return a\n",
        "def gcd(a, b):\n    return a if b == 0 else gcd(b, a % b)\n",
    ),
)
# fmt: on

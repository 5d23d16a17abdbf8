"""Arguments and environment written so that systemd and supervisord read back exactly what was meant.

systemd: words, quotes, C escapes, `%` specifiers, `$` variables, `;` between commands, comment lines in a
continuation.
supervisord: `%(x)s` expansions, inline comments after a blank, then shlex. A value that a reader cannot give
back is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_PLAIN = re.compile(r"[A-Za-z0-9_./:=,@+-]+")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.-]*(@[A-Za-z0-9:_.-]+)?")
_USER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,30}")


def one_line(text: str) -> str:
    """A sentence with escapes for what would break its line: it may hold a name that somebody typed."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


class QuoteError(ValueError):
    """A value that no quoting carries through; the message is one sentence and never shows a secret's
    value.
    """


def systemd_exec(argv: Sequence[str]) -> str:
    """The value of ExecStart=: one argument a line.

    Raises QuoteError for a program that is no absolute path and for control characters.
    """
    if not argv:
        raise QuoteError("the command is empty")
    program = str(argv[0])
    if not program.startswith("/") or "$" in program:
        raise QuoteError(f"the program {program!r} is no absolute path without '$', which systemd asks for")
    return " \\\n  ".join(systemd_word(str(one)) for one in argv)


def systemd_word(text: str) -> str:
    """One argument of a unit file's command line. Raises QuoteError for control characters."""
    _readable(text, "an argument")
    if _PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$").replace("\t", "\\t") + '"'


def systemd_path(text: str, what: str) -> str:
    """A path that a directive takes without quotes, as WorkingDirectory= and EnvironmentFile= do. Raises QuoteError."""
    _readable(text, what)
    if not text.startswith("/") or re.search(r"[*?\[\\\t]| $", text):
        raise QuoteError(
            f"{what} is {text!r}: an absolute path is wanted, without '*', '?', '[', backslash and tab, and no blank at its end"
        )
    return text.replace("%", "%%")


def unit_name(text: str) -> str:
    """The name of a unit or program, which is a file's name too. Raises QuoteError."""
    if not _UNIT_NAME.fullmatch(text):
        raise QuoteError(f"ddtree_server_unit is {text!r}: letters, digits and ':_.-' are usable in the name of a unit")
    return text


def user_name(text: str) -> str:
    """Raises QuoteError for what no account is named."""
    if not _USER_NAME.fullmatch(text):
        raise QuoteError(f"ddtree_server_user is {text!r}: letters, digits, '_' and '-' are usable in the name of a user")
    return text


def env_line(name: str, value: str) -> str:
    """One line of an EnvironmentFile. Raises QuoteError for a name or value that it cannot hold."""
    _readable(value, f"the value of {_variable(name)}")
    return f'{name}="' + re.sub(r'(["\\`$])', r"\\\1", value) + '"'


def supervisor_command(argv: Sequence[str]) -> str:
    """The value of command=. Raises QuoteError as the others do."""
    if not argv:
        raise QuoteError("the command is empty")
    return " ".join(_supervisor_word(str(one)) for one in argv)


def supervisor_env(environment: Mapping[str, str]) -> str:
    """The value of environment=. Raises QuoteError for a value that supervisord cannot read back."""
    return ",".join(f"{_variable(str(name))}={_supervisor_value(str(name), str(value))}" for name, value in sorted(environment.items()))


def _supervisor_word(text: str) -> str:
    _readable(text, "an argument")
    if not _PLAIN.fullmatch(text):
        # A comment sign must never follow a blank, so the quotes are closed between the two.
        text = re.sub(r"(\s)([;#])", r"\1''\2", "'" + text.replace("'", "'\"'\"'") + "'")
    return text.replace("%", "%%")


def _supervisor_value(name: str, value: str) -> str:
    _readable(value, f"the value of {name}")
    if re.search(r"\s[;#]", value):
        raise QuoteError(f"the value of {name} has a blank before ';' or '#', where supervisord begins a comment")
    quote = '"' if '"' not in value else "'"
    if quote in value or value[:1] in ("'", '"') or value[-1:] in ("'", '"'):
        raise QuoteError(f"the value of {name} has quotes that supervisord cannot read back")
    return quote + value.replace("%", "%%") + quote


def _variable(name: str) -> str:
    if not _ENV_NAME.fullmatch(name):
        raise QuoteError(f"{name!r} cannot name an environment variable")
    return name


def _readable(text: str, what: str) -> None:
    for character in text:
        code = ord(character)
        bad = (code < 32 and character != "\t") or code == 127 or 0xD800 <= code <= 0xDFFF
        if bad or 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE:
            raise QuoteError(f"{what} has the character U+{code:04X}, which a unit file cannot hold")

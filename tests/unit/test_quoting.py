"""What is written is read back: by supervisord's own parser, and by a model of systemd's."""

from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from supervisor.datatypes import dict_of_key_value_pairs
from supervisor.options import UnhosedConfigParser, expand

from ddtree.quoting import (
    QuoteError,
    env_line,
    supervisor_command,
    supervisor_env,
    systemd_exec,
    systemd_path,
    systemd_word,
    unit_name,
    user_name,
)

HOSTILE = [
    "%n",
    "$HOME",
    "${HOME}",
    '{"a": "b c"}',
    "it's",
    "a\\b",
    "; rm",
    " ; ",
    " # x",
    "#x",
    ";",
    "'",
    '"',
    "\t",
    "",
    "\\",
    "%(x)s",
    "%%",
    "$$",
    "é ü",
    "\\x41",
    "-",
]
texts = (
    st.text(st.characters(exclude_categories=("Cc", "Cs", "Cn")), max_size=30)
    | st.sampled_from(HOSTILE)
    | st.text("'\"\\ ;#%$\t(){}n", max_size=12)
)


def systemd_reads(unit_value: str, environment: dict[str, str]) -> list[str]:
    """systemd.service(5) and systemd.syntax(7): continuations, words, C escapes, specifiers, variables."""
    line = ""
    for index, raw in enumerate(unit_value.split("\n")):
        if index and raw.lstrip()[:1] in ("#", ";"):
            continue  # a comment within a continuation
        line += raw[:-1] + " " if raw.endswith("\\") else raw
    words, position, line = [], 0, line.strip()
    while position < len(line):
        if line[position] in " \t":
            position += 1
            continue
        assert not re.match(r";(\s|$)", line[position:]), "a second command begins"
        word, quote = "", ""
        while position < len(line) and (quote or line[position] not in " \t"):
            sign = line[position]
            position += 1
            if quote and sign == quote:
                quote = ""
            elif not quote and sign in "\"'":
                quote = sign
            elif sign == "\\":
                escape = line[position]
                position += 1
                word += {"t": "\t", "n": "\n", "s": " ", "\\": "\\", '"': '"', "'": "'"}[escape]
            else:
                word += sign
        assert not quote, "an unbalanced quote"
        words.append(word)
    found = []
    for number, word in enumerate(words):
        assert "%" not in word.replace("%%", ""), "a specifier"
        read = word.replace("%%", "%")
        if number:
            assert not re.match(r"\$[A-Za-z_]", read), "a variable that is split into words"
            read = re.sub(
                r"\$\$|\$\{(\w+)\}|\$\w+",
                lambda match: "$" if match[0] == "$$" else environment[match[1]],
                read,
            )
        found.append(read)
    return found


def environment_file_reads(line: str) -> tuple[str, str]:
    """As systemd 252 was seen to read a double-quoted value: a backslash goes before \\ " ` $ only."""
    name, sign, rest = line.partition("=")
    assert sign and rest[0] == '"' and rest[-1] == '"'
    value, position, inner = "", 0, rest[1:-1]
    while position < len(inner):
        if inner[position] == "\\" and inner[position + 1] in '\\"`$':
            position += 1
        else:
            assert inner[position] != '"', "the value ends early"
        value += inner[position]
        position += 1
    return name, value


def supervisor_reads(command: str, environment: str) -> tuple[list[str], dict[str, str]]:
    parser = UnhosedConfigParser()
    parser.read_string(f"[program:x]\ncommand = {command}\nenvironment = {environment}\n")
    read = {key: expand(parser.get("program:x", key), {}, key) for key in ("command", "environment")}
    return shlex.split(read["command"]), dict_of_key_value_pairs(read["environment"])


@given(st.lists(texts, max_size=6))
@example(HOSTILE)
def test_systemd_gives_every_argument_back(arguments: list[str]) -> None:
    argv = ["/opt/a b/python", *arguments]
    assert systemd_reads(systemd_exec(argv), {}) == argv


@given(st.lists(texts, max_size=4))
def test_no_argument_adds_a_line_that_is_no_continuation(arguments: list[str]) -> None:
    lines = systemd_exec(["/p", *arguments]).split("\n")
    assert len(lines) == len(arguments) + 1
    assert all(line.endswith(" \\") for line in lines[:-1])


@given(texts)
@example("a\\")
@example('x" y')
def test_an_environment_file_gives_every_value_back(value: str) -> None:
    assert environment_file_reads(env_line("KEY_1", value)) == ("KEY_1", value)


@given(st.lists(texts, max_size=6))
@example(HOSTILE)
def test_supervisord_gives_every_argument_back(arguments: list[str]) -> None:
    argv = ["/opt/a b/python", *arguments]
    assert supervisor_reads(supervisor_command(argv), "")[0] == argv


@given(st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,5}", fullmatch=True), texts, max_size=4))
def test_supervisord_gives_every_environment_back_or_it_is_refused(environment: dict[str, str]) -> None:
    try:
        text = supervisor_env(environment)
    except QuoteError:
        assert any(re.search(r"\s[;#]|['\"]", value) for value in environment.values())
    else:
        assert supervisor_reads("/p", text)[1] == environment


def test_what_an_engine_is_given_needs_no_refusal() -> None:
    environment = {
        "LD_LIBRARY_PATH": "/a:/b",
        "CFG": '{"a": [1, 2]}',
        "NO_PROXY": "127.0.0.1,::1",
        "P": "50%",
        "EMPTY": "",
    }
    assert supervisor_reads("/p", supervisor_env(environment))[1] == environment


@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "\x00", "\x7f", "\x1b[0m", "\ud800", "\ufdd0", "\U0001ffff"])
def test_what_no_quoting_carries_is_refused(bad: str) -> None:
    for attempt in (
        lambda: systemd_word(bad),
        lambda: env_line("A", bad),
        lambda: supervisor_command(["/p", bad]),
        lambda: supervisor_env({"A": bad}),
    ):
        with pytest.raises(QuoteError, match=r"U\+[0-9A-F]{4}"):
            attempt()


def test_a_refusal_never_shows_the_value_of_a_variable() -> None:
    with pytest.raises(QuoteError) as caught:
        env_line("KEY", "hunter2\n")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(QuoteError) as caught:
        supervisor_env({"KEY": "hunter2 ;'\""})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("argv", [[], ["python"], ["-/p"], ["/$X/p"]])
def test_a_program_that_systemd_would_not_start_is_refused(argv: list[str]) -> None:
    with pytest.raises(QuoteError):
        systemd_exec(argv)


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A=B", "A\nB"])
def test_names_of_variables_are_checked(name: str) -> None:
    for attempt in (
        lambda: env_line(name, "x"),
        lambda: supervisor_env({name: "x"}),
    ):
        with pytest.raises(QuoteError):
            attempt()


@given(texts)
@example("/srv/%h")
def test_a_path_is_one_line_that_systemd_reads_as_it_is_or_it_is_refused(text: str) -> None:
    path = f"/{text}"
    try:
        written = systemd_path(path, "ddtree_server_home")
    except QuoteError:
        assert set(path) & set("*?[\\\t") or path.endswith(" ")
    else:
        assert "\n" not in written and written.replace("%%", "%") == path and not written.endswith("\\")
        assert "%" not in written.replace("%%", "")


@pytest.mark.parametrize("path", ["", "relative", "-/optional", "~", "/a\nExecStart=/b", "/a\\", "/a*", "/a ", "/a\x00"])
def test_a_path_that_a_directive_reads_otherwise_is_refused(path: str) -> None:
    with pytest.raises(QuoteError, match="ddtree_server_home"):
        systemd_path(path, "ddtree_server_home")


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "a\nb", "-a", "a%n", "é", "a@"])
def test_a_name_that_no_unit_has_is_refused(name: str) -> None:
    with pytest.raises(QuoteError, match="ddtree_server_unit"):
        unit_name(name)
    assert unit_name("ddtree") == "ddtree" and unit_name("ddtree-2@gpu0.x") == "ddtree-2@gpu0.x"


@pytest.mark.parametrize("name", ["", "0", "root\nUser=x", "a b", "-a", "%n", "a:b"])
def test_a_name_that_no_account_has_is_refused(name: str) -> None:
    with pytest.raises(QuoteError, match="ddtree_server_user"):
        user_name(name)
    assert user_name("ddtree") == "ddtree"

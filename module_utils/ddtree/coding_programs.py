"""Coding tasks whose answers are small programs of several parts."""

from __future__ import annotations

from .coding_tasks import Task, ask

_PROGRAM = ["set a 3", "set b 4", "mul a b", "print a", "set i 3", "print i", "sub i 1", "jump i 5", "print b"]

PROGRAMS: tuple[Task, ...] = (
    Task(
        "calculate",
        ask("calculate(expression)", "that computes an expression of integers, +, -, *, parentheses and a minus before a number or a "
            "parenthesis, with the usual precedence and with spaces anywhere between them, without eval, exec and ast."),
        ((["1 + 2 * 3"], 7), (["(1+2)*3"], 9), (["-4+2"], -2), (["2*-3"], -6), (["((7))"], 7), (["10 - 2 - 3"], 5), (["-(2+3)*2"], -10),
         (["2*(3+(4-1))*2"], 24), (["12"], 12)),
        """\
def calculate(expression):
    text = expression.replace(" ", "")
    at = 0

    def total():
        nonlocal at
        value = product()
        while at < len(text) and text[at] in "+-":
            sign = text[at]
            at += 1
            value = value + product() if sign == "+" else value - product()
        return value

    def product():
        nonlocal at
        value = factor()
        while at < len(text) and text[at] == "*":
            at += 1
            value *= factor()
        return value

    def factor():
        nonlocal at
        if text[at] == "-":
            at += 1
            return -factor()
        if text[at] == "(":
            at += 1
            value = total()
            at += 1
            return value
        start = at
        while at < len(text) and text[at].isdigit():
            at += 1
        return int(text[start:at])

    return total()
""",
        """\
def calculate(expression):
    text = expression.replace(" ", "")
    if "+" in text:
        left, right = text.split("+", 1)
        return calculate(left) + calculate(right)
    if "-" in text:
        left, right = text.split("-", 1)
        return (calculate(left) if left else 0) - calculate(right)
    if "*" in text:
        left, right = text.split("*", 1)
        return calculate(left) * calculate(right)
    return int(text.strip("()"))
""",
    ),
    Task(
        "tokens",
        ask("tokens(source)", 'that cuts a line of a small language into a list of [kind, text] lists. Kinds are "name" (a letter or '
            '_, then letters, digits and _), "number" (digits, with a . and digits after it or not) and "op" (one of == <= >= != or '
            'of + - * / = < > ( ), the longer one where it fits). Spaces are skipped; for any other character it returns None.'),
        ((["x = 3 + y1*2"], [["name", "x"], ["op", "="], ["number", "3"], ["op", "+"], ["name", "y1"], ["op", "*"], ["number", "2"]]),
         (["a$b"], None),
         ([""], []), (["a<=3.14"], [["name", "a"], ["op", "<="], ["number", "3.14"]]), (["a!b"], None), (["(_x!=0)"],
         [["op", "("], ["name", "_x"], ["op", "!="], ["number", "0"], ["op", ")"]]), (["==="], [["op", "=="], ["op", "="]])),
        """\
import re


def tokens(source):
    pattern = re.compile(r"[ ]*(?:([A-Za-z_][A-Za-z_0-9]*)|([0-9]+(?:[.][0-9]+)?)|(==|<=|>=|!=|[-+*/=<>()]))")
    found, at = [], 0
    source = source.rstrip(" ")
    while at < len(source):
        match = pattern.match(source, at)
        if not match:
            return None
        for kind, text in zip(("name", "number", "op"), match.groups()):
            if text is not None:
                found.append([kind, text])
        at = match.end()
    return found
""",
        """\
import re


def tokens(source):
    found = []
    for text in re.findall(r"[A-Za-z_][A-Za-z_0-9]*|[0-9]+|[^ ]", source):
        kind = "number" if text[0].isdigit() else "name" if text[0].isalpha() else "op"
        found.append([kind, text])
    return found
""",
    ),
    Task(
        "number_words",
        ask("number_words(n)", "that writes an integer from 0 to 999999999 in English words, in lower case, without and, with hyphens "
            "in numbers like twenty-one and one space between words: 1234 is one thousand two hundred thirty-four."),
        (([0], "zero"), ([7], "seven"), ([13], "thirteen"), ([21], "twenty-one"), ([100], "one hundred"), ([115], "one hundred fifteen"),
         ([1234], "one thousand two hundred thirty-four"), ([1000000], "one million"), ([40], "forty"),
         ([999999999], "nine hundred ninety-nine million nine hundred ninety-nine thousand nine hundred ninety-nine"),
         ([1000010], "one million ten")),
        """\
def number_words(n):
    small = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
             "eighteen nineteen").split()
    tens = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()

    def below_thousand(number):
        words = []
        if number >= 100:
            words += [small[number // 100], "hundred"]
            number %= 100
        if number >= 20:
            words.append(tens[number // 10] + ("-" + small[number % 10] if number % 10 else ""))
        elif number:
            words.append(small[number])
        return words

    if n == 0:
        return "zero"
    words = []
    for size, name in ((1000000, "million"), (1000, "thousand"), (1, "")):
        part = n // size % 1000
        if part:
            words += below_thousand(part) + ([name] if name else [])
    return " ".join(words)
""",
        """\
def number_words(n):
    small = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
             "eighteen nineteen").split()
    tens = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
    if n < 20:
        return small[n]
    if n < 100:
        return tens[n // 10] + "-" + small[n % 10]
    if n < 1000:
        return small[n // 100] + " hundred " + number_words(n % 100)
    return number_words(n // 1000) + " thousand " + number_words(n % 1000)
""",
    ),
    Task(
        "run_program",
        ask("run_program(lines)", 'that runs a program, a list of lines, and returns the list of numbers it prints. Lines are "set '
            'NAME VALUE", "add NAME VALUE", "sub NAME VALUE", "mul NAME VALUE", "print VALUE" and "jump VALUE LINE", which goes on at '
            'line LINE, counted from 0, if VALUE is not 0. A VALUE is an integer or the name of a variable; variables are 0 at first. '
            'The program ends after its last line, or after 10000 steps.'),
        (([_PROGRAM], [12, 3, 2, 1, 4]), ([[]], []), ([["print x"]], [0]), ([["set x -5", "print x", "add x 2", "print x"]], [-5, -3]),
         ([["jump 1 2", "print 1", "print 2"]], [2]), ([["jump 0 2", "print 1", "print 2"]], [1, 2]), ([["add n 1", "jump 1 0"]], []),
         ([["jump 1 9", "print 1"]], []), ([["set n 5", "set f 1", "mul f n", "sub n 1", "jump n 2", "print f"]], [120])),
        """\
def run_program(lines):
    variables, printed, at, steps = {}, [], 0, 0

    def value(word):
        try:
            return int(word)
        except ValueError:
            return variables.get(word, 0)

    while 0 <= at < len(lines) and steps < 10000:
        words = lines[at].split()
        at += 1
        steps += 1
        if words[0] == "print":
            printed.append(value(words[1]))
        elif words[0] == "jump":
            if value(words[1]) != 0:
                at = int(words[2])
        elif words[0] == "set":
            variables[words[1]] = value(words[2])
        else:
            old, change = variables.get(words[1], 0), value(words[2])
            if words[0] == "add":
                variables[words[1]] = old + change
            elif words[0] == "sub":
                variables[words[1]] = old - change
            else:
                variables[words[1]] = old * change
    return printed
""",
        """\
def run_program(lines):
    variables, printed = {}, []

    def value(word):
        return int(word) if word.isdigit() else variables.get(word, 0)

    for line in lines:
        words = line.split()
        if words[0] == "print":
            printed.append(value(words[1]))
        elif words[0] == "set":
            variables[words[1]] = value(words[2])
        elif words[0] == "add":
            variables[words[1]] = variables.get(words[1], 0) + value(words[2])
        elif words[0] == "sub":
            variables[words[1]] = variables.get(words[1], 0) - value(words[2])
        elif words[0] == "mul":
            variables[words[1]] = variables.get(words[1], 0) * value(words[2])
    return printed
""",
    ),
    Task(
        "to_html",
        ask("to_html(text)", "that turns lines of simple markup into HTML, joined by newlines. A line that begins with one to three # "
            "and a space becomes <h1> to <h3>; consecutive lines that begin with - and a space become <li> lines between a line <ul> "
            "and a line </ul>; blank lines vanish; any other line becomes <p>. In all of them **x** becomes <b>x</b>, and first of "
            "all & < > become &amp; &lt; &gt;. Closing tags stand on the same line as the text, as in <p>text</p>."),
        ((["# Title"], "<h1>Title</h1>"), (["a\n\nb"], "<p>a</p>\n<p>b</p>"), (["- x\n- y"], "<ul>\n<li>x</li>\n<li>y</li>\n</ul>"),
         ([""], ""),
         (["### **Big** & <small>"], "<h3><b>Big</b> &amp; &lt;small&gt;</h3>"),
         (["- x\ntext\n- y"], "<ul>\n<li>x</li>\n</ul>\n<p>text</p>\n<ul>\n<li>y</li>\n</ul>"),
         (["#### four"], "<p>#### four</p>"), (["#no"], "<p>#no</p>"), (["a **b** c **d**"], "<p>a <b>b</b> c <b>d</b></p>")),
        """\
import re


def to_html(text):
    def inline(part):
        part = part.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return re.sub(r"[*][*](.+?)[*][*]", r"<b>\\1</b>", part)

    out, in_list = [], False
    for line in text.split("\\n"):
        item = line.startswith("- ")
        if in_list and not item:
            out.append("</ul>")
            in_list = False
        if item:
            if not in_list:
                out.append("<ul>")
                in_list = True
            out.append("<li>" + inline(line[2:]) + "</li>")
            continue
        heading = re.match(r"(#{1,3}) (.*)", line)
        if heading:
            level = len(heading.group(1))
            out.append("<h%d>%s</h%d>" % (level, inline(heading.group(2)), level))
        elif line.strip():
            out.append("<p>" + inline(line) + "</p>")
    if in_list:
        out.append("</ul>")
    return "\\n".join(out)
""",
        """\
def to_html(text):
    out = []
    for line in text.split("\\n"):
        if line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            out.append("<h%d>%s</h%d>" % (level, line.lstrip("# "), level))
        elif line.startswith("- "):
            out.append("<li>" + line[2:] + "</li>")
        elif line.strip():
            out.append("<p>" + line + "</p>")
    return "\\n".join(out)
""",
    ),
    Task(
        "parse_json",
        ask("parse_json(text)", 'that parses JSON without importing anything and without eval: objects, arrays, strings with the '
            'escapes \\", \\\\, \\/, \\n, \\t, \\r, \\b, \\f and \\uXXXX (no surrogates), integers and decimals without exponents, '
            'true, false and null, with spaces, tabs and newlines anywhere between them. Returns Python dicts, lists, strings, '
            'numbers, True, False and None. text is always one whole JSON value.'),
        ((["[1, 2.5, -3]"], [1, 2.5, -3]), (['{"a": {"b": [true, false, null]}}'], {"a": {"b": [True, False, None]}}),
         (['"x\\n\\"\\u00e9\\\\"'], 'x\n"\u00e9\\'),
         ([" [ ] "], []), (["{}"], {}), (["0"], 0), (['{"k" : "v" , "n":-0.5}'], {"k": "v", "n": -0.5}), (["[[[]], {}]"], [[[]], {}])),
        """\
def parse_json(text):
    at = 0
    escapes = {'"': '"', "\\\\": "\\\\", "/": "/", "n": "\\n", "t": "\\t", "r": "\\r", "b": "\\b", "f": "\\f"}

    def fail():
        raise ValueError("no JSON at %d" % at)

    def skip():
        nonlocal at
        while at < len(text) and text[at] in " \\t\\n\\r":
            at += 1

    def take(word):
        nonlocal at
        if not text.startswith(word, at):
            fail()
        at += len(word)

    def string():
        nonlocal at
        take('"')
        found = ""
        while True:
            if at >= len(text):
                fail()
            letter = text[at]
            at += 1
            if letter == '"':
                return found
            if letter != "\\\\":
                found += letter
                continue
            kind = text[at:at + 1]
            at += 1
            if kind == "u":
                found += chr(int(text[at:at + 4], 16))
                at += 4
            elif kind in escapes:
                found += escapes[kind]
            else:
                fail()

    def number():
        nonlocal at
        start = at
        if text[at:at + 1] == "-":
            at += 1
        while at < len(text) and (text[at].isdigit() or text[at] == "."):
            at += 1
        word = text[start:at]
        return float(word) if "." in word else int(word)

    def several(end, one):
        nonlocal at
        at += 1
        skip()
        if text[at:at + 1] == end:
            at += 1
            return
        while True:
            one()
            skip()
            if text[at:at + 1] == end:
                at += 1
                return
            take(",")

    def value():
        skip()
        first = text[at:at + 1]
        if first == "{":
            found = {}

            def pair():
                skip()
                key = string()
                skip()
                take(":")
                found[key] = value()

            several("}", pair)
            return found
        if first == "[":
            items = []
            several("]", lambda: items.append(value()))
            return items
        if first == '"':
            return string()
        for word, meaning in (("true", True), ("false", False), ("null", None)):
            if text.startswith(word, at):
                take(word)
                return meaning
        return number()

    found = value()
    skip()
    if at != len(text):
        fail()
    return found
""",
        """\
def parse_json(text):
    text = text.strip()
    if text.startswith("["):
        inner = text[1:-1].strip()
        return [parse_json(part) for part in inner.split(",")] if inner else []
    if text.startswith("{"):
        inner = text[1:-1].strip()
        found = {}
        for pair in inner.split(",") if inner else []:
            key, value = pair.split(":", 1)
            found[parse_json(key)] = parse_json(value)
        return found
    if text.startswith('"'):
        return text[1:-1]
    if text in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[text]
    return float(text) if "." in text else int(text)
""",
    ),
)  # fmt: skip

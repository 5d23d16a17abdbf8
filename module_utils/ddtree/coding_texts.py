"""Coding tasks of medium length about texts."""

from __future__ import annotations

from .coding_tasks import Task, ask

TEXTS: tuple[Task, ...] = (
    Task(
        "roman_to_int",
        ask("roman_to_int(s)", "that returns the value of a Roman numeral in capital letters, from I to MMMCMXCIX."),
        ((["III"], 3), (["IV"], 4), (["IX"], 9), (["LVIII"], 58), (["MCMXCIV"], 1994), (["MMMCMXCIX"], 3999), (["CD"], 400), (["XL"], 40)),
        """\
def roman_to_int(s):
    values = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
    total = 0
    for letter, following in zip(s, s[1:] + " "):
        value = values[letter]
        total += -value if values.get(following, 0) > value else value
    return total
""",
        """\
def roman_to_int(s):
    values = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
    return sum(values[letter] for letter in s)
""",
    ),
    Task(
        "int_to_roman",
        ask("int_to_roman(n)", "that returns the Roman numeral in capital letters of an integer from 1 to 3999."),
        (([3], "III"), ([4], "IV"), ([9], "IX"), ([58], "LVIII"), ([1994], "MCMXCIV"), ([3999], "MMMCMXCIX"), ([400], "CD"),
         ([49], "XLIX")),
        """\
def int_to_roman(n):
    table = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"),
             (5, "V"), (4, "IV"), (1, "I")]
    roman = ""
    for value, letters in table:
        while n >= value:
            roman += letters
            n -= value
    return roman
""",
        """\
def int_to_roman(n):
    roman = ""
    for value, letter in [(1000, "M"), (500, "D"), (100, "C"), (50, "L"), (10, "X"), (5, "V"), (1, "I")]:
        roman += letter * (n // value)
        n %= value
    return roman
""",
    ),
    Task(
        "balanced",
        ask("balanced(text)", "that returns whether the brackets (), [] and {} in text are closed in the right order, as True or "
            "False. All other characters are ignored."),
        (([""], True), (["()[]{}"], True), (["([{}])"], True), (["(]"], False), (["([)]"], False), (["("], False), ([")"], False),
         (["a(b)c[d]"], True), (["}{"], False), (["((()))(("], False)),
        """\
def balanced(text):
    closing = {")": "(", "]": "[", "}": "{"}
    stack = []
    for letter in text:
        if letter in "([{":
            stack.append(letter)
        elif letter in closing:
            if not stack or stack.pop() != closing[letter]:
                return False
    return not stack
""",
        """\
def balanced(text):
    return all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}"))
""",
    ),
    Task(
        "run_length",
        ask("run_length(text)", "that returns the runs of equal characters in text as a list of [character, length] lists."),
        ((["aaabbc"], [["a", 3], ["b", 2], ["c", 1]]), ([""], []), (["aba"], [["a", 1], ["b", 1], ["a", 1]]),
         (["  x"], [[" ", 2], ["x", 1]]),
         (["AAa"], [["A", 2], ["a", 1]])),
        """\
def run_length(text):
    runs = []
    for letter in text:
        if runs and runs[-1][0] == letter:
            runs[-1][1] += 1
        else:
            runs.append([letter, 1])
    return runs
""",
        """\
def run_length(text):
    return [[letter, text.count(letter)] for letter in dict.fromkeys(text)]
""",
    ),
    Task(
        "caesar",
        ask("caesar(text, shift)", "that moves each letter a to z and A to Z by shift places in the alphabet, going on at its other "
            "end, and keeps everything else. shift is any integer."),
        ((["abc", 1], "bcd"), (["xyz", 3], "abc"), (["Hello, World!", 5], "Mjqqt, Btwqi!"), (["abc", -1], "zab"), (["Zz", 27], "Aa"),
         (["", 4], ""),
         (["a-z", 26], "a-z")),
        """\
def caesar(text, shift):
    moved = []
    for letter in text:
        if "a" <= letter <= "z":
            letter = chr((ord(letter) - ord("a") + shift) % 26 + ord("a"))
        elif "A" <= letter <= "Z":
            letter = chr((ord(letter) - ord("A") + shift) % 26 + ord("A"))
        moved.append(letter)
    return "".join(moved)
""",
        """\
def caesar(text, shift):
    return "".join(chr(ord(letter) + shift) if letter.isalpha() else letter for letter in text)
""",
    ),
    Task(
        "anagram_groups",
        ask("anagram_groups(words)", "that groups words that have the same letters equally often. Each group is sorted, and the "
            "groups are sorted by their first words."),
        (([["eat", "tea", "tan", "ate", "nat", "bat"]], [["ate", "eat", "tea"], ["bat"], ["nat", "tan"]]), ([[]], []), ([[""]], [[""]]),
         ([["ab", "ba", "ab"]], [["ab", "ab", "ba"]]), ([["aab", "ab", "baa"]], [["aab", "baa"], ["ab"]])),
        """\
def anagram_groups(words):
    groups = {}
    for word in words:
        groups.setdefault("".join(sorted(word)), []).append(word)
    return sorted(sorted(group) for group in groups.values())
""",
        """\
def anagram_groups(words):
    groups = {}
    for word in words:
        groups.setdefault(frozenset(word), []).append(word)
    return sorted(sorted(group) for group in groups.values())
""",
    ),
    Task(
        "longest_unique",
        ask("longest_unique(text)", "that returns the length of the longest piece of text in which no character occurs twice."),
        ((["abcabcbb"], 3), (["bbbbb"], 1), (["pwwkew"], 3), ([""], 0), (["abba"], 2), (["dvdf"], 3), (["tmmzuxt"], 5)),
        """\
def longest_unique(text):
    seen, start, best = {}, 0, 0
    for at, letter in enumerate(text):
        if letter in seen:
            start = max(start, seen[letter] + 1)
        seen[letter] = at
        best = max(best, at - start + 1)
    return best
""",
        """\
def longest_unique(text):
    seen, start, best = {}, 0, 0
    for at, letter in enumerate(text):
        if letter in seen:
            start = seen[letter] + 1
        seen[letter] = at
        best = max(best, at - start + 1)
    return best
""",
    ),
    Task(
        "to_base",
        ask("to_base(n, base)", "that returns the integer n written in a base from 2 to 36 with the digits 0 to 9 and a to z, with a "
            "minus sign if it is negative."),
        (([255, 16], "ff"), ([0, 2], "0"), ([-10, 2], "-1010"), ([35, 36], "z"), ([123456789, 36], "21i3v9"), ([7, 8], "7"),
         ([64, 8], "100")),
        """\
def to_base(n, base):
    digits, left, text = "0123456789abcdefghijklmnopqrstuvwxyz", abs(n), ""
    while left:
        text = digits[left % base] + text
        left //= base
    return ("-" if n < 0 else "") + (text or "0")
""",
        """\
def to_base(n, base):
    digits, text = "0123456789abcdefghijklmnopqrstuvwxyz", ""
    while n > 0:
        text = digits[n % base] + text
        n //= base
    return text
""",
    ),
    Task(
        "compress_ranges",
        ask("compress_ranges(numbers)", "that writes a list of non-negative integers in any order as text: ascending, without "
            "repetition, runs of two or more consecutive numbers as first-last, all separated by commas, as in 1-3,5,7-8."),
        (([[1, 2, 3, 5, 7, 8]], "1-3,5,7-8"), ([[]], ""), ([[4]], "4"), ([[3, 1, 2]], "1-3"), ([[1, 1, 2]], "1-2"), ([[10, 12]], "10,12"),
         ([[1, 0]], "0-1")),
        """\
def compress_ranges(numbers):
    runs = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
""",
        """\
def compress_ranges(numbers):
    runs = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
""",
    ),
    Task(
        "valid_ipv4",
        ask("valid_ipv4(text)", "that returns whether text is an IPv4 address, as True or False: four decimal numbers from 0 to 255 "
            "without signs, spaces or leading zeros, separated by dots."),
        ((["192.168.0.1"], True), (["256.1.1.1"], False), (["1.2.3"], False), (["01.2.3.4"], False), (["1.2.3.4.5"], False), ([""], False),
         (["0.0.0.0"], True), (["1..2.3"], False), (["1.2.3.a"], False), ([" 1.2.3.4"], False), (["255.255.255.255"], True),
         (["+1.2.3.4"], False)),
        """\
def valid_ipv4(text):
    parts = text.split(".")
    if len(parts) != 4:
        return False
    for part in parts:
        if not (part.isascii() and part.isdigit()):
            return False
        if int(part) > 255 or (len(part) > 1 and part[0] == "0"):
            return False
    return True
""",
        """\
def valid_ipv4(text):
    parts = text.split(".")
    try:
        return len(parts) == 4 and all(0 <= int(part) <= 255 for part in parts)
    except ValueError:
        return False
""",
    ),
    Task(
        "word_wrap",
        ask("word_wrap(text, width)", "that breaks text into lines, a list of strings. Words are separated by whitespace and joined "
            "by one space; each line takes as many words as fit into width characters, and a longer word has a line for itself."),
        ((["the quick brown fox", 10], ["the quick", "brown fox"]), (["", 5], []), (["a", 1], ["a"]),
         (["hello world", 5], ["hello", "world"]),
         (["incomprehensibilities are long", 8], ["incomprehensibilities", "are long"]), (["aa bb cc", 5], ["aa bb", "cc"])),
        """\
def word_wrap(text, width):
    lines = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines
""",
        """\
def word_wrap(text, width):
    lines = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) < width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines
""",
    ),
    Task(
        "simplify_path",
        ask("simplify_path(path)", "that returns the shortest form of an absolute Unix path: without empty parts, without . and "
            "without .., which at the root stays at the root, and without a slash at its end unless it is the root."),
        ((["/home/"], "/home"), (["/../"], "/"), (["/home//foo/"], "/home/foo"), (["/a/./b/../../c/"], "/c"), (["/"], "/"),
         (["/..."], "/..."),
         (["/a/../../b"], "/b")),
        """\
def simplify_path(path):
    parts = []
    for part in path.split("/"):
        if part == "..":
            if parts:
                parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)
""",
        """\
def simplify_path(path):
    parts = []
    for part in path.split("/"):
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)
""",
    ),
    Task(
        "format_table",
        ask("format_table(rows)", "that returns rows of strings, a list of lists, as a list of lines. Columns are as wide as their "
            "longest cell, cells begin at the left, columns are separated by a space, a | and a space, and missing cells at the end "
            "of a row are empty. Spaces at the end of a line are removed."),
        (([[["a", "bb"], ["ccc", "d"]]], ["a   | bb", "ccc | d"]), ([[]], []), ([[["x"], ["y", "z"]]], ["x |", "y | z"]),
         ([[["one"]]], ["one"]),
         ([[["", "b"], ["a", ""]]], ["  | b", "a |"]), ([[["h1", "h2", "h3"], ["1"]]], ["h1 | h2 | h3", "1  |    |"])),
        """\
def format_table(rows):
    columns = max((len(row) for row in rows), default=0)
    full = [list(row) + [""] * (columns - len(row)) for row in rows]
    widths = [max(len(row[at]) for row in full) for at in range(columns)]
    return [" | ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in full]
""",
        """\
def format_table(rows):
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    return [" | ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows]
""",
    ),
    Task(
        "parse_csv_line",
        ask("parse_csv_line(line)", "that returns the fields of one line of CSV as a list of strings, without the csv module. Fields "
            "are separated by commas. A field that begins with a double quote ends with the next single one; it may contain commas, "
            "and two double quotes in it stand for one. Spaces are kept."),
        ((["a,b,c"], ["a", "b", "c"]), (['a,"b,c",d'], ["a", "b,c", "d"]), (['"he said ""hi""",x'], ['he said "hi"', "x"]), ([""], [""]),
         ([",,"], ["", "", ""]), (['"",a'], ["", "a"]), (["a, b"], ["a", " b"]), (['"""",""""'], ['"', '"'])),
        """\
def parse_csv_line(line):
    fields, field, quoted, at = [], "", False, 0
    while at < len(line):
        letter = line[at]
        if quoted:
            if letter == '"' and line[at + 1:at + 2] == '"':
                field += '"'
                at += 1
            elif letter == '"':
                quoted = False
            else:
                field += letter
        elif letter == '"' and not field:
            quoted = True
        elif letter == ",":
            fields.append(field)
            field = ""
        else:
            field += letter
        at += 1
    return fields + [field]
""",
        """\
def parse_csv_line(line):
    return [field.strip('"') for field in line.split(",")]
""",
    ),
    Task(
        "decode_string",
        ask("decode_string(text)", "that writes out repetitions: 3[ab] stands for ababab, the number has any length, and brackets may "
            "contain others, as in 2[a3[b]]. Everything else stands for itself."),
        ((["3[a2[c]]"], "accaccacc"), (["2[abc]3[cd]ef"], "abcabccdcdcdef"), (["abc"], "abc"), ([""], ""), (["10[x]"], "xxxxxxxxxx"),
         (["2[a]b"], "aab"),
         (["1[a1[b]]"], "ab")),
        """\
def decode_string(text):
    stack, current, number = [], "", 0
    for letter in text:
        if letter.isdigit():
            number = number * 10 + int(letter)
        elif letter == "[":
            stack.append((current, number))
            current, number = "", 0
        elif letter == "]":
            before, times = stack.pop()
            current = before + current * times
        else:
            current += letter
    return current
""",
        """\
def decode_string(text):
    stack, current, number = [], "", 0
    for letter in text:
        if letter.isdigit():
            number = int(letter)
        elif letter == "[":
            stack.append((current, number))
            current = ""
        elif letter == "]":
            before, times = stack.pop()
            current = before + current * times
        else:
            current += letter
    return current
""",
    ),
)  # fmt: skip

"""Coding tasks whose answers have a few lines."""

from __future__ import annotations

from .coding_tasks import Task, ask

SHORT: tuple[Task, ...] = (
    Task(
        "clamp",
        ask("clamp(value, low, high)", "that returns value, but low where it is smaller than low and high where it is larger than "
            "high. If low is larger than high, the two are swapped first."),
        (([5, 0, 10], 5), ([-3, 0, 10], 0), ([11, 0, 10], 10), ([5, 10, 0], 5), ([12, 10, 0], 10), ([-1, 10, 0], 0), ([0, 0, 0], 0),
         ([2.5, 1, 2], 2)),
        """\
def clamp(value, low, high):
    if low > high:
        low, high = high, low
    return max(low, min(value, high))
""",
        """\
def clamp(value, low, high):
    return max(low, min(value, high))
""",
    ),
    Task(
        "count_vowels",
        ask("count_vowels(text)", "that returns how many of the letters a, e, i, o and u, in either case, are in text."),
        ((["Hello World"], 3), ([""], 0), (["AEIOU aeiou"], 10), (["rhythm"], 0), (["Yellow"], 2), (["queue"], 4), (["x1e2!"], 1)),
        """\
def count_vowels(text):
    return sum(letter in "aeiou" for letter in text.lower())
""",
        """\
def count_vowels(text):
    return sum(letter in "aeiou" for letter in text)
""",
    ),
    Task(
        "reverse_words",
        ask("reverse_words(text)", "that returns the words of text in reverse order with one space between them. Words are separated "
            "by any whitespace; what is before the first and after the last word is dropped."),
        ((["the sky is blue"], "blue is sky the"), (["  hello  world "], "world hello"), ([""], ""), (["   "], ""), (["one"], "one"),
         (["a\tb\nc"], "c b a")),
        """\
def reverse_words(text):
    return " ".join(reversed(text.split()))
""",
        """\
def reverse_words(text):
    return " ".join(text.split(" ")[::-1])
""",
    ),
    Task(
        "is_leap_year",
        ask("is_leap_year(year)", "that returns whether the year is a leap year of the Gregorian calendar, as True or False."),
        (([2000], True), ([1900], False), ([2024], True), ([2023], False), ([2100], False), ([2400], True), ([4], True), ([1600], True)),
        """\
def is_leap_year(year):
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
""",
        """\
def is_leap_year(year):
    return year % 4 == 0
""",
    ),
    Task(
        "running_sum",
        ask("running_sum(numbers)", "that returns the list of sums of the first one, first two, first three and so on of the numbers."),
        (([[1, 2, 3]], [1, 3, 6]), ([[]], []), ([[5]], [5]), ([[-1, 1, -1]], [-1, 0, -1]), ([[0, 0]], [0, 0]), ([[1.5, 2]], [1.5, 3.5])),
        """\
def running_sum(numbers):
    sums, total = [], 0
    for number in numbers:
        total += number
        sums.append(total)
    return sums
""",
        """\
def running_sum(numbers):
    sums = [0]
    for number in numbers:
        sums.append(sums[-1] + number)
    return sums
""",
    ),
    Task(
        "second_largest",
        ask("second_largest(numbers)", "that returns the second largest of the different values in a list, or None if it has fewer "
            "than two different values."),
        (([[3, 1, 2]], 2), ([[5, 5, 4]], 4), ([[7]], None), ([[]], None), ([[2, 2]], None), ([[-1, -2, -3]], -2), ([[1, 3, 3, 2]], 2)),
        """\
def second_largest(numbers):
    values = sorted(set(numbers))
    return values[-2] if len(values) > 1 else None
""",
        """\
def second_largest(numbers):
    return sorted(numbers)[-2] if len(numbers) > 1 else None
""",
    ),
    Task(
        "digit_sum",
        ask("digit_sum(n)", "that returns the sum of the decimal digits of the integer n, whatever its sign."),
        (([0], 0), ([123], 6), ([-45], 9), ([999], 27), ([100000000000000000000], 1), ([123456789012345678], 81)),
        """\
def digit_sum(n):
    return sum(int(digit) for digit in str(abs(n)))
""",
        """\
def digit_sum(n):
    total = 0
    while n > 0:
        total += n % 10
        n //= 10
    return total
""",
    ),
    Task(
        "rotate_left",
        ask("rotate_left(items, k)", "that returns the list rotated to the left by k places. k may be negative or larger than the "
            "list, and the list may be empty."),
        (([[1, 2, 3, 4, 5], 2], [3, 4, 5, 1, 2]), ([[1, 2, 3], 0], [1, 2, 3]), ([[1, 2, 3], 3], [1, 2, 3]), ([[1, 2, 3], 4], [2, 3, 1]),
         ([[1, 2, 3], -1], [3, 1, 2]), ([[], 5], []), ([["a"], 7], ["a"])),
        """\
def rotate_left(items, k):
    if not items:
        return []
    k %= len(items)
    return items[k:] + items[:k]
""",
        """\
def rotate_left(items, k):
    return items[k:] + items[:k]
""",
    ),
    Task(
        "hamming_distance",
        ask("hamming_distance(a, b)", "that returns the number of positions at which two strings differ, or None if they differ in "
            "length."),
        ((["karolin", "kathrin"], 3), (["", ""], 0), (["abc", "abc"], 0), (["abc", "abd"], 1), (["a", "ab"], None), (["0000", "1111"], 4)),
        """\
def hamming_distance(a, b):
    if len(a) != len(b):
        return None
    return sum(x != y for x, y in zip(a, b))
""",
        """\
def hamming_distance(a, b):
    return sum(x != y for x, y in zip(a, b))
""",
    ),
    Task(
        "title_case",
        ask("title_case(text)", "that makes the first character of each word upper case and the rest of it lower case. Words are "
            "separated by spaces, which stay as they are."),
        ((["hello world"], "Hello World"), (["don't STOP"], "Don't Stop"), (["hello  world"], "Hello  World"), ([""], ""), (["a"], "A"),
         (["ALREADY Done"], "Already Done"), (["3rd place"], "3rd Place"), ([" x "], " X ")),
        """\
def title_case(text):
    return " ".join(word[:1].upper() + word[1:].lower() for word in text.split(" "))
""",
        """\
def title_case(text):
    return text.title()
""",
    ),
    Task(
        "chunks",
        ask("chunks(items, size)", "that cuts a list into consecutive lists of size items, the last of which may be shorter. size is "
            "at least 1."),
        (([[1, 2, 3, 4, 5], 2], [[1, 2], [3, 4], [5]]), ([[], 3], []), ([[1], 5], [[1]]), ([[1, 2, 3, 4], 4], [[1, 2, 3, 4]]),
         ([[1, 2, 3], 1], [[1], [2], [3]]), ([["a", "b", "c"], 2], [["a", "b"], ["c"]])),
        """\
def chunks(items, size):
    return [items[at:at + size] for at in range(0, len(items), size)]
""",
        """\
def chunks(items, size):
    return [items[at * size:(at + 1) * size] for at in range(len(items) // size)]
""",
    ),
    Task(
        "common_prefix",
        ask("common_prefix(words)", "that returns the longest string that every word of the list begins with, an empty one for an "
            "empty list. Case matters."),
        (([["flower", "flow", "flight"]], "fl"), ([[]], ""), ([["a"]], "a"), ([["dog", "car"]], ""), ([["abc", "abc"]], "abc"),
         ([["", "b"]], ""), ([["Ab", "ab"]], ""), ([["inter", "internet", "interval", "in"]], "in")),
        """\
def common_prefix(words):
    if not words:
        return ""
    prefix = words[0]
    for word in words:
        while not word.startswith(prefix):
            prefix = prefix[:-1]
    return prefix
""",
        """\
def common_prefix(words):
    if not words:
        return ""
    first, last, prefix = words[0], words[-1], ""
    for x, y in zip(first, last):
        if x == y:
            prefix += x
    return prefix
""",
    ),
    Task(
        "is_prime",
        ask("is_prime(n)", "that returns whether the integer n is a prime number, as True or False, fast for n up to 10**12."),
        (([2], True), ([1], False), ([0], False), ([-7], False), ([9], False), ([25], False), ([97], True), ([999983], True),
         ([999999000001], True), ([999966000289], False), ([1000000000000], False)),
        """\
def is_prime(n):
    if n < 2:
        return False
    divisor = 2
    while divisor * divisor <= n:
        if n % divisor == 0:
            return False
        divisor += 1
    return True
""",
        """\
def is_prime(n):
    return n > 1 and all(n % divisor for divisor in range(2, int(n ** 0.5)))
""",
    ),
    Task(
        "factorial_zeros",
        ask("factorial_zeros(n)", "that returns the number of zeros at the end of the factorial of n, without computing the "
            "factorial, fast for n up to 10**9."),
        (([0], 0), ([4], 0), ([5], 1), ([25], 6), ([100], 24), ([1000], 249), ([1000000000], 249999998)),
        """\
def factorial_zeros(n):
    zeros = 0
    while n:
        n //= 5
        zeros += n
    return zeros
""",
        """\
def factorial_zeros(n):
    return n // 5
""",
    ),
    Task(
        "unique_in_order",
        ask("unique_in_order(items)", "that returns the different items of a list, each where it first occurs."),
        (([[3, 1, 3, 2, 1]], [3, 1, 2]), ([[]], []), ([["b", "a", "b"]], ["b", "a"]), ([[1, 1, 1]], [1]), ([[0, -1, 0]], [0, -1])),
        """\
def unique_in_order(items):
    return list(dict.fromkeys(items))
""",
        """\
def unique_in_order(items):
    return sorted(set(items))
""",
    ),
    Task(
        "median",
        ask("median(numbers)", "that returns the median of a list of numbers in any order, the mean of the middle two if their number "
            "is even, and None for an empty list."),
        (([[3, 1, 2]], 2), ([[4, 1, 3, 2]], 2.5), ([[5]], 5), ([[1, 2]], 1.5), ([[7, 7, 7, 7]], 7), ([[10, -5, 5, 0]], 2.5), ([[]], None)),
        """\
def median(numbers):
    if not numbers:
        return None
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
""",
        """\
def median(numbers):
    if not numbers:
        return None
    middle = len(numbers) // 2
    if len(numbers) % 2:
        return numbers[middle]
    return (numbers[middle - 1] + numbers[middle]) / 2
""",
    ),
)  # fmt: skip

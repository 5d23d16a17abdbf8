"""Coding tasks of medium length about lists and numbers."""

from __future__ import annotations

from .coding_tasks import Task, ask

LISTS: tuple[Task, ...] = (
    Task(
        "find_first",
        ask("find_first(numbers, target)", "that returns the index of the first occurrence of target in an ascending list of numbers, "
            "or -1, by binary search."),
        (([[1, 2, 2, 2, 3], 2], 1), ([[], 1], -1), ([[1], 1], 0), ([[1, 3, 5], 4], -1), ([[5, 5, 5], 5], 0), ([[1, 2, 3], 3], 2),
         ([[2, 4], 9], -1)),
        """\
def find_first(numbers, target):
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low if low < len(numbers) and numbers[low] == target else -1
""",
        """\
def find_first(numbers, target):
    low, high = 0, len(numbers) - 1
    while low <= high:
        middle = (low + high) // 2
        if numbers[middle] == target:
            return middle
        if numbers[middle] < target:
            low = middle + 1
        else:
            high = middle - 1
    return -1
""",
    ),
    Task(
        "transpose",
        ask("transpose(matrix)", "that returns the rows of a matrix, a list of equally long lists, as columns. An empty matrix stays "
            "empty."),
        (([[[1, 2, 3], [4, 5, 6]]], [[1, 4], [2, 5], [3, 6]]), ([[]], []), ([[[1]]], [[1]]), ([[[1, 2]]], [[1], [2]]),
         ([[[1], [2]]], [[1, 2]])),
        """\
def transpose(matrix):
    return [list(column) for column in zip(*matrix)]
""",
        """\
def transpose(matrix):
    return [[row[at] for row in matrix] for at in range(len(matrix))]
""",
    ),
    Task(
        "spiral",
        ask("spiral(matrix)", "that returns the values of a matrix, a list of equally long lists, in a spiral: along the top row to "
            "the right, down the last column, back along the bottom row, up the first column, and so on inwards."),
        (([[[1, 2, 3], [4, 5, 6], [7, 8, 9]]], [1, 2, 3, 6, 9, 8, 7, 4, 5]),
         ([[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]], [1, 2, 3, 4, 8, 12, 11, 10, 9, 5, 6, 7]),
         ([[]], []), ([[[7]]], [7]), ([[[1], [2], [3]]], [1, 2, 3]), ([[[1, 2, 3]]], [1, 2, 3]), ([[[1, 2], [3, 4]]], [1, 2, 4, 3]),
         ([[[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]], [1, 2, 3, 6, 9, 12, 11, 10, 7, 4, 5, 8])),
        """\
def spiral(matrix):
    rows, found = [list(row) for row in matrix], []
    while rows:
        found += rows.pop(0)
        rows = [list(column) for column in zip(*rows)][::-1]
    return found
""",
        """\
def spiral(matrix):
    rows, found = [list(row) for row in matrix], []
    while rows:
        found += rows.pop(0)
        found += [row.pop() for row in rows if row]
        if rows:
            found += rows.pop()[::-1]
    return found
""",
    ),
    Task(
        "merge_intervals",
        ask("merge_intervals(intervals)", "that merges closed intervals, [start, end] lists in any order, which overlap or share an "
            "end, and returns them sorted by start."),
        (([[[1, 3], [2, 6], [8, 10], [15, 18]]], [[1, 6], [8, 10], [15, 18]]), ([[[1, 4], [4, 5]]], [[1, 5]]), ([[]], []),
         ([[[5, 6], [1, 2]]], [[1, 2], [5, 6]]), ([[[1, 10], [2, 3]]], [[1, 10]]), ([[[1, 2], [3, 4]]], [[1, 2], [3, 4]])),
        """\
def merge_intervals(intervals):
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged
""",
        """\
def merge_intervals(intervals):
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = end
        else:
            merged.append([start, end])
    return merged
""",
    ),
    Task(
        "two_sum",
        ask("two_sum(numbers, target)", "that returns the indices [i, j], i smaller than j, of the two numbers that sum to target, or "
            "None. There is at most one such pair, and a number may not be used twice."),
        (([[2, 7, 11, 15], 9], [0, 1]), ([[3, 2, 4], 6], [1, 2]), ([[3, 3], 6], [0, 1]), ([[1, 2], 9], None), ([[], 0], None),
         ([[-1, 5, 1], 0], [0, 2]), ([[4, 1], 8], None)),
        """\
def two_sum(numbers, target):
    seen = {}
    for at, number in enumerate(numbers):
        if target - number in seen:
            return [seen[target - number], at]
        seen[number] = at
    return None
""",
        """\
def two_sum(numbers, target):
    where = {number: at for at, number in enumerate(numbers)}
    for at, number in enumerate(numbers):
        if target - number in where:
            return [at, where[target - number]]
    return None
""",
    ),
    Task(
        "pascal_row",
        ask("pascal_row(n)", "that returns row n of Pascal's triangle as a list; row 0 is [1]."),
        (([0], [1]), ([1], [1, 1]), ([2], [1, 2, 1]), ([5], [1, 5, 10, 10, 5, 1]), ([10], [1, 10, 45, 120, 210, 252, 210, 120, 45, 10, 1])),
        """\
def pascal_row(n):
    row = [1]
    for _ in range(n):
        row = [a + b for a, b in zip([0] + row, row + [0])]
    return row
""",
        """\
def pascal_row(n):
    row = [1]
    for _ in range(n - 1):
        row = [a + b for a, b in zip([0] + row, row + [0])]
    return row
""",
    ),
    Task(
        "change_ways",
        ask("change_ways(amount, coins)", "that returns in how many ways an amount can be paid with coins of the given different "
            "values, any number of each, the order of coins being of no account, fast for amounts up to 1000."),
        (([5, [1, 2, 5]], 4), ([3, [2]], 0), ([0, [7]], 1), ([10, [10]], 1), ([10, [2, 5, 3, 6]], 5), ([100, [1, 5, 10, 25, 50]], 292),
         ([500, [3, 5, 7, 8, 9, 10, 11]], 35502874)),
        """\
def change_ways(amount, coins):
    ways = [1] + [0] * amount
    for coin in coins:
        for value in range(coin, amount + 1):
            ways[value] += ways[value - coin]
    return ways[amount]
""",
        """\
def change_ways(amount, coins):
    ways = [1] + [0] * amount
    for value in range(1, amount + 1):
        for coin in coins:
            if coin <= value:
                ways[value] += ways[value - coin]
    return ways[amount]
""",
    ),
    Task(
        "rooms_needed",
        ask("rooms_needed(meetings)", "that returns how many rooms meetings need, each a [start, end] list of numbers. A room is free "
            "again at the end of a meeting for one that starts then."),
        (([[[0, 30], [5, 10], [15, 20]]], 2), ([[[7, 10], [2, 4]]], 1), ([[]], 0), ([[[1, 5], [5, 9]]], 1),
         ([[[1, 9], [2, 8], [3, 7], [4, 6]]], 4)),
        """\
def rooms_needed(meetings):
    changes = sorted([(end, -1) for _, end in meetings] + [(start, 1) for start, _ in meetings])
    rooms = most = 0
    for _, change in changes:
        rooms += change
        most = max(most, rooms)
    return most
""",
        """\
def rooms_needed(meetings):
    most = 0
    for start, _ in meetings:
        most = max(most, sum(one[0] <= start <= one[1] for one in meetings))
    return most
""",
    ),
    Task(
        "next_permutation",
        ask("next_permutation(items)", "that returns the next larger ordering of a list of numbers in dictionary order as a new list, "
            "and the smallest one after the largest."),
        (([[1, 2, 3]], [1, 3, 2]), ([[3, 2, 1]], [1, 2, 3]), ([[1, 1, 5]], [1, 5, 1]), ([[1]], [1]), ([[]], []), ([[2, 3, 1]], [3, 1, 2]),
         ([[1, 5, 1]], [5, 1, 1]), ([[1, 3, 2]], [2, 1, 3])),
        """\
def next_permutation(items):
    found = list(items)
    at = len(found) - 2
    while at >= 0 and found[at] >= found[at + 1]:
        at -= 1
    if at >= 0:
        other = len(found) - 1
        while found[other] <= found[at]:
            other -= 1
        found[at], found[other] = found[other], found[at]
    found[at + 1:] = reversed(found[at + 1:])
    return found
""",
        """\
def next_permutation(items):
    found = list(items)
    for at in range(len(found) - 1, 0, -1):
        if found[at] > found[at - 1]:
            found[at], found[at - 1] = found[at - 1], found[at]
            return found
    return sorted(found)
""",
    ),
    Task(
        "flatten_dict",
        ask("flatten_dict(data)", "that returns a nested dict as a flat one whose keys are joined by dots, as in a.b.c. Only dicts "
            "are entered; an empty dict below a key stays as its value."),
        (([{"a": {"b": 1, "c": {"d": 2}}, "e": 3}], {"a.b": 1, "a.c.d": 2, "e": 3}), ([{}], {}), ([{"a": {}}], {"a": {}}),
         ([{"x": [1, {"y": 2}]}], {"x": [1, {"y": 2}]}), ([{"a": {"b": {"c": {"d": None}}}}], {"a.b.c.d": None})),
        """\
def flatten_dict(data):
    flat = {}

    def enter(part, path):
        for key, value in part.items():
            name = path + "." + key if path else key
            if isinstance(value, dict) and value:
                enter(value, name)
            else:
                flat[name] = value

    enter(data, "")
    return flat
""",
        """\
def flatten_dict(data):
    flat = {}
    for key, value in data.items():
        if isinstance(value, dict):
            for inner, one in value.items():
                flat[key + "." + inner] = one
        else:
            flat[key] = value
    return flat
""",
    ),
    Task(
        "determinant",
        ask("determinant(matrix)", "that returns the determinant of a square matrix of integers, a list of lists of up to six rows, "
            "exactly. That of an empty matrix is 1."),
        (([[[2]]], 2), ([[[1, 2], [3, 4]]], -2), ([[[6, 1, 1], [4, -2, 5], [2, 8, 7]]], -306),
         ([[[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]], 1),
         ([[[0, 1], [1, 0]]], -1), ([[[1, 2], [2, 4]]], 0), ([[]], 1), ([[[0, 0, 1], [0, 1, 0], [1, 0, 0]]], -1)),
        """\
def determinant(matrix):
    if not matrix:
        return 1
    total = 0
    for column, value in enumerate(matrix[0]):
        if value:
            minor = [row[:column] + row[column + 1:] for row in matrix[1:]]
            total += (-1) ** column * value * determinant(minor)
    return total
""",
        """\
def determinant(matrix):
    if not matrix:
        return 1
    total = 0
    for column, value in enumerate(matrix[0]):
        minor = [row[:column] + row[column + 1:] for row in matrix[1:]]
        total += value * determinant(minor)
    return total
""",
    ),
    Task(
        "knapsack",
        ask("knapsack(capacity, items)", "that returns the largest total value of items, [weight, value] lists of integers, that "
            "together weigh no more than capacity. Each item can be taken once."),
        (([50, [[10, 60], [20, 100], [30, 120]]], 220), ([0, [[1, 5]]], 0), ([5, [[6, 10]]], 0),
         ([10, [[5, 10], [4, 40], [6, 30], [3, 50]]], 90),
         ([7, [[1, 1], [3, 4], [4, 5], [5, 7]]], 9), ([10, []], 0), ([4, [[1, 3]]], 3)),
        """\
def knapsack(capacity, items):
    best = [0] * (capacity + 1)
    for weight, value in items:
        for room in range(capacity, weight - 1, -1):
            best[room] = max(best[room], best[room - weight] + value)
    return best[capacity]
""",
        """\
def knapsack(capacity, items):
    total = 0
    for weight, value in sorted(items, key=lambda item: -item[1] / item[0]):
        if weight <= capacity:
            capacity -= weight
            total += value
    return total
""",
    ),
)  # fmt: skip

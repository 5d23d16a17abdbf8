"""Coding tasks whose answers are longer: searches, tables and boards."""

from __future__ import annotations

from .coding_tasks import Task, ask

_VALID = ["53..7....", "6..195...", ".98....6.", "8...6...3", "4..8.3..1", "7...2...6", ".6....28.", "...419..5", "....8..79"]
_EMPTY = ["." * 9] * 9

ALGORITHMS: tuple[Task, ...] = (
    Task(
        "shortest_path",
        ask("shortest_path(edges, start, goal)", "that returns the smallest number of edges between two nodes of an undirected graph, "
            "given as a list of [node, node] lists: 0 from a node to itself, -1 if there is no way."),
        (([[["a", "b"], ["b", "c"], ["a", "d"], ["d", "e"], ["e", "c"]], "a", "c"], 2), ([[["a", "b"]], "a", "a"], 0), ([[], "x", "x"], 0),
         ([[], "x", "y"], -1), ([[["a", "b"], ["c", "d"]], "a", "d"], -1),
         ([[["a", "d"], ["d", "e"], ["e", "c"], ["b", "a"], ["c", "b"]], "a", "c"], 2),
         ([[["b", "a"]], "a", "b"], 1)),
        """\
from collections import deque


def shortest_path(edges, start, goal):
    near = {}
    for one, other in edges:
        near.setdefault(one, []).append(other)
        near.setdefault(other, []).append(one)
    steps, waiting = {start: 0}, deque([start])
    while waiting:
        node = waiting.popleft()
        if node == goal:
            return steps[node]
        for other in near.get(node, []):
            if other not in steps:
                steps[other] = steps[node] + 1
                waiting.append(other)
    return -1
""",
        """\
def shortest_path(edges, start, goal):
    near = {}
    for one, other in edges:
        near.setdefault(one, []).append(other)
        near.setdefault(other, []).append(one)
    seen = set()

    def walk(node, length):
        if node == goal:
            return length
        seen.add(node)
        for other in near.get(node, []):
            if other not in seen:
                found = walk(other, length + 1)
                if found >= 0:
                    return found
        return -1

    return walk(start, 0)
""",
    ),
    Task(
        "cheapest_route",
        ask("cheapest_route(roads, start, goal)", "that returns the smallest total cost of a way from start to goal over one-way "
            "roads, a list of [from, to, cost] lists with costs of at least 0: 0 from a place to itself, -1 if there is no way."),
        (([[["a", "b", 4], ["a", "c", 1], ["c", "b", 2], ["b", "d", 5]], "a", "d"], 8), ([[["a", "b", 4]], "b", "a"], -1),
         ([[], "x", "x"], 0),
         ([[["a", "b", 9], ["a", "c", 1], ["c", "d", 1], ["d", "b", 1]], "a", "b"], 3), ([[["a", "b", 0], ["b", "c", 0]], "a", "c"], 0),
         ([[["a", "b", 5], ["a", "b", 3]], "a", "b"], 3), ([[["a", "b", 1], ["b", "a", 1], ["b", "c", 7]], "a", "c"], 8)),
        """\
import heapq


def cheapest_route(roads, start, goal):
    ways = {}
    for source, target, cost in roads:
        ways.setdefault(source, []).append((target, cost))
    waiting, done = [(0, start)], set()
    while waiting:
        total, place = heapq.heappop(waiting)
        if place == goal:
            return total
        if place in done:
            continue
        done.add(place)
        for target, cost in ways.get(place, []):
            if target not in done:
                heapq.heappush(waiting, (total + cost, target))
    return -1
""",
        """\
def cheapest_route(roads, start, goal):
    ways = {}
    for source, target, cost in roads:
        ways.setdefault(source, []).append((target, cost))
    waiting, seen = [(start, 0)], {start}
    while waiting:
        place, total = waiting.pop(0)
        if place == goal:
            return total
        for target, cost in ways.get(place, []):
            if target not in seen:
                seen.add(target)
                waiting.append((target, total + cost))
    return -1
""",
    ),
    Task(
        "topological_order",
        ask("topological_order(tasks)", "that orders tasks, a dict from each task's name to the list of tasks it needs, so that each "
            "comes after all that it needs; of those that could come next always the alphabetically first. Returns a list, or None if "
            "they need each other in a circle."),
        (([{"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}], ["a", "b", "c", "d"]), ([{"b": [], "a": ["b"]}], ["b", "a"]),
         ([{"a": ["b"], "b": ["a"]}], None), ([{}], []), ([{"z": [], "y": [], "x": ["z"]}], ["y", "z", "x"]), ([{"a": ["a"]}], None),
         ([{"m": ["k"], "k": [], "a": ["m"], "l": []}], ["k", "l", "m", "a"])),
        """\
def topological_order(tasks):
    left = {name: set(needs) for name, needs in tasks.items()}
    order = []
    while left:
        ready = sorted(name for name, needs in left.items() if not needs)
        if not ready:
            return None
        order.append(ready[0])
        del left[ready[0]]
        for needs in left.values():
            needs.discard(ready[0])
    return order
""",
        """\
def topological_order(tasks):
    order, open_ = [], set()

    def visit(name):
        if name in order:
            return True
        if name in open_:
            return False
        open_.add(name)
        if not all(visit(one) for one in sorted(tasks[name])):
            return False
        order.append(name)
        return True

    return order if all(visit(name) for name in sorted(tasks)) else None
""",
    ),
    Task(
        "edit_distance",
        ask("edit_distance(a, b)", "that returns the smallest number of single characters to insert, delete or replace to make string "
            "a into string b, fast for strings of 200 characters."),
        ((["kitten", "sitting"], 3), (["", "abc"], 3), (["flaw", "lawn"], 2), (["same", "same"], 0), (["intention", "execution"], 5),
         (["a", "b"], 1),
         (["ab" * 60, "ba" * 60], 2), (["abc", ""], 3)),
        """\
def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for at, x in enumerate(a, 1):
        before, row = row, [at]
        for to, y in enumerate(b, 1):
            row.append(min(before[to] + 1, row[-1] + 1, before[to - 1] + (x != y)))
    return row[-1]
""",
        """\
def edit_distance(a, b):
    return sum(x != y for x, y in zip(a, b)) + abs(len(a) - len(b))
""",
    ),
    Task(
        "common_subsequence",
        ask("common_subsequence(a, b)", "that returns the length of the longest sequence of characters that both strings have in the "
            "same order, not necessarily side by side, fast for strings of 200 characters."),
        ((["ABCBDAB", "BDCABA"], 4), (["", "x"], 0), (["abc", "abc"], 3), (["abc", "def"], 0), (["AGGTAB", "GXTXAYB"], 4),
         (["ab" * 40, "ba" * 40], 79)),
        """\
def common_subsequence(a, b):
    row = [0] * (len(b) + 1)
    for x in a:
        before, row = row, [0]
        for at, y in enumerate(b):
            row.append(before[at] + 1 if x == y else max(row[-1], before[at + 1]))
    return row[-1]
""",
        """\
def common_subsequence(a, b):
    best = 0
    for start in range(len(a)):
        for end in range(start + 1, len(a) + 1):
            if a[start:end] in b:
                best = max(best, end - start)
    return best
""",
    ),
    Task(
        "life",
        ask("life(board, steps)", "that plays Conway's game of life on a board, a list of lists of 0 and 1, and returns the board "
            "after so many steps. What is outside the board is dead."),
        (([[[0, 1, 0], [0, 1, 0], [0, 1, 0]], 1], [[0, 0, 0], [1, 1, 1], [0, 0, 0]]),
         ([[[0, 1, 0], [0, 1, 0], [0, 1, 0]], 2], [[0, 1, 0], [0, 1, 0], [0, 1, 0]]),
         ([[[1, 1], [1, 1]], 5], [[1, 1], [1, 1]]), ([[[1]], 1], [[0]]), ([[[1, 1], [1, 0]], 1], [[1, 1], [1, 1]]), ([[], 3], []),
         ([[[0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]], 0], [[0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]]),
         ([[[0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]], 4], [[0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 1, 1, 1]])),
        """\
def life(board, steps):
    for _ in range(steps):
        new = []
        for y, row in enumerate(board):
            line = []
            for x, cell in enumerate(row):
                around = 0
                for dy in (-1, 0, 1):
                    for dx in (-1, 0, 1):
                        if (dy or dx) and 0 <= y + dy < len(board) and 0 <= x + dx < len(row):
                            around += board[y + dy][x + dx]
                line.append(1 if around == 3 or (cell and around == 2) else 0)
            new.append(line)
        board = new
    return board
""",
        """\
def life(board, steps):
    for _ in range(steps):
        for y, row in enumerate(board):
            for x, cell in enumerate(row):
                around = -cell
                for line in board[max(0, y - 1):y + 2]:
                    around += sum(line[max(0, x - 1):x + 2])
                row[x] = 1 if around == 3 or (cell and around == 2) else 0
    return board
""",
    ),
    Task(
        "count_queens",
        ask("count_queens(n)", "that returns in how many ways n queens can stand on a board of n by n squares so that none attacks "
            "another."),
        (([1], 1), ([2], 0), ([3], 0), ([4], 2), ([5], 10), ([6], 4), ([7], 40), ([8], 92)),
        """\
def count_queens(n):
    def place(row, columns, rising, falling):
        if row == n:
            return 1
        total = 0
        for column in range(n):
            if column not in columns and row + column not in rising and row - column not in falling:
                total += place(row + 1, columns | {column}, rising | {row + column}, falling | {row - column})
        return total

    return place(0, frozenset(), frozenset(), frozenset())
""",
        """\
def count_queens(n):
    def place(row, columns, rising):
        if row == n:
            return 1
        total = 0
        for column in range(n):
            if column not in columns and row + column not in rising:
                total += place(row + 1, columns | {column}, rising | {row + column})
        return total

    return place(0, frozenset(), frozenset())
""",
    ),
    Task(
        "sudoku_ok",
        ask("sudoku_ok(board)", "that returns whether a partly filled sudoku, nine strings of nine characters 1 to 9 or . for empty, "
            "has no digit twice in a row, a column or one of the nine 3 by 3 boxes, as True or False. It need not be solvable."),
        (([_VALID], True), ([_EMPTY], True), ([["55.......", *_EMPTY[1:]]], False), ([["5........", "5........", *_EMPTY[2:]]], False),
         ([["5........", "..5......", *_EMPTY[2:]]], False), ([["5........", "...5.....", *_EMPTY[2:]]], True),
         ([[*_EMPTY[:6], "........1", ".........", "......1.."]], False)),
        """\
def sudoku_ok(board):
    seen = set()
    for y, row in enumerate(board):
        for x, digit in enumerate(row):
            if digit == ".":
                continue
            for place in (("row", y, digit), ("column", x, digit), ("box", y // 3, x // 3, digit)):
                if place in seen:
                    return False
                seen.add(place)
    return True
""",
        """\
def sudoku_ok(board):
    for line in list(board) + ["".join(column) for column in zip(*board)]:
        digits = [digit for digit in line if digit != "."]
        if len(digits) != len(set(digits)):
            return False
    return True
""",
    ),
    Task(
        "lru_cache_gets",
        ask("lru_cache_gets(capacity, operations)", 'that plays operations on a cache which holds so many keys and drops the least '
            'recently used one for a new key. Operations are ["put", key, value] and ["get", key]; both use the key. Returns the list '
            'of what the gets give, -1 for a key that is not there.'),
        (([2, [["put", "a", 1], ["put", "b", 2], ["get", "a"], ["put", "c", 3], ["get", "b"], ["get", "c"]]], [1, -1, 3]),
         ([1, [["get", "x"]]], [-1]),
         ([1, [["put", "a", 1], ["put", "b", 2], ["get", "a"], ["get", "b"]]], [-1, 2]), ([2, []], []),
         ([2, [["put", "a", 1], ["put", "b", 2], ["put", "a", 9], ["put", "c", 3], ["get", "a"], ["get", "b"]]], [9, -1])),
        """\
def lru_cache_gets(capacity, operations):
    cache, found = {}, []
    for operation in operations:
        key = operation[1]
        if operation[0] == "get":
            if key in cache:
                cache[key] = cache.pop(key)
            found.append(cache.get(key, -1))
        else:
            cache.pop(key, None)
            if len(cache) >= capacity:
                del cache[next(iter(cache))]
            cache[key] = operation[2]
    return found
""",
        """\
def lru_cache_gets(capacity, operations):
    cache, found = {}, []
    for operation in operations:
        key = operation[1]
        if operation[0] == "get":
            found.append(cache.get(key, -1))
        else:
            if key not in cache and len(cache) >= capacity:
                del cache[next(iter(cache))]
            cache[key] = operation[2]
    return found
""",
    ),
)  # fmt: skip

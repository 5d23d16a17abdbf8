"""The coding tasks themselves: whole, precise, different, and chosen by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ddtree.codecheck import defines, same
from ddtree.coding_set import ALL, LONG, MEDIUM, SETS, SHORT, select
from ddtree.coding_tasks import ORIGIN, Task


def test_there_are_the_five_of_the_origin_and_more_than_forty_of_graded_length() -> None:
    assert [task.name for task in ORIGIN] == ["is_palindrome", "fib", "merge_sorted", "word_count", "gcd"]
    assert len(ALL) == len(ORIGIN) + len(SHORT) + len(MEDIUM) + len(LONG) and len(ALL) - len(ORIGIN) >= 40
    assert len({task.name for task in ALL}) == len(ALL) == len({task.prompt for task in ALL})
    means = [sum(len(task.reference) for task in tasks) / len(tasks) for tasks in (SHORT, MEDIUM, LONG)]
    assert 2 * means[0] < means[1] and 2 * means[1] < means[2]


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_a_task_is_whole(task: Task) -> None:
    """The right program passes every case, the wrong one fails at least one, and neither cases nor programs are told in the prompt."""
    assert len(task.cases) >= 5 and f"`{task.name}(" in task.prompt and task.prompt.endswith("and nothing else.")
    assert defines(task.reference, task.name) and defines(task.wrong, task.name)
    outcomes = []
    for program in (task.reference, task.wrong):
        space: dict[str, Any] = {"__name__": "solution"}
        exec(compile(program, task.name, "exec"), space)
        right = 0
        for arguments, wanted in task.cases:
            try:
                right += same(json.dumps(space[task.name](*json.loads(json.dumps(list(arguments))))), json.loads(json.dumps(wanted)))
            except Exception:
                continue
        outcomes.append(right)
    assert outcomes[0] == len(task.cases) > outcomes[1]


def test_tasks_are_chosen_by_names_and_sets() -> None:
    assert select([]) == select(["origin"]) == list(ORIGIN) and select(["all"]) == list(ALL)
    assert [task.name for task in select(["gcd", "fib", "gcd"])] == ["gcd", "fib"]
    assert select(["life", "origin"])[1:] == list(ORIGIN) and select(["short", "medium", "long", "origin"]) == [
        *SHORT,
        *MEDIUM,
        *LONG,
        *ORIGIN,
    ]
    assert not set(SETS) & {task.name for task in ALL}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fob", "did you mean fib?"),
        ("orign", "did you mean origin?"),
        ("quantum", "there are the sets origin, all, short, medium, long and 63 tasks"),
    ],
)
def test_another_name_is_one_sentence(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} is no coding task or set; ") as error:
        select(["fib", name])
    assert words in str(error.value)

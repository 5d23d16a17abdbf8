"""All coding tasks, and which of them a check asks for.

`python -m ddtree.coding_set` prints the programs of those beyond the origin's, as the simulated engine keeps them in programs.json.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import get_close_matches

from .coding_algorithms import ALGORITHMS
from .coding_lists import LISTS
from .coding_programs import PROGRAMS
from .coding_short import SHORT
from .coding_tasks import ORIGIN, Task
from .coding_texts import TEXTS

MEDIUM: tuple[Task, ...] = (*TEXTS, *LISTS)
LONG: tuple[Task, ...] = (*ALGORITHMS, *PROGRAMS)
ALL: tuple[Task, ...] = (*ORIGIN, *SHORT, *MEDIUM, *LONG)
SETS = {"origin": ORIGIN, "all": ALL, "short": SHORT, "medium": MEDIUM, "long": LONG}


def select(names: Sequence[str]) -> list[Task]:
    """The tasks of names of tasks and sets, each once, in that order; none named is `origin`. Raises ValueError for other names."""
    known = {**SETS, **{task.name: (task,) for task in ALL}}
    chosen: dict[str, Task] = {}
    for name in names or ("origin",):
        if name not in known:
            near = get_close_matches(name, known, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are the sets {', '.join(SETS)} and {len(ALL)} tasks"
            raise ValueError(f"{name} is no coding task or set; {hint}")
        chosen.update((task.name, task) for task in known[name])
    return list(chosen.values())


def programs() -> str:
    """{name: {right, wrong}} as JSON text."""
    known = {task.name: {"right": task.reference, "wrong": task.wrong} for task in (*SHORT, *MEDIUM, *LONG)}
    return json.dumps(known, indent=1) + "\n"


if __name__ == "__main__":
    print(programs(), end="")

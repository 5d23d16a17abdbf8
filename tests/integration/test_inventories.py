"""Bad inventories: each ends in one sentence that says where it stands, what is wrong and what to do, before any host is touched.

The table goes through Ansible's own reading of inventories, group_vars and templates in this process; some of it through real plays.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "inventory" / "example"
REQUIRED = ["ddtree_server_model"]


def plugin() -> Any:
    spec = importlib.util.spec_from_file_location("inventory_check_action", ROOT / "action_plugins" / "inventory_check.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECK = plugin()
init_plugin_loader()  # for lookups


def said(*folders: Path, asked: Iterable[str] = (), required: Iterable[str] = REQUIRED) -> list[str]:
    """The mistakes that the check finds in an inventory of these sources, read as a play reads it."""
    loader, sources = DataLoader(), [str(one) for one in folders]
    inventory = InventoryManager(loader=loader, sources=sources)
    manager = VariableManager(loader=loader, inventory=inventory)
    variables = {
        "hostvars": HostVars(inventory=inventory, variable_manager=manager, loader=loader),
        "groups": inventory.get_groups_dict(),
        "ansible_inventory_sources": sources,
        "allowed_vars": manager.get_vars(host=inventory.get_host("localhost")).get("allowed_vars"),
    }
    read = CHECK.read(variables, asked, required)
    return list(dict.fromkeys([*CHECK.mistakes(read), *CHECK.rules(read)]))


def with_lines(text: str, name: str = "group_vars/gpu_hosts.yml") -> Callable[[Path], None]:
    """The example with lines added; a variable set again there replaces the example's."""

    def change(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        new = yaml.safe_load(text)
        kept = path.read_text() if path.exists() else ""
        if isinstance(new, dict) and kept:
            old = yaml.safe_load(kept) or {}
            kept = yaml.safe_dump({key: one for key, one in old.items() if key not in new}, sort_keys=False)
        path.write_text(f"{kept}\n{text}\n")

    return change


def hosts(text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "hosts.yml").write_text(text)

    return change


def renamed(old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / old).rename(folder / new)

    return change


TWINS = """\
gpu_hosts:
  hosts:
    a: {{ansible_host: 10.0.0.1, {a}}}
    b: {{ansible_host: 10.0.0.1, {b}}}
"""
# What is done to the example, and what is said of it.
BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    # names
    "a misspelt variable": (
        with_lines("ddtree_server_prot: 1"),
        "ddtree_server_prot is no variable of this project; did you mean ddtree_server_port?",
    ),
    "a misspelt role": (with_lines("ddtree_sever_port: 30000"), "ddtree_sever_port is read by nothing; did you mean ddtree_server_port?"),
    "one of another role": (with_lines("gpu_host_port: 30000"), "gpu_host_port is no variable of this project"),
    "a plural too much": (
        with_lines("benchmark_context: [60]"),
        "benchmark_context is no variable of this project; did you mean benchmark_contexts?",
    ),
    "a dash": (with_lines("ddtree-server-port: 1"), "ddtree-server-port is read by nothing; did you mean ddtree_server_port?"),
    "an old name": (with_lines("ddtree_server_window: 2048"), "ddtree_server_window is no variable of this project"),
    # keys in the wrong place
    "a point's key": (with_lines("budget: 12"), "budget is no variable of an inventory: put it under point_defaults, or ask it with -e"),
    "points in the inventory": (with_lines("points: [{budget: 12}]"), "points is no variable of an inventory"),
    "a short name": (with_lines("port: 30001"), "port is read by nothing; did you mean ddtree_server_port?"),
    "a server's key among the points": (with_lines("point_defaults: {port: 30000}"), "point_defaults: the defaults have no key 'port'"),
    "a misspelt key of points": (with_lines("point_defaults: {bugdet: 12}"), "did you mean budget?"),
    "the report's, where only hosts read": (
        with_lines("report_width: 80"),
        "report_width is for the controller, and stands where only hosts read it: move it to group_vars/all.yml",
    ),
    "a file of no group": (
        renamed("group_vars/gpu_hosts.yml", "group_vars/gpu_host.yml"),
        "since no group is called gpu_host; did you mean gpu_hosts.yml?",
    ),
    "a file of no host": (
        with_lines("a: 1", "host_vars/gpu01.example.com.yml"),
        "no host is called gpu01.example.com; did you mean gpu01.example.net.yml?",
    ),
    "vars among the hosts": (
        hosts("gpu_hosts:\n  hosts:\n    a:\n    vars: {ansible_user: root}\n"),
        "a host is called 'vars': that key stands one level too deep",
    ),
    "no group gpu_hosts": (
        hosts("gpu_host:\n  hosts: {a: }\n"),
        "the inventory has no host in group gpu_hosts, and so nothing to do: rename gpu_host",
    ),
    "an empty group": (hosts("gpu_hosts:\n  hosts: {}\n"), "no host in group gpu_hosts, and so nothing to do: add your hosts to it"),
    # wrong types
    "a word for a number": (with_lines("ddtree_server_port: http"), "ddtree_server_port is 'http': a whole number is wanted"),
    "a fraction": (with_lines("gpu_host_gpus: 7.5"), "gpu_host_gpus is 7.5: a whole number is wanted"),
    "a yes for a number": (with_lines("gpu_host_gpus: yes"), "gpu_host_gpus is True: a whole number is wanted"),
    "a list for a text": (
        with_lines("ddtree_server_model: [/srv/a, /srv/b]"),
        "ddtree_server_model is ['/srv/a', '/srv/b']: a text is wanted",
    ),
    "nothing for a text": (with_lines("ddtree_server_drafter:"), 'ddtree_server_drafter is empty: write a value, or "" for none'),
    "a text for a mapping": (with_lines("ddtree_server_env: A=1"), "ddtree_server_env is 'A=1': a mapping of names to values is wanted"),
    "a number for a list": (with_lines("benchmark_contexts: 60"), "benchmark_contexts is 60: a list is wanted"),
    "a word in a list of numbers": (
        with_lines("benchmark_concurrencies: [1, many]"),
        "benchmark_concurrencies[1] is 'many': a whole number is wanted",
    ),
    "a word for a yes": (with_lines("gpu_host_install: perhaps"), "gpu_host_install is 'perhaps': true or false is wanted"),
    "a bare no": (with_lines("ddtree_server_restart: no"), "ddtree_server_restart is False: write 'no' in quotes"),
    "a misspelt choice": (with_lines("ddtree_server_manager: sytemd"), "one of systemd, supervisor is wanted; did you mean systemd?"),
    "a truth in the environment": (
        with_lines("ddtree_server_env: {A: true}"),
        "ddtree_server_env.A is True: write the text that the engine shall read",
    ),
    "a word for a budget": (with_lines("point_defaults: {budget: twelve}"), "budget=twelve: a whole number is wanted"),
    "a text for the defaults": (with_lines("point_defaults: b12"), "point_defaults: is 'b12': a mapping such as"),
    # impossible numbers
    "a port that is none": (with_lines("ddtree_server_port: 70000"), "ddtree_server_port is 70000: 1 to 65535 is wanted"),
    "no time at all": (with_lines("ddtree_server_ready_timeout: 0"), "ddtree_server_ready_timeout is 0: 1 to 86400 is wanted"),
    "a negative number": (with_lines("ddtree_server_idle_mib: -1"), "ddtree_server_idle_mib is -1: at least 0 is wanted"),
    "no boards": (with_lines("gpu_host_gpus: 0"), "gpu_host_gpus is 0: 1 to 64 is wanted"),
    "fewer boards than tp": (with_lines("gpu_host_gpus: 4"), "gpu_host_gpus is 4, and tp is 8: set point_defaults.tp"),
    "fewer named than tp": (with_lines("ddtree_server_gpus: [0, 1]"), "ddtree_server_gpus names 2 boards, and tp is 8"),
    "a board too high": (
        with_lines("ddtree_server_gpus: [1, 2, 3, 4, 5, 6, 7, 8]"),
        "ddtree_server_gpus names GPU 8, and gpu_host_gpus says",
    ),
    "a board twice": (with_lines("ddtree_server_gpus: [0, 1, 2, 3, 4, 5, 6, 6]"), "ddtree_server_gpus names 6 twice"),
    "a board that is none": (with_lines("ddtree_server_gpus: [0, 1, 2, 3, 4, 5, 6, cuda7]"), "names 'cuda7': an index such as 3 or a UUID"),
    "a tp beyond reason": (with_lines("point_defaults: {budget: 12, tp: 800}"), "tp=800: at most 64 is wanted"),
    "a window below the block": (
        with_lines("point_defaults: {budget: 12, window: 4}\nddtree_server_block_size: 8"),
        "window=4 is below the drafter's block size of 8",
    ),
    "one machine, one unit": (
        hosts(TWINS.format(a="ddtree_server_port: 1", b="ddtree_server_port: 2")),
        "a and b are one machine with one unit, ddtree",
    ),
    "one machine, the same boards": (
        hosts(
            TWINS.format(
                a="ddtree_server_unit: a, ddtree_server_port: 1, ddtree_server_gpus: [0, 1], point_defaults: {budget: 12, tp: 2}",
                b="ddtree_server_unit: b, ddtree_server_port: 2, ddtree_server_gpus: [1, 2], point_defaults: {budget: 12, tp: 2}",
            )
        ),
        "a and b are one machine, and both take GPU 1: give each its own ddtree_server_gpus",
    ),
    # hostile and careless strings
    "a line break in a path": (
        with_lines('ddtree_server_model: "/srv/m\\nExecStartPre=/bin/sh"'),
        "one line without control characters is wanted",
    ),
    "a line break in an argument": (with_lines('ddtree_server_extra_args: ["--a\\nUser=root"]'), "ddtree_server_extra_args[0] is"),
    "a line break in the environment": (with_lines('ddtree_server_env: {A: "x\\nB=y"}'), "ddtree_server_env.A is 'x\\nB=y': one line"),
    "a unit that is a path": (
        with_lines("ddtree_server_unit: ../../etc/cron.d/x"),
        "ddtree_server_unit is '../../etc/cron.d/x': letters, digits",
    ),
    "a user with a command": (
        with_lines('ddtree_server_user: "root; reboot"'),
        "ddtree_server_user is 'root; reboot': a user's name is wanted",
    ),
    "a path that climbs": (with_lines("gpu_host_root: /opt/../etc"), "gpu_host_root is '/opt/../etc': a path without '..' is wanted"),
    "a path from nowhere": (
        with_lines("ddtree_server_state_dir: state"),
        "ddtree_server_state_dir is 'state': a path from the root is wanted",
    ),
    "an address with a space": (with_lines('ddtree_server_host: "0.0.0.0 --api-key x"'), "an address is wanted"),
    "a name that is no environment": (with_lines('ddtree_server_env: {"A B": "1"}'), "ddtree_server_env has the name 'A B'"),
    "an open quote": (with_lines('ddtree_server_extra_args: "--chat-template \'x"'), "its quotes are not closed"),
    "a key with a line break": (with_lines('ddtree_server_api_key: "s3cret\\n"'), "ddtree_server_api_key is not shown here: one line"),
    "a template that leads nowhere": (
        with_lines('ddtree_server_api_key: "{{ vault_nope }}"'),
        "ddtree_server_api_key cannot be told: 'vault_nope' is undefined",
    ),
    "a misspelt key of a model": (
        with_lines("sglang_models: [{path: /srv/m, rpo: org/m}]"),
        "sglang_models[0] has the unknown key 'rpo', known are path, repo, revision, allow; did you mean repo?",
    ),
    "a model without a folder": (with_lines("sglang_models: [{repo: org/m}]"), "sglang_models[0] has no path: it is needed"),
    "a source that is none": (with_lines("sglang_source: pipy"), "one of git, pypi, path, existing is wanted; did you mean pypi?"),
    # what does not fit together
    "no model": (with_lines('ddtree_server_model: ""'), "ddtree_server_model is not set: path or name of the target model"),
    "a flag that a variable sets": (
        with_lines("ddtree_server_extra_args: --port 1"),
        "--port, which comes from ddtree_server_port: set it there",
    ),
    "a key on the command line": (with_lines("ddtree_server_extra_args: --api-key x"), "--api-key, which comes from ddtree_server_api_key"),
    "a backend that the tree has not": (
        with_lines("ddtree_server_extra_args: --attention-backend fa3"),
        "does not run the full tree of dialect pr29907",
    ),
    "a page size that the tree has not": (
        with_lines("ddtree_server_extra_args: --page-size 64"),
        "needs --page-size 1, and extra_args asks 64",
    ),
    "a made-up accept length": (with_lines("ddtree_server_env: {SGLANG_SIMULATE_ACC_LEN: '4'}"), "SGLANG_SIMULATE_ACC_LEN"),
    "a dialect that is none": (with_lines("point_defaults: {dialect: pr2990, budget: 12}"), "did you mean pr29907?"),
    "a misspelt key of a dialect": (
        with_lines("ddtree_server_dialects: {mine: {arg: []}}"),
        "ddtree_server_dialects.mine has the unknown key 'arg' (did you mean args?)",
    ),
    "a placeholder that is none": (with_lines("ddtree_server_dialects: {mine: {args: [[--b, '{bugdet}']]}}"), "(did you mean budget?)"),
    "a rule that is none": (with_lines("ddtree_server_dialects: {mine: {derive: bush}}"), "ddtree_server_dialects.mine.derive is 'bush'"),
}


@pytest.fixture
def example(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "inventory"))


def test_there_are_enough_of_them() -> None:
    assert len(BAD) >= 40


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_each_bad_inventory_is_one_sentence(example: Path, case: tuple[Callable[[Path], None], str]) -> None:
    change, words = case
    change(example)
    found = said(example)
    matching = [one for one in found if words in one]
    assert len(matching) == 1, found
    assert "\n" not in matching[0] and "s3cret" not in matching[0] and "Traceback" not in matching[0]
    assert found == matching, "more than one mistake is told of one"


SHIPPED = {
    "example": [EXAMPLE],
    "local": [ROOT / "inventory" / "local"],
    **{
        path.parent.name: [ROOT / "molecule" / "shared" / "inventory", path]
        for path in sorted(ROOT.glob("molecule/*/inventory"))
        if path.parent.name != "shared"
    },
}


@pytest.mark.parametrize("name", SHIPPED)
def test_the_inventories_that_are_shipped_have_no_mistake(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOLECULE_PROJECT_DIRECTORY", str(ROOT))
    assert said(*SHIPPED[name], created(SHIPPED[name], tmp_path)) == []


def created(sources: list[Path], folder: Path) -> Path:
    """An inventory that says where it stands what is known of a scenario's containers once they are created."""
    names = [one.name for one in InventoryManager(loader=DataLoader(), sources=[str(one) for one in sources]).get_hosts()]
    known = {name: {"address": "127.0.0.1", "port": port, "ip": f"10.88.0.{port - 2200}"} for port, name in enumerate(names, 2202)}
    (folder / "hosts.json").write_text(json.dumps(known))
    inventory = folder / "created.yml"
    inventory.write_text(json.dumps({"all": {"hosts": {name: {"test_folder": str(folder)} for name in names}}}))  # YAML too
    return inventory


def test_a_mistake_is_told_with_its_line(example: Path) -> None:
    with_lines("ddtree_server_prot: 1")(example)
    line = next(index for index, one in enumerate((example / "group_vars/gpu_hosts.yml").read_text().splitlines(), 1) if "prot" in one)
    assert said(example)[0].startswith(f"{example}/group_vars/gpu_hosts.yml:{line}: ddtree_server_prot")


def test_a_name_of_ones_own_can_be_allowed(example: Path) -> None:
    with_lines("ddtree_server_rack: r7\nmy_own_port: 1\nvault_ddtree_server_api_key: x")(example)
    assert len(said(example)) == 1 and "ddtree_server_rack" in said(example)[0]
    with_lines("allowed_vars: [ddtree_server_rack]", "group_vars/all.yml")(example)
    assert said(example) == []


def test_what_the_command_line_asks_is_not_held_against_the_inventory(example: Path) -> None:
    with_lines("gpu_host_gpus: 4\nbudget: 12")(example)
    assert said(example, asked=["tp", "budget"]) == []


def test_what_many_hosts_share_is_told_once(example: Path) -> None:
    with_lines("ddtree_server_port: x")(example)
    assert len(said(example)) == 1


def test_a_play_that_measures_needs_no_model(example: Path) -> None:
    with_lines('ddtree_server_model: ""')(example)
    assert said(example, required=[]) == []


def test_two_engines_on_one_machine_are_fine(example: Path) -> None:
    tp = "point_defaults: {budget: 12, tp: 4}"
    hosts(TWINS.format(
        a=f"ddtree_server_unit: a, ddtree_server_port: 1, ddtree_server_gpus: [0, 1, 2, 3], {tp}",
        b=f"ddtree_server_unit: b, ddtree_server_port: 2, ddtree_server_gpus: [4, 5, 6, 7], {tp}",
    ))(example)  # fmt: skip
    assert said(example) == []


REAL = [
    ("site.yml", "a misspelt variable"),
    ("sweep.yml", "a word for a number"),
    ("benchmark.yml", "a line break in a path"),
    ("sweep.yml", "fewer named than tp"),
    ("site.yml", "no group gpu_hosts"),
]


@pytest.mark.parametrize(("play", "case"), REAL)
def test_a_play_refuses_it_before_any_host_is_touched(example: Path, play: str, case: str) -> None:
    change, words = BAD[case]
    change(example)
    point = [] if play == "benchmark.yml" else ["-e", "budget=12 topk=6"]
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(example), play, *point]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_COLOR": "1"}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2 and words in text, text
    assert "changed=0" in text and "changed=1" not in text
    assert "gpu01.example.net :" not in text.partition("PLAY RECAP")[2], "a host was touched"


AFTER = """
- hosts: gpu_hosts
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact: {ddtree_server_runs: [], gpu_host_facts: {}}
- hosts: localhost
  gather_facts: false
  tasks:
    - inventory_check:
"""


def test_what_an_earlier_play_has_set_is_no_part_of_the_inventory(example: Path) -> None:
    (example.parent / "after.yml").write_text(AFTER)
    with_lines("ddtree_server_prot: 1")(example)
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "inventory", "after.yml"]
    env = {**os.environ, "NO_COLOR": "1", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    done = subprocess.run(command, cwd=example.parent, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2 and "failed: inventory/group_vars/gpu_hosts.yml:" in text, text
    assert "did you mean ddtree_server_port?" in text and "ddtree_server_runs" not in text and "gpu_host_facts" not in text

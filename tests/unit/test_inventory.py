"""The parts of the inventory check that no inventory of files reaches: many hosts, places, and any value at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from ddtree.inventory import Inventory, Value, mistakes
from ddtree.inventory_rules import rules
from ddtree.inventory_values import Undefined, complaint

OPTIONS: dict[str, dict[str, Any]] = {
    "ddtree_server_model": {"type": "str", "role": "ddtree_server", "description": "Path of the model."},
    "ddtree_server_port": {"type": "int", "role": "ddtree_server"},
    "ddtree_server_gpus": {"type": "list", "elements": "str", "role": "ddtree_server"},
    "ddtree_server_extra_args": {"type": "raw", "role": "ddtree_server"},
    "ddtree_server_env": {"type": "dict", "role": "ddtree_server"},
    "ddtree_server_dialects": {"type": "dict", "role": "ddtree_server"},
    "ddtree_server_api_key": {"type": "str", "role": "ddtree_server"},
    "gpu_host_gpus": {"type": "int", "role": "gpu_host"},
    "report_width": {"type": "int", "role": "report", "controller": True},
}


def inventory(hosts: dict[str, dict[str, Any]], **changed: Any) -> Inventory:
    given = {host: {name: one if isinstance(one, Value) else Value(one) for name, one in of.items()} for host, of in hosts.items()}
    return Inventory(given, {"all": list(hosts), "gpu_hosts": list(hosts)}, OPTIONS, **changed)


def test_what_is_wrong_in_one_place_is_told_once_and_what_is_wrong_in_many_each() -> None:
    shared = Value("x", "group_vars/all.yml:3")
    found = mistakes(
        inventory({"a": {"ddtree_server_port": shared}, "b": {"ddtree_server_port": shared}, "c": {"ddtree_server_port": "y"}})
    )
    assert found == [
        "group_vars/all.yml:3: ddtree_server_port is 'x': a whole number is wanted",
        "c: ddtree_server_port is 'y': a whole number is wanted",
    ]


def test_what_many_hosts_lack_is_one_sentence() -> None:
    hosts: dict[str, dict[str, Any]] = {f"gpu{index}": {} for index in range(6)}
    assert mistakes(inventory(hosts, required=["ddtree_server_model"])) == [
        "gpu0, gpu1, gpu2, gpu3 and 2 more: ddtree_server_model is not set: path of the model"
    ]


def test_a_file_that_nothing_reads_is_told_and_what_it_would_have_said_is_not() -> None:
    files = [Path("group_vars/gpu_hosts.yml"), Path("group_vars/gpuhosts"), Path("host_vars/a.yml"), Path("host_vars/b.yml")]
    found = mistakes(inventory({"a": {}}, required=["ddtree_server_model"], files=files))
    assert found == [
        "group_vars/gpuhosts is read by nothing, since no group is called gpuhosts; did you mean gpu_hosts?",
        "host_vars/b.yml is read by nothing, since no host is called b",
    ]


def test_names_near_ours_are_slips_and_others_are_not() -> None:
    own = {"rack": 1, "vault_ddtree_server_api_key": 2, "my_ddtree_server_port": 3, "ddtree_servr_port": 4, "local_root": 5}
    assert [one.split(" is ")[0] for one in mistakes(inventory({"a": own}))] == ["a: ddtree_servr_port"]


def test_a_variable_of_the_controller_must_reach_it() -> None:
    hosts = {"a": {"report_width": 80}}
    assert "move it to group_vars/all.yml" in mistakes(inventory(hosts))[0]
    assert mistakes(inventory(hosts, localhost={"report_width": Value(80)})) == []
    assert mistakes(inventory(hosts, asked=["report_width"])) == []


def test_a_value_that_is_wrong_in_itself_is_not_told_again_by_the_rules() -> None:
    assert rules(inventory({"a": {"gpu_host_gpus": "many", "ddtree_server_extra_args": "--port 1"}})) == [
        "a: extra_args has --port, which comes from ddtree_server_port: set it there"
    ]


@pytest.mark.parametrize("value", ["s3cret\n", ["s3cret"], {"s3cret": 1}, b"s3cret"])
def test_a_key_is_never_shown(value: Any) -> None:
    said = complaint("ddtree_server_api_key", value, OPTIONS["ddtree_server_api_key"])
    assert said and "s3cret" not in said


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(sorted(OPTIONS)), values)
def test_any_value_is_accepted_or_told_in_one_line(name: str, value: Any) -> None:
    said = complaint(name, value, OPTIONS[name])
    assert "\n" not in said and "\r" not in said
    assert not said or said.startswith(name)


@example({"ddtree_server_extra_args": {"\n": [None]}})
@given(st.dictionaries(st.sampled_from([*sorted(OPTIONS), "point_defaults", "ansible_host", "budget"]), values, max_size=6))
def test_any_host_is_judged(variables: dict[str, Any]) -> None:
    given = inventory({"a": variables, "b": {}}, required=["ddtree_server_model"])
    for said in [*mistakes(given), *rules(given)]:
        assert isinstance(said, str) and "\n" not in said


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("path", sorted(ROOT.glob("roles/*/meta/argument_specs.yml")), ids=lambda path: path.parent.parent.name)
def test_every_default_of_every_role_is_accepted(path: Path) -> None:
    for spec in yaml.safe_load(path.read_text())["argument_specs"].values():
        for name, option in (spec.get("options") or {}).items():
            value = option.get("default", "")
            if "{{" not in str(value) and not option.get("required"):
                assert complaint(name, value, option) == ""


def test_choices_of_a_list_are_those_of_its_items() -> None:
    option = {"type": "list", "elements": "str", "choices": ["systemd", "bwrap"]}
    assert complaint("x", [], option) == complaint("x", ["bwrap"], option) == ""
    assert complaint("x", ["bwrap", "bwarp"], option) == "x[1] is 'bwarp': one of systemd, bwrap is wanted; did you mean bwrap?"


def test_what_cannot_be_told_is_said_with_its_reason() -> None:
    assert complaint("ddtree_server_port", Undefined("'x' is undefined"), {}) == "ddtree_server_port cannot be told: 'x' is undefined"

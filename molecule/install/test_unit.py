"""Every argument and variable that any text can make comes back equal from a process that systemd started from our unit file."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import shlex
from typing import Any

import jinja2
import pytest
import yaml
from ansible.errors import AnsibleFilterError
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from remotehost import ROOT, Remote

ROLE = ROOT / "roles" / "ddtree_server"
FOLDER = "/etc/ddtree-trip"
TELL = f"{FOLDER}/tell.py"
SAID = "/run/ddtree-trip.json"
PROGRAM = f"""
import json, os, sys
with open({SAID!r}, "w") as file:
    json.dump([sys.argv[1:], dict(os.environ)], file)
"""
HOSTILE = ["%n", "%%", "$HOME", "${HOME}", "$$", "$", '{"a": "b c"}', "it's", '"', "'", "\\", "a\\", "\\x41", "\\n", ";", "; rm", "#x", " ",
           "", "\t", "-", "--", "@", "+!:", "é ü", "\u2028", "\u00a0", "[Service]", "ExecStartPre=/bin/false", "a" * 300]  # fmt: skip
# Any text: all that is printable, and what else no control character is.
texts = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn"]), max_size=20) | st.sampled_from(HOSTILE)
names = st.from_regex(r"[A-Z][A-Z0-9_]{0,12}", fullmatch=True).map(lambda name: f"X_{name}")


def filters() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("ddtree", "sglang"):
        spec = importlib.util.spec_from_file_location(f"filters_{name}", ROOT / "filter_plugins" / f"{name}.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found |= module.FilterModule().filters()
    return found


def rendered(template: str, **given: Any) -> str:
    """A template of the role with its defaults, as Ansible renders it."""
    # The defaults that are templates themselves are given below.
    values = {name: value for name, value in yaml.safe_load((ROLE / "defaults" / "main.yml").read_text()).items() if "{{" not in str(value)}
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROLE / "templates"), trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= filters()
    usual = {"ddtree_server_unit": "trip", "ddtree_server_user": "root", "ddtree_server_home": "/tmp", "ddtree_server_config_dir": FOLDER,
             "ddtree_server_device_nodes": ["/dev/null"], "ddtree_server_restart": "no", "ddtree_server_hardening": False}  # fmt: skip
    return environment.get_template(template).render(**{**values, **usual, **given})


class Trip:
    """A unit of ours on the host that tells what its process was given."""

    def __init__(self, host: Remote) -> None:
        self.host = host
        host.sh(f"mkdir -p {FOLDER} && cat > {TELL}", PROGRAM)
        self.start([], {}, {})
        self.plain = self.properties

    def start(self, arguments: list[str], environment: dict[str, str], secrets: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        argv = ["/usr/bin/python3", TELL, *arguments]
        files = {
            "/run/systemd/system/trip.service": rendered("unit.service.j2", _ddtree_server_argv=argv),
            f"{FOLDER}/trip.env": rendered("engine.env.j2", _ddtree_server_environment=environment),
            f"{FOLDER}/trip.keys": rendered("keys.env.j2", _ddtree_server_secrets=secrets),
        }
        write = "".join(f"echo {base64.b64encode(text.encode()).decode()} | base64 -d > {path}\n" for path, text in files.items())
        said = self.host.sh(
            f"sh -e -s; cat {SAID}; echo; systemctl show --all trip.service",
            f"rm -f {SAID}\n{write}systemctl daemon-reload\nsystemctl reset-failed trip.service 2>/dev/null || true\n"
            "systemctl start --wait trip.service\n",
        )
        told, _, properties = said.partition("\n")
        # Lists of units are in no order; times and pids of the commands differ from start to start.
        lines = [line.partition(" ; start_time")[0] for line in properties.split("\n") if not OF_A_START.match(line)]
        self.properties = sorted(" ".join(sorted(line.replace("=", " = ", 1).split())) for line in lines)
        found = json.loads(told)
        return found[0], found[1]


# All that a directive could set is compared; these say how one start went, or what it was given.
OF_A_START = re.compile(r"\w*(Timestamp|PID|InvocationID|NSec|Bytes|Packets|TasksCurrent|MemoryCurrent|ExecMain)\w*=|ExecStart(Ex)?=")


@pytest.fixture(scope="module")
def trip(host: Remote) -> Trip:
    return Trip(host)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], derandomize=False)
@given(
    st.lists(texts, min_size=30, max_size=120),
    st.dictionaries(names, texts, min_size=3, max_size=12),
    st.dictionaries(names, texts, max_size=3),
)
@example(HOSTILE, {f"X_{number}": text for number, text in enumerate(HOSTILE)}, {"X_KEY": "p%a$s's\"w\\o#r;d"})
def test_every_value_comes_back_and_none_adds_a_directive(
    trip: Trip, arguments: list[str], environment: dict[str, str], secrets: dict[str, str]
) -> None:
    came, given_to = trip.start(arguments, environment, secrets)
    assert came == arguments
    assert {name: given_to.get(name) for name in {**environment, **secrets}} == {**environment, **secrets}
    assert sorted(set(trip.properties) ^ set(trip.plain)) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ddtree_server_unit", "x\nExecStartPre=/bin/true"),
        ("ddtree_server_unit", "../x"),
        ("ddtree_server_user", "root\nExecStartPre=/bin/true"),
        ("ddtree_server_home", "/tmp\nExecStartPre=/bin/true"),
        ("ddtree_server_home", "tmp"),
        ("ddtree_server_config_dir", "/etc/x\\"),
        ("ddtree_server_device_nodes", ["/dev/null\nExecStartPre=/bin/true"]),
        ("_ddtree_server_argv", ["/bin/echo", "a\nExecStartPre=/bin/true"]),
    ],
)
def test_what_could_add_a_line_is_refused(name: str, value: Any) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        rendered("unit.service.j2", **{"_ddtree_server_argv": ["/bin/echo"], name: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["/srv/a b", "/srv/%h/$HOME", "/srv/é'\"", "/srv/#x;y"])
def test_a_path_with_signs_is_the_path(path: str, trip: Trip) -> None:
    trip.host.sh(f"mkdir -p {shlex.quote(path)}")
    unit = rendered("unit.service.j2", _ddtree_server_argv=["/bin/pwd"], ddtree_server_home=path, ddtree_server_device_nodes=[path])
    trip.host.sh(
        "cat > /run/systemd/system/trip-path.service", unit.replace("Type=exec", "Type=oneshot\nStandardOutput=truncate:/run/trip-path")
    )
    trip.host.sh("touch /etc/ddtree-trip/trip.env /etc/ddtree-trip/trip.keys; systemctl daemon-reload; systemctl start trip-path.service")
    assert trip.host.sh("cat /run/trip-path") == f"{path}\n"


def test_the_template_has_no_directive_that_hides_what_the_engine_needs() -> None:
    unit = rendered("unit.service.j2", _ddtree_server_argv=["/bin/echo"], ddtree_server_hardening=True)
    directives = {line.partition("=")[0] for line in unit.splitlines() if "=" in line and not line.startswith("#")}
    assert not directives & {"PrivateDevices", "ProtectClock", "ProtectHome", "MemoryDenyWriteExecute", "DevicePolicy", "DeviceAllow",
                             "MemoryMax", "PrivateNetwork", "PrivateIPC"}  # fmt: skip
    assert "KillMode=mixed" in unit and "ProtectSystem=full" in unit

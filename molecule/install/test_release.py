"""A host serves from a release of its own; what cannot serve is refused while the old engine goes on; then it is switched."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any

from remotehost import ROOT, Remote


def site(host: Remote, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_HOME": str(ROOT / ".ansible"), "NO_COLOR": "1"}
    command = [ROOT / ".venv" / "bin" / "ansible-playbook", f"--inventory={ROOT}/molecule/shared/inventory",
               f"--inventory={ROOT}/molecule/install/inventory", f"--limit={host.name},localhost",
               "--extra-vars=budget=12 topk=6 gpu_host_install=false", *words, ROOT / "site.yml"]  # fmt: skip
    return subprocess.run(
        [str(word) for word in command], env=environment, cwd=ROOT, text=True, timeout=600, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def release(host: Remote) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(host.sh("cat /opt/sglang/current/release.json"))
    return found


def releases(host: Remote) -> list[str]:
    """Versions of the releases that are there."""
    return sorted(name.split("-")[0] for name in host.sh("ls /opt/sglang/releases").split())


def serving(host: Remote) -> tuple[str, str, str]:
    """(invocation, folder of the release that the process was started from, its user) of an engine that generates."""
    body = '{"text": "One", "sampling_params": {"temperature": 0, "max_new_tokens": 8}}'
    answer = json.loads(host.sh(f"curl -s --noproxy '*' -d '{body}' http://127.0.0.1:30000/generate"))
    unit = host.look()["unit"]
    assert (answer["meta_info"]["completion_tokens"], unit["ActiveState"]) == (8, "active")
    command = host.sh(f"tr '\\0' ' ' < /proc/{unit['MainPID']}/cmdline")
    user = host.sh(f"stat -c %U /proc/{unit['MainPID']}").strip()
    return unit["InvocationID"], command.split("/bin/")[0], user


def refused(host: Remote, *words: str) -> str:
    """What is said of a run that must fail and leave what serves alone, files included."""
    files = "cat /etc/systemd/system/ddtree.service /etc/ddtree-ops/ddtree.env; readlink /opt/sglang/current"
    before, texts = serving(host), host.sh(files)
    done = site(host, *words)
    assert done.returncode != 0, done.stdout[-3000:]
    assert (serving(host), host.sh(files)) == (before, texts)
    return " ".join(done.stdout.split())


def number(limit: str) -> float:
    return float("inf") if limit == "unlimited" else float(limit)


def test_it_serves_from_a_release_with_a_record_of_every_version(host: Remote) -> None:
    installer = {"gpu01": "pip", "gpu02": "uv"}[host.name]
    record = release(host)
    folder = f"/opt/sglang/releases/{record['id']}"
    assert (record["version"], record["installer"], record["source"]["source"]) == ("0.5.21", installer, "pypi")
    installed = host.sh(f"{folder}/bin/python -c 'import importlib.metadata as m; print(m.version(\"aiohttp\"))'").strip()
    assert record["packages"]["aiohttp"] == installed
    assert f"aiohttp=={installed}" in host.sh(f"cat {folder}/lock.txt")
    assert serving(host)[1:] == (folder, "ddtree")
    assert "/opt/sglang/current" not in host.sh("cat /etc/systemd/system/ddtree.service"), "a switch must be a change of the unit"


def test_the_unit_serves_as_systemd_and_the_kernel_see_it(host: Remote) -> None:
    assert host.sh("systemd-analyze verify /etc/systemd/system/ddtree.service 2>&1; echo $?").strip() == "0"
    pid = host.look()["unit"]["MainPID"]
    # A container's systemd cannot go beyond the hard limits that it was started with itself.
    limits, most = (host.sh(f"cat /proc/{one}/limits") for one in (pid, 1))
    for name, asked in (("Max open files", "1048576"), ("Max locked memory", "unlimited"), ("Max core file size", "0")):
        soft, hard = (re.search(rf"^{name} +(\w+) +(\w+) ", text, re.M) for text in (limits, most))
        assert soft and hard and soft[1] == (asked if asked == "0" or hard[2] == "unlimited" else min(asked, hard[2], key=number)), limits
    assert host.sh("stat -c '%a %U' /etc/ddtree-ops/ddtree.env /etc/ddtree-ops/ddtree.keys").split() == ["600", "root"] * 2
    environment = dict(one.split("=", 1) for one in host.sh(f"cat /proc/{pid}/environ").split("\0") if one)
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE", "HF_HOME", "TMPDIR"):
        host.sh(f"setpriv --reuid=ddtree --regid=ddtree --clear-groups sh -c 'mkdir -p {environment[name]} && test -w {environment[name]}'")
    root_owned = host.sh("find /var/lib/ddtree-ops /etc/ddtree-ops -maxdepth 1 -not -user root").split()
    assert root_owned == ["/var/lib/ddtree-ops/home"]
    assert host.sh("find /var/lib/ddtree-ops/home -not -user ddtree") == ""
    hidden = host.sh(f"nsenter --target {pid} --mount touch /usr/x /etc/x 2>&1 || true")
    assert hidden.count("Read-only file system") == 2
    assert host.sh(f"nsenter --target {pid} --mount ls /dev | wc -l") == host.sh("ls /dev | wc -l"), "devices are hidden from the engine"


def test_a_release_that_cannot_be_imported_is_refused(host: Remote) -> None:
    said = refused(host, "-e", "sglang_version=0.5.24")
    assert "cannot be imported: ImportError: sglang-kernel 0.4.8 is installed, 0.4.10 is needed" in said
    assert release(host)["version"] == "0.5.21"


def test_a_build_without_ddtree_is_refused_before_the_switch(host: Remote) -> None:
    said = refused(host, "-e", "sglang_version=0.5.23")
    assert "SGLang 0.5.23 of /opt/sglang/releases/0.5.23-" in said
    assert "it has no algorithm 'DDTREE', only DFLASH" in said and "it has no flag --speculative-ddtree-budget" in said


def test_flags_that_the_build_does_not_know_are_refused_before_anything_is_written(host: Remote) -> None:
    flags = ["--speculative-dflash-draft-window-size", "2048", "--reasoning_parser", "kimi_k2", "--log-level", "info"]
    said = refused(host, "-e", json.dumps({"ddtree_server_extra_args": flags}))
    assert "it has no flag --speculative-dflash-draft-window-size; it is now named --speculative-draft-window-size" in said
    assert "it has no flag --reasoning_parser; did you mean --reasoning-parser?" in said and "--log-level" not in said


def test_it_is_switched_and_the_old_release_goes(host: Remote) -> None:
    before = serving(host)
    done = site(host, "-e", "sglang_version=0.5.22")
    assert done.returncode == 0, done.stdout[-3000:]
    after = serving(host)
    assert after[0] != before[0] and release(host)["version"] == "0.5.22" and after[1].endswith(release(host)["id"])
    assert "0.5.21" not in releases(host)
    done = site(host, "-e", "sglang_version=0.5.22")
    assert done.returncode == 0 and re.search(rf"^{host.name} .* changed=0 ", done.stdout, re.M), done.stdout[-2000:]
    assert serving(host) == after

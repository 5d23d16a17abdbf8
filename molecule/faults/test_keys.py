"""With keys set, no key is anywhere but in the file of mode 0600 from which systemd gives it to the engine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from remotehost import ROOT, SIMULATED, Remote

KEY, ADMIN = "sk-sentinel-4711-api", "sk-sentinel-4711-admin"
KEYS_FILE = "/etc/ddtree-ops/ddtree.keys"


def site(host: Remote, folder: Path, *flags: str, keys: bool = True, fails: bool = False) -> str:
    """Everything that site.yml and the whole of Ansible's debugging print, with keys in a vars file as people keep them."""
    given = folder / "keys.yml"
    given.write_text(f"ddtree_server_api_key: {KEY if keys else ''!r}\nddtree_server_admin_api_key: {ADMIN if keys else ''!r}\n")
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_HOME": str(ROOT / ".ansible"), "NO_COLOR": "1"}
    command = [ROOT / ".venv" / "bin" / "ansible-playbook", f"--inventory={ROOT}/molecule/shared/inventory",
               f"--inventory={ROOT}/molecule/faults/inventory", f"--limit={host.name},localhost", "--extra-vars=budget=12 topk=6",
               f"--extra-vars=@{given}", *flags, ROOT / "site.yml"]  # fmt: skip
    done = subprocess.run(
        [str(word) for word in command], env=environment, cwd=ROOT, text=True, timeout=600, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert (done.returncode != 0) == fails, done.stdout[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def printed(host: Remote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """What three runs with keys print: one that predicts, one that restarts, one that fails, which shows the most."""
    folder = tmp_path_factory.mktemp("keys")
    given = [site(host, folder, "-vvvv", "--diff", "--check"), site(host, folder, "-vvvv", "--diff")]
    assert host.sh(f"stat -c %a {KEYS_FILE}").strip() == "600"
    # The keys are in force: who has none is turned away, and the module got its answer with one.
    asked = 'curl -s -o /dev/null -w %{http_code} -d \'{"text": "One"}\' http://127.0.0.1:30000/generate'
    assert host.sh(asked) == "401" and host.sh(f"{asked} -H 'Authorization: Bearer {KEY}'") == "200"
    wrong = '{"ddtree_server_state": "restarted", "simulated_host_faults": {"wrong_config": true}}'
    given.append(site(host, folder, "-vvvv", "--diff", "-e", wrong, fails=True))
    yield given
    host.faults()
    site(host, folder, keys=False)


def test_no_key_in_any_output_at_the_highest_verbosity(printed: list[str]) -> None:
    assert "configuration" in printed[1] and "config_mismatch" in printed[2]
    for text in printed:
        found = [line for line in text.splitlines() if KEY in line or ADMIN in line]
        assert not found, "\n".join(line[:2000] for line in found[:3])


@pytest.mark.usefixtures("printed")
def test_no_key_in_any_file_but_the_one_for_it(host: Remote) -> None:
    # Ansible removes the module's own copy, in a folder of mode 0700, up to 5 s after the module has ended.
    find = f"grep -rlsaF sk-sentinel-4711 /etc /var /root /tmp /run /opt {SIMULATED}/state --exclude-dir=journal || true"
    end = time.monotonic() + 10
    while (files := host.sh(find).split()) != [KEYS_FILE] and time.monotonic() < end:
        time.sleep(0.5)
    assert files == [KEYS_FILE], files


@pytest.mark.usefixtures("printed")
def test_no_key_in_the_journal(host: Remote) -> None:
    lines = host.sh("journalctl --no-pager --output=export | grep -aF sk-sentinel-4711 || true")
    assert not lines, lines[:2000]

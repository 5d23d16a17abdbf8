"""What the definition of a unit tells: a change of any secret, and no secret."""

from __future__ import annotations

from pathlib import Path

from ddtree.quoting import supervisor_env
from ddtree.services import _definition

SECRETS = {"HF_TOKEN": "hf-4711", "LICENCE": "li-4711%x", "PIN": "4711 4711"}


def test_no_value_of_the_file_of_keys_is_told_and_each_change_is(tmp_path: Path) -> None:
    keys = tmp_path / "ddtree.keys"
    told = []
    for licence in ("one", "two"):
        keys.write_text(f'DDTREE_API_KEY="sk-4711"\nLICENCE="{licence}"\n')
        told.append(_definition([str(keys)], ["sk-4711"]))
        assert "4711" not in told[-1] and licence not in told[-1] and "LICENCE=sha256:" in told[-1]
    assert told[0] != told[1]


def test_an_environment_is_told_but_for_what_looks_secret(tmp_path: Path) -> None:
    path = tmp_path / "ddtree.env"
    path.write_text('PATH="/bin"\nHF_TOKEN="hf-4711"\n')
    assert "/bin" in _definition([str(path)], []) and "4711" not in _definition([str(path)], [])


def test_a_program_tells_no_secret_however_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "ddtree.conf"
    path.write_text(f"[program:ddtree]\nenvironment = {supervisor_env({**SECRETS, 'PATH': '/bin'})}\n")
    told = _definition([str(path)], list(SECRETS.values()))
    assert "4711" not in told and "/bin" in told

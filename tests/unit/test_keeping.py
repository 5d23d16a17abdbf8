"""What was put aside comes back byte by byte, and a keep that is cut off leaves the older one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddtree.keeping import KeepError, keep, kept, promote, put_back


@pytest.fixture
def unit(tmp_path: Path) -> list[str]:
    (tmp_path / "etc").mkdir()
    paths = [tmp_path / "etc" / name for name in ("ddtree.service", "ddtree.env", "ddtree.keys")]
    for path in paths:
        path.write_text(f"first {path.name}\n")
    paths[2].chmod(0o600)
    return [str(path) for path in paths]


def test_files_mode_and_link_come_back(tmp_path: Path, unit: list[str]) -> None:
    link = tmp_path / "current"
    link.symlink_to("releases/one")
    folder = str(tmp_path / "kept-x")
    assert keep(folder, [*unit, str(tmp_path / "not-there")], {"active": "active", "config_id": "c1"}, str(link))
    assert oct(os.stat(folder).st_mode)[-3:] == "700"
    assert put_back(folder)[1] == []
    for path in unit:
        Path(path).write_text("second\n")
    link.unlink()
    link.symlink_to("releases/two")
    note, changed = put_back(folder, check=True)
    assert changed == [*unit, str(link)] and Path(unit[0]).read_text() == "second\n"
    note, changed = put_back(folder)
    assert note["config_id"] == "c1" and changed == [*unit, str(link)]
    assert Path(unit[0]).read_text() == "first ddtree.service\n" and os.readlink(link) == "releases/one"
    assert oct(os.stat(unit[2]).st_mode)[-3:] == "600"


def test_it_is_kept_once_unless_wanted_anew(tmp_path: Path, unit: list[str]) -> None:
    folder = str(tmp_path / "kept-x")
    assert keep(folder, unit, {"config_id": "c1"})
    Path(unit[0]).write_text("second\n")
    assert not keep(folder, unit, {"config_id": "c2"})
    assert kept(folder)["config_id"] == "c1"
    assert keep(folder, unit, {"config_id": "c2"}, anew=True)
    assert kept(folder)["config_id"] == "c2" and (Path(folder) / "ddtree.service").read_text() == "second\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["etc", "kept-x"]


def test_a_keep_that_was_cut_off_between_its_renames_is_the_older_one(tmp_path: Path, unit: list[str]) -> None:
    folder = tmp_path / "kept-x"
    keep(str(folder), unit, {"config_id": "c1"})
    folder.rename(tmp_path / "kept-x.old")
    assert kept(str(folder))["config_id"] == "c1"


def test_nothing_kept_and_half_kept_are_told(tmp_path: Path, unit: list[str]) -> None:
    folder = tmp_path / "kept-x"
    with pytest.raises(KeepError, match="nothing was kept in"):
        put_back(str(folder))
    keep(str(folder), unit, {"config_id": "c1"})
    (folder / "ddtree.env").unlink()
    Path(unit[0]).write_text("second\n")
    with pytest.raises(KeepError, match="is not whole"):
        put_back(str(folder))
    assert Path(unit[0]).read_text() == "second\n", "half of it is not put back"


def test_what_was_kept_becomes_the_last_good_only_when_it_is_promoted(tmp_path: Path, unit: list[str]) -> None:
    turn, good = str(tmp_path / "kept-before-turn"), str(tmp_path / "kept-last-good")
    assert not promote(turn, good)
    keep(good, unit, {"config_id": "c1"})
    keep(turn, unit, {"config_id": "c2"})
    assert promote(turn, good, check=True) and kept(good)["config_id"] == "c1"
    assert promote(turn, good) and kept(good)["config_id"] == "c2" and not (tmp_path / "kept-before-turn").exists()

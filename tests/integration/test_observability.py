"""What Prometheus reads is what Prometheus takes: rules, scrape jobs and figures, by its own promtool out of the Debian package."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "prometheus"
FILES = ROOT / "roles" / "observability" / "files"
_spec = importlib.util.spec_from_file_location("textfile", FILES / "textfile.py")
assert _spec and _spec.loader
textfile = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(textfile)

# Each alert with the series that raise it, and a time at which it is there.
RULES = {
    "rule_files": [str(FILES / "rules.yml")],
    "evaluation_interval": "1m",
    "tests": [
        {
            "interval": "1m",
            "input_series": [
                {"series": 'ddtree_drift{host="gpu01",unit="ddtree"}', "values": "0x4 1x30"},
                {"series": 'ddtree_up{host="gpu01",unit="ddtree"}', "values": "1x40"},
                {"series": 'ddtree_up{host="gpu02",unit="ddtree"}', "values": "1x4 0x30"},
                {"series": 'ddtree_restarts_total{host="gpu02",unit="ddtree"}', "values": "0x4 1 2 3x30"},
                {"series": 'ddtree_last_outcome{host="gpu03",unit="ddtree",outcome="failed",cause="crash_loop"}', "values": "1x40"},
                {"series": 'ddtree_seen_seconds{host="gpu01",unit="ddtree"}', "values": "0+60x40"},
                {"series": 'ddtree_seen_seconds{host="gpu04",unit="ddtree"}', "values": "0+60x4 240x30"},
            ],
            "alert_rule_test": [
                {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": alerts}
                for minute, name, alerts in (
                    (3, "DdtreeDrift", []),
                    (3, "DdtreeDown", []),
                    (12, "DdtreeDrift", [{"exp_labels": {"severity": "warning", "host": "gpu01", "unit": "ddtree"}}]),
                    (12, "DdtreeDown", [{"exp_labels": {"severity": "critical", "host": "gpu02", "unit": "ddtree"}}]),
                    (12, "DdtreeUnseen", [{"exp_labels": {"severity": "warning", "host": "gpu04", "unit": "ddtree"}}]),
                    (12, "DdtreeCrashLoop", [
                        {"exp_labels": {"severity": "critical", "host": "gpu02", "unit": "ddtree"}},
                        {"exp_labels": {"severity": "critical", "host": "gpu03", "unit": "ddtree", "outcome": "failed",
                                        "cause": "crash_loop"}},
                    ]),
                )
            ],
        }
    ],
}  # fmt: skip


@pytest.fixture(scope="session")
def promtool() -> str:
    """promtool of the machine, else out of Debian's package, fetched once."""
    tool = CACHE / "usr" / "bin" / "promtool"
    if not tool.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        fetched = subprocess.run(["apt-get", "download", "prometheus"], cwd=CACHE, capture_output=True, text=True, check=False)
        assert fetched.returncode == 0, f"promtool comes with the package prometheus, and apt-get cannot fetch it: {fetched.stderr}"
        package = next(CACHE.glob("prometheus_*.deb"))
        subprocess.run(["dpkg-deb", "--extract", str(package), str(CACHE)], check=True)
        package.unlink()
    return str(tool)


def checked(*words: str, given: str = "") -> str:
    done = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def without_annotations(rules: Path, folder: Path) -> Path:
    """The rules as promtool's test compares them: labels decide; the sentences are for people."""
    found = yaml.safe_load(rules.read_text())
    for group in found["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations")
    path = folder / "rules.yml"
    path.write_text(yaml.safe_dump(found))
    return path


def test_rules_are_taken_and_each_alert_is_raised(promtool: str, tmp_path: Path) -> None:
    assert "SUCCESS: 4 rules found" in checked(promtool, "check", "rules", str(FILES / "rules.yml"))
    asked = {**RULES, "rule_files": [str(without_annotations(FILES / "rules.yml", tmp_path))]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(asked))
    assert "SUCCESS" in checked(promtool, "test", "rules", str(tmp_path / "test.yml"))


def test_figures_are_in_the_exposition_format(promtool: str) -> None:
    state = {"ActiveState": "active", "NRestarts": "2", "ExecStart": "--weight-version 5f1c0a9be234"}
    lease = {"who": "ada@ops1", "what": 'a "deploy"', "until": 2000.0}
    soak = {"tok_s": 139.0, "config_id": "5f1c0a9be234"}
    found = textfile.samples("ddtree", state, {"started": {"proof": "ready"}}, soak, lease, {"weight_version": "x"}, 1000.0)
    assert {name for name, _, _ in found} == set(textfile.HELP)
    checked(promtool, "check", "metrics", given=textfile.text(found))


def test_scrape_jobs_are_taken(promtool: str, tmp_path: Path) -> None:
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1"}
    words = [str(Path(sys.executable).parent / "ansible-playbook"), str(ROOT / "observability.yml"), "-e", f"observability_dir={tmp_path}"]
    done = subprocess.run(words, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    jobs = yaml.safe_load((tmp_path / "scrape.yml").read_text())
    assert [job["job_name"] for job in jobs["scrape_configs"]] == ["ddtree-engine", "ddtree-host"]
    assert jobs["scrape_configs"][0]["static_configs"][0]["targets"] == ["local:30000"]
    config = {"rule_files": [str(tmp_path / "rules.yml")], **jobs}  # 2.42 of the package knows no scrape_config_files yet
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    assert "SUCCESS" in checked(promtool, "check", "config", str(tmp_path / "prometheus.yml"))
    assert json.loads((tmp_path / "dashboard.json").read_text())["title"] == "ddtree-ops"

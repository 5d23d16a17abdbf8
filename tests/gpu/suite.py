"""The parts of the suite. Each step is timed, printed and saved at once, so that a cut-off run keeps what it saw."""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cells
from toolkit import HERE, Toolkit, phases
from truth import Boards, Streams, Unit, Watch

HOLD_MIB = 20480
FIELDS = (
    "version",
    "speculative_algorithm",
    "speculative_draft_window_size",
    "speculative_num_draft_tokens",
    "max_running_requests",
    "weight_version",
    "max_total_num_tokens",
)
HOLD = "import time, torch; held = torch.empty({mib} << 20, dtype=torch.uint8, device='cuda'); print('held', flush=True); time.sleep(600)"


def show(at: float, line: str) -> None:
    """Print the lines of a play that tell phases and figures."""
    if "tok/s" in line or " s  " in line:
        print("   ", line, flush=True)


class Suite:
    def __init__(self, asked: argparse.Namespace, found: dict[str, Any], path: Path, began: float) -> None:
        self.asked, self.found, self.path, self.began = asked, found, path, began
        self.toolkit = Toolkit(asked.vars, asked.out / "ansible.log")
        values = self.toolkit.values
        self.port = int(values.get("ddtree_server_port", 30000))
        self.unit = Unit(str(values.get("ddtree_server_unit", "ddtree")), self.port)
        self.boards = Boards(int(values["point_defaults"]["tp"]))
        self.point: dict[str, Any] = dict(values["point_defaults"])
        self.config_id = ""
        self.arguments: dict[str, Any] = {}
        self.longest: dict[str, float] = {}

    # -- bookkeeping -------------------------------------------------------------------------------------------------

    def left(self) -> float:
        return float(self.asked.seconds) - (time.monotonic() - self.began)

    def part(self, name: str) -> None:
        print(f"== {name} ({self.left():.0f} s left)", flush=True)
        try:
            getattr(self, name)()
        except Exception as error:  # one part's trouble must not lose the others
            self.keep("troubles", {"part": name, "what": f"{type(error).__name__}: {error}"[:600]})

    def fits(self, kind: str, usual: float) -> bool:
        """Whether one more step of a kind ends in time; `usual` seconds until one was seen."""
        needs = self.longest.get(kind, usual)
        if self.left() > needs + 3:
            return True
        self.keep("not_run", {"step": kind, "why": f"{self.left():.0f} s were left, it takes about {needs:.0f} s"})
        return False

    def took(self, kind: str, began: float) -> None:
        self.longest[kind] = max(self.longest.get(kind, 0.0), time.monotonic() - began)

    def keep(self, section: str, one: dict[str, Any]) -> None:
        self.found.setdefault(section, []).append(one)
        self.save()
        print(f"  {section}: {json.dumps(one, default=str)[:900]}", flush=True)

    def save(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.found, indent=1, default=str) + "\n")
        new.replace(self.path)

    # -- (a) ---------------------------------------------------------------------------------------------------------

    def deploy(self) -> None:
        points: list[dict[str, Any]] = [
            {"dialect": "dflash", "window": 2048},
            {"dialect": "dflash", "window": 512},
            {"dialect": "dflash", "window": "none"},
        ]
        for at, spec in enumerate([*points, {"dialect": "none"}]):
            began = time.monotonic()
            if not self.fits("first deploy" if at == 0 and not self.found.get("deploys") else "deploy", 45 if at else 60):
                return
            self.deploy_one(spec, site=at == 0)
            if at:
                self.took("deploy", began)

    def deploy_one(self, spec: dict[str, Any], site: bool = False) -> bool:
        """Deploy a point, by site.yml or the role alone, and ask the engine itself what it runs."""
        began, before = time.monotonic(), self.unit.shown().get("InvocationID", "")
        if site:
            status = self.toolkit.play("site.yml", dict(spec))
            print(f"    site.yml ended with {status} after {time.monotonic() - began:.1f} s", flush=True)
        run = self.toolkit.role(spec, "started")
        result = run["result"]
        info = json.loads(self.unit.get("/server_info", timeout=10)[1] or "{}")
        loaded = {key: info.get(key) for key in FIELDS}
        window = None if spec.get("window") in (None, "none") else spec["window"]
        wanted = {"speculative_algorithm": {"dflash": "DFLASH"}.get(spec["dialect"]), "speculative_draft_window_size": window}
        fine = not run["failed"] and all(loaded[key] == value for key, value in wanted.items())
        proof = [words for _, words in self.unit.journal(time.time() - 900) if "Initialized DFLASH draft runner" in words]
        if fine:
            self.point, self.config_id = spec, str(result["ready"]["weight_version"])
            self.arguments = run["asked"]
            fine = self.unit.ready(before if result.get("changed") else "", self.config_id) == ""
        self.keep("deploys", {
            "point": spec, "ok": fine, "by": "site.yml" if site else "role ddtree_server",
            "changed_again": result.get("changed") if site else None,
            "seconds": round(time.monotonic() - began, 1), "phases": phases(result), "loaded": loaded, "log": proof[-1:] if window else [],
            "failure": {key: result.get(key) for key in ("phase", "cause", "msg")} if run["failed"] else None,
            "notes": result.get("notes"),
        })  # fmt: skip
        self.found.setdefault("machine", {})["engine"] = loaded["version"]
        return fine

    def current(self) -> None:
        """What runs, for parts that begin without a deploy."""
        if not self.config_id and not self.deploy_one({"dialect": "dflash", "window": 2048}, site=not self.found.get("deploys")):
            raise RuntimeError("the engine could not be deployed")

    def user(self) -> None:
        """The engine as the role runs it by default: under a user of its own, in the hardened unit."""
        if not self.fits("own user", 150):
            return
        began, spec = time.monotonic(), {"dialect": "dflash", "window": 2048}
        run = self.toolkit.role(spec, "started", ddtree_server_user="ddtree")
        shown = self.unit.shown("User", "NoNewPrivileges", "ProtectSystem")
        owner = Path(f"/proc/{shown['MainPID']}").owner() if int(shown["MainPID"]) else ""
        fine = not run["failed"] and owner == shown["User"] == "ddtree" and shown["NoNewPrivileges"] == "yes"
        self.keep("deploys", {
            "point": spec, "ok": fine, "by": "role ddtree_server, user ddtree", "seconds": round(time.monotonic() - began, 1),
            "phases": phases(run["result"]), "unit": shown,
            "failure": {key: run["result"].get(key) for key in ("phase", "cause", "msg", "log_tail")} if run["failed"] else None,
        })  # fmt: skip
        self.config_id = ""

    # -- (b) ---------------------------------------------------------------------------------------------------------

    def restarts(self) -> None:
        self.current()
        for _ in range(self.asked.restarts):
            if not self.fits("restart", 48):
                return
            began = time.monotonic()
            before = self.unit.shown()["InvocationID"]
            with Watch(self.unit, self.boards) as watch, Streams(self.unit, self.asked.streams, 600) as streams:
                time.sleep(0.5)
                run = self.toolkit.module({**self.arguments, "state": "restarted", "drain_timeout": 1})
                wrong = self.unit.ready(before, self.config_id) if not run["failed"] else ""
            result, own = run["result"], watch.own()
            took = phases(result)
            told: dict[str, Any] = {
                "ok": not run["failed"], "false_ready": wrong, "phases": took, "own": {key: round(value, 3) for key, value in own.items()},
                "cut_off": result.get("cut_off_requests"), "killed": result.get("killed"), "streams_ended": streams.ended,
                "streams_broken": streams.broken, "wall": round(run["ended"] - run["began"], 2),
                "details": {one["name"]: one["detail"] for one in result.get("phases") or []},
            }  # fmt: skip
            if own and not run["failed"]:
                asked = took.get("drain", 0.0)  # the time that the requests in flight were given
                first = float(result["ready"]["seconds"])
                told["overhead_s"] = round(sum(took.values()) - asked - own["stop"] - own["release"] - own["load"] - first, 3)
            if run["failed"]:
                told["failure"] = {key: result.get(key) for key in ("phase", "cause", "msg", "log_tail")}
            self.keep("module_restarts", told)
            self.took("restart", began)

    def usual(self) -> None:
        """What scripts and playbooks usually do, on the same unit under the same load."""
        self.current()
        for way in self.asked.ways.split(",") * self.asked.usual:
            if not self.fits(f"usual {way}", 50):
                return
            began = time.monotonic()
            before = self.unit.shown()["InvocationID"]
            subprocess.run(["systemctl", "reset-failed", self.unit.name], check=False)
            with Streams(self.unit, self.asked.streams, 600):
                time.sleep(1.5)
                at = time.time()
                if way == "ansible":
                    self.toolkit.play(str(HERE / "usual.yml"))
                else:
                    block = [] if way == "systemctl-blocking" else ["--no-block"]
                    subprocess.run(["systemctl", "restart", *block, self.unit.name], check=False)
                    while self.unit.get("/v1/models")[0] != 200 and time.time() - at < 300:
                        time.sleep(0.2)
                claimed = time.time() - at
                wrong = self.unit.ready(before, self.config_id)
            real = self.settle(before, at)
            self.keep("usual_restarts", {
                "way": way, "claimed_ready_after": round(claimed, 2), "false_ready": wrong, "really_ready_after": real,
            })  # fmt: skip
            self.took(f"usual {way}", began)

    def settle(self, before: str, at: float) -> float | None:
        while time.time() - at < 300:
            if not self.unit.ready(before, self.config_id):
                return round(time.time() - at, 2)
            time.sleep(0.3)
        return None

    # -- (c) ---------------------------------------------------------------------------------------------------------

    def fault(self, name: str, run: dict[str, Any], at: float, expected: tuple[str, str], **more: Any) -> None:
        result = run["result"]
        seen = (result.get("phase", ""), result.get("cause", "")) if run["failed"] else ("", "ready")
        took = phases(result)
        self.keep("faults", {
            "fault": name, "phase": seen[0], "cause": seen[1], "ok": seen == expected, "expected": expected,
            "seconds": round(run["ended"] - at, 2), "module_seconds": round(sum(took.values()), 2), "phases": took,
            "reason": result.get("reason"),
            "message": str(result.get("msg", ""))[:400], **more,
            **({} if seen == expected else {"log_tail": (result.get("log_tail") or [])[-12:]}),
        })  # fmt: skip

    def faults(self) -> None:
        steps = {
            "foreign": (self.foreign_vram, 25.0),
            "stopped": (self.stopped_main, 75.0),
            "killed": (self.killed_scheduler, 45.0),
            "memory": (self.too_much_memory, 50.0),
            "port": (self.port_taken, 20.0),
        }
        self.current()
        for name in self.asked.faults.split(","):
            step, usual = steps[name]
            if self.fits(f"fault {name}", usual):
                step()
        self.config_id = ""

    def foreign_vram(self) -> None:
        hold = shlex.split(self.asked.hold) or [sys.executable, "-c", HOLD.format(mib=HOLD_MIB)]
        before = self.unit.shown()["InvocationID"]
        with subprocess.Popen(hold, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            at = time.time()
            run = self.toolkit.role(self.point, "restarted")
            left = self.unit.shown()["InvocationID"] == before and self.unit.ready("", self.config_id) == ""
            holder.kill()
        named = [one.get("pid") for one in (run["result"].get("evidence") or {}).get("holders", [])] == [holder.pid]
        self.fault("another process holds 20 GiB", run, at, ("inspect", "foreign_vram"), old_instance_still_serves=left, holder_named=named)

    def stopped_main(self) -> None:
        pid = int(self.unit.shown()["MainPID"])
        os.kill(pid, signal.SIGSTOP)
        at = time.time()
        run = self.toolkit.role(self.point, "started", ddtree_server_generate_timeout=10)
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGCONT)
        wrong = self.unit.ready("", self.config_id)
        self.fault("SIGSTOP of the main process, then state started", run, at, ("", "ready"), ready_now=not wrong)

    def killed_scheduler(self) -> None:
        before, killed = self.unit.shown()["InvocationID"], [0.0]

        def kill() -> None:
            end = time.time() + 120
            while time.time() < end:
                pid = self.unit.scheduler() if self.unit.shown()["InvocationID"] not in ("", before) else None
                if pid:
                    time.sleep(0.5 if self.asked.hold else 2)
                    os.kill(pid, signal.SIGKILL)
                    killed[0] = time.time()
                    return
                time.sleep(0.1)

        run = self.toolkit.role(self.point, "restarted", during=kill)
        self.fault(
            "kill -9 of the scheduler while it loads", run, killed[0], ("load", "crashed"), unit_afterwards=self.unit.shown()["ActiveState"]
        )

    def too_much_memory(self) -> None:
        args = list(self.toolkit.values["ddtree_server_extra_args"])
        args[args.index("--mem-fraction-static") + 1] = "0.999"
        at = time.time()
        run = self.toolkit.role(self.point, "started", ddtree_server_extra_args=args, ddtree_server_ready_timeout=120)
        self.fault("--mem-fraction-static 0.999", run, at, ("load", "out_of_memory"))

    def port_taken(self) -> None:
        subprocess.run(["systemctl", "stop", self.unit.name], check=False)
        with subprocess.Popen(
            [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(self.port)], stderr=subprocess.DEVNULL
        ) as stranger:
            while not self.unit.accepts():
                time.sleep(0.05)
            at = time.time()
            run = self.toolkit.role(self.point, "started")
            stranger.kill()
        self.fault("another process owns the port", run, at, ("inspect", "port_in_use"))

    # -- (d) ---------------------------------------------------------------------------------------------------------

    def cells(self) -> None:
        self.current()
        if not self.fits("cells", 110):
            return
        self.found["cells"] = cells.measure(self.toolkit, self.unit, self.asked.out, "loaded", {})
        self.save()
        environment = self.toolkit.values["ddtree_server_env"]
        shapes = [
            f"{one['context']}:{one['concurrency']}:{one['requests'] if one['concurrency'] > 1 else cells.PEER_REQUESTS}"
            for one in self.found["cells"]
        ]
        length = str(self.found["cells"][0].get("asked_output_tokens", 256)) if shapes else "0"
        if not self.asked.hold and self.fits("bench_serving", 70):
            self.peer(shapes, length, environment)
        for one in self.found["cells"]:
            keys = (
                "context",
                "concurrency",
                "output_tok_s",
                "engine_tok_s",
                "engine_finished_tok_s",
                "engine_log_tok_s",
                "peer_tok_s",
                "accept",
                "warnings",
            )
            print("  cell:", json.dumps({key: one.get(key) for key in keys}, default=str), flush=True)
        self.save()

    def peer(self, shapes: list[str], length: str, environment: dict[str, str]) -> None:
        path = self.asked.out / "peer.jsonl"
        path.unlink(missing_ok=True)
        values = self.toolkit.values
        command = [
            values["ddtree_server_python"],
            str(HERE / "peer.py"),
            f"http://127.0.0.1:{self.port}",
            values["ddtree_server_model"],
            length,
            str(path),
        ]
        with (self.asked.out / "peer.log").open("w") as log:
            done = subprocess.run(
                [*command, *shapes],
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
                timeout=max(10, self.left() - 5),
                check=False,
            )
        print(f"    bench_serving ended with {done.returncode}", flush=True)
        rates = [json.loads(line) for line in path.read_text().splitlines()]
        for one in rates:
            for cell in self.found["cells"]:
                if one["tag"] == f"{cell['context']}:{cell['concurrency']}":
                    cell["peer_tok_s"], cell["peer_concurrency"] = one["output_throughput"], one["concurrency"]
                    cell["peer"] = {
                        key: one.get(key)
                        for key in ("completed", "duration", "mean_ttft_ms", "median_tpot_ms", "total_input_tokens", "accept_length")
                    }

    # -- (e) ---------------------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        windows = [8, 256, 1024, 4096] if self.left() > 430 else [256, 1024]
        if not self.fits("sweep", 250):
            return
        values = {"dialect": "dflash", "window": windows, "sweep_name": "windows",
                  "sweep_results": str(self.asked.out / "results"),
                  "benchmark_contexts": [1024], "benchmark_concurrencies": [1, 32],
                  "benchmark_output_tokens": 128}  # fmt: skip
        status = self.toolkit.play("sweep.yml", values, show)
        files = sorted(one.name for one in (self.asked.out / "results" / "windows").rglob("*") if one.is_file())
        self.keep("sweeps", {"windows": windows, "status": status, "files": files})
        self.point = {"dialect": "dflash", "window": windows[-1]}
        self.config_id = str(json.loads(self.unit.get("/server_info", timeout=10)[1])["weight_version"])

    # -- the end -----------------------------------------------------------------------------------------------------

    def summarize(self) -> None:
        ours, usual = self.found.get("module_restarts", []), self.found.get("usual_restarts", [])

        ways = {"systemctl": "systemctl", "systemctl_blocking": "systemctl-blocking", "ansible": "ansible"}
        of = {key: [one for one in usual if one["way"] == way] for key, way in ways.items()}
        of["module"] = ours
        self.found["restarts"] = {key: len(these) for key, these in of.items()}
        self.found["false_ready"] = {key: sum(bool(one["false_ready"]) for one in these) for key, these in of.items()}
        over = sorted(one["overhead_s"] for one in ours if "overhead_s" in one)
        self.found["overhead_s"] = (
            {"median": statistics.median(over), "p95": over[math.ceil(0.95 * len(over)) - 1], "n": len(over)} if over else None
        )
        self.save()

    def good(self) -> bool:
        told = [one["ok"] for key in ("deploys", "faults", "module_restarts") for one in self.found.get(key, [])]
        return all(told) and not self.found.get("troubles") and not self.found["false_ready"]["module"]

    def table(self) -> str:
        lines = ["", "| what | seen |", "|---|---|"]
        for one in self.found.get("deploys", []):
            lines.append(f"| deploy {one['point']} | {'ok' if one['ok'] else 'FAILED'}, {one['seconds']} s |")
        for way, seen in self.found["false_ready"].items():
            lines.append(f"| restarts by {way} | {self.found['restarts'][way]}, false readies {seen} |")
        lines.append(f"| overhead of the module | {self.found['overhead_s']} |")
        for one in self.found.get("faults", []):
            lines.append(
                f"| {one['fault']} | {one['phase']} {one['cause']} after {one['seconds']} s{'' if one['ok'] else ', UNEXPECTED'} |"
            )
        for one in self.found.get("cells", []):
            figures = ", ".join(
                f"{key} {one[key]:.1f}"
                for key in ("output_tok_s", "engine_tok_s", "engine_finished_tok_s", "engine_log_tok_s", "peer_tok_s")
                if one.get(key)
            )
            lines.append(f"| ctx {one['context']}, C {one['concurrency']} | {figures}; accept {one.get('accept')} |")
        for one in (*self.found.get("not_run", []), *self.found.get("troubles", [])):
            lines.append(f"| not run | {one} |")
        return "\n".join(lines)

"""The simulated NVML library under the real nvidia-ml-py, each case in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "roles" / "simulated_host" / "files" / "nvml" / "nvml.c"
RESERVED, TOTAL = 644939776, 97887 << 20


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("host") / "lib" / "libnvidia-ml.so.1"
    path.parent.mkdir()
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread"]
    subprocess.run(["cc", *flags, "-o", path, SOURCE, "-ldl"], check=True)
    return path


@pytest.fixture
def state(library: Path) -> Path:
    """Found by its place beside the library, without any variable."""
    folder = library.parents[1] / "state"
    (folder / "holders").mkdir(parents=True, exist_ok=True)
    for old in (folder / "holders").iterdir():
        old.unlink()
    lines = ["driver 580.95.05", "nvml 13.580.95.05", "cuda 13000"]
    for at in range(8):
        lines += [f"gpu {at}", "name NVIDIA RTX PRO 6000 Blackwell Server Edition", f"uuid GPU-{at}", f"pci 00000000:{17 + at:02X}:00.0",
                  "total_mib 97887", f"reserved_bytes {RESERVED}"]  # fmt: skip
    (folder / "gpus.conf").write_text("\n".join(lines))
    (folder / "nvml_faults.conf").write_text("")
    return folder


def ask(library: Path, code: str, **env: str) -> str:
    """What this code prints after `import pynvml as n` and nvmlInit."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent), **env}
    text = (
        "import pynvml as n, time\n"
        "def err(f, *a, **k):\n"
        "    try: return f(*a, **k)\n"
        "    except n.NVMLError as e: return type(e).__name__\n"
        "h = n.nvmlDeviceGetHandleByIndex\n" + code
    )
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def hold(state: Path, pid: int, **values: object) -> Path:
    path = state / "holders" / str(pid)
    path.write_text("".join(f"{key} {value}\n" for key, value in values.items()))
    return path


def test_identity(library: Path, state: Path) -> None:
    found = ask(library, """
n.nvmlInit()
print(n.nvmlDeviceGetCount(), n.nvmlSystemGetDriverVersion(), n.nvmlSystemGetNVMLVersion(), n.nvmlSystemGetCudaDriverVersion_v2())
d = n.nvmlDeviceGetHandleByUUID("GPU-5")
print(n.nvmlDeviceGetIndex(d), n.nvmlDeviceGetName(d), n.nvmlDeviceGetUUID(d), n.nvmlDeviceGetPciInfo(d).busId)
print(n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId("0000:13:00.0")))
print(n.nvmlDeviceGetMigMode(d), n.nvmlDeviceGetUtilizationRates(d).gpu, n.nvmlDeviceGetPowerUsage(d) > 0, n.nvmlDeviceGetTemperature(d, 0))
print(err(h, 8), err(n.nvmlDeviceGetHandleByUUID, "GPU-x"))
""")  # fmt: skip
    assert found.splitlines() == [
        "8 580.95.05 13.580.95.05 13000", "5 NVIDIA RTX PRO 6000 Blackwell Server Edition GPU-5 00000000:16:00.0", "2",
        "[0, 0] 0 True 31", "NVMLError_InvalidArgument NVMLError_NotFound",
    ]  # fmt: skip


def test_idle_memory_by_version(library: Path, state: Path) -> None:
    found = ask(library, """
n.nvmlInit()
one, two = n.nvmlDeviceGetMemoryInfo(h(0)), n.nvmlDeviceGetMemoryInfo(h(0), version=n.nvmlMemory_v2)
print(one.total, one.used, one.free, two.total, two.reserved, two.used, two.free)
print(err(n.nvmlDeviceGetMemoryInfo, h(0), version=0x01000028))
""")  # fmt: skip
    values = [TOTAL, RESERVED, TOTAL - RESERVED, TOTAL, RESERVED, 0, TOTAL - RESERVED]
    assert found.splitlines() == [" ".join(map(str, values)), "NVMLError_ArgumentVersionMismatch"]


def test_holders(library: Path, state: Path) -> None:
    me = os.getpid()
    hold(state, me, gpus="0,3", mib=1000, start=0)
    hold(state, 4190001, gpus=3, mib=500, ghost=1, kind="graphics")
    hold(state, 4190002, gpus=3, mib=300, linger=0)
    hold(state, 4190003, gpus=3, mib=70, linger=60)
    (state / "holders" / ".new").write_text("gpus 3\nmib 9999\n")
    (state / "holders" / "junk").write_text("gpus 3\nmib 9999\n")
    found = ask(library, """
n.nvmlInit()
for i in (0, 3, 4):
    print(n.nvmlDeviceGetMemoryInfo(h(i), version=n.nvmlMemory_v2).used >> 20,
          [(p.pid, p.usedGpuMemory >> 20) for p in n.nvmlDeviceGetComputeRunningProcesses(h(i))],
          [(p.pid, p.usedGpuMemory >> 20) for p in n.nvmlDeviceGetGraphicsRunningProcesses(h(i))])
print([p.pid for p in n.nvmlDeviceGetComputeRunningProcesses_v2(h(3))])
""")  # fmt: skip
    assert found.splitlines() == [f"1000 [({me}, 1000)] []", f"1570 [({me}, 1000)] [(4190001, 500)]", "0 [] []", f"[{me}]"]


def test_a_reused_pid_holds_nothing(library: Path, state: Path) -> None:
    hold(state, os.getpid(), gpus=0, mib=1000, start=1)
    assert ask(library, "n.nvmlInit(); print(n.nvmlDeviceGetMemoryInfo(h(0), version=n.nvmlMemory_v2).used)") == "0"


def test_memory_lingers_and_every_call_reads_afresh(library: Path, state: Path) -> None:
    path = hold(state, 4190001, gpus=0, mib=1000, linger=100)
    os.utime(path, (time.time() - 99.3,) * 2)
    found = ask(library, """
n.nvmlInit()
used = lambda: n.nvmlDeviceGetMemoryInfo(h(0), version=n.nvmlMemory_v2).used >> 20
print(used()); time.sleep(1.0); print(used())
""")  # fmt: skip
    assert found.split() == ["1000", "0"]


def test_more_than_the_board_has_is_capped(library: Path, state: Path) -> None:
    hold(state, 4190001, gpus=0, mib=2**64 - 1, ghost=1)
    hold(state, 4190002, gpus=0, mib="nonsense", ghost=1)
    found = ask(library, "n.nvmlInit(); m=n.nvmlDeviceGetMemoryInfo(h(0), version=n.nvmlMemory_v2); print(m.used, m.free)")
    assert found == f"{TOTAL - RESERVED} 0"


def test_too_small_an_array_is_told_the_size(library: Path, state: Path) -> None:
    for pid in range(4190001, 4190031):
        hold(state, pid, gpus=0, mib=1, ghost=1)
    found = ask(library, """
import ctypes
n.nvmlInit()
lib = ctypes.CDLL("libnvidia-ml.so.1")
count, room = ctypes.c_uint(3), (n.c_nvmlProcessInfo_v2_t * 30)()
print(lib.nvmlDeviceGetComputeRunningProcesses_v3(h(0), ctypes.byref(count), room), count.value, room[0].pid)
print(lib.nvmlDeviceGetComputeRunningProcesses_v3(h(0), ctypes.byref(count), room), count.value)
print(len(n.nvmlDeviceGetComputeRunningProcesses(h(0))))
""")  # fmt: skip
    assert found.splitlines() == ["7 30 0", "0 30", "30"]


@pytest.mark.parametrize(
    ("faults", "code", "said"),
    [
        ("library init LIB_RM_VERSION_MISMATCH", "print(err(n.nvmlInit))", "NVMLError_LibRmVersionMismatch"),
        ("library init DRIVER_NOT_LOADED", "print(err(n.nvmlInit))", "NVMLError_DriverNotLoaded"),
        ("gpu 2 all GPU_IS_LOST", "n.nvmlInit(); d=h(1); print(err(h, 2), err(n.nvmlDeviceGetUUID, d))", "NVMLError_GpuIsLost GPU-1"),
        ("gpu 1 memory NOT_SUPPORTED", "n.nvmlInit(); print(err(n.nvmlDeviceGetMemoryInfo, h(1)), n.nvmlDeviceGetUUID(h(1)))",
         "NVMLError_NotSupported GPU-1"),
        ("gpu * processes NO_PERMISSION", "n.nvmlInit(); print(err(n.nvmlDeviceGetComputeRunningProcesses, h(7)))",
         "NVMLError_NoPermission"),
        ("gpu 0 process_memory NOT_SUPPORTED",
         "n.nvmlInit(); print([p.usedGpuMemory for p in n.nvmlDeviceGetComputeRunningProcesses(h(0))])", "[None]"),
        ("gpu * mig NOT_SUPPORTED", "n.nvmlInit(); print(err(n.nvmlDeviceGetMigMode, h(0)))", "NVMLError_NotSupported"),
        ("nonsense\ngpu x\ngpu 0 memory NO_SUCH_ERROR", "n.nvmlInit(); print(n.nvmlDeviceGetMemoryInfo(h(3)).total)", str(TOTAL)),
    ],
)  # fmt: skip
def test_errors(library: Path, state: Path, faults: str, code: str, said: str) -> None:
    hold(state, 4190001, gpus=0, mib=1, ghost=1)
    (state / "nvml_faults.conf").write_text(faults + "\n")
    assert ask(library, code) == said


def test_use_before_init_and_after_shutdown(library: Path, state: Path) -> None:
    found = ask(library, """
n._LoadNvmlLibrary()
print(err(n.nvmlDeviceGetCount)); n.nvmlInit(); n.nvmlInit(); n.nvmlShutdown(); print(n.nvmlDeviceGetCount())
n.nvmlShutdown(); print(err(n.nvmlDeviceGetCount), err(n.nvmlShutdown))
""")  # fmt: skip
    assert found.splitlines() == ["NVMLError_Uninitialized", "8", "NVMLError_Uninitialized NVMLError_Uninitialized"]


def test_state_folder_by_variable(library: Path, state: Path, tmp_path: Path) -> None:
    assert ask(library, "print(err(n.nvmlInit))", DDTREE_SIM_STATE=str(tmp_path)) == "NVMLError_DriverNotLoaded"
    (tmp_path / "gpus.conf").write_text("driver 1\ngpu 0\nname " + "x" * 400 + "\ntotal_mib 10\nreserved_bytes 99999999999\n")
    code = "n.nvmlInit(); d = h(0)\nprint(n.nvmlDeviceGetCount(), len(n.nvmlDeviceGetName(d)), n.nvmlDeviceGetMemoryInfo(d).free)"
    assert ask(library, code, DDTREE_SIM_STATE=str(tmp_path)) == "1 95 0"

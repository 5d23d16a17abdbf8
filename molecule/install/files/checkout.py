"""Lay the simulated engine out as a checkout of SGLang that pip can build without a network: its backend lies in the tree.

    checkout.py FOLDER VERSION [sound|stock|broken]

stock: a build without DDTree. broken: its kernel package is of another version, so it cannot be imported.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

SITE = Path(__file__).resolve().parents[3] / "roles" / "simulated_host" / "files" / "site" / "sglang"
PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "sglang"
version = "{version}"
requires-python = ">=3.9"
dependencies = [{imports}]
"""
BACKEND = '''\
"""A wheel is a zip file with three files of its own."""
import pathlib, zipfile

VERSION = "{version}"
METADATA = "Metadata-Version: 2.1\\nName: sglang\\nVersion: {version}\\nRequires-Python: >=3.9\\n{requires}"


def build_wheel(folder, settings=None, metadata=None):
    name = f"sglang-{{VERSION}}-py3-none-any.whl"
    info = f"sglang-{{VERSION}}.dist-info"
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        files = sorted(path for path in pathlib.Path("sglang").rglob("*") if path.is_file() and path.suffix != ".pyc")
        for path in files:
            wheel.write(path)
        wheel.writestr(f"{{info}}/METADATA", METADATA)
        wheel.writestr(f"{{info}}/WHEEL", "Wheel-Version: 1.0\\nGenerator: tree\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        record = [*map(str, files), f"{{info}}/METADATA", f"{{info}}/WHEEL", f"{{info}}/RECORD"]
        wheel.writestr(f"{{info}}/RECORD", "".join(f"{{one}},,\\n" for one in record))
    return name
'''


def lay_out(folder: Path, version: str, kind: str = "sound", imports: Sequence[str] = ("aiohttp",)) -> Path:
    """The checkout, with the package below `python` as in SGLang's own repository."""
    project = folder / "python"
    package = project / "sglang"
    shutil.copytree(SITE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (project / "pyproject.toml").write_text(PROJECT.format(version=version, imports=", ".join(f'"{one}"' for one in imports)))
    requires = "".join(f"Requires-Dist: {one}\\n" for one in imports)
    (project / "backend.py").write_text(BACKEND.format(version=version, requires=requires))
    init = package / "__init__.py"
    init.write_text(init.read_text().replace("0.5.23+ddtree.sim", version))
    if kind == "stock":
        flags = package / "sim" / "flags.py"
        flags.write_text(flags.read_text().replace('Faults(state_dir()).get("build") == "stock"', "True"))
    if kind == "broken":
        args = package / "srt" / "server_args.py"
        args.write_text(args.read_text() + '\nraise ImportError("sglang-kernel 0.4.8 is installed, 0.4.10 is needed")\n')
    return folder


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]), *sys.argv[2:])

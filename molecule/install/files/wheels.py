"""Fill a folder of wheels for a host without a network: engines of several versions and what they import; and bring uv.

wheels.py WHEELS FOLDER UV      WHEELS has what the engines import
"""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from checkout import lay_out

UV = "uv==0.13.9"
ENGINES = {"0.5.21": "sound", "0.5.22": "sound", "0.5.23": "stock", "0.5.24": "broken"}


def pip(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, words)], check=True)


def main() -> None:
    imported, folder, uv = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in imported.glob("*.whl"):
        shutil.copy2(wheel, folder)
    with tempfile.TemporaryDirectory() as temporary:
        for version, kind in ENGINES.items():
            project = lay_out(Path(temporary) / version, version, kind) / "python"
            pip("wheel", "--quiet", "--no-deps", "--no-index", "--wheel-dir", folder, project)
        if not uv.exists():
            pip("download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", temporary, UV)
            with zipfile.ZipFile(next(Path(temporary).glob("uv-*.whl"))) as archive:
                name = next(name for name in archive.namelist() if name.endswith("/scripts/uv"))
                uv.write_bytes(archive.read(name))
            uv.chmod(uv.stat().st_mode | stat.S_IXUSR)


if __name__ == "__main__":
    main()

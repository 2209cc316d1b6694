"""Make one file that holds the command, all it depends on and all its data: for machines without
network.

python tools/zipapp.py dist/orchestrator.pyz

The packages with compiled parts are those of the Python and processor that make it. A zip cannot be
imported from where compiled modules and data files are concerned, so the file unpacks itself once,
below the user's cache folder.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
DATE = (2020, 1, 1, 0, 0, 0)
"""Of every member, so that the same contents are the same bytes."""


LICENCE = re.compile(r"(?i)\b(licen[cs]e|copying|notice)")


def install(folder: Path) -> None:
    """Install the checkout with its dependencies into `folder`, without what only pip and other
    programs need.

    The dependencies are those of requirements-zipapp.txt: a file with another hash is refused.
    """
    _pip(folder, "--require-hashes", "--only-binary=:all:", "-r", TOP / "requirements-zipapp.txt")
    _pip(folder, TOP)


def _pip(folder: Path, *arguments: object) -> None:
    """Install into `folder`, without the packages' commands: pip warns of a `bin` of an earlier
    call."""
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    argv += ["--no-compile", "--no-deps", "--target", str(folder), *map(str, arguments)]
    subprocess.run(argv, check=True)
    shutil.rmtree(folder / "bin", ignore_errors=True)


def without_licence(folder: Path) -> list[str]:
    """Return the packages that do not carry their licence's text, as LGPL (paramiko) and MPL
    (certifi) ask for."""
    return [
        about.name
        for about in sorted(folder.glob("*.dist-info"))
        if not any(LICENCE.search(path.name) for path in about.rglob("*") if path.is_file())
    ]


def made(folder: Path) -> dict[str, bytes]:
    """The members of the archive."""
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    values = {
        "DIGEST": digest.hexdigest()[:20],
        "MADE_FOR": f"{sys.version_info[0]}.{sys.version_info[1]} {platform.machine()}",
    }
    start = (TOP / "tools/zipapp_start.py").read_text()
    for name, value in values.items():
        start = start.replace(f'{name} = ""', f'{name} = "{value}"')
    ours = {
        "__main__.py": start.encode(),
        "orchestrator_trust.py": (TOP / "orchestrator/trust.py").read_bytes(),
    }
    return ours | {f"packages/{name}": data for name, data in files.items()}


def write(files: dict[str, bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as out:
        out.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(zipfile.ZipInfo(name, DATE), data, zipfile.ZIP_DEFLATED)
    new.chmod(0o755)
    new.rename(path)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder))
        if lacking := without_licence(Path(folder)):
            sys.exit(f"no text of a licence in {', '.join(lacking)}")
        write(made(Path(folder)), Path(sys.argv[1]))
    print(f"{sys.argv[1]} ({Path(sys.argv[1]).stat().st_size // 1_000_000} MB)")

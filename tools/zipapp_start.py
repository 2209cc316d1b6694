"""What orchestrator.pyz starts with: unpacks its packages once into the user's cache folder, and
calls the command."""

import os
import platform
import sys

from orchestrator_trust import others  # orchestrator/trust.py

DIGEST = ""
MADE_FOR = ""


def unpack(top: str) -> str:
    """Return the folder of the packages; made on the first start, as a whole or not at all."""
    import shutil
    import tempfile
    import zipfile

    folder = os.path.join(top, DIGEST)
    os.makedirs(top, mode=0o700, exist_ok=True)
    if why := others(folder):
        raise OSError(f"{folder} is not yours alone: {why}")
    if os.path.isdir(folder):
        return folder
    new = tempfile.mkdtemp(prefix=".new-", dir=top)
    try:
        with zipfile.ZipFile(sys.argv[0]) as archive:
            archive.extractall(
                new, [name for name in archive.namelist() if name.startswith("packages/")]
            )
        os.rename(new, folder)
    except OSError:
        if not os.path.isdir(folder):  # another one was first
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return folder


def main() -> int:
    here = f"{sys.version_info[0]}.{sys.version_info[1]} {platform.machine()}"
    if here != MADE_FOR:
        print(
            f"orchestrator: this file was made for Python {MADE_FOR}, and this is Python {here}",
            file=sys.stderr,
        )
        print(
            "  hint: start it with that Python, or make one with this: make zipapp", file=sys.stderr
        )
        return 2
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    try:
        folder = unpack(os.path.join(cache, "orchestrator-pyz"))
    except OSError as error:
        print(f"orchestrator: cannot unpack: {error}", file=sys.stderr)
        print("  hint: XDG_CACHE_HOME=/a/folder/with/100/MB orchestrator.pyz ...", file=sys.stderr)
        return 2
    sys.path.insert(0, os.path.join(folder, "packages"))
    from mlperf_orchestrator import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())

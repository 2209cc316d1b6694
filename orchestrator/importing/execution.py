"""Source a config, its author's code, in an empty bash with limits; only on demand."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from orchestrator.errors import InputError

SECONDS = 10
MOST_BYTES = 1_000_000

# Prints exported variables, each ended by a NUL, on a descriptor that the config does not have.
_PROGRAM = r"""
ulimit -t 10 -f 2048 -c 0
source "./$1" >/dev/null 2>&1 3>&-
for __name in $(compgen -e); do
  [ -n "${!__name+x}" ] && printf '%s=%s\0' "$__name" "${!__name}" >&3
done
exit 0
"""
_OF_THE_SHELL = {"PATH", "HOME", "TMPDIR", "LC_ALL", "PWD", "OLDPWD", "SHLVL", "_"}


def executed(name: str, files: Mapping[str, bytes], given: Mapping[str, str]) -> dict[str, str]:
    """Source `name` among `files`, with only `given`, PATH and a private HOME set; return the
    environment.

    Raises InputError if it takes longer than 10 s, prints more than a megabyte, or ends the shell.
    """
    with tempfile.TemporaryDirectory(prefix="orchestrator-import-") as place:
        folder = Path(place) / "config"
        home = Path(place) / "home"
        folder.mkdir()
        home.mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content)
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "TMPDIR": str(home),
            "LC_ALL": "C",
            **given,
        }
        output = _output(name, folder, environment, Path(place) / "output")
    pairs = [item.partition("=") for item in output.split("\0") if item]
    return {key: value for key, _, value in pairs if key not in _OF_THE_SHELL}


def _output(name: str, folder: Path, environment: dict[str, str], output: Path) -> str:
    with output.open("w+b") as file:
        process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", f"exec 3>&1\n{_PROGRAM}", "import", name],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired as error:
            raise InputError(
                f"{name} did not end within {SECONDS} s; it is not an assignment of variables alone"
            ) from error
        finally:
            _end(process)
        size = os.fstat(file.fileno()).st_size
        file.seek(0)
        content = file.read(MOST_BYTES)
    if size > MOST_BYTES:
        raise InputError(f"{name}: the environment that it makes is larger than {MOST_BYTES} bytes")
    if code != 0 or not content:
        raise InputError(
            f"{name}: ended its shell with exit code {code} instead of setting variables"
        )
    return content.decode("utf-8", "replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill everything left in the config's session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()

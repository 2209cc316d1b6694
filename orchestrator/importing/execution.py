"""Source a config, its author's code, in an empty bash with limits; only on demand."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.words import clean

SECONDS = 10
MOST_BYTES = 1_000_000
MOST_SHOWN = 400

# Prints exported variables, each ended by a NUL, on a descriptor that the config does not have.
# The config's clock prints a number in place of each time.
_PROGRAM = r"""
exec 3>&1
ulimit -t 10 -f 2048 -c 0
date() { echo CLOCK; }
/bin/date() { echo CLOCK; }
/usr/bin/date() { echo CLOCK; }
printf() { builtin printf "${@//[%](*)T/%.0sCLOCK}"; }
unset EPOCHSECONDS EPOCHREALTIME SECONDS
EPOCHSECONDS=CLOCK EPOCHREALTIME=CLOCK SECONDS=$((CLOCK % 1000))
export -f date printf
source "./$1" >/dev/null 3>&-
exec 2>/dev/null
for __name in $(compgen -e); do
  [ -n "${!__name+x}" ] && builtin printf '%s=%s\0' "$__name" "${!__name}" >&3
done
exit 0
"""
_OF_THE_SHELL = {"PATH", "HOME", "TMPDIR", "LC_ALL", "PWD", "OLDPWD", "SHLVL", "_"}
_FAULT = re.compile(r"^[^\n]+?: line [0-9]+: (?!warning: )", re.MULTILINE)
"""Bash's own complaint about a script."""


def executed(
    name: str, files: Mapping[str, bytes], given: Mapping[str, str], clock: int = 0
) -> tuple[dict[str, str], str]:
    """Source `name` among `files`, with only `given`, PATH and a private HOME set; return the
    environment, and what programs wrote to standard error. `clock` is printed for each time.

    Raises InputError if it takes longer than 10 s, prints more than a megabyte, ends the shell, or
    if bash complains, as about a missing file.
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
        program = _PROGRAM.replace("CLOCK", str(clock))
        output, errors = _output(name, folder, environment, program)
    pairs = [item.partition("=") for item in output.split("\0") if item]
    return {key: value for key, _, value in pairs if key not in _OF_THE_SHELL}, errors


def _output(name: str, folder: Path, environment: dict[str, str], program: str) -> tuple[str, str]:
    """Return standard output, and the start of standard error in one line."""
    outputs = folder.parent / "output", folder.parent / "errors"
    with outputs[0].open("w+b") as file, outputs[1].open("w+b") as error_file:
        process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", program, "import", name],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=error_file,
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
        error_file.seek(0)
        errors = error_file.read(MOST_BYTES).decode("utf-8", "replace")
    errors = errors.replace(f"{folder}/", "./")
    if size > MOST_BYTES:
        raise InputError(f"{name}: the environment that it makes is larger than {MOST_BYTES} bytes")
    fault = _FAULT.search(errors)
    shown = _shown(errors[fault.start() :] if fault else errors)
    if code != 0 or not content:
        raise InputError(
            f"{name}: ended its shell with exit code {code} instead of setting variables"
            + (f": {shown}" if shown else "")
        )
    if fault:
        raise InputError(
            f"{name} fails when it is executed: {shown}",
            hint="it is executed with the scripts of its folder alone: copy missing ones there, "
            "and source them from there; import it on a host with the programs that it starts",
        )
    return content.decode("utf-8", "replace"), shown


def _shown(errors: str) -> str:
    lines = (clean(line.strip())[:MOST_SHOWN] for line in errors.splitlines())
    return "; ".join(filter(None, lines))[:MOST_SHOWN]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill everything left in the config's session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()

"""A preflight's bundle, in a hidden folder next to the sets; always removed."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.program import Program
from orchestrator.onnode.set.bundle import keep

if TYPE_CHECKING:
    from orchestrator.model import Entry, Site

HOST_ONLY = ("local_2x2x8", "builtin")
"""System and workload without GPU, fabric and data."""

INVISIBLE = 96
"""Exit code of a host that does not see the bundle."""
_SEE = f'test -r "$1" || exit {INVISIBLE}; shift; exec "$@"'
"""$1: the archive; then the command."""
PREFIX = ".preflight-"
REMOVE_TRIES = 3


@dataclass(frozen=True, slots=True)
class Bundle:
    """`env` is for its program, `python` the nodes' interpreter."""

    folder: Path
    env: dict[str, str]
    check_s: int
    python: str

    program: Program

    def command(self, *arguments: str) -> list[str]:
        """Return the command, with the program by value: otherwise anybody who may write in the log
        directory could run programs as this user."""
        return self.program.command(self.python, *arguments)

    def on_node(self, action: str) -> list[str]:
        """Return the command for a node outside an allocation, which may not see the bundle."""
        start = self.command("node", action)
        return ["bash", "-c", _SEE, "orchestrator", self.program.archive, *start]

    @property
    def table(self) -> Path:
        return self.folder / "preflight.tsv"


def with_deep(entry: Entry) -> Entry:
    """Add the bandwidth test."""
    preflight = entry.site.preflight.model_copy(update={"deep": True})
    return replace(entry, site=entry.site.model_copy(update={"preflight": preflight}))


def hosts_only(site: Site | Path) -> Entry:
    """Keep only checks for every host."""
    from orchestrator.model import load_entry

    entry = load_entry(*HOST_ONLY, site=site)
    skipped = list(dict.fromkeys([*entry.site.preflight.skip, "image"]))
    preflight = entry.site.preflight.model_copy(update={"skip": skipped})
    return replace(
        entry.with_document("system", nodes=1),
        site=entry.site.model_copy(update={"preflight": preflight}),
    )


@contextmanager
def temporary_bundle(entry: Entry, log_dir: Path, parts: Sequence[str] = ()) -> Iterator[Bundle]:
    """Render `entry` into `log_dir`, with further `parts` of lib/. Raises SetError if
    unwritable."""
    from orchestrator.render import render_bundle, write_bundle
    from orchestrator.render.bundle import lib_file
    from orchestrator.runset.create import unwritable

    files = render_bundle(entry, nexp=1) | {f"lib/{name}": lib_file(name) for name in parts}
    folder = log_dir / f"{PREFIX}{os.uname().nodename}-{os.getpid()}-{os.urandom(2).hex()}"
    _sweep(log_dir)
    umask = os.umask(0o022)  # whoever can change the bundle can execute as this user
    try:
        try:
            folder.mkdir()
            # The folder is for people; the archive is run.
            write_bundle(files, folder / "bundle")
            program = keep(Program(files), Layout(folder))
        except OSError as error:
            raise unwritable(error, f"cannot write a bundle into {log_dir}", log_dir) from error
        finally:
            os.umask(umask)
        # The nodes write there, too: all of it is removed together.
        env = {**environment(os.environ, entry), "ORCH_SET_DIR": str(folder)}
        yield Bundle(folder, env, entry.site.preflight.check_seconds, entry.site.python, program)
    finally:
        _remove(folder)


def environment(caller: Mapping[str, str], entry: Entry) -> dict[str, str]:
    """Return the environment of a job: the caller's shell cannot change the checks.

    ORCH_* are for rehearsals, except those of a set's job.
    """
    from orchestrator.runset.create import needed_names
    from orchestrator.runset.submit import CLEAN_ENV
    from orchestrator.scheduler.command import KEPT_SLURM

    names = [*CLEAN_ENV, *KEPT_SLURM, *needed_names(entry)]
    for name in caller:
        if name.startswith("ORCH_") and not name.startswith(("ORCH_SET", "ORCH_JOB")):
            names.append(name)
    return {name: caller[name] for name in names if name in caller}


def _remove(folder: Path) -> None:
    """Remove it despite Ctrl-C, and a node still writing its last file."""
    before = None
    with suppress(ValueError):  # not the main thread
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for _ in range(REMOVE_TRIES):
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _sweep(log_dir: Path) -> None:
    """Remove the folders of preflights killed on this host."""
    # Match the whole name: host `login` must not remove those of `login-900001`.
    mine = re.compile(re.escape(f"{PREFIX}{os.uname().nodename}-") + "([0-9]+)-[0-9a-f]{4}")
    with suppress(OSError):
        for name in os.listdir(log_dir):
            match = mine.fullmatch(name)
            if match and not os.path.exists(f"/proc/{match[1]}"):
                shutil.rmtree(log_dir / name, ignore_errors=True)

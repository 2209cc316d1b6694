"""The bundle of a set's next job: as declared, or with accepted edits.

A deleted file is no edit: it is put back as declared, from the archives of earlier jobs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from orchestrator.errors import Fix, SetError
from orchestrator.evidence.bundle import MOST_BYTES, unpacked
from orchestrator.evidence.files import is_inside
from orchestrator.evidence.sets import RunSet, SetEvidence, again
from orchestrator.onnode.kernel.files import Files
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.program import LOADER, Program, walk
from orchestrator.onnode.kernel.world import THIS, World
from orchestrator.onnode.set import bundle, ledger
from orchestrator.onnode.set.bundle import keep
from orchestrator.onnode.set.lease import HeldError
from orchestrator.onnode.set.new import show_like
from orchestrator.words import quoted


def check_bundle(run_set: RunSet, nexp: int = 0) -> None:
    """Raise SetError if the set's declared bundle is missing."""
    if SetEvidence(run_set.layout.root).bundle_problem:
        raise SetError(
            f"the bundle of {run_set.name} is missing, which its jobs run: {run_set.layout.bundle}",
            hint=_from_elsewhere(run_set, nexp),
        )


def _from_elsewhere(run_set: RunSet, nexp: int = 0) -> str:
    command = " ".join(map(quoted, ["orchestrator", *again(run_set.record, nexp)]))
    return f"put it back from a copy, or make a new set: {command}"


def is_declared(run_set: RunSet) -> bool:
    """Return whether the set has its declared bundle, without any edit."""
    folder, sha256 = run_set.layout.bundle, run_set.record.bundle_sha256
    try:
        return not sha256 or not bundle.changed(bundle.hashes(folder), folder, sha256)
    except OSError:
        return False


def verified_bundle(
    run_set: RunSet, *, edited: bool, nexp: int = 0, world: World
) -> Program | None:
    """Return the set's bundle, read once and verified, with its archive (not in older versions);
    None for a set without one.

    Raises SetError for missing and edited files; with `edited`, record edits as accepted.
    """
    layout = run_set.layout
    check_bundle(run_set)
    if not layout.bundle.is_dir():
        return None
    try:
        contents = dict(walk(layout.bundle))
        program = Program({name: text for name, text in contents.items() if text is not None})
        if sha256 := run_set.record.bundle_sha256:
            hashes = dict.fromkeys(contents, "no file") | bundle.hashes_of(program.files)
            made = program.files.get(bundle.MANIFEST, b"")
            now = bundle.changed_from(made, hashes, sha256)
            _compare(run_set, now, edited=edited, nexp=nexp, world=world)
        return keep(program, layout, world.files) if LOADER in program.files else program
    except HeldError as held:
        raise SetError(f"{held}", hint="try again in a minute") from held
    except ValueError as error:
        raise SetError(f"{layout.bundle}/{error}", hint="give that file a shorter name") from error
    except OSError as error:
        raise SetError(
            f"{quoted(layout.bundle)}: {error.strerror or error}",
            hint=f"ls -ld {quoted(layout.bundle)}",
        ) from error


def _compare(
    run_set: RunSet, now: dict[str, str], *, edited: bool, nexp: int, world: World
) -> None:
    """Raises SetError, HeldError, OSError."""
    root = run_set.layout.root
    accepted = bundle.accepted(ledger.read(root, world.files)[0])
    missing, other = bundle.unexpected(now, accepted)
    if missing:
        raise SetError(lost(run_set, missing), hint=_from_elsewhere(run_set, nexp))
    if other and not edited:
        raise SetError(
            f"the bundle of {run_set.name} was edited since it was declared: {bundle.named(other)}",
            hint="put it back (a deleted file is put back as declared), or accept the edit:",
            fix=Fix(again=("--edited",)),
        )
    if now != accepted:
        ledger.append(root, ("edit", {"files": now}), world=world)


def lost(run_set: RunSet, files: list[str]) -> str:
    """Describe deleted files that cannot be put back."""
    verb = "is" if len(files) == 1 else "are"
    return (
        f"{bundle.named(files)} of the bundle of {run_set.name} {verb} missing, and no job's "
        "archive has the declared content"
    )


def put_back(run_set: RunSet, note: Callable[[str], object], world: World = THIS) -> list[str]:
    """Put the bundle's deleted files back as declared, and `note` their names. Return the files
    that no archive has.

    The set declares the manifest's hash, and the manifest those of the other files, wherever an
    archive comes from. A deletion that was accepted when the set was declared stays. Raises
    SetError.
    """
    layout, files = run_set.layout, world.files
    done: list[str] = []
    try:
        deleted = _deleted(run_set, files)
        for name, content in _archived(layout, deleted, files) if deleted else ():
            if hashlib.sha256(content).hexdigest() == deleted.get(name):
                del deleted[name]
                _put(layout, name, content, world)
                done.append(name)
    except OSError as error:
        raise SetError(
            f"a deleted file of {layout.bundle} cannot be put back: {error.strerror or error}",
            hint=f"ls -ld {quoted(layout.bundle)}",
        ) from error
    if done:
        verb = "was" if len(done) == 1 else "were"
        names = bundle.named(sorted(done))
        note(f"note: {names} of the bundle {verb} missing, and {verb} put back as declared")
    return sorted(deleted)


def _deleted(run_set: RunSet, files: Files) -> dict[str, str]:
    """Return name -> declared hash of the bundle's deleted files. Raises OSError."""
    folder, sha256 = run_set.layout.bundle, run_set.record.bundle_sha256
    if not sha256 or not files.is_folder(folder):
        return {}
    declared = {bundle.MANIFEST: sha256, **(bundle.declared(_manifest(run_set, files)) or {})}
    accepted = bundle.accepted(ledger.read(run_set.layout.root, files)[0])
    return {
        name: sha
        for name, sha in declared.items()
        if accepted.get(name) != ""
        and not files.has_name(folder / name)
        and is_inside(folder / name, folder)  # not through a link of somebody
    }


def _manifest(run_set: RunSet, files: Files) -> bytes:
    """Return the declared manifest, of the bundle or an archive; b"" if both lack it. Raises
    OSError."""
    layout, contents = run_set.layout, list[bytes]()
    with suppress(OSError):
        contents.append(files.read_bytes(layout.bundle / bundle.MANIFEST))
    archived = (content for _, content in _archived(layout, [bundle.MANIFEST], files))
    sha256 = run_set.record.bundle_sha256
    is_declared = (
        it for it in chain(contents, archived) if hashlib.sha256(it).hexdigest() == sha256
    )
    return next(is_declared, b"")


def _archived(layout: Layout, wanted: Collection[str], files: Files) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of `wanted` files in the set's archives. Raises OSError."""
    names = files.names(layout.program) if files.exists(layout.program) else []
    for path in (layout.program / name for name in sorted(names)):
        with suppress(OSError):  # another archive may have it
            content = files.read_bytes(path, MOST_BYTES)
            yield from unpacked(content, {*wanted}).items()


def _put(layout: Layout, name: str, content: bytes, world: World) -> None:
    """Write a file for the readers of the bundle alone. Raises OSError."""
    files, path = world.files, layout.bundle / name
    umask = world.umask(0o077)
    temporary = Path(files.temporary(layout.root / path.name))
    try:
        for folder in reversed(path.parents):
            if layout.bundle in folder.parents and not files.is_folder(folder):
                files.make_folder(folder)
                show_like(folder, layout.bundle, 0o700)
        files.create(temporary, content)
        show_like(temporary, layout.bundle, 0o700 if content.startswith(b"#!") else 0o600)
        files.rename(temporary, path)
    finally:
        files.remove(temporary)
        world.umask(umask)

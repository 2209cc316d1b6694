"""Write bundles, all or nothing, and compare them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from orchestrator.errors import ExitCode, RenderError, is_full
from orchestrator.onnode.kernel.regular import read_bytes

LARGEST_DIFF = 256 << 10
"""Larger files are not compared by lines: the time is quadratic."""
_MANIFEST = "manifest.json"


class NoRoomError(RenderError):
    """The file system of the bundle is full."""

    exit_code = ExitCode.SET_STATE


def write_bundle(
    files: Mapping[str, bytes], directory: Path, *, replace_edited: bool = False
) -> None:
    """Write `files`; a reader sees either the old bundle or the new.

    Only a bundle is replaced. Raises RenderError for another content, an edited bundle (unless
    `replace_edited`), or an unwritable folder.
    """
    directory = Path(os.path.realpath(directory))
    _check_place(directory, replace_edited)
    temp: Path | None = None
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        temp = Path(tempfile.mkdtemp(prefix=f".{directory.name}.tmp.", dir=directory.parent))
        _fill(files, temp)
        _swap(temp, directory)
    except OSError as error:
        kind = NoRoomError if is_full(error) else RenderError
        raise kind(f"cannot write the bundle to {directory}: {error.strerror}") from error
    finally:
        if temp is not None:
            shutil.rmtree(temp, ignore_errors=True)


def _fill(files: Mapping[str, bytes], folder: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    folder.chmod(0o777 & ~umask)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        # Scripts for people; other files are sourced.
        if content.startswith(b"#!"):
            path.chmod(0o777 & ~umask)


def _swap(new: Path, place: Path) -> None:
    if not place.exists():
        new.rename(place)
        return
    old = place.with_name(f".{place.name}.old.{os.getpid()}")
    place.rename(old)
    try:
        new.rename(place)
    except OSError:
        old.rename(place)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _check_place(directory: Path, replace_edited: bool) -> None:
    if not directory.exists():
        return
    if not directory.is_dir():
        raise RenderError(
            f"{directory} is a file; the bundle is a folder", hint="give another path with -o"
        )
    if directory == Path.cwd():
        # A shell here would stay in the old, deleted folder.
        raise RenderError(
            f"{directory} is the current folder",
            hint=f"give another folder with -o, such as {directory / 'bundle'}",
        )
    if not any(directory.iterdir()):
        return
    if not (directory / _MANIFEST).is_file():
        raise RenderError(
            f"{directory} holds other files than a bundle (it has no {_MANIFEST})",
            hint="give a new folder with -o",
        )
    edited = edited_files(directory)
    if edited and not replace_edited:
        raise RenderError(
            f"{directory} was edited since it was rendered: {', '.join(edited)}",
            hint="keep it and give another folder with -o, or lose the edits with --force",
        )


def edited_files(directory: Path) -> list[str]:
    """Return files that differ from the manifest: changed, missing or added."""
    from orchestrator.onnode.set.bundle import changed, hashes  # not for a new folder

    return list(changed(hashes(directory), directory))


def read_bundle(directory: Path) -> dict[str, bytes]:
    """Raises OSError, also for far too large files."""
    return {
        path.relative_to(directory).as_posix(): read_bytes(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def diff_bundle(files: Mapping[str, bytes], directory: Path) -> Iterator[str]:
    """Yield a unified diff from the bundle in `directory` to `files`."""
    from difflib import unified_diff

    old = read_bundle(directory)
    for name in sorted({*old, *files}):
        if old.get(name) == files.get(name):
            continue
        if max(len(old.get(name) or b""), len(files.get(name) or b"")) > LARGEST_DIFF:
            yield f"Files set/{name} and new/{name} differ"
        else:
            yield from unified_diff(
                _lines(old.get(name)),
                _lines(files.get(name)),
                f"set/{name}",
                f"new/{name}",
                lineterm="",
            )


def _lines(content: bytes | None) -> list[str]:
    return [] if content is None else content.decode("utf-8", "replace").splitlines()

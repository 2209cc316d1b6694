"""From a user's text to a set's folder."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import UsageError, did_you_mean
from orchestrator.evidence.sets import check_log_dir, is_set, read_set_record, set_folders
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.records import SetRecord
from orchestrator.resources import user_path
from orchestrator.trust import others, user_name
from orchestrator.words import quoted

TRASH = ".trash"
"""Folder of removed sets (trash.py); with the user's number if another user made it."""


def refuse_trash(folder: Path) -> None:
    """Raise UsageError for a set in the trash, with the way back."""
    place = folder.resolve()
    if place.parent.name.startswith(TRASH):
        raise UsageError(
            f"{folder} is in the trash",
            hint=f"to get it back: mv {quoted(place)} {quoted(place.parent.parent)}/",
        )


def foreign(layout: Layout) -> str:
    """Return why another user decides what a set runs, or "". Its group may write to all but the
    bundle."""
    decisive = [
        layout.root,
        layout.set_file,
        layout.root / "ledger.jsonl",
        layout.bundle,
        *layout.bundle.rglob("*"),
    ]
    for path in decisive:
        records = path != layout.bundle and layout.bundle not in path.parents
        try:
            if why := others(path, parents=False, group=records):
                return why
        except OSError:
            continue
    with suppress(OSError):
        if (owner := layout.root.lstat().st_uid) != os.getuid():
            return f"{layout.root} belongs to {user_name(owner)}"
    return ""


def find_set(name: str, log_dir: Path | None, owner: int | None = None) -> Path:
    """Return a set's folder: `name` is a path, an id, its first or last part, a name of `submit
    --name`, or "" for the newest.

    `owner`: only that user's sets. `log_dir`: the place of ids, None without a site. Raises
    UsageError for no match or several, SetError without the log directory.
    """
    path = user_path(name)
    if name and is_set(path):
        refuse_trash(path)
        return path.resolve()
    if name and ("/" in name or path.is_dir()):
        raise _no_set_at(path, log_dir)
    if log_dir is None:
        reason = (
            f"`{name}` can only be a path to a set's folder" if name else "a set has to be named"
        )
        raise UsageError(
            f"there is no site file, so {reason}",
            hint="give the set's folder, or --site FILE (or ORCHESTRATOR_SITE, or ./site.yaml)",
        )
    listed = _listed(log_dir, owner)
    folders = [folder for folder in listed if folder.name.startswith(name)]
    folders = folders or [folder for folder in listed if folder.name.endswith(f"-{name}")]
    folders = folders or [folder for folder in listed if _label(folder) == name]
    exact = [folder for folder in folders if folder.name == name]
    if exact or len(folders) == 1 or (folders and not name):
        return (exact or folders)[0]
    if folders:
        shown = "".join(f"\n    {folder.name}" for folder in folders[:8])
        more = f"\n    and {len(folders) - 8} more" if len(folders) > 8 else ""
        raise UsageError(
            f"`{name}` matches {len(folders)} sets:{shown}{more}", hint="give one id, or more of it"
        )
    if owner is not None and _listed(log_dir):
        raise UsageError(
            f"no set in {log_dir} is yours",
            hint="name another user's set, and add --others if it is meant",
        )
    raise _no_set_called(name, log_dir)


def short_name(root: Path, log_dir: Path) -> str:
    """Return the shortest last part of an id that find_set() accepts; outside `log_dir` its
    path."""
    if root.resolve().parent != log_dir.resolve():
        return str(root)
    others = [folder.name for folder in set_folders(log_dir) if folder.name != root.name]
    parts = root.name.split("-")
    for start in range(len(parts) - 1, 0, -1):
        name = "-".join(parts[start:])
        if not any(other.startswith(name) or other.endswith(f"-{name}") for other in others):
            return name
    return root.name


def _label(folder: Path) -> str:
    """Return the name of `submit --name`, or ""."""
    record = read_set_record(Layout(folder))
    return record.label if isinstance(record, SetRecord) else ""


def _listed(log_dir: Path, owner: int | None = None) -> list[Path]:
    check_log_dir(log_dir)
    folders = [folder for folder in set_folders(log_dir) if is_set(folder)]
    return (
        folders
        if owner is None
        else [folder for folder in folders if folder.lstat().st_uid == owner]
    )


def _no_set_at(path: Path, log_dir: Path | None) -> UsageError:
    if path.is_dir():
        reason = "it has no set.json"
        inside = [folder.name for folder in set_folders(path) if is_set(folder)]
        if inside:
            return UsageError(
                f"{path} is no set but holds {len(inside)}",
                hint=f"name a set, such as {path / inside[0]}",
            )
    else:
        reason = "there is no such folder"
    return UsageError(f"{path} is no set: {reason}", hint=_where_sets_are(log_dir))


def _no_set_called(name: str, log_dir: Path) -> UsageError:
    if not name:
        return UsageError(
            f"there is no set in {log_dir} yet",
            hint="orchestrator submit creates a set; orchestrator systems lists the systems",
        )
    if (folder := log_dir / name) in set_folders(log_dir):
        return _no_set_at(folder, log_dir)
    listed = _listed(log_dir)
    names = [*(folder.name for folder in listed), *filter(None, map(_label, listed))]
    meant = did_you_mean(name, names, before="", after="")
    return UsageError(
        f"there is no set `{name}` in {log_dir}{meant}",
        hint=_where_sets_are(log_dir),
    )


def _where_sets_are(log_dir: Path | None) -> str:
    where = f"the sets of {log_dir}" if log_dir else "sets, with --site FILE"
    return f"orchestrator status lists {where}"

"""The last lines about a set in trouble, for every command that shows one: why, the fix in words,
and a command that can be pasted."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from shlex import join, quote
from typing import TYPE_CHECKING

from orchestrator.words import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.evidence.explain import Explanation
    from orchestrator.evidence.picture import SetPicture

TROUBLE = frozenset({"failed", "refused", "lost", "paused", "held"})
WAITS_IN_VAIN = frozenset({"nodes_unavailable", "never_fits", "partition_down", "partition_limit"})
"""Causes of a waiting job that others must remove."""


def explained(picture: SetPicture) -> Explanation:
    """Return the explanation of a set, its command completed on this host."""
    from orchestrator.evidence.explain import explain
    from orchestrator.evidence.sets import SetEvidence

    found = explain(SetEvidence(picture.root), picture)
    complete = _COMMANDS.get(found.cause)
    command = complete(picture, found) if complete and picture.record else ""
    return replace(found, next=command or found.next)


def closing_lines(picture: SetPicture) -> list[str]:
    """Return the last lines about a set: at most three; [] for a set without trouble."""
    if picture.state not in (*TROUBLE, "pending"):
        return []
    found = explained(picture)
    if picture.state == "pending" and found.cause not in WAITS_IN_VAIN:
        return []
    return [f"why: {found.sentence}", *fix_lines(found)]


def fix_lines(found: Explanation) -> list[str]:
    """Return the fix in words, and the command in a line of its own."""
    words = [f"fix: {found.remedy}"] if found.remedy else []
    return [*words, *([f"  {found.next}"] if found.next else [])]


# ---- commands that need facts besides the set ----


def _again(picture: SetPicture, *overrides: str) -> str:
    """Return the command that submits the set anew with other values of the site file."""
    record = picture.record
    if record is None:
        return ""
    words = ["orchestrator", "submit", record.system, record.workload, "--nexp", str(record.nexp)]
    words += ["--round", record.round] if record.round else []
    return join([*words, *(word for value in overrides for word in ("--override", value))])


def _name_data(picture: SetPicture, found: Explanation) -> str:
    """Return the command that names the folder of data that the set lacks."""
    from orchestrator.model.prerequisites import likely_folder

    record = picture.record
    match = re.search(r"(\w+) is not set", _told(picture, found))
    if record is None or match is None:
        return ""
    key = f"data.{record.workload}.{match[1]}"
    folder = likely_folder(record.workload, match[1], os.environ, [], str(picture.root.parent))
    if os.path.isdir(folder):
        return _again(picture, f"{key}={folder}")
    return f"orchestrator prepare {quoted(record.workload)} --override {quote(f'{key}={folder}')}"


def _find_data(picture: SetPicture, found: Explanation) -> str:
    """Return the command for a folder of data that nodes do not have: with the existing folder of
    nearly its name, or its preparation."""
    from orchestrator.model.prerequisites import near_folder

    record = picture.record
    match = re.search(r"(\w+): (/\S+) does not exist", _told(picture, found))
    if record is None or match is None:
        return ""
    near = near_folder(match[2])
    if near:
        return _again(picture, f"data.{record.workload}.{match[1]}={near}")
    return f"orchestrator prepare {quoted(record.workload)}"


def _load_image(picture: SetPicture, found: Explanation) -> str:
    """Return the commands that load the image on the nodes, from its tar if it is kept."""
    from orchestrator.container.store import stored

    record = picture.record
    if record is None:
        return ""
    words = [record.system, record.workload, *(["--round", record.round] if record.round else [])]
    image = " ".join(map(quoted, words))
    kept = stored(picture.root.parent.parent / "images", record.image)
    steps = [] if kept else [f"orchestrator images pull {image}"]
    steps += [
        f"orchestrator images distribute {image}",
        f"orchestrator resume {quoted(picture.root)}",
    ]
    return " && ".join(steps)


def _join_group(picture: SetPicture, found: Explanation) -> str:
    """Return the administrator's command that lets the set's owner use the engine."""
    from pwd import getpwuid

    try:
        user = getpwuid(picture.root.stat().st_uid).pw_name
    except (OSError, KeyError):
        return ""
    return f"sudo usermod -aG docker {quote(user)}"


def _return_nodes(picture: SetPicture, found: Explanation) -> str:
    """Return the operator's command that returns drained nodes."""
    from orchestrator.errors import SchedulerError
    from orchestrator.nodes.names import fold
    from orchestrator.scheduler import advice
    from orchestrator.scheduler.slurm_nodes import unavailable_nodes

    try:
        nodes = unavailable_nodes()
    except SchedulerError:
        return ""
    return advice.return_nodes(fold(nodes)) if nodes else ""


def _told(picture: SetPicture, found: Explanation) -> str:
    return " ".join([picture.reason, *(proof.text for proof in found.evidence)])


_COMMANDS: dict[str, Callable[[SetPicture, Explanation], str]] = {
    "data_unset": _name_data,
    "data_missing": _find_data,
    "image_absent": _load_image,
    "no_root": lambda picture, _: _again(picture, "tunables=off", "clear_caches=false"),
    "caches_kept": lambda picture, _: _again(picture, "clear_caches=false"),
    "engine_no_access": _join_group,
    "engine_no_sudo": lambda picture, _: _again(picture, "container.command=[docker]"),
    "nodes_unavailable": _return_nodes,
}
"""Cause -> its command; that of its rule is for all others."""

"""What the words after `lib node` mean: hold (for the life of a job), check (preflight.sh), deep (bandwidth between nodes)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ..settings import SettingsError, load
from .node import Node, this_node
from .waiting import Failed


def main(bundle: Path, action: str) -> int:
    """Do `action` on this node; return the exit status. What goes wrong is said to the loop as `failed`."""
    try:
        node = this_node(bundle, load(bundle))
    except (SettingsError, KeyError) as error:
        # Nobody knows yet what this node is called, where its log is, or who listens.
        name = os.environ.get("ORCH_NODE") or os.environ.get("SLURMD_NODENAME") or os.uname().nodename.split(".")[0]
        text = str(error) if isinstance(error, SettingsError) else f"{error} is not set"
        os.write(1, f"failed\t{name}\tinternal\x1f{' '.join(text.split())}"[:900].encode("utf-8", "replace") + b"\n")
        return 1
    if action == "deep":
        from .deep import main as measure

        return _guarded(node, measure)
    from .hold import check, hold

    return hold(node) if action == "hold" else _guarded(node, check)


def _guarded(node: Node, part: Callable[[Node], int]) -> int:
    try:
        return part(node)
    except Exception as error:
        tell_failure(node, error)
        return 1


def tell_failure(node: Node, error: Exception) -> None:
    """Say why this node cannot go on. Where an unexpected exception came from goes to hold.log, or to standard error."""
    if isinstance(error, Failed):
        node.say("failed", error.kind, error.text)
        return
    import traceback  # takes long, and is seldom needed

    lines = traceback.format_exception(type(error), error, error.__traceback__)
    if isinstance(error, OSError) and error.filename is not None:
        node.say("failed", "storage", f"{os.fsdecode(error.filename)}: {error.strerror}")
    else:
        node.say("failed", "internal", f"{lines[-1].strip()} (see {node.hold_log})")
    try:
        with open(node.hold_log, "a", encoding="utf-8", errors="replace") as file:
            file.writelines(lines)
    except OSError:
        node.log("".join(lines))

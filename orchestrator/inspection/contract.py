"""The contract of an image for one command."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from orchestrator.inspection import python
from orchestrator.inspection.programs import LAUNCHERS, python_script
from orchestrator.inspection.run_container import RunContainer
from orchestrator.inspection.software import Software, software
from orchestrator.inspection.state import LOG, NOWHERE
from orchestrator.inspection.trace import Start, Trace, shown
from orchestrator.inspection.tree import ImageTree
from orchestrator.inspection.walk import ScriptWalk


@dataclass(frozen=True)
class CommandEnd:
    """The command's exit status if its training ends well, and if it fails with 7; None if only
    the run knows."""

    after_success: int | None
    after_failure: int | None

    @property
    def is_believable(self) -> bool | None:
        """Return whether a failure of the training is a failure of the command."""
        if self.after_failure is None:
            return None
        return self.after_failure != 0


@dataclass(frozen=True)
class Contract:
    """Facts of an image and a command. `scripts`: path -> SHA-256 of the file's content."""

    tree: ImageTree
    command: tuple[str, ...]
    trace: Trace
    training: Start | None
    ranks: str
    exit: CommandEnd
    scripts: dict[str, str]
    software: Software = field(default_factory=Software)


def contract_of(tree: ImageTree, command: Iterable[str], around: RunContainer) -> Contract:
    """Return the contract of `command` in an image, by walking its scripts."""
    words = list(command)
    walk = ScriptWalk(tree, around)
    walk.run(list(words))
    trace = walk.trace
    training = _training(tree, trace)
    environment = {**tree.config.environment, **around.environment}
    for start in trace.starts:
        _follow_python(tree, trace, start, environment, around)
    hashes = {
        path: hashlib.sha256(file.content).hexdigest()
        for path in trace.scripts
        if (file := tree.get(path)) is not None and file.content is not None
    }
    return Contract(
        tree,
        tuple(words),
        trace,
        training,
        _ranks(training),
        _exit(tree, words, around, training),
        hashes,
        software(tree),
    )


def _training(tree: ImageTree, trace: Trace) -> Start | None:
    """Return the start of the training: the last launcher of ranks, else the last Python
    program, else the last program."""
    starts = [one for one in trace.starts if not one.place.maybe] or trace.starts
    kinds = (
        [one for one in starts if posixpath.basename(one.words[0]) in LAUNCHERS],
        [one for one in starts if python_script(list(one.words))],
        starts,
    )
    return next((kind[-1] for kind in kinds if kind), None)


def _follow_python(
    tree: ImageTree, trace: Trace, start: Start, environment: dict[str, str], around: RunContainer
) -> None:
    script = python_script(list(start.words))
    if script is None:
        return
    path = _script_path(tree, start, script, around)
    if tree.text(path) is None:
        return
    python.follow(tree, trace, path, environment, start.place.maybe)
    for word in start.words:
        value = word.partition("=")[2] if "=" in word else word
        if value.endswith((".yaml", ".yml")):
            python.document(
                tree, trace, posixpath.join(posixpath.dirname(path), value), environment
            )
    for top in (posixpath.dirname(path), posixpath.dirname(posixpath.dirname(path))):
        if tree.is_folder(posixpath.join(top, "conf")):
            python.documents(tree, trace, posixpath.join(top, "conf"), environment)


def _script_path(tree: ImageTree, start: Start, script: str, around: RunContainer) -> str:
    """Return the script's path: the walk noted it as a script of the start."""
    for path in trace_paths(start, script, around):
        if tree.text(path) is not None:
            return tree.resolve(path)
    return script


def trace_paths(start: Start, script: str, around: RunContainer) -> list[str]:
    if script.startswith("/"):
        return [script]
    folder = posixpath.dirname(start.place.file)
    return [
        posixpath.normpath(posixpath.join(top, script))
        for top in (start.cwd, around.cwd, folder)
        if top.startswith("/")
    ]


def _ranks(training: Start | None) -> str:
    """Return how the ranks are made: `torchrun c10d`, `torchrun static`, `torchrun one node`,
    `task per GPU`, `launcher NAME`, or "" if there is no program."""
    if training is None:
        return ""
    name = posixpath.basename(training.words[0])
    text = " ".join(training.words)
    if name == "torchrun" or "torch.distributed" in text:
        if "c10d" in text:
            return "torchrun c10d"
        return "torchrun static" if "--nnodes" in text else "torchrun one node"
    if name.startswith("python"):
        return "task per GPU"
    return f"launcher {shown(name)}"


def _exit(
    tree: ImageTree, words: list[str], around: RunContainer, training: Start | None
) -> CommandEnd:
    if training is None:
        return CommandEnd(None, None)
    place = (training.place.file, training.place.line)
    ends = [
        ScriptWalk(tree, around, {place: status}).run(list(words))
        for status in (0, ScriptWalk.FAILED)
    ]
    return CommandEnd(*ends)


def where_errors_go(training: Start) -> str:
    """Return the place of the training's standard error in words; "" if it is the run's log."""
    if training.err == LOG:
        return ""
    if training.err == NOWHERE:
        return "is thrown away"
    if training.err.startswith("|"):
        return f"goes through `{shown(training.err[2:])}`"
    return f"goes to {shown(training.err)}"


def without_folder(contract: Contract) -> Contract:
    """Return the contract without the image's files."""
    return replace(contract, tree=ImageTree((), contract.tree.config))

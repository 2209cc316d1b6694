"""The contract of an image for one command."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field

from orchestrator.inspection import python
from orchestrator.inspection.programs import LAUNCHERS
from orchestrator.inspection.run_container import NodeStart, RunContainer
from orchestrator.inspection.software import Software, software
from orchestrator.inspection.streams import LOG, NOWHERE
from orchestrator.inspection.trace import Start, Trace, shown
from orchestrator.inspection.tree import ImageTree
from orchestrator.inspection.walk import ScriptWalk

MOST_GENERATIONS = 4
"""Of Python programs that start others."""


@dataclass(frozen=True)
class CommandEnd:
    """Exit statuses after a training that succeeded, or failed with 7; None if undecided."""

    after_success: int | None
    after_failure: int | None

    @property
    def is_believable(self) -> bool | None:
        if self.after_failure is None:
            return None
        return self.after_failure != 0


@dataclass(frozen=True)
class Contract:
    """`scripts`: path -> SHA-256 of the file's content."""

    tree: ImageTree
    command: tuple[str, ...]
    trace: Trace
    training: Start | None
    ranks: str
    exit: CommandEnd
    scripts: dict[str, str]
    software: Software = field(default_factory=Software)
    second: Start | None = None
    """On the second node."""


def contract_of(
    tree: ImageTree,
    command: Iterable[str],
    around: RunContainer,
    second: NodeStart | None = None,
) -> Contract:
    """Walk the scripts of `command`; `second`: the command on the second node."""
    argv = list(command)
    walk = ScriptWalk(tree, around)
    walk.run(list(argv))
    trace = walk.trace
    _follow_programs(walk, {**tree.config.environment, **around.environment})
    training = _training(tree, trace)
    hashes = {
        path: hashlib.sha256(file.content).hexdigest()
        for path in trace.scripts
        if (file := tree.get(path)) is not None and file.content is not None
    }
    return Contract(
        tree,
        tuple(argv),
        trace,
        training,
        _ranks(training, trace),
        _exit(tree, argv, around, training),
        hashes,
        software(tree),
        _training_of(tree, second) if second is not None else None,
    )


def _follow_programs(walk: ScriptWalk, environment: dict[str, str]) -> None:
    trace = walk.trace
    starts = texts = commands = 0
    for _ in range(MOST_GENERATIONS):
        for start in trace.starts[starts:]:
            if start.script:
                _follow_python(walk.tree, trace, start, environment)
        for given in trace.python[texts:]:
            python.read_text(given, trace, environment)
        starts, texts = len(trace.starts), len(trace.python)
        walk.run_python_commands(commands)
        commands = len(trace.commands)


def _training_of(tree: ImageTree, node: NodeStart) -> Start | None:
    walk = ScriptWalk(tree, node.around)
    walk.run(list(node.command))
    return _training(tree, walk.trace)


def _training(tree: ImageTree, trace: Trace) -> Start | None:
    """Return the last launcher of ranks, else Python program, else program."""
    starts = [start for start in trace.starts if not start.place.maybe] or trace.starts
    kinds = (
        [start for start in starts if posixpath.basename(start.words[0]) in LAUNCHERS],
        [start for start in starts if start.script],
        starts,
    )
    return next((kind[-1] for kind in kinds if kind), None)


def _follow_python(
    tree: ImageTree, trace: Trace, start: Start, environment: dict[str, str]
) -> None:
    path = tree.resolve(start.script)
    if tree.text(path) is None:
        return
    python.follow(tree, trace, path, environment, start.place.maybe, start.words)
    folder = posixpath.dirname(path)
    search = [folder, start.cwd, *filter(None, environment.get("PYTHONPATH", "").split(":"))]
    for word in start.words:
        value = word.partition("=")[2] if "=" in word else word
        if value.endswith((".yaml", ".yml")):
            values = python.document(tree, trace, posixpath.join(folder, value), environment)
            python.named(tree, trace, values, environment, search)
    for top in (posixpath.dirname(path), posixpath.dirname(posixpath.dirname(path))):
        if tree.is_folder(posixpath.join(top, "conf")):
            python.documents(tree, trace, posixpath.join(top, "conf"), environment)


def _ranks(training: Start | None, trace: Trace) -> str:
    """Return how ranks are made: `torchrun c10d`, `torchrun static`, `torchrun one node`, `task per
    GPU`, `Python`, `launcher NAME`, or ""."""
    if training is None:
        return ""
    name = posixpath.basename(training.words[0])
    text = " ".join(training.words)
    if name == "torchrun" or "torch.distributed" in text:
        if "c10d" in text:
            return "torchrun c10d"
        return "torchrun static" if "--nnodes" in text else "torchrun one node"
    if name.startswith("python"):
        spawns = any(problem.why.startswith(python.MAKES_RANKS) for problem in trace.undecided)
        return "Python" if spawns else "task per GPU"
    return f"launcher {shown(name)}"


def _exit(
    tree: ImageTree, argv: list[str], around: RunContainer, training: Start | None
) -> CommandEnd:
    if training is None:
        return CommandEnd(None, None)
    place = (training.place.file, training.place.line)
    ends = [
        ScriptWalk(tree, around, {place: status}).run(list(argv))
        for status in (0, ScriptWalk.FAILED)
    ]
    return CommandEnd(*ends)


def where_errors_go(training: Start) -> str:
    """Return the place in words; "" for the run's log."""
    if training.err == LOG:
        return ""
    if training.err == NOWHERE:
        return "is thrown away"
    if training.err.startswith("|"):
        return f"goes through `{shown(training.err[2:])}`"
    return f"goes to {shown(training.err)}"

"""Programs started by a script: scripts, Python programs, launchers, and their wrappers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from orchestrator.inspection import effects
from orchestrator.inspection.choices import by_document, interpreter, scripts_of, undecided_scripts
from orchestrator.inspection.interface import Walk
from orchestrator.inspection.state import ShellState, take_options
from orchestrator.inspection.syntax import parse
from orchestrator.inspection.trace import (
    UNKNOWN,
    Assignment,
    Missing,
    Place,
    PythonText,
    Start,
    Undecided,
    is_known,
    shown,
)
from orchestrator.inspection.tree import ImageTree

SHELLS = {"bash", "sh", "dash"}
LAUNCHERS = {"torchrun", "deepspeed", "accelerate", "mpirun", "mpiexec"}
_PYTHON = re.compile(r"python(3(\.\d+)?)?")

# Wrapper -> its options with a value, and the number of words before the program.
_WRAPPERS: dict[str, tuple[frozenset[str], int]] = {
    "nohup": (frozenset(), 0),
    "time": (frozenset({"-f", "-o"}), 0),
    "nice": (frozenset({"-n"}), 0),
    "ionice": (frozenset({"-c", "-n"}), 0),
    "numactl": (frozenset({"-N", "-m", "-C", "-i", "-p"}), 0),
    "stdbuf": (frozenset({"-o", "-i", "-e"}), 0),
    "setsid": (frozenset(), 0),
    "sudo": (frozenset({"-u", "-g"}), 0),
    "unbuffer": (frozenset(), 0),
    "timeout": (frozenset({"-k", "-s"}), 1),
    "taskset": (frozenset(), 1),
    "chrt": (frozenset(), 1),
}

FILTERS = {
    "grep",
    "egrep",
    "tee",
    "sed",
    "awk",
    "cat",
    "head",
    "tail",
    "tr",
    "sort",
    "uniq",
    "cut",
    "ts",
}
"""They read others' output, and succeed when those fail."""

_QUIET = FILTERS | {
    *("date", "sleep", "hostname", "uname", "id", "whoami", "nproc", "seq", "basename", "dirname"),
    *(
        "realpath",
        "readlink",
        "find",
        "ls",
        "wc",
        "xargs",
        "env",
        "expr",
        "bc",
        "md5sum",
        "df",
        "du",
    ),
    *(
        "mktemp",
        "getent",
        "ip",
        "ifconfig",
        "lscpu",
        "free",
        "ps",
        "pgrep",
        "pkill",
        "stat",
        "diff",
    ),
    *("rocm-smi", "amd-smi", "rocminfo", "ibv_devices", "ibv_devinfo", "ldconfig", "sysctl", "jq"),
    *("mkdir", "touch", "rm", "rmdir", "cp", "mv", "ln", "chmod", "chown", "tar", "unzip", "sync"),
    *("modprobe", "lspci", "make", "cmake", "patch", "flock"),
}
"""Programs of every system, without meaning for the contract."""


def run(walk: Walk, shell: ShellState, argv: list[str], place: Place) -> int | None:
    """Walk a program; return its exit status, None if only the run knows."""
    argv = _unwrapped(walk, shell, argv, place)
    if not argv:
        return 0
    if argv[0] in ("{", "}"):  # of a construct that the grammar does not know
        return None
    if not is_known(argv[0]):
        walk.trace.undecided.append(Undecided("which program is started here", place))
        shell.streams.write(UNKNOWN)
        return None
    name = posixpath.basename(argv[0])
    if name in SHELLS and "/" not in argv[0].removeprefix("/bin/").removeprefix("/usr/bin/"):
        return _shell(walk, shell, argv, place)
    path = _find(walk, shell, argv[0])
    if path and "/" in argv[0] and not walk.may_execute(path):
        fault = "is not executable, and is started by its name"
        walk.trace.missing.append(Missing(path, _start(walk, shell, argv, place), fault))
        return 126
    script = path and interpreter(walk, path)
    if script == "shell" and path:
        options: set[str] = set()
        first = (walk.tree.text(path) or "").partition("\n")[0]
        take_options(options, re.split(r"\b(?:ba|da)?sh\b", first, maxsplit=1)[-1].split())
        return walk.script(path, argv[1:], shell, f"started by {place}", options)
    if script == "python" and path:
        return _python(walk, shell, ["python3", path, *argv[1:]], place)
    if _is_python(argv):
        return _python(walk, shell, argv, place)
    effects.look_for_downloads(walk, shell, argv, place)
    effects.look_for_paths(walk, shell, name, argv, place)
    effects.look_for_copies(walk, shell, name, argv, place)
    shell.streams.write(effects.output(walk, shell, name, argv))
    if path is None and _is_missing(walk, shell, argv[0]):
        if walk.unread_source and "/" not in argv[0]:  # perhaps a function of that file
            start = _start(walk, shell, argv, place._replace(maybe=True))
            walk.trace.missing.append(Missing(argv[0], start))
            return None
        walk.trace.missing.append(Missing(argv[0], _start(walk, shell, argv, place)))
        return 127
    if name not in _QUIET:
        return _started(walk, shell, argv, place)
    if name in ("mkdir", "touch"):
        return effects.status_of_making(walk, shell, argv)
    if name in ("rm", "rmdir", "sleep", "sync", "chmod", "basename", "dirname"):
        return 0
    return 0 if name in FILTERS and name not in ("grep", "egrep") else None


def _forget(walk: Walk, shell: ShellState, names: set[str], place: Place) -> None:
    for name in names & shell.variables.exported:
        walk.trace.assignments.append(Assignment(name, "", True, place))
        shell.variables.unset(name)


def _unwrapped(walk: Walk, shell: ShellState, argv: list[str], place: Place) -> list[str]:
    """Return the program behind env, timeout and the like."""
    rest = list(argv)
    while rest:
        name = posixpath.basename(rest[0])
        if name == "env":
            rest = rest[1:]
            while rest and ("=" in rest[0] or rest[0].startswith("-")):
                variable, _, value = rest.pop(0).partition("=")
                if variable in ("-i", "--ignore-environment", "-"):
                    _forget(walk, shell, set(shell.variables.exported), place)
                elif variable in ("-u", "--unset") and (value or rest):
                    _forget(walk, shell, {value or rest.pop(0)}, place)
                elif variable.isidentifier():
                    shell.variables.set(variable, value)
                    shell.variables.export(variable)
        elif name in _WRAPPERS:
            valued, count = _WRAPPERS[name]
            rest = rest[1:]
            while rest and rest[0].startswith("-"):
                option = rest.pop(0)
                if option in valued and rest:
                    rest.pop(0)
            rest = rest[count:]
        else:
            break
    return rest


def _find(walk: Walk, shell: ShellState, word: str) -> str | None:
    """Return a program's path, links not followed; None if missing."""
    if "/" in word:
        path = walk.absolute(shell, word)
        return path if walk.tree.get(path) is not None else None
    return walk.tree.program(word, shell.variables.scalar("PATH") or "")


def _is_missing(walk: Walk, shell: ShellState, word: str) -> bool:
    if not walk.tree.complete:
        return False
    if "/" in word:
        return walk.has(walk.absolute(shell, word)) is False
    return posixpath.basename(word) not in _QUIET | {"git", "wget", "curl", "pip", "pip3"}


def _shell(walk: Walk, shell: ShellState, argv: list[str], place: Place) -> int | None:
    rest = argv[1:]
    options: set[str] = set()
    while rest and rest[0].startswith("--") and rest[0] != "--":
        del rest[: 2 if rest[0] in ("--rcfile", "--init-file") else 1]
    letters = take_options(options, rest)
    rest = rest[1:] if rest[:1] in (["--"], ["-"]) else rest
    if "n" in letters:
        return None
    if "c" in letters:
        return _text(walk, shell, rest, place, options)
    if not rest or "s" in letters:
        return _from_stdin(walk, shell, argv, rest, place, options)
    path = walk.absolute(shell, rest[0])
    walk.use_path("read", path, place)
    if not is_known(path):
        return _one_of(walk, shell, path, rest[1:], place, options)
    if walk.tree.text(path) is None:
        if walk.around.mount_of(path) or walk.has(path) is not False:
            walk.trace.undecided.append(Undecided(f"the script {path} was not read", place))
            return None
        walk.trace.missing.append(Missing(path, _start(walk, shell, argv, place)))
        return 127
    return walk.script(path, rest[1:], shell, f"started by {place}", options)


def _one_of(
    walk: Walk,
    shell: ShellState,
    path: str,
    arguments: list[str],
    place: Place,
    options: set[str],
) -> int | None:
    fitting = scripts_of(walk, shell, path)
    named = by_document(walk, shell, fitting, path)
    if len(named) == 1:
        how = f"started by {place}, by a document"
        return walk.script(named[0], arguments, shell, how, options)
    fitting = undecided_scripts(walk, "started", path, named or fitting, place)

    def started(script: str) -> Callable[[ShellState], None]:
        def branch(inner: ShellState) -> None:
            walk.script(script, arguments, inner, f"perhaps started by {place}", options)

        return branch

    walk.either(shell, *map(started, fitting), lambda state: None)
    return None


def _text(
    walk: Walk, shell: ShellState, rest: list[str], place: Place, options: set[str]
) -> int | None:
    if not rest or not is_known(rest[0]):
        walk.trace.undecided.append(Undecided("text that only the run knows is started", place))
        return None
    return _read_aloud(walk, shell, rest[0], rest[1:] or [shell.frame.script], place, options)


def _from_stdin(
    walk: Walk,
    shell: ShellState,
    argv: list[str],
    arguments: list[str],
    place: Place,
    options: set[str],
) -> int | None:
    if shell.streams.stdin is None or not all(map(is_known, shell.streams.stdin)):
        why = f"text that only the run knows is given to `{shown(' '.join(argv))}`"
        walk.trace.undecided.append(Undecided(why, place))
        return None
    text = "\n".join(shell.streams.stdin) + "\n"
    return _read_aloud(walk, shell, text, [shell.frame.script, *arguments], place, options)


def _read_aloud(
    walk: Walk,
    shell: ShellState,
    text: str,
    arguments: list[str],
    place: Place,
    options: set[str],
) -> int | None:
    """Walk a text as a process at the place of its start."""
    child = shell.child(arguments[0], arguments[1:], shell.frame.source, options)
    with walk.at_line(place.line), walk.guard(0):
        return walk.process(child, lambda: walk.statements(parse(text), child))


def _start(walk: Walk, shell: ShellState, argv: list[str], place: Place) -> Start:
    script = script_of(argv, shell.cwd, walk.tree, _search(shell)) if _is_python(argv) else None
    streams, exported = shell.streams, frozenset(shell.variables.exported)
    return Start(tuple(argv), place, streams.out, streams.err, shell.cwd, exported, script or "")


def _is_python(argv: list[str]) -> bool:
    name = posixpath.basename(argv[0])
    return name in LAUNCHERS or _PYTHON.fullmatch(name) is not None


def _started(walk: Walk, shell: ShellState, argv: list[str], place: Place) -> int | None:
    walk.trace.starts.append(_start(walk, shell, argv, place))
    return walk.statuses.get((place.file, place.line))


def _python(walk: Walk, shell: ShellState, argv: list[str], place: Place) -> int | None:
    if "pip" in argv[1:4]:
        at = argv.index("pip")
        if argv[at - 1] == "-m":
            effects.look_for_downloads(walk, shell, argv[at:], place)
            return None
    if (path := script_of(argv, shell.cwd, walk.tree, _search(shell))) is not None:
        walk.use_path("read", path, place)
        if walk.has(path) is False:
            walk.trace.missing.append(Missing(path, _start(walk, shell, argv, place)))
            return 2
        if walk.tree.text(path) is not None:
            walk.trace.scripts.setdefault(walk.tree.resolve(path), f"started by {place}")
        elif walk.tree.get(path) is not None:
            walk.trace.undecided.append(Undecided(f"the program {path} was not read", place))
    elif (text := _given_text(shell, argv)) is not None:
        walk.trace.python.append(PythonText(text, place))
    elif argv[1:] in ([], ["-"]) or "--no-python" in argv or "--no_python" in argv:
        walk.trace.undecided.append(Undecided(f"the program of `{' '.join(argv)}`", place))
    shell.streams.write(UNKNOWN)
    return _started(walk, shell, argv, place)


def python_words(argv: list[str]) -> tuple[str, str]:
    """Return (`file`, path), (`module`, name) or (`text`, program) of Python or torchrun; ("", "")
    for a bare interpreter."""
    launcher = posixpath.basename(argv[0]) in LAUNCHERS
    rest = argv[1:]
    while rest:
        word = rest.pop(0)
        if word.endswith(".py"):
            return "file", word
        if word == "-c" and rest and not launcher:
            return "text", rest[0]
        if word == "-m" and rest:
            if rest[0].startswith("torch.distributed"):
                launcher = True
                rest.pop(0)
                continue
            return "module", rest[0]
        if not launcher and not word.startswith("-"):
            return "file", word
    return "", ""


def script_of(argv: list[str], cwd: str, tree: ImageTree, search: list[str]) -> str | None:
    """Return the file that Python or torchrun runs; None for a module missing in `cwd` and
    `search`."""
    kind, name = python_words(argv)
    if kind == "file":
        path = posixpath.join(cwd, name)
        return posixpath.normpath(path) if is_known(path) else path
    if kind != "module" or not is_known(name):
        return None
    for folder in (cwd, *search):
        place = posixpath.join(folder, *name.split("."))
        for path in (f"{place}.py", f"{place}/__main__.py"):
            if tree.text(path) is not None:
                return path
    return None


def _search(shell: ShellState) -> list[str]:
    folders = (shell.variables.scalar("PYTHONPATH") or "").split(":")
    return [folder for folder in folders if folder.startswith("/") and is_known(folder)]


def _given_text(shell: ShellState, argv: list[str]) -> str | None:
    kind, text = python_words(argv)
    if kind == "text":
        return text
    if argv[1:] in ([], ["-"]) and shell.streams.stdin is not None:
        return "\n".join(shell.streams.stdin)
    return None

"""Bash's own commands, as far as a contract depends on them."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.inspection import choices, conditions, expansion, programs
from orchestrator.inspection.assignments import assign
from orchestrator.inspection.flow import Break, Continue, Exit, Return
from orchestrator.inspection.interface import Walk
from orchestrator.inspection.state import ShellState
from orchestrator.inspection.syntax import line_of, parse, text_of
from orchestrator.inspection.trace import UNKNOWN, Undecided, is_known, whole_number
from orchestrator.inspection.variables import Value

if TYPE_CHECKING:
    from tree_sitter import Node


Builtin = Callable[[Walk, ShellState, list[str], "Node"], int | None]

_OPTIONS = {"e": "errexit", "u": "nounset"}


def declare(walk: Walk, node: Node, shell: ShellState) -> None:
    keyword = node.children[0].type
    flags = ""
    for child in node.named_children:
        if child.type == "word" and text_of(child).startswith(("-", "+")):
            flags += text_of(child)[1:]
        elif child.type == "variable_assignment":
            _declared(shell, assign(walk, child, shell), keyword, flags)
        else:
            for word in expansion.fields(walk, shell, child):
                name, equals, value = word.partition("=")
                if "f" in flags:
                    shell.variables.export(f"{name}()")
                    continue
                if equals:
                    shell.variables.set(name, value)
                elif "A" in flags:
                    _create(shell, name, {})
                elif "a" in flags:
                    _create(shell, name, [])
                _declared(shell, name, keyword, flags)
    shell.finish(0)


def _create(shell: ShellState, name: str, value: Value) -> None:
    if name not in shell.variables:
        shell.variables.set(name, value)


def _declared(shell: ShellState, name: str, keyword: str, flags: str) -> None:
    if keyword == "export" or "x" in flags:
        shell.variables.export(name)


def _exit(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    raise Exit(_number(argv[1]) if len(argv) > 1 else shell.status)


def _return(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    raise Return(_number(argv[1]) if len(argv) > 1 else shell.status)


def _break(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    raise Break


def _continue(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    raise Continue


def _number(text: str) -> int | None:
    number = whole_number(text)
    return None if number is None else number & 255


def _nothing(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    return 0


def _fails(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    return 1


def _unknown(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    return None


def _test(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    """test and [ after assignments on the line before."""
    inner = argv[1:-1] if argv[0] == "[" else argv[1:]
    answer = conditions.of_words(walk, shell, inner, node)
    return None if answer is None else int(not answer)


def _echo(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    rest, end = argv[1:], "\n"
    while rest and re.fullmatch(r"-[neE]+", rest[0]):
        end = "" if "n" in rest.pop(0) else end
    shell.streams.write(" ".join(rest) + end)
    return 0


def _printf(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    rest = argv[1:]
    name = ""
    if rest[:1] == ["-v"] and len(rest) > 1:
        name, rest = rest[1], rest[2:]
    if rest[:1] == ["--"]:
        rest = rest[1:]
    text = _formatted(rest[0], rest[1:]) if rest else ""
    if name:
        shell.variables.set(name, text)
    else:
        shell.streams.write(text)
    return 0


def _formatted(form: str, values: list[str]) -> str:
    form = form.replace("\\n", "\n").replace("\\t", "\t")
    slots = re.findall(r"%[-0-9.]*[a-zA-Z]", form)
    if any(slot not in ("%s", "%d", "%q", "%b") for slot in slots):
        return UNKNOWN
    if not slots:
        return form
    out, left = "", list(values) or [""]
    while left:
        piece = form
        for slot in slots:
            piece = piece.replace(slot, left.pop(0) if left else "", 1)
        out += piece
    return out


def _cd(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    target = next((word for word in argv[1:] if word == "-" or word[:1] != "-"), "/root")
    if target != "-":
        shell.enter(walk.absolute(shell, target))
        return 0
    before = shell.variables.scalar("OLDPWD")
    if before is None:
        return 1
    shell.enter(before)
    shell.streams.write(before + "\n")
    return 0


def _pushd(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    """pushd DIR and popd. Their other forms lead to a folder that is not followed."""
    folders = expansion.value_of(shell, "DIRSTACK")
    known = folders if isinstance(folders, list) else []
    if argv[0] == "popd" and not known:
        return 1
    if len(argv) != 2 - (argv[0] == "popd") or argv[-1].startswith(("-", "+")):
        shell.enter(UNKNOWN)
        return None
    before = shell.cwd
    shell.enter(known[0] if argv[0] == "popd" else walk.absolute(shell, argv[1]))
    shell.variables.set("DIRSTACK", known[1:] if argv[0] == "popd" else [before, *known])
    return 0


def _pwd(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    shell.streams.write(shell.cwd + "\n")
    return 0


def _set(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    rest = argv[1:]
    while rest:
        word = rest.pop(0)
        if word == "--":
            shell.frame.set_arguments(rest)
            return 0
        if not re.fullmatch(r"[-+][a-zA-Z]+", word):
            shell.frame.set_arguments([word, *rest])
            return 0
        change = shell.options.add if word[0] == "-" else shell.options.discard
        for letter in word[1:]:
            if letter == "o" and rest:
                change(rest.pop(0))
            elif letter in _OPTIONS:
                change(_OPTIONS[letter])
    return 0


def _shift(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    count = whole_number(argv[1]) if len(argv) > 1 else 1
    return 0 if shell.frame.shift(1 if count is None or count < 0 else count) else 1


def _source(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    if len(argv) < 2:
        return 2
    path = walk.absolute(shell, argv[1])
    place = walk.place(node, shell)
    walk.use_path("read", path, place)
    if not is_known(path):
        running = {shell.frame.source, *shell.frame.callers}
        fitting = [
            script for script in choices.scripts_of(walk, shell, path) if script not in running
        ]
        fitting = choices.undecided_scripts(walk, "sourced", path, fitting, place)
        branches = [
            partial(_sourced, walk, script, f"perhaps sourced by {place}") for script in fitting
        ]
        walk.either(shell, *branches, lambda state: None)
        return None
    if walk.tree.text(path) is None:
        if walk.has(path) is True and walk.around.mount_of(path) is None:
            walk.trace.undecided.append(Undecided(f"{path} is sourced, and was not read", place))
        return None if walk.has(path) is not False else 1
    shell.finish(0)
    with shell.frame.with_arguments(argv[2:]) if argv[2:] else nullcontext():
        _sourced(walk, path, f"sourced by {place}", shell)
    return shell.status


def _sourced(walk: Walk, path: str, how: str, shell: ShellState) -> None:
    try:
        walk.source(path, shell, how)
    except Return as end:
        shell.finish(end.status)


def _eval(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    text = " ".join(argv[1:])
    if not is_known(text.partition(" ")[0]):
        place = walk.place(node, shell)
        walk.trace.undecided.append(Undecided("text that only the run knows is evaluated", place))
        return None
    shell.finish(0)
    with walk.at_line(line_of(node)):
        walk.statements(parse(text), shell)
    return shell.status


def _exec(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    rest = argv[1:]
    while rest and rest[0] in ("-a", "-c", "-l"):
        rest = rest[2 if rest[0] == "-a" else 1 :]
    if not rest:
        return 0
    shell.traps.clear()
    raise Exit(programs.run(walk, shell, rest, walk.place(node, shell)))


def _read(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    names = [word for word in argv[1:] if word.isidentifier()] or ["REPLY"]
    array = "-a" in argv or any(re.fullmatch(r"-\w*a", word) for word in argv[1:])
    if shell.streams.stdin is None:
        for name in names:
            shell.variables.set(name, [UNKNOWN] if array else UNKNOWN)
        return None
    if not shell.streams.stdin:
        for name in names:
            shell.variables.set(name, [] if array else "")
        return 1
    line = shell.streams.stdin.pop(0)
    signs = shell.variables.scalar("IFS")
    sign = signs[0] if signs and signs.strip() else None
    if array:
        shell.variables.set(names[-1], line.split(sign))
        return 0
    whole = len(names) == 1 or signs == ""
    parts = [line] if whole else line.split(sign, len(names) - 1)
    for at, name in enumerate(names):
        shell.variables.set(name, parts[at] if at < len(parts) else "")
    return 0


def _wait(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    """wait, wait PID, wait -n. `$!` is a job's number behind the sign of unknown parts."""
    asked = [word for word in argv[1:] if not word.startswith("-")]
    if not asked and "-n" not in argv:
        return 0
    last = f"{UNKNOWN}{len(shell.jobs) - 1}"
    number = whole_number((asked or [last])[-1].removeprefix(UNKNOWN))
    is_job = number is not None and 0 <= number < len(shell.jobs)
    return shell.jobs[number] if number is not None and is_job else None


def _trap(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    rest = [word for word in argv[1:] if word != "--"]
    for name in rest[1:]:
        event = "EXIT" if name in ("0", "EXIT") else name.removeprefix("SIG")
        if rest[0] == "-":
            shell.traps.pop(event, None)
        elif event in ("EXIT", "ERR"):
            shell.traps[event] = (rest[0], line_of(node))
    return 0


def _coproc(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    walk.trace.undecided.append(Undecided("a coprocess is started", walk.place(node, shell)))
    return None


def _mapfile(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    name = next((word for word in reversed(argv[1:]) if word.isidentifier()), "MAPFILE")
    lines = shell.streams.stdin
    shell.variables.set(name, [UNKNOWN] if lines is None else list(lines))
    return 0


def _builtin(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    run = BUILTINS.get(argv[1]) if len(argv) > 1 else _nothing
    return run(walk, shell, argv[1:], node) if run else 1


def _command(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    """command NAME, command -v NAME, type NAME, hash NAME."""
    rest = [word for word in argv[1:] if not word.startswith("-")]
    asks = argv[0] != "command" or any(word in ("-v", "-V") for word in argv[1:])
    if not rest:
        return 0
    if not asks:
        return programs.run(walk, shell, rest, walk.place(node, shell))
    name = rest[0]
    if name in shell.functions or name in BUILTINS:
        return 0
    path = walk.tree.program(name, shell.variables.scalar("PATH") or "")
    if path is not None:
        shell.streams.write(path + "\n")
        return 0
    shell.streams.write(UNKNOWN if not walk.tree.complete else "")
    return 1 if walk.tree.complete and is_known(name) else None


def _declare(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    """declare -p NAME, and declarations that the grammar takes for commands."""
    flags = "".join(word for word in argv[1:] if word.startswith("-"))
    names = [word for word in argv[1:] if not word.startswith("-")]
    if "p" in flags or "F" in flags or ("f" in flags and argv[0] == "declare"):
        known = shell.functions if "f" in flags.lower() else shell.variables.by_name
        shell.streams.write(UNKNOWN)
        return int(any(name not in known for name in names))
    for word in names:
        name, equals, value = word.partition("=")
        if equals:
            shell.variables.set(name, value)
        if argv[0] == "export" or "x" in flags:
            shell.variables.export(name)
    return 0


BUILTINS: dict[str, Builtin] = {
    ":": _nothing,
    "true": _nothing,
    "false": _fails,
    "exit": _exit,
    "return": _return,
    "break": _break,
    "continue": _continue,
    "echo": _echo,
    "printf": _printf,
    "cd": _cd,
    "pushd": _pushd,
    "popd": _pushd,
    "pwd": _pwd,
    "set": _set,
    "shift": _shift,
    "source": _source,
    ".": _source,
    "eval": _eval,
    "exec": _exec,
    "read": _read,
    "mapfile": _mapfile,
    "readarray": _mapfile,
    "command": _command,
    "type": _command,
    "hash": _command,
    "which": _command,
    "declare": _declare,
    "typeset": _declare,
    "local": _declare,
    "export": _declare,
    "readonly": _declare,
    "test": _test,
    "[": _test,
    "let": _unknown,
    "getopts": _unknown,
    "trap": _trap,
    "wait": _wait,
    "coproc": _coproc,
    "builtin": _builtin,
    "shopt": _nothing,
    "ulimit": _nothing,
    "umask": _nothing,
    "alias": _nothing,
    "disown": _nothing,
    "kill": _unknown,
    "jobs": _unknown,
    **dict.fromkeys(("bind", "compgen", "complete", "compopt", "enable", "fc", "logout"), _unknown),
    **dict.fromkeys(("bg", "caller", "dirs", "fg", "help", "history", "suspend"), _unknown),
    **dict.fromkeys(("times", "unalias"), _nothing),
}

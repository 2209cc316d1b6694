"""Bash's own commands, as far as a contract depends on them."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.inspection import choices, conditions, expansion, programs
from orchestrator.inspection.assignments import assign, name_of
from orchestrator.inspection.flow import Break, Continue, Exit, Return
from orchestrator.inspection.interface import Walk
from orchestrator.inspection.state import ShellState, take_options
from orchestrator.inspection.syntax import line_of, parse, text_of
from orchestrator.inspection.trace import UNKNOWN, Undecided, is_known, whole_number
from orchestrator.inspection.variables import Value

if TYPE_CHECKING:
    from tree_sitter import Node


Builtin = Callable[[Walk, ShellState, list[str], "Node"], int | None]

_LOCAL = {"local", "declare", "typeset"}


def declare(walk: Walk, node: Node, shell: ShellState) -> None:
    keyword = node.children[0].type
    flags = ""
    for child in node.named_children:
        if child.type == "word" and text_of(child).startswith(("-", "+")):
            flags += text_of(child)[1:] if text_of(child)[0] == "-" else ""
        elif child.type == "variable_assignment":
            name = name_of(child)
            before = shell.variables.get(name)
            adds = any(part.type == "+=" for part in child.children)
            if adds and _is_local(shell, keyword, flags) and name not in shell.variables.scopes[-1]:
                shell.variables.by_name.pop(name, None)
            if "i" in flags:
                shell.variables.integers.add(name)
            if "A" in flags and not isinstance(before, dict):
                shell.variables.set(name, {})
            assign(walk, child, shell)
            _declared(shell, name, keyword, flags, before)
        else:
            for word in expansion.fields(walk, shell, child):
                _declare_word(shell, word, keyword, flags)
    shell.finish(0)


def _declare_word(shell: ShellState, word: str, keyword: str, flags: str) -> None:
    name, equals, value = word.partition("=")
    if "f" in flags:
        shell.variables.export(f"{name}()")
        return
    before = shell.variables.get(name)
    is_local = _is_local(shell, keyword, flags)
    if equals:
        shell.variables.set(name, value)
    elif is_local and name not in shell.variables.scopes[-1]:
        shell.variables.unset(name)
    if not equals and "A" in flags:
        _create(shell, name, {})
    elif not equals and "a" in flags:
        _create(shell, name, [])
    if "i" in flags:
        shell.variables.integers.add(name)
    _declared(shell, name, keyword, flags, before)


def _is_local(shell: ShellState, keyword: str, flags: str) -> bool:
    return keyword in _LOCAL and "g" not in flags and bool(shell.variables.scopes)


def _create(shell: ShellState, name: str, value: Value) -> None:
    if name not in shell.variables:
        shell.variables.set(name, value)


def _declared(shell: ShellState, name: str, keyword: str, flags: str, before: Value | None) -> None:
    """`before`: the value outside of a function."""
    variables = shell.variables
    if _is_local(shell, keyword, flags):
        variables.scopes[-1].setdefault(name, before)
    if keyword == "export" and "n" in flags:
        variables.exported.discard(name)
    elif keyword == "export" or "x" in flags:
        variables.export(name)
    if "n" in flags and keyword in _LOCAL:  # a reference to another variable
        target = variables.scalar(name) or ""
        variables.unknown.add(target)
        if target in variables:
            variables.set(target, UNKNOWN)
    if set("nlu") & set(flags) and keyword in _LOCAL:
        variables.unknown.add(name)
        variables.set(name, UNKNOWN)
    if keyword == "readonly" or ("r" in flags and keyword in _LOCAL):
        variables.unknown.add(name)  # if it is set once more


def _exit(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    raise Exit(_number(argv[1]) if len(argv) > 1 else shell.status)


def _return(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    raise Return(_number(argv[1]) if len(argv) > 1 else shell.status)


def _break(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    loops = whole_number(argv[1]) if len(argv) > 1 else 1
    if not shell.frame.loops:
        return 0
    end = Break if argv[0] == "break" else Continue
    raise end(min(max(loops or 1, 1), shell.frame.loops))


def _number(text: str) -> int | None:
    number = whole_number(text)
    return None if number is None else number & 255


def _nothing(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    return 0


def _fails(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    return 1


def _unknown(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    shell.streams.write(UNKNOWN)
    return None


def _let(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    values = [conditions.evaluated(walk, shell, text) for text in argv[1:]]
    return 1 if not values else None if values[-1] is None else int(values[-1] == 0)


def _getopts(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    for name in (*argv[2:3], "OPTARG", "OPTIND"):
        shell.variables.set(name, UNKNOWN)
    return None


def _kill(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    return None


def _shopt(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    names = [word for word in argv[1:] if not word.startswith("-")]
    if "-s" in argv:
        shell.options.update(names)
    elif "-u" in argv:
        shell.options.difference_update(names)
    else:
        return _unknown(walk, shell, argv, node)
    return 0


def _ulimit(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    if any(not word.startswith("-") for word in argv[1:]):
        return 0
    return _unknown(walk, shell, argv, node)


def _test(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    """test and [ after assignments on the line before."""
    inner = argv[1:-1] if argv[0] == "[" else argv[1:]
    answer = conditions.of_words(walk, shell, inner, node)
    return None if answer is None else int(not answer)


def _echo(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    rest, letters = argv[1:], ""
    while rest and re.fullmatch(r"-[neE]+", rest[0]):
        letters += rest.pop(0)
    text = " ".join(rest)
    if letters.rfind("e") > letters.rfind("E"):
        text = expansion.ansi(text)
    shell.streams.write(text + ("" if "n" in letters else "\n"))
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
    form = expansion.ansi(form)
    if "%" in re.sub("%[sdqb]", "", form):
        return UNKNOWN
    count = len(re.findall("%[sdqb]", form))
    left = list(values)
    out = ""
    while True:
        out += re.sub("%[sdqb]", lambda slot: _slot(slot[0], left.pop(0) if left else ""), form)
        if not left or not count:
            return out


def _slot(form: str, value: str) -> str:
    """Return a value as printf writes it, as far as that is simple."""
    if form == "%d":
        return UNKNOWN if value and whole_number(value) is None else value or "0"
    is_plain = re.fullmatch(rf"[\w./:=+,{UNKNOWN}-]+", value) if form == "%q" else "\\" not in value
    return value if form == "%s" or is_plain else UNKNOWN


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
    take_options(shell.options, rest)
    if rest:
        shell.frame.set_arguments(rest[1:] if rest[0] == "--" else rest)
    return 0


def _shift(walk: Walk, shell: ShellState, argv: list[str], node: Node) -> int | None:
    count = whole_number(argv[1]) if len(argv) > 1 else 1
    if count is None:
        shell.frame.set_arguments([UNKNOWN])
        return None
    return 0 if count >= 0 and shell.frame.shift(count) else 1


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
        walk.note_unread()
        return None
    if walk.tree.text(path) is None:
        if walk.has(path) is not False:
            walk.note_unread()
        if walk.has(path) is True and walk.around.mount_of(path) is None:
            walk.trace.undecided.append(Undecided(f"{path} is sourced, and was not read", place))
        return None if walk.has(path) is not False else 1
    shell.finish(0)
    with shell.frame.with_arguments(argv[2:]) if argv[2:] else nullcontext():
        _sourced(walk, path, f"sourced by {place}", shell)
    return shell.status


def _sourced(walk: Walk, path: str, how: str, shell: ShellState) -> None:
    walk.returned(shell, lambda: walk.source(path, shell, how))


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
    rest, letters = argv[1:], ""
    names: list[str] = []
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        option = rest.pop(0)
        letters += option[1:]
        if option[-1] in "adinNptu" and rest:
            value = rest.pop(0)
            names += [value] if option[-1] == "a" else []
    array = bool(names)
    names = names or rest or ["REPLY"]
    lines = shell.streams.stdin
    if lines is None or set("dinNtu") & set(letters):
        shell.streams.feed(None)
        return _read_nothing(shell, names, [UNKNOWN] if array else UNKNOWN, None)
    if not lines:
        return _read_nothing(shell, names, [] if array else "", 1)
    line = lines.pop(0)
    signs = expansion.separators(shell)
    if ("\\" in line and "r" not in letters) or len(signs.strip() and signs) > 1:
        return _read_nothing(shell, names, [UNKNOWN] if array else UNKNOWN, 0)
    sign = signs.strip() or None
    if array:
        elements = line.split(sign) if signs else [line]
        shell.variables.set(names[0], elements[:-1] if elements and not elements[-1] else elements)
        return 0
    if not signs:
        parts = [line]
    elif sign is None:
        parts = line.strip(signs).split(None, len(names) - 1)
    else:
        parts = line.split(sign, len(names) - 1)
        if parts[-1].endswith(sign) and parts[-1].count(sign) == 1:
            parts[-1] = parts[-1].removesuffix(sign)
    for at, name in enumerate(names):
        shell.variables.set(name, parts[at] if at < len(parts) else "")
    return 0


def _read_nothing(
    shell: ShellState, names: list[str], value: Value, status: int | None
) -> int | None:
    for name in names:
        shell.variables.set(name, value)
    return status


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
    options = {word for word in argv[1:] if word.startswith("-")}
    known = lines is not None and options <= {"-t"}
    end = "" if "-t" in options else "\n"
    shell.variables.set(name, [f"{line}{end}" for line in lines or ()] if known else [UNKNOWN])
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
        shell.streams.write(f"{name}\n" if argv[:2] == ["command", "-v"] else UNKNOWN)
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
        _declare_word(shell, word, argv[0], flags)
    return 0


BUILTINS: dict[str, Builtin] = {
    ":": _nothing,
    "true": _nothing,
    "false": _fails,
    "exit": _exit,
    "return": _return,
    "break": _break,
    "continue": _break,
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
    "let": _let,
    "getopts": _getopts,
    "trap": _trap,
    "wait": _wait,
    "coproc": _coproc,
    "builtin": _builtin,
    "shopt": _shopt,
    "ulimit": _ulimit,
    "umask": _ulimit,
    "alias": _nothing,
    "disown": _nothing,
    "kill": _kill,
    "jobs": _unknown,
    **dict.fromkeys(("bind", "compgen", "complete", "compopt", "enable", "fc", "logout"), _unknown),
    **dict.fromkeys(("bg", "caller", "dirs", "fg", "help", "history", "suspend"), _unknown),
    **dict.fromkeys(("times", "unalias"), _nothing),
}

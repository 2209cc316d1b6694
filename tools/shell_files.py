"""Completions for bash, zsh and fish, and the man page, made from the parsers.

Words that are known today (commands, options, systems, workloads, pages) stand in the files. Sets
and nodes are names of folders below the site's log_dir, which the shell looks up itself: no Python
is started.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable

from arguments import TOP, arguments, help_text, parsers, subcommands, value, written

from orchestrator.cli import COMMANDS, EVERYWHERE, command_parser
from orchestrator.model import Catalogue

KINDS = {
    "SYSTEM": "systems",
    "WORKLOAD": "workloads",
    "W": "workloads",
    "SET": "sets",
    "A B": "sets",
    "NODES|@FILE": "nodes",
    "NAMES": "nodes",
    "LIST": "nodes",
    "RANK|NAME": "nodes",
    "TOPIC": "pages",
    "FILE": "files",
    "NAME|FILE": "files",
    "DIR": "files",
    "SET|DIR": "sets",
}
"""What the value of an argument is, by its metavar."""


def kind(action: argparse.Action) -> str:
    """What completes the value of an argument: a kind, or words of its own after a `=`; "" where
    nothing is known."""
    if action.nargs == 0:
        return ""
    if action.choices:
        return "=" + " ".join(map(str, action.choices))
    if value(action).startswith("DIR") and not action.option_strings:
        return "sets"  # `score` and `check` take sets and folders of logs
    return KINDS.get(value(action), "")


def words() -> dict[str, list[str]]:
    catalogue = Catalogue()
    systems = catalogue.systems()
    pages = (
        path.relative_to(TOP / "docs").with_suffix("").as_posix()
        for path in (TOP / "docs").rglob("*.md")
    )
    return {
        "systems": sorted(system.name for system in systems),
        "workloads": sorted({name for system in systems for name in system.workloads}),
        "pages": sorted(pages),
    }


# ---- bash, and zsh by its own reading of bash's ----

_MADE = "Made by tools/reference.py (make reference)."
_BASH = (TOP / "tools/completion/completion.bash.in").read_text()


def _cases(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"    {pattern}) echo {_quoted(text)} ;;" for pattern, text in rows)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _function(name: str, rows: Iterable[tuple[str, str]], on: str) -> str:
    return f'{name}() {{\n  case "{on}" in\n{_cases(rows)}\n  esac\n}}\n'


def functions() -> str:
    """The shell functions that bash and zsh share."""
    options, takes, positional = [], [], [("'help 0'", "=" + " ".join(COMMANDS))]
    for name, parser in parsers():
        here = arguments(parser)
        options.append(
            (f"'{name}'", " ".join(word for action in here for word in action.option_strings))
        )
        for action in here:
            if action.option_strings and action.nargs != 0:
                pattern = "|".join(f"'{name} {word}'" for word in action.option_strings)
                takes.append((pattern, kind(action) or "any"))
        where = [action for action in here if not action.option_strings]
        actions = subcommands(parser)
        if actions:
            positional.append((f"'{name} 0'", "=" + " ".join(actions)))
        for n, action in enumerate(where):
            if kind(action):
                positional.append(
                    (f"'{name} '*" if action.nargs == "+" else f"'{name} {n}'", kind(action))
                )
    takes.append(("*' --debug-log'", "files"))
    known = "\n".join(
        f"    {name}) printf '%s\\n' {' '.join(_quoted(text) for text in texts)} ;;"
        for name, texts in words().items()
    )
    return "\n".join(
        (
            _function("__orchestrator_options", options, "$1"),
            _function("__orchestrator_takes", takes, "$1 $2"),
            _function("__orchestrator_positional", positional, "$1 $2"),
            _BASH.replace("@KINDS@", known)
            .replace("@COMMANDS@", " ".join(COMMANDS))
            .replace("@EVERYWHERE@", " ".join(option.split()[0] for option in EVERYWHERE)),
        )
    )


def bash() -> str:
    head = f"# bash completion. {_MADE}\n# shellcheck shell=bash disable=SC2207\n\n"
    return f"{head}{functions()}\ncomplete -F _orchestrator orchestrator orchestrator.pyz\n"


def zsh() -> str:
    head = f"#compdef orchestrator orchestrator.pyz\n# zsh completion. {_MADE}\n\n"
    start = (
        "autoload -U +X bashcompinit && bashcompinit\ncomplete -F _orchestrator_bash orchestrator "
        "orchestrator.pyz\n"
        "# loaded from fpath by the first TAB, which wants its answer, too\n"
        'if [ "${funcstack[1]}" = _orchestrator ]; then _bash_complete -F _orchestrator_bash; fi\n'
    )
    body = functions().replace(
        "_orchestrator() {\n  local current", "_orchestrator_bash() {\n  local current"
    )
    return f"{head}{body}\n{start}"


# ---- fish ----

_FISH = (TOP / "tools/completion/completion.fish.in").read_text()
_SEEN = "__fish_seen_subcommand_from"


def _fish_words(action: argparse.Action) -> str:
    """The words of -a for an argument; "" where files or nothing complete it."""
    completed = kind(action)
    if completed.startswith("="):
        return _quoted(completed[1:])
    if completed in ("sets", "nodes"):
        return f"'(__orchestrator_{completed})'"
    return (
        f'"$__orchestrator_{completed}"' if completed in ("systems", "workloads", "pages") else ""
    )


def fish() -> str:
    lines = [
        f"# fish completion. {_MADE}",
        "",
        _FISH.rstrip("\n"),
        "",
    ]
    lines += [f"set -g __orchestrator_{name} {' '.join(texts)}" for name, texts in words().items()]
    lines += [
        "",
        "complete -c orchestrator -f",
        "complete -c orchestrator -n __fish_use_subcommand -a help -d 'tell more of a command'",
    ]
    for option, text in EVERYWHERE.items():
        name, _, file = option.partition(" ")
        need = " -r -F" if file else ""
        lines.append(f"complete -c orchestrator -l {name[2:]}{need} -d {_quoted(text)}")
    lines += [
        f"complete -c orchestrator -n __fish_use_subcommand -a {name} -d {_quoted(text)}"
        for name, text in COMMANDS.items()
    ]
    lines.append(
        f"complete -c orchestrator -n '__orchestrator_at 0 help' -a {_quoted(' '.join(COMMANDS))}"
    )
    commands: dict[tuple[str, str], list[str]] = {}
    """(condition without its last words, completion) -> those words."""
    for words_of, parser in parsers():
        name, _, action = words_of.partition(" ")
        seen = f"{_SEEN} {name}; and {_SEEN}" if action else _SEEN
        if actions := subcommands(parser):
            commands["__orchestrator_at 0", f"-a {_quoted(' '.join(actions))}"] = [name]
        place = 0
        for argument in arguments(parser):
            texts = _fish_words(argument)
            given = f" -a {texts}" if texts else " -F" if kind(argument) == "files" else ""
            if not argument.option_strings:
                if given and not action:
                    at = f"__orchestrator_at {place}"
                    commands.setdefault((at, given.lstrip()), []).append(name)
                place += 1
                continue
            flags = " ".join(
                f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}"
                for word in argument.option_strings
            )
            need = (
                " -x"
                if argument.nargs != 0 and not given.endswith("-F")
                else " -r"
                if argument.nargs != 0
                else ""
            )
            about = re.split(r" \(default|; ", help_text(argument))[0]
            completion = f"{flags}{need}{given} -d {_quoted(about)}"
            commands.setdefault((seen, completion), []).append(action or name)
    lines += [
        f"complete -c orchestrator -n {_quoted(' '.join((condition, *names)))} {completion}"
        for (condition, completion), names in commands.items()
    ]
    return "\n".join(lines) + "\n"


# ---- man ----


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(
        "\\&" + line if line.startswith((".", "'")) else line for line in escaped.splitlines()
    )


def man() -> str:
    """The man page, section 1: every command with its arguments."""
    lines = [
        '.\\" Made by tools/reference.py (make reference).',
        '.TH ORCHESTRATOR 1 "" "orchestrator" "User Commands"',
        ".SH NAME",
        _roff("orchestrator - from a Slurm allocation to a scored set of MLPerf Training runs"),
        ".SH SYNOPSIS",
        ".B orchestrator",
        ".I COMMAND",
        ".RI [ ARGUMENT \\ ...]",
        ".SH OPTIONS OF EVERY COMMAND",
    ]
    for option, text in EVERYWHERE.items():
        lines += [".TP", f"\\fB{_roff(option)}\\fR", _roff(text)]
    lines.append(".SH COMMANDS")
    for name in COMMANDS:
        command, parser = command_parser(name)
        lines += [f'.SS "{name}"', ".nf", _roff(command.help.strip()), ".fi"]
        for words_of, program in (
            (name, parser),
            *((f"{name} {sub}", it) for sub, it in subcommands(parser).items()),
        ):
            if words_of != name:
                lines += [".PP", f"\\fB{_roff(words_of)}\\fR: {_roff(program.description or '')}"]
            for action in arguments(program):
                lines += [".TP", f"\\fB{_roff(written(action))}\\fR", _roff(help_text(action))]
        if command.codes:
            lines += [".PP", "Exit codes:"]
            lines += [
                line
                for code, text in sorted(command.codes.items())
                for line in (".TP", f"{int(code)}", _roff(text))
            ]
    lines += [
        ".SH FILES",
        ".TP",
        _roff("site.yaml, ~/.config/orchestrator/site.yaml"),
        _roff("the site file, where neither --site nor ORCHESTRATOR_SITE names one"),
        ".SH SEE ALSO",
        _roff("`orchestrator docs` has the documents: guides, reference, explanation."),
    ]
    return "\n".join(lines) + "\n"


def shell_files() -> dict[str, str]:
    """File of generated/shell/ -> its text."""
    return {
        "orchestrator.bash": bash(),
        "_orchestrator": zsh(),
        "orchestrator.fish": fish(),
        "orchestrator.1": man(),
    }

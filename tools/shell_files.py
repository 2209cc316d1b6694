"""Completions for bash, zsh and fish, and the man page, made from the parsers.

Words that are known today (commands, options, systems, workloads, pages) stand in the files. Sets and nodes are names of
folders below the site's log_dir, which the shell looks up itself: no Python is started.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable

from arguments import TOP, arguments, help_text, parsers, subcommands, value, written

from orchestrator.cli import COMMANDS, command_parser
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
    """What completes the value of an argument: a kind, or words of its own after a `=`; "" where nothing is known."""
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

_BASH = r"""
__orchestrator_log_dir() { # where the sets are, by the site file that the command would take
  local site
  for site in "$1" "${ORCHESTRATOR_SITE:-}" site.yaml "${XDG_CONFIG_HOME:-$HOME/.config}/orchestrator/site.yaml"; do
    # a file in the current folder only if it is the user's own, as the command itself
    if [ -n "$site" ] && [ -f "$site" ] && { [ "$site" != site.yaml ] || [ -O "$site" ]; }; then
      sed -n "s/^log_dir:[[:space:]]*//p" "$site" | head -n 1 |
        sed "s/[[:space:]]#.*//; s/[[:space:]]*\$//; s/^[\"']//; s/[\"']\$//"
      return
    fi
  done
}

__orchestrator_words() { # the words of a kind; names of folders can be anybody's
  local top
  case "$1" in
    =*) printf '%s\n' "${1#=}" | tr ' ' '\n' ;;
@KINDS@
    sets)
      top=$(__orchestrator_log_dir "$2")
      case "$top" in
        /*) find "$top" -mindepth 2 -maxdepth 2 -name set.json 2>/dev/null | sed 's|/set.json$||' | __orchestrator_plain ;;
      esac
      ;;
    nodes)
      top=$(__orchestrator_log_dir "$2")
      case "$top" in
        /*) find "$top" -mindepth 3 -maxdepth 3 -path '*/nodes/*' 2>/dev/null | __orchestrator_plain ;;
      esac
      ;;
  esac
}

__orchestrator_plain() { # the last names of paths, if no shell reads them as anything else
  sed 's|.*/||' | LC_ALL=C grep -x '[A-Za-z0-9._][A-Za-z0-9._-]*' | sort -u
}

__orchestrator_offer() { # the lines of the input that begin with $1, quoted
  local line quoted
  while IFS= read -r line; do
    case "$line" in
      "$1"*) printf -v quoted %q "$line"; COMPREPLY+=("$quoted") ;;
    esac
  done
}

_orchestrator() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command="" site="" kind="" word="" count=0 n=1
  COMPREPLY=()
  while [ "$n" -lt "$COMP_CWORD" ]; do
    word=${COMP_WORDS[n]}
    [ "$word" = --site ] && site=${COMP_WORDS[n+1]}
    case "$word" in
      -*) [ -n "$(__orchestrator_takes "$command" "$word")" ] && n=$((n + 1)) ;;
      *)
        if [ -z "$command" ]; then command=$word
        elif [ -n "$(__orchestrator_options "$command $word")" ]; then command="$command $word"
        else count=$((count + 1))
        fi ;;
    esac
    n=$((n + 1))
  done
  if [ -z "$command" ]; then
    COMPREPLY=($(compgen -W "@COMMANDS@ help --help --version" -- "$current"))
    return
  fi
  case "$previous" in -*) kind=$(__orchestrator_takes "$command" "$previous") ;; esac
  if [ -z "$kind" ]; then
    case "$current" in
      -*)
        COMPREPLY=($(compgen -W "$(__orchestrator_options "$command") --help" -- "$current"))
        return ;;
    esac
    kind=$(__orchestrator_positional "$command" "$count")
  fi
  case "$kind" in
    ""|any) ;;
    files) __orchestrator_offer "$current" < <(compgen -f -- "$current") ;;
    *)
      __orchestrator_offer "$current" < <(__orchestrator_words "$kind" "$site")
      [ ${#COMPREPLY[@]} -gt 0 ] || __orchestrator_offer "$current" < <(compgen -f -- "$current") ;;
  esac
}
"""


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
        options.append((f"'{name}'", " ".join(word for one in here for word in one.option_strings)))
        for one in here:
            if one.option_strings and one.nargs != 0:
                pattern = "|".join(f"'{name} {word}'" for word in one.option_strings)
                takes.append((pattern, kind(one) or "any"))
        where = [one for one in here if not one.option_strings]
        actions = subcommands(parser)
        if actions:
            positional.append((f"'{name} 0'", "=" + " ".join(actions)))
        for n, one in enumerate(where):
            if kind(one):
                positional.append(
                    (f"'{name} '*" if one.nargs == "+" else f"'{name} {n}'", kind(one))
                )
    known = "\n".join(
        f"    {name}) printf '%s\\n' {' '.join(_quoted(one) for one in found)} ;;"
        for name, found in words().items()
    )
    return "\n".join(
        (
            _function("__orchestrator_options", options, "$1"),
            _function("__orchestrator_takes", takes, "$1 $2"),
            _function("__orchestrator_positional", positional, "$1 $2"),
            _BASH.replace("@KINDS@", known).replace("@COMMANDS@", " ".join(COMMANDS)).lstrip("\n"),
        )
    )


def bash() -> str:
    head = "# bash completion. Made by tools/reference.py (make reference).\n# shellcheck shell=bash disable=SC2207\n\n"
    return f"{head}{functions()}\ncomplete -F _orchestrator orchestrator orchestrator.pyz\n"


def zsh() -> str:
    head = "#compdef orchestrator orchestrator.pyz\n# zsh completion. Made by tools/reference.py (make reference).\n\n"
    start = (
        "autoload -U +X bashcompinit && bashcompinit\ncomplete -F _orchestrator_bash orchestrator orchestrator.pyz\n"
        "# loaded from fpath by the first TAB, which wants its answer, too\n"
        'if [ "${funcstack[1]}" = _orchestrator ]; then _bash_complete -F _orchestrator_bash; fi\n'
    )
    body = functions().replace(
        "_orchestrator() {\n  local current", "_orchestrator_bash() {\n  local current"
    )
    return f"{head}{body}\n{start}"


# ---- fish ----

_FISH = r"""
function __orchestrator_log_dir
    for site in "$ORCHESTRATOR_SITE" site.yaml "$XDG_CONFIG_HOME/orchestrator/site.yaml" ~/.config/orchestrator/site.yaml
        if test -n "$site" -a -f "$site"; and begin; test "$site" != site.yaml; or test -O "$site"; end
            string replace -rf '^log_dir:\s*' '' <$site | string replace -r '\s#.*$' '' | string trim -c ' "\'' | head -n 1
            return
        end
    end
end

function __orchestrator_plain # the last names of paths, if no shell reads them as anything else
    string replace -r '.*/' '' | string match -r '^[A-Za-z0-9._][A-Za-z0-9._-]*$' | sort -u
end

function __orchestrator_sets
    set -l top (__orchestrator_log_dir)
    string match -q '/*' -- "$top"
    and find $top -mindepth 2 -maxdepth 2 -name set.json 2>/dev/null | string replace -r '/set.json$' '' | __orchestrator_plain
end

function __orchestrator_nodes
    set -l top (__orchestrator_log_dir)
    string match -q '/*' -- "$top"
    and find $top -mindepth 3 -maxdepth 3 -path '*/nodes/*' 2>/dev/null | __orchestrator_plain
end

function __orchestrator_at # the command is $argv[1], and so many words follow it
    set -l said (commandline -opc | string match -v -- '-*')
    test (count $said) -eq (math $argv[2] + 2); and test "$said[2]" = $argv[1]
end
"""


def _fish_words(action: argparse.Action) -> str:
    """The words of -a for an argument; "" where files or nothing complete it."""
    found = kind(action)
    if found.startswith("="):
        return _quoted(found[1:])
    if found in ("sets", "nodes"):
        return f"'(__orchestrator_{found})'"
    return f'"$__orchestrator_{found}"' if found in ("systems", "workloads", "pages") else ""


def fish() -> str:
    lines = [
        "# fish completion. Made by tools/reference.py (make reference).",
        _FISH.rstrip("\n"),
        "",
    ]
    lines += [f"set -g __orchestrator_{name} {' '.join(found)}" for name, found in words().items()]
    lines += [
        "",
        "complete -c orchestrator -f",
        "complete -c orchestrator -n __fish_use_subcommand -a help -d 'tell more of a command'",
    ]
    lines += [
        f"complete -c orchestrator -n __fish_use_subcommand -a {name} -d {_quoted(text)}"
        for name, text in COMMANDS.items()
    ]
    lines.append(
        f"complete -c orchestrator -n '__orchestrator_at help 0' -a {_quoted(' '.join(COMMANDS))}"
    )
    for words_of, parser in parsers():
        name, _, action = words_of.partition(" ")
        seen = f"__fish_seen_subcommand_from {name}" + (
            f"; and __fish_seen_subcommand_from {action}" if action else ""
        )
        if actions := subcommands(parser):
            lines.append(
                f"complete -c orchestrator -n '__orchestrator_at {name} 0' -a {_quoted(' '.join(actions))}"
            )
        place = 0
        for one in arguments(parser):
            found = _fish_words(one)
            given = f" -a {found}" if found else " -F" if kind(one) == "files" else ""
            if not one.option_strings:
                if given and not action:
                    lines.append(
                        f"complete -c orchestrator -n '__orchestrator_at {name} {place}'{given}"
                    )
                place += 1
                continue
            flags = " ".join(
                f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}"
                for word in one.option_strings
            )
            need = (
                " -x"
                if one.nargs != 0 and not given.endswith("-F")
                else " -r"
                if one.nargs != 0
                else ""
            )
            about = re.split(r" \(default|; ", help_text(one))[0]
            lines.append(
                f"complete -c orchestrator -n {_quoted(seen)} {flags}{need}{given} -d {_quoted(about)}"
            )
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
        ".SH COMMANDS",
    ]
    for name in COMMANDS:
        command, parser = command_parser(name)
        lines += [f'.SS "{name}"', ".nf", _roff(command.help.strip()), ".fi"]
        for words_of, one in (
            (name, parser),
            *((f"{name} {sub}", it) for sub, it in subcommands(parser).items()),
        ):
            if words_of != name:
                lines += [".PP", f"\\fB{_roff(words_of)}\\fR: {_roff(one.description or '')}"]
            for action in arguments(one):
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

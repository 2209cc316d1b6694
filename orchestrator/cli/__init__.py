"""The command line: each command of index.py is a module, imported when called, which ends with
COMMAND = Command(name, help, arguments, run, codes), see command.py.

`main` turns every exception, a closed pipe and a full disk into a message and an exit code. Output
goes through words.Cleaned: terminals never receive foreign control characters.
"""

from __future__ import annotations

import sys

from orchestrator.cli.index import COMMANDS, present, usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence
    from typing import Any, NoReturn, TextIO

    from orchestrator.cli.command import Command

SHELLS = {"bash": "orchestrator.bash", "zsh": "_orchestrator", "fish": "orchestrator.fish"}
"""Shell -> completion in generated/shell/."""


def main(argv: list[str] | None = None) -> int:
    """Run `argv` (default: sys.argv[1:]) and return the exit code."""
    args = present(list(sys.argv[1:] if argv is None else argv))
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_closed()
    code = None
    try:
        try:
            code = _run(args)
        except SystemExit as ended:  # argparse: --help, or bad usage
            code = int(ended.code or 0)
            raise
        finally:
            # At Python's exit a full disk could no longer be reported.
            sys.stdout.flush()
    except KeyboardInterrupt:  # also while modules are imported
        _say("")
        return 130
    except OSError as error:
        return _unprinted(args, error, code)
    except Exception as error:  # a message for users, a file for developers
        return _defect(args, error)
    return code


def _run(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        if args[1:] in ([], ["--all"]):
            print(usage(every="--all" in args))
            return 0 if args else 2
        args = present([*args[1:], "--help"])
    if args[0] in ("-V", "--version", "version"):
        from orchestrator import __version__

        print(f"orchestrator {__version__}")
        return 0
    name = args[0]
    if name not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(name[:100], COMMANDS, n=1)
        meant = f" Did you mean `{near[0]}`?" if near else ""
        shown = name[:100] if name.isprintable() else ascii(name[:100])
        message = f"there is no command `{shown}`.{meant}"
        hint = "orchestrator --help lists the commands"
        _say(f"orchestrator: {message}\n  hint: {hint}")
        _print_error(args, message, hint, 2)
        return 2
    if name == "completion" and len(args) == 2 and args[1] in SHELLS:
        return print_completion(args[1])
    return _call(name, args[1:])


def print_completion(shell: str) -> int:
    """Load nothing else: profiles ask at every start."""
    from orchestrator.resources import generated_file

    with open(generated_file(f"shell/{SHELLS[shell]}"), encoding="utf-8") as file:
        sys.stdout.write(file.read())
    return 0


def command_parser(name: str, typed: Sequence[str] = ()) -> tuple[Command, ArgumentParser]:
    """Return a command and its parser. With --json in `typed`, errors are printed as JSON, too."""
    import argparse
    from importlib import import_module

    from orchestrator.errors import ExitCode
    from orchestrator.words import clean

    command: Command = import_module(f"orchestrator.cli.{name}").COMMAND
    wants_help = bool({"-h", "--help"} & {*typed})
    actions = [word for word in typed if wants_help and word in command.actions]
    page = command.page(*actions[:1])

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            message = clean(message + _meant(self, message, typed), lines=True)
            hint = self.prog.replace(" ", " help ", 1)
            _say(f"{self.prog}: {message}\n  hint: {hint}")
            _print_error(typed, message, hint, int(ExitCode.BAD_INPUT))
            raise SystemExit(int(ExitCode.BAD_INPUT))

        def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
            text = page.argument(names, options.pop("help"))
            return super().add_argument(*names, help=text, **options)

        def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
            # Options may stand between words, also of actions: `ledger verify --json SET`.
            if self._subparsers is not None or vars(self).get("_in_turn"):
                return super().parse_known_args(args, namespace)
            vars(self)["_in_turn"] = True
            try:
                return self.parse_known_intermixed_args(args, namespace)
            except AttributeError as error:
                # Ctrl-C came before argparse saved the state to restore.
                if isinstance(error.__context__, KeyboardInterrupt):
                    raise KeyboardInterrupt from error
                raise
            finally:
                vars(self)["_in_turn"] = False

        def _get_formatter(self) -> argparse.HelpFormatter:
            # Argparse's own imports shutil for the width.
            return self.formatter_class(self.prog, width=_help_width())  # type: ignore[call-arg]

        def print_help(self, file: Any = None) -> None:
            # argparse's own hides output errors (PYTHONUNBUFFERED=1, disk full).
            (file or sys.stdout).write(self.format_help())

    parser = Parser(
        prog=page.prog,
        description=page.description,
        epilog=page.epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.arguments(parser)
    return command, parser


def _help_width() -> int:
    """Like argparse: the columns of COLUMNS or the terminal, less 2."""
    import os

    columns = os.environ.get("COLUMNS", "")
    try:
        width = int(columns) if columns.isdecimal() else 0
        return (width or os.get_terminal_size(sys.__stdout__.fileno()).columns or 80) - 2  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return 78


def _meant(parser: ArgumentParser, message: str, typed: Sequence[str]) -> str:
    """Return `; did you mean --nexp?` for an unknown option or choice, or ""."""
    from orchestrator.errors import did_you_mean

    choice, _, choices = message.partition(" (choose from ")
    if choices:
        names = [name.strip("'\"") for name in choices.rstrip(")").split(", ")]
        return did_you_mean(choice.split()[-1].strip("'\""), names, before="", after="")
    before, _, unknown = message.partition("unrecognized arguments: ")
    if before or not unknown.startswith("--"):
        return ""
    known = set(vars(parser)["_option_string_actions"])
    for action in vars(parser)["_actions"]:
        for word in typed if isinstance(action.choices, dict) else ():
            known |= set(vars(action.choices.get(word, parser))["_option_string_actions"])
    option = unknown.split()[0].partition("=")[0].removeprefix("--")
    names = [name.removeprefix("--") for name in known if name.startswith("--")]
    return did_you_mean(option, names, before="--", after="")  # all are alike in their dashes


def _call(name: str, rest: list[str]) -> int:
    import gc
    import os
    from argparse import Namespace
    from contextlib import redirect_stderr, redirect_stdout

    from orchestrator.errors import OrchestratorError
    from orchestrator.words import Cleaned

    # Imported objects stay: collecting garbage takes a tenth of a cold command.
    gc.set_threshold(50_000)
    # The search for plug-ins is a third of pydantic's start.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    command, parser = command_parser(name, rest)
    rest, level, debug_log = _common(parser, rest)
    typed = [name, *rest]
    wanted = parser.parse_args(rest, Namespace(typed=typed))
    with redirect_stdout(Cleaned(sys.stdout)), redirect_stderr(Cleaned(sys.stderr)):
        try:
            return _watched(command, wanted, level, debug_log)
        except OrchestratorError as error:
            fix = error.fix.line(typed) if error.fix else ""
            return _fail(typed, error.message, error.hint, int(error.exit_code), fix)


EVERYWHERE = {
    "--quiet": "no remarks on standard error",
    "--verbose": "the programs started and files changed, on standard error",
    "--debug-log FILE": "the same and every file read, appended to FILE",
}
"""Options of every command, for reference, completions and man page."""


def _common(parser: ArgumentParser, rest: list[str]) -> tuple[list[str], int, str]:
    """Return the arguments without --quiet, --verbose and --debug-log (unless of the command
    itself), the level of remarks, and the file."""
    remaining, level, debug_log = list[str](), 0, ""
    taken = vars(parser)["_option_string_actions"]
    following = iter(rest)
    for word in following:
        option, equals, value = word.partition("=")
        if word == "--":
            remaining += [word, *following]
        elif option not in ("--quiet", "--verbose", "--debug-log") or option in taken:
            remaining.append(word)
        elif option == "--debug-log":
            debug_log = value if equals else next(following, "")
            if not debug_log:
                parser.error("argument --debug-log: expected a FILE")
        else:
            level = -1 if option == "--quiet" else 1
    return remaining, level, debug_log


def _watched(command: Command, wanted: Any, level: int, debug_log: str) -> int:
    if not level and not debug_log:
        return int(command.run(wanted))
    from orchestrator.cli import debug
    from orchestrator.cli.output import set_level

    set_level(level)
    try:
        with debug.recording(wanted.typed, verbose=level > 0, path=debug_log):
            return int(command.run(wanted))
    finally:
        set_level(0)


def _open_closed() -> None:
    """Open closed standard streams (`>&-`): else the next opened file would get their output."""
    import os

    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
            mode = "w" if descriptor else "r"
            stream = open(descriptor, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def _fail(args: list[str], message: str, hint: str, code: int, fix: str = "") -> int:
    """`fix` is the last line, to be pasted."""
    from orchestrator.words import clean, wrapped_on_stderr

    name = " ".join(["orchestrator", *args[:1]])
    # Never break a command, in the hint or alone: pasted, it would be two.
    problem = wrapped_on_stderr(f"{name}: {message}")
    shown = (
        wrapped_on_stderr(f"  hint: {hint}") if "orchestrator " not in hint else f"  hint: {hint}"
    )
    lines = [problem, shown if hint else "", f"  {fix}" if fix else ""]
    _say(clean("\n".join(filter(None, lines)), lines=True))
    _print_error(args, message, hint, code, fix)
    return code


def _print_error(args: Sequence[str], message: str, hint: str, code: int, fix: str = "") -> None:
    if "--json" not in args:
        return
    from orchestrator.cli.output import print_json

    try:
        error = {"code": code, "message": message, "hint": hint, "fix": fix}
        print_json("error", {"error": error}, indent=None)
    except OSError:  # only the exit code remains
        _drop(sys.stdout)


def _say(text: str) -> None:
    try:
        print(text, file=sys.stderr)
    except OSError:
        _drop(sys.stderr)


def _drop(stream: TextIO) -> None:
    """Send remaining output to /dev/null, or Python fails again at its exit."""
    import os
    from contextlib import suppress

    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _unprinted(args: list[str], error: OSError, code: int | None) -> int:
    """Return the exit code for failed output, or an unusable file or folder. `code`: of the
    finished command."""
    import errno
    import os

    from orchestrator.errors import ExitCode, is_full
    from orchestrator.words import clean

    name = " ".join(["orchestrator", *args[:1]])
    if isinstance(error, BrokenPipeError) and _reader_gone():
        # `orchestrator status | head` is no error.
        _drop(sys.stdout)
        if code is not None:
            return code
        return int(ExitCode.INTERRUPTED if _owes_verdict(args) else ExitCode.OK)
    if error.filename is None and error.errno in (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EIO,
    ):
        _drop(sys.stdout)
        _say(
            f"{name}: the output cannot be written: {error.strerror}\n  hint: df -h shows which "
            "file system is full"
        )
        return int(ExitCode.SET_STATE)
    if error.filename is None:
        if error.errno == errno.ENOENT and not _in_folder():
            return _fail(
                args,
                "the current folder was removed",
                "cd ~, or elsewhere",
                int(ExitCode.BAD_INPUT),
            )
        return _defect(args, error)
    path = clean(
        os.fsdecode(error.filename)
        if isinstance(error.filename, str | bytes)
        else str(error.filename)
    )
    path = path if len(path) <= 300 else f"{path[:300]}..."
    code = int(ExitCode.SET_STATE if is_full(error) else ExitCode.BAD_INPUT)
    return _fail(args, f"{path}: {error.strerror or error}", "", code)


def _defect(args: list[str], error: Exception) -> int:
    from orchestrator.cli.defect import explained
    from orchestrator.errors import ExitCode

    message, hint = explained(args, error)
    return _fail(args, message, hint, int(ExitCode.INTERNAL))


def _in_folder() -> bool:
    import os

    try:
        return bool(os.getcwd())
    except OSError:
        return False


def _owes_verdict(args: list[str]) -> bool:
    """Return whether exit code 0 would claim a verdict."""
    from importlib import import_module

    if not args or args[0] not in COMMANDS or {"-h", "--help"} & set(args):
        return False
    return bool(import_module(f"orchestrator.cli.{args[0]}").COMMAND.verdict)


def _reader_gone() -> bool:
    """Return whether standard output or error is a pipe without a reader."""
    import select

    asked = select.poll()
    for descriptor in (1, 2):
        asked.register(descriptor, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in asked.poll(0))

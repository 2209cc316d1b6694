"""The command line: a table of commands, each in a module that is imported only when it is called.

A command module offers two functions:

    add_arguments(parser: argparse.ArgumentParser) -> None
    run(args: argparse.Namespace) -> int            # an ExitCode

`main` turns every OrchestratorError into a message on standard error and its exit code.
"""

from __future__ import annotations

import sys

# name -> (module under orchestrator.cli, one-line help). The order is the order of `--help`.
COMMANDS: dict[str, tuple[str, str]] = {
    "systems": ("systems", "list the catalogue of systems and the workloads each can run"),
    "render": ("render", "write the bundle of scripts for a system and a workload"),
    "preflight": ("preflight", "check nodes before they are used: a verdict and a remedy per node"),
    "submit": ("submit", "create a set and submit its job"),
    "run": ("run", "submit, watch and score in one; the exit code tells the verdict"),
    "status": ("status", "what every set (or one) is doing"),
    "watch": ("watch", "live view of a set until it ends"),
    "nodes": ("nodes", "who ran what on which node of a set, how fast, and which were set aside"),
    "logs": ("logs", "show or follow the logs of a set's runs"),
    "cancel": ("cancel", "end a set's job, containers gone and states final"),
    "resume": ("resume", "submit the runs that a set still lacks"),
    "score": ("score", "time-to-train per run and the score of a set or a folder of logs"),
    "check": ("check", "compliance findings of a set or a folder of logs, per file and line"),
    "images": ("images", "which image every node has; pull it once, bring it onto all of them"),
    "code": ("code", "copy the benchmark's code out of a system's image"),
    "prepare": ("prepare", "download and convert a workload's data; or check what is there"),
    "published": ("published", "the published results, to compare with"),
    "tune": ("tune", "host settings of the nodes: plan, apply, verify, revert, status"),
    "compare": ("compare", "sets and published entries against each other, with how sure the difference is"),
    "report": ("report", "one self-contained page about a set; also Markdown, CSV and JSON"),
    "package": ("package", "the submission tree of one or more sets, checked before it is written"),
    "demo": ("demo", "the whole path with no Slurm, Docker, GPU or root"),
}


def _usage() -> str:
    width = max(len(name) for name in COMMANDS)
    lines = [
        "usage: orchestrator COMMAND [ARGUMENT ...]",
        "",
        "Take an AMD Instinct cluster from a bare allocation to a scored set of MLPerf Training runs.",
        "",
        "commands:",
        *(f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()),
        "",
        "`orchestrator COMMAND --help` tells more, with an example. `orchestrator --version` prints the version.",
        "Exit codes: 0 done or valid score, 1 no valid score, 2 unusable input, 3 the scheduler refused,",
        "4 the scheduler did not answer, 5 wrong state of the set, 130 interrupted.",
    ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: sys.argv[1:]) and return its exit code."""
    args = sys.argv[1:] if argv is None else argv
    if not args or args[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if args else 2
    if args[0] in ("-V", "--version"):
        from orchestrator import __version__

        print(f"orchestrator {__version__}")
        return 0
    name = args[0]
    if name not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(name, COMMANDS, n=1)
        meant = f" Did you mean `{near[0]}`?" if near else ""
        print(f"orchestrator: there is no command `{name}`.{meant}\n"
              f"  hint: orchestrator --help lists the commands", file=sys.stderr)
        return 2
    return _call(name, args[1:])


def _call(name: str, rest: list[str]) -> int:
    import argparse
    from importlib import import_module

    from orchestrator.errors import ExitCode, OrchestratorError

    module_name, text = COMMANDS[name]
    module = import_module(f"orchestrator.cli.{module_name}")
    parser = argparse.ArgumentParser(
        prog=f"orchestrator {name}", description=module.__doc__ or text,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )
    module.add_arguments(parser)
    try:
        return int(module.run(parser.parse_args(rest)))
    except OrchestratorError as error:
        print(f"orchestrator {name}: {error}", file=sys.stderr)
        return int(error.exit_code)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # `orchestrator status | head`: the reader went away, which is not an error of ours.
        sys.stderr.close()
        return int(ExitCode.OK)

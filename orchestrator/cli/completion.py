"""Print the completion for a shell. It knows commands, options, systems, workloads, pages, your sets and their nodes.

example:
  source <(orchestrator completion bash)           # in ~/.bashrc
  orchestrator completion zsh >~/.zfunc/_orchestrator
  orchestrator completion fish >~/.config/fish/completions/orchestrator.fish
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from orchestrator.cli.command import Command
from orchestrator.errors import ExitCode
from orchestrator.resources import data_dir

FILES = {"bash": "orchestrator.bash", "zsh": "_orchestrator", "fish": "orchestrator.fish"}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(FILES), help="the shell that reads it")


def run(args: Namespace) -> int:
    print((data_dir("shell") / FILES[args.shell]).read_text(encoding="utf-8"), end="")
    return ExitCode.OK


COMMAND = Command(
    "completion",
    "print the completion for bash, zsh or fish",
    __doc__,
    add_arguments,
    run,
)

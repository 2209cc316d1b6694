"""Print the completion for a shell. It knows commands, options, systems, workloads, pages, your
sets and their nodes.

example:
  source <(orchestrator completion bash)           # in ~/.bashrc
  orchestrator completion zsh >~/.zfunc/_orchestrator
  orchestrator completion fish >~/.config/fish/completions/orchestrator.fish
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from orchestrator.cli import SHELLS, print_completion
from orchestrator.cli.command import Command


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SHELLS), help="the shell that reads it")


def run(args: Namespace) -> int:
    return print_completion(args.shell)


COMMAND = Command(
    "completion",
    __doc__,
    add_arguments,
    run,
)

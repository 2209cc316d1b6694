"""List the sets of the site's log directory: live sets and the newest twenty; --all lists every
set.

Built from the files of the sets and one scheduler query for all of them. `orchestrator status`
prints the same table, `orchestrator status SET` a set in detail; `orchestrator rm` removes sets.

example:
  orchestrator ls
  orchestrator ls --all --json
"""

from __future__ import annotations

from argparse import ArgumentParser

from orchestrator.cli.arguments import add_json, add_site
from orchestrator.cli.command import Command
from orchestrator.cli.status import add_all, list_sets


def add_arguments(parser: ArgumentParser) -> None:
    add_all(parser)
    add_site(parser)
    add_json(parser)


COMMAND = Command(
    "ls",
    __doc__,
    add_arguments,
    list_sets,
)

"""The nodes of a set: ranks, good and failed attempts, times, exit codes, bandwidth, preflight, and
exclusions.

START-UP is from the start of a run's script to run_start, SHUT-DOWN from run_stop to the script's
end; the first run in a new container compiles for the others. Times of the published entry come
from its logs.

MEAN and LAST are the time of a node's script, in its good attempts and in its last one. VS OTHERS
is that time over that of the other nodes in the same attempts. WITH and WITHOUT are the mean times
to train of all good runs with and without the node; the score leaves out the fastest and the
slowest run. Together with the bandwidth test they point at a slow node. If the runs used different
nodes, a second table has the time to train per group of nodes. If they did not, the last line is
the command that finds a slow node.

example:
  orchestrator nodes                                 # of the newest set
  orchestrator nodes MI325X_08x08x32-flux1-20261121 --json
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_set_and_json
from orchestrator.cli.command import Command
from orchestrator.cli.finding import chosen_set
from orchestrator.cli.output import print_json, print_parts
from orchestrator.errors import ExitCode
from orchestrator.words import quoted

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.views.parts import Table


def run(args: Namespace) -> int:
    from orchestrator.cli.closing import with_short_name
    from orchestrator.evidence.attempts import read_attempts
    from orchestrator.evidence.nodes import read_groups, read_history, suspicions
    from orchestrator.evidence.sets import SetEvidence
    from orchestrator.evidence.startup import as_json, startups
    from orchestrator.published import startup

    root = chosen_set(args).layout.root
    evidence = SetEvidence(root)
    attempts = read_attempts(evidence)
    history, groups = read_history(evidence, attempts), read_groups(evidence, attempts)
    pointers = suspicions(history)
    starts, record = startups(evidence), evidence.record
    about = (record.benchmark, record.round, record.system) if record else ("", "", "")
    published = startup.find(*about)
    if args.json:
        members = {
            "set": str(root),
            "nodes": [node.to_json() for node in history],
            "groups": [group.to_json() for group in groups],
            "suspicions": pointers,
            "startup": {**as_json(starts), "published": [entry.to_json() for entry in published]},
        }
        print_json("nodes", members)
        return ExitCode.OK
    from orchestrator.views import nodes as views
    from orchestrator.views.parts import Bullets, with_commands

    if not history:
        print(f"no job of {root.name} has had nodes yet")
        return ExitCode.OK
    unit = views.unit_of(history)
    remarks = [*views.losses(history), *views.complaints(history)]
    explain = with_short_name(f"orchestrator explain {quoted(root)}", root, args.site)
    closing = [*views.unblamed(history, explain), *views.incomparable(history, record)]
    parts = [
        views.summary(history, unit),
        Bullets([*remarks, *(f"slow: {text}" for text in pointers)]),
        *views.groups(groups, unit),
        *views.startup(starts, published),
        with_commands(closing),
    ]
    print_parts(parts)
    return ExitCode.OK


def history_table(root: Path) -> Table:
    """Return the nodes' rows alone, for a live view."""
    from orchestrator.evidence.nodes import read_history
    from orchestrator.evidence.sets import SetEvidence
    from orchestrator.views import nodes as views

    history = read_history(SetEvidence(root))
    return views.summary(history, views.unit_of(history)).replace(legend={})


COMMAND = Command(
    "nodes",
    __doc__,
    add_set_and_json,
    run,
)

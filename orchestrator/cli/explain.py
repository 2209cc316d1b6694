"""Explain why a set is pending, slow, paused, hung or failed: one sentence and its fix, the
evidence, and the next command to type.

The output of programs, RCCL, ROCm, Docker and Slurm is compared with a table of causes
(docs/explain.md). Of several nodes the first cause counts, not its consequences on the others.
Without a matching rule, the cause is reported as unknown.

example:
  orchestrator explain                               # the newest set
  orchestrator explain MI325X_08x08x32-flux1-20261121 --json
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import add_set_and_json
from orchestrator.cli.command import Command
from orchestrator.cli.finding import chosen_set, scheduler_of
from orchestrator.cli.output import print_json, screen
from orchestrator.errors import ExitCode
from orchestrator.words import cell

if TYPE_CHECKING:
    from orchestrator.evidence.explanation import Explanation
    from orchestrator.evidence.picture import SetPicture


def run(args: Namespace) -> int:
    from orchestrator.cli.closing import explained
    from orchestrator.evidence.picture import look

    run_set = chosen_set(args)
    root = run_set.layout.root
    [picture] = look([root], [scheduler_of(run_set)])
    explanation = explained(picture, args.site)
    if args.json:
        print_json("explain", {"set": str(root), **explanation.to_json()})
    else:
        for line in explanation_lines(picture, explanation, args.site, screen().width):
            print(line)
    return ExitCode.OK


def explanation_lines(
    picture: SetPicture, explanation: Explanation, site: str | None, width: int | None
) -> list[str]:
    """Return sentence, fix and evidence in lines of `width`, and the unbroken command."""
    from orchestrator.cli.closing import with_short_name
    from orchestrator.words import wrapped

    fix = [f"fix: {explanation.remedy}"] if explanation.remedy else []
    name = cell(picture.root.name) + " (rehearsal)" * bool(picture.no_result)
    prose = [f"{name} {_predicate(picture.state, explanation)}", *fix]
    prose += [f"  {proof}" for proof in explanation.evidence]
    command = with_short_name(explanation.next, picture.root, site)
    lines = [part for line in prose for part in wrapped(line, width)]
    return [*lines, *([f"  {command}"] if command else [])]


def _predicate(state: str, explanation: Explanation) -> str:
    """Return state and sentence as a predicate."""
    if state == "complete" and explanation.cause != state:
        return f"is complete; {explanation.sentence}"
    verb = {"time_limit": "ended at its time limit", "failed": "failed"}.get(state, f"is {state}")
    return f"{verb}: {explanation.sentence}"


COMMAND = Command(
    "explain",
    __doc__,
    add_set_and_json,
    run,
)

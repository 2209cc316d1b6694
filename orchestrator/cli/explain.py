"""Why a set is pending, slow, paused, hung or failed: one sentence and its fix, the evidence, and
the next command to type.

The output of programs, RCCL, ROCm, Docker and Slurm is compared with a table of causes
(docs/explain.md). Of several nodes the first cause counts, not its consequences on the others.
Without a matching rule, the cause is reported as unknown.

example:
  orchestrator explain                               # the newest set
  orchestrator explain MI325X_08x08x32-flux1-20261121 --json
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from orchestrator.cli.arguments import add_json, add_set
from orchestrator.cli.command import Command
from orchestrator.cli.finding import chosen_set, scheduler_of
from orchestrator.cli.output import print_json, print_prose, screen
from orchestrator.errors import ExitCode


def add_arguments(parser: ArgumentParser) -> None:
    add_set(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    from orchestrator.cli.closing import explained
    from orchestrator.evidence.picture import look
    from orchestrator.words import wrapped

    run_set = chosen_set(args)
    root = run_set.layout.root
    [picture] = look([root], [scheduler_of(run_set)])
    explanation = explained(picture, args.site)
    if args.json:
        print_json("explain", {"set": str(root), **explanation.to_json()})
        return ExitCode.OK
    fix = [f"fix: {explanation.remedy}"] if explanation.remedy else []
    print_prose([f"{picture.set_id} is {picture.state}: {explanation.sentence}", *fix])
    for proof in explanation.evidence:
        for part in wrapped(f"  {proof}", screen().width):
            print(part)
    print_prose([f"  {explanation.next}"] if explanation.next else [])
    return ExitCode.OK


COMMAND = Command(
    "explain",
    __doc__,
    add_arguments,
    run,
)

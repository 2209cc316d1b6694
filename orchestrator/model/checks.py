"""Checks across several keys: of a system its name, its batch, its stack; of a workload its
number of runs."""

from __future__ import annotations

import re
from collections.abc import Collection

from orchestrator.model.documents import System, SystemRound, Workload
from orchestrator.model.fields import OWN
from orchestrator.model.shared_documents import Accelerator
from orchestrator.model.source import Document, Key

# <GPU>_<nodes>x<gpus per node>[x<label>][_suffix], nodes and GPUs may be padded with zeros; a
# site's word may precede the numbers (MI350X_akash_4x8x1). Names without this shape are accepted
# and mean nothing.
_SHAPE = re.compile(
    r"(MI[0-9]+[A-Z]*)_(?:[A-Za-z]+_)*0*([0-9]+)x0*([0-9]+)(?:x0*([0-9]+))?(?:_.*)?"
)

FEWEST_RUNS = 3
"""Below three runs an olympic mean has nothing left to average."""


def check_system(document: Document, system: System) -> None:
    """Report every contradiction inside `system` in its document."""
    _check_name(document, system)
    for workload, rounds in system.workloads.items():
        for name, one in rounds.items():
            _check_batch(document, ("workloads", workload, name), system, one)


def check_workload(document: Document, workload: Workload) -> None:
    """Report contradictions between the rounds of `workload` and the rest of it."""
    own = [name for name, one in workload.rounds.items() if one.ruleset == OWN]
    if own and workload.runs_required < FEWEST_RUNS:
        document.add(
            ("runs_required",),
            f"{workload.runs_required}, but round {own[0]} is scored by the olympic mean of its "
            f"runs (ruleset: {OWN}), "
            f"which leaves out the fastest and the slowest; accepted: at least {FEWEST_RUNS}",
        )


def _check_name(document: Document, system: System) -> None:
    found = _SHAPE.fullmatch(system.name)
    if not found:
        return
    accelerator, nodes, gpus = found[1], int(found[2]), int(found[3])
    if nodes != system.nodes:
        document.add(
            ("nodes",),
            f"{system.nodes}, but the name {system.name} says {nodes}; "
            f"change one of them (the name's shape is GPU_NODESxGPUSxLABEL)",
        )
    if gpus != system.gpus_per_node:
        document.add(
            ("gpus_per_node",),
            f"{system.gpus_per_node}, but the name {system.name} says {gpus}; "
            f"change one of them (the name's shape is GPU_NODESxGPUSxLABEL)",
        )
    given = (
        system.accelerator.title
        if isinstance(system.accelerator, Accelerator)
        else system.accelerator
    )
    if accelerator.lower() not in given.lower():
        document.add(("accelerator",), f"{given}, but the name {system.name} says {accelerator}")


def launch_problem(
    system: System,
    one: SystemRound,
    workload: Workload,
    round_name: str,
    code: Collection[str] = (),
) -> str:
    """Return why the command of the round cannot start so many nodes, or "". `code`: workloads
    with code of the site."""
    stack = one.stack or round_name
    rules = workload.rounds.get(stack)
    most = None if rules is None else one.launch_over(rules).most_nodes
    if rules is None or most is None or system.nodes <= most or workload.name in code:
        return ""
    return (
        f"`{' '.join(rules.command or workload.command)}` of {workload.name} in round {stack} "
        f"starts {most} node(s) at most, and "
        f"{system.name} has {system.nodes}: nothing that was published runs this; give the round a "
        "`launch` with another "
        f"command, or the site code that can do it (`code: {{{workload.name}: ...}}`)"
    )


def label_warning(system: System, one: SystemRound, workload: str, round_name: str) -> str:
    """Return a warning if the third field of the name is not the micro batch, or "".

    The field is a label and is never read for a value: in some published names it differs.
    """
    found = _SHAPE.fullmatch(system.name)
    if not found or not found[4] or one.micro_batch is None or int(found[4]) == one.micro_batch:
        return ""
    return (
        f"the name {system.name} ends in {found[4]}, but {workload} {round_name} runs micro batch "
        f"{one.micro_batch}; the name is only a label, the descriptor's value holds"
    )


def _check_batch(document: Document, key: Key, system: System, one: SystemRound) -> None:
    ranks = system.nodes * system.gpus_per_node
    parallel = one.tensor_parallel * one.pipeline_parallel * one.context_parallel
    if ranks % parallel:
        document.add(
            key,
            f"{ranks} ranks cannot be divided by tensor x pipeline x context parallel = {parallel}",
        )
        return
    if one.micro_batch is None or one.global_batch is None:
        return
    accumulation = one.accumulation or 1
    wanted = one.micro_batch * accumulation * ranks // parallel
    if wanted != one.global_batch:
        document.add(
            (*key, "global_batch"),
            f"{one.global_batch}, but micro batch {one.micro_batch} x {ranks} ranks x accumulation "
            f"{accumulation} / parallel {parallel} = {wanted}",
        )

"""Checks across keys: a system's name, batch and stack; a workload's number of runs."""

from __future__ import annotations

import re
from collections.abc import Collection

from orchestrator.model.documents import System, SystemRound, Workload
from orchestrator.model.fields import OWN
from orchestrator.model.shared_documents import Accelerator
from orchestrator.model.source import Document, Key
from orchestrator.words import count

# <GPU>_<nodes>x<gpus per node>[x<label>][_suffix], numbers possibly padded with zeros, perhaps
# with a site's word (MI350X_akash_4x8x1). Other names mean nothing.
_SHAPE = re.compile(
    r"(MI[0-9]+[A-Z]*)_(?:[A-Za-z]+_)*0*([0-9]+)x0*([0-9]+)(?:x0*([0-9]+))?(?:_.*)?"
)

FEWEST_RUNS = 3
"""With fewer, an olympic mean has nothing to average."""


def check_system(document: Document, system: System) -> None:
    _check_name(document, system)
    for workload, rounds in system.workloads.items():
        for name, part in rounds.items():
            _check_batch(document, ("workloads", workload, name), system, part)


def check_workload(document: Document, workload: Workload) -> None:
    own_rounds = [name for name, part in workload.rounds.items() if part.ruleset == OWN]
    if own_rounds and workload.runs_required < FEWEST_RUNS:
        document.add(
            ("runs_required",),
            f"{workload.runs_required}, but round {own_rounds[0]} is scored by the olympic mean "
            f"of its runs (ruleset: {OWN}), "
            f"which leaves out the fastest and the slowest; accepted: at least {FEWEST_RUNS}",
        )


def _check_name(document: Document, system: System) -> None:
    match = _SHAPE.fullmatch(system.name)
    if not match:
        return
    accelerator = match[1]
    nodes = int(match[2])
    gpus = int(match[3])
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
    part: SystemRound,
    workload: Workload,
    round_name: str,
    code: Collection[str] = (),
) -> str:
    """Return why the round's command cannot start so many nodes, or "". `code`: workloads with the
    site's code."""
    stack = part.stack or round_name
    rules = workload.rounds.get(stack)
    most = None if rules is None else part.launch_over(rules).most_nodes
    if rules is None or most is None or system.nodes <= most or workload.name in code:
        return ""
    return (
        f"`{' '.join(rules.command or workload.command)}` of {workload.name} in round {stack} "
        f"starts {count(most, 'node')} at most, and "
        f"{system.name} has {system.nodes}: no published command runs this; give the round a "
        "`launch` with another "
        f"command, or the site code that can do it (`code: {{{workload.name}: ...}}`)"
    )


def label_warning(system: System, part: SystemRound, workload: str, round_name: str) -> str:
    """Return a warning if the name's third field, a mere label, differs from the micro batch, as in
    some published names."""
    match = _SHAPE.fullmatch(system.name)
    if not match or not match[4] or part.micro_batch is None or int(match[4]) == part.micro_batch:
        return ""
    return (
        f"the name {system.name} ends in {match[4]}, but {workload} {round_name} runs micro batch "
        f"{part.micro_batch}; the name is only a label, the descriptor's value holds"
    )


def _check_batch(document: Document, key: Key, system: System, part: SystemRound) -> None:
    ranks = system.nodes * system.gpus_per_node
    size = count(ranks, "rank")
    parallel = part.tensor_parallel * part.pipeline_parallel * part.context_parallel
    if ranks % parallel:
        document.add(
            key,
            f"{size} cannot be divided by tensor x pipeline x context parallel = {parallel}",
        )
        return
    if part.micro_batch is None or part.global_batch is None:
        return
    accumulation = part.accumulation or part.computed_accumulation(ranks)
    if not accumulation:
        step = part.micro_batch * ranks // parallel
        document.add(
            (*key, "global_batch"),
            f"{part.global_batch} is no multiple of micro batch {part.micro_batch} x {size} "
            f"/ parallel {parallel} = {step}, so no accumulation gives it; the nearest are "
            f"{part.global_batch // step * step} and "
            f"{(part.global_batch // step + 1) * step}"
            if part.global_batch > step
            else f"{part.global_batch}, but micro batch {part.micro_batch} x {size} "
            f"x accumulation 1 / parallel {parallel} = {step}, the smallest global batch",
        )
        return
    wanted = part.micro_batch * accumulation * ranks // parallel
    if wanted != part.global_batch:
        document.add(
            (*key, "global_batch"),
            f"{part.global_batch}, but micro batch {part.micro_batch} x {size} "
            f"x accumulation {accumulation} / parallel {parallel} = {wanted}",
        )

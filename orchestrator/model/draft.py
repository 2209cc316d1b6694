"""Write a new system descriptor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from orchestrator.errors import UsageError, did_you_mean
from orchestrator.model.catalogue import Catalogue
from orchestrator.model.compose import load_entry, newest, round_order
from orchestrator.model.documents import System, SystemRound, WorkloadRound
from orchestrator.model.fields import NAME
from orchestrator.model.shared_documents import Accelerator

_TEXT = """\
# {title}. Every key, with its accepted values: docs/descriptors.md. Check it with
#     orchestrator validate {name}.yaml
kind: system
name: {name}                # the file's name; a shape in it is that of nodes and GPUs
title: {title_quoted}
accelerator: {accelerator}              # of systems/shared/accelerators.yaml, or a mapping
nodes: {nodes}
gpus_per_node: {gpus}
fabric: {fabric}                # {fabric_from}; names of interfaces belong into the site file
workloads:
  {workload}:
    "{round}":
      note: {note}
      micro_batch: {micro_batch}           # samples per GPU and step
      # micro batch x GPUs x accumulation / (tensor x pipeline x context parallel):
      global_batch: {global_batch}
      accumulation: {accumulation}
      # minutes_per_run: {minutes}       # time limit: (NEXP + 1) x (minutes_per_run + 5)
      # only differences from workloads/{workload}.yaml; values in quotes, null removes:
      env:
{env}"""


@dataclass(frozen=True, slots=True)
class Draft:
    """`warnings` are decisions left to the author."""

    text: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Layer:
    env: Mapping[str, object]
    note: str
    stopgap: bool = False


def draft_system(
    catalogue: Catalogue,
    name: str,
    *,
    accelerator: str,
    nodes: int,
    gpus: int,
    fabric: str | None,
    workload: str,
    round_name: str | None,
    micro_batch: int,
    accumulation: int,
) -> Draft:
    """Return a new descriptor for `name`, with the source of each value.

    Values for the global batch come from a published system with the same GPU and batch, else from
    the batch's reference convergence point; other variables from the same GPU's system with the
    nearest number of nodes. `fabric` None: as the nearest multi-node system. Raises UsageError for
    an invalid name, or an unknown workload, round, GPU or fabric.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a name; accepted: letters, digits, '.', '_' and '-'")
    _, workload_document = catalogue.workload(workload)
    chosen = round_name or newest(workload_document.rounds)
    if chosen not in workload_document.rounds:
        has = ", ".join(sorted(workload_document.rounds, key=round_order))
        raise UsageError(f"{workload} has no round {chosen}; it has: {has}")
    _known(catalogue, "accelerator", accelerator)
    fabric_name, fabric_from = _fabric(catalogue, accelerator, nodes, workload, fabric)
    batch = nodes * gpus * micro_batch * accumulation
    rules = workload_document.rounds[chosen]
    schedule = _schedule(catalogue, accelerator, workload, chosen, rules, batch)
    others = _nearest(
        catalogue,
        accelerator,
        nodes,
        workload,
        chosen,
        rules,
        "all other" if schedule.env else "all",
    )
    title = f"{nodes} x {gpus} {accelerator}"
    text = _TEXT.format(
        title=title,
        title_quoted=json.dumps(title),
        name=name,
        accelerator=accelerator,
        nodes=nodes,
        gpus=gpus,
        fabric=fabric_name,
        fabric_from=fabric_from,
        workload=workload,
        round=chosen,
        micro_batch=micro_batch,
        accumulation=accumulation,
        global_batch=batch,
        minutes=rules.minutes_per_run,
        note=json.dumps("; ".join(layer.note for layer in (schedule, others) if layer.note)),
        env="\n".join(_lines(schedule, others)) + "\n",
    )
    return Draft(text, (schedule.note,) if schedule.stopgap else ())


def _known(catalogue: Catalogue, kind: str, name: str) -> None:
    facts = catalogue.shared(f"{kind}s")[0]
    if name not in facts:
        raise UsageError(
            f"there is no {kind} {name}{did_you_mean(name, facts)}; there are: "
            f"{', '.join(sorted(facts))}",
            hint=(
                f"another {kind} is described in shared/{kind}s.yaml of a folder of your own "
                "(--systems-dir)"
            ),
        )


def _fabric(
    catalogue: Catalogue, accelerator: str, nodes: int, workload: str, given: str | None
) -> tuple[str, str]:
    if given is not None:
        _known(catalogue, "fabric", given)
        return given, "from systems/shared/fabrics.yaml"
    if nodes == 1 or not catalogue.fact("accelerators", accelerator).gfx:
        return (
            "none",
            "one node has no network" if nodes == 1 else "from systems/shared/fabrics.yaml",
        )
    like = [
        system
        for system in _of_gpu(catalogue, accelerator)
        if system.nodes > 1 and isinstance(system.fabric, str) and system.fabric != "none"
    ]
    if not like:
        there = ", ".join(sorted(catalogue.shared("fabrics")[0]))
        raise UsageError(
            f"which network connects the {nodes} nodes? no system with several nodes of "
            f"{accelerator} is known",
            hint=f"--fabric NAME; there are: {there}",
        )
    best = min(
        like, key=lambda system: (workload not in system.workloads, *_distance(system, nodes))
    )
    return str(best.fabric), f"taken over from {best.name}"


def _schedule(
    catalogue: Catalogue,
    accelerator: str,
    workload: str,
    round_name: str,
    rules: WorkloadRound,
    batch: int,
) -> _Layer:
    names = list(dict.fromkeys(name for env in rules.reference.values() for name in env))
    if not names:
        return _Layer({}, "")
    names_text = " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
    for system, part in _parts(_of_gpu(catalogue, accelerator), workload, round_name):
        if part.global_batch == batch and part.env_from != "assumed":
            entry = load_entry(system.name, workload, round=round_name, systems_dirs=catalogue.dirs)
            values = {name: str(entry.env[name]) for name in names if name in entry.env}
            return _Layer(
                values, f"{names_text} as {system.name} has them for global batch {batch}"
            )
    if env := rules.reference.get(str(batch)):
        return _Layer(
            _plain(env), f"{names_text} of the reference convergence point of global batch {batch}"
        )
    near = min(
        rules.reference, key=lambda batch_name: (abs(int(batch_name) - batch), int(batch_name))
    )
    points = ", ".join(sorted(rules.reference, key=int))
    note = (
        f"there is no reference convergence point for global batch {batch} (there are: {points}): "
        f"{names_text} are those of {near}; choose your own"
    )
    return _Layer(_plain(rules.reference[near]), note, stopgap=True)


def _nearest(
    catalogue: Catalogue,
    accelerator: str,
    nodes: int,
    workload: str,
    round_name: str,
    rules: WorkloadRound,
    which: str,
) -> _Layer:
    """`which` names the variables."""
    candidates = [
        (system, part)
        for system, part in _parts(_of_gpu(catalogue, accelerator), workload, round_name)
        if not (part.whole_env or part.stack or part.image)
    ]
    if not candidates:
        return _Layer(
            {}, f"nobody published it on {accelerator}: {which} variables are those of the workload"
        )
    best, _ = min(
        candidates,
        key=lambda candidate: (
            abs(candidate[0].nodes - nodes),
            candidate[1].submitter != "AMD",
            *_rank(candidate[0]),
        ),
    )
    raw = catalogue.system(best.name)[0].data["workloads"][workload][round_name].get("env", {})
    left = {name for env in rules.reference.values() for name in env}
    env = {
        name: value
        for name, value in raw.items()
        if name not in left and "_SUBMISSION_" not in name
    }
    return _Layer(env, f"{which} variables as {best.name} has them")


def _of_gpu(catalogue: Catalogue, accelerator: str) -> list[System]:
    def gpu(system: System) -> object:
        given = system.accelerator
        return given.title if isinstance(given, Accelerator) else given

    return [system for system in catalogue.systems() if gpu(system) == accelerator]


def _parts(
    systems: Iterable[System], workload: str, round_name: str
) -> list[tuple[System, SystemRound]]:
    """Sort parts: with results first, then AMD's."""
    parts = [
        (system, system.workloads[workload][round_name])
        for system in systems
        if round_name in system.workloads.get(workload, {})
    ]
    return sorted(
        parts,
        key=lambda candidate: (
            candidate[1].submitted is not True,
            candidate[1].submitter != "AMD",
            *_rank(candidate[0]),
        ),
    )


def _rank(system: System) -> tuple[int, str]:
    return len(system.name), system.name


def _distance(system: System, nodes: int) -> tuple[int, int, str]:
    return abs(system.nodes - nodes), *_rank(system)


def _plain(env: Mapping[str, object]) -> dict[str, object]:
    return {name: str(value) for name, value in env.items()}


def _lines(*layers: _Layer) -> Iterator[str]:
    written = [layer for layer in layers if layer.env]
    for layer in written:
        yield f"        # {layer.note}"
        yield from (
            f"        {name}: {json.dumps(value, ensure_ascii=False)}"
            for name, value in layer.env.items()
        )
    if not written:
        yield "        {}"

"""Write a new system descriptor."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.errors import UsageError, did_you_mean
from orchestrator.model.catalogue import Catalogue
from orchestrator.model.checks import check_system
from orchestrator.model.compose import load_entry, newest, round_order
from orchestrator.model.documents import System, SystemRound, WorkloadRound
from orchestrator.model.fields import NAME
from orchestrator.model.problems import validate
from orchestrator.model.shared_documents import Accelerator
from orchestrator.model.source import parsed

_TEXT = """\
# {title}. Every key, with its accepted values: docs/descriptors.md. Check it with
#     orchestrator validate {of.name}.yaml
kind: system
name: {name}                # the file's name; a shape in it is that of nodes and GPUs
title: {title_quoted}
accelerator: {of.accelerator}              # of systems/shared/accelerators.yaml, or a mapping
nodes: {of.nodes}
gpus_per_node: {of.gpus_per_node}
fabric: {fabric}                # {fabric_from}; names of interfaces belong into the site file
workloads:
  {of.workload}:
    "{of.round}":
      note: {note}
      micro_batch: {of.micro_batch}           # samples per GPU and step
      # micro batch x GPUs x accumulation / (tensor x pipeline x context parallel):
      global_batch: {of.global_batch}
      accumulation: {of.accumulation}
      # minutes_per_run: {minutes}       # time limit: (NEXP + 1) x (minutes_per_run + 5)
      # only differences from workloads/{of.workload}.yaml; values in quotes, null removes:
      env:
{env}"""


@dataclass(frozen=True, slots=True)
class Outline:
    """The shape of a new system. `fabric` None: as the nearest multi-node system; `round` "": the
    newest."""

    name: str
    accelerator: str
    nodes: int
    gpus_per_node: int
    workload: str
    micro_batch: int
    accumulation: int
    fabric: str | None = None
    round: str = ""

    @property
    def global_batch(self) -> int:
        return self.nodes * self.gpus_per_node * self.micro_batch * self.accumulation


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


def draft_system(catalogue: Catalogue, outline: Outline) -> Draft:
    """Return a new descriptor, with the source of each value.

    Values for the global batch come from a published system with that GPU and batch, else from the
    reference convergence point; others from the GPU's system with the nearest number of nodes.
    Raises UsageError.
    """
    if not NAME.fullmatch(outline.name):
        raise UsageError(
            f"{outline.name!r} is not a name; accepted: letters, digits, '.', '_' and '-'"
        )
    rounds = catalogue.workload(outline.workload)[1].rounds
    outline = replace(outline, round=outline.round or newest(rounds))
    if outline.round not in rounds:
        has = ", ".join(sorted(rounds, key=round_order))
        raise UsageError(f"{outline.workload} has no round {outline.round}; it has: {has}")
    _known(catalogue, "accelerator", outline.accelerator)
    fabric, fabric_from = _fabric(catalogue, outline)
    rules = rounds[outline.round]
    schedule = _schedule(catalogue, outline, rules)
    others = _nearest(catalogue, outline, rules, "all other" if schedule.env else "all")
    title = f"{outline.nodes} x {outline.gpus_per_node} {outline.accelerator}"
    text = _TEXT.format(
        of=outline,
        name=json.dumps(outline.name),
        title=title,
        title_quoted=json.dumps(title),
        fabric=fabric,
        fabric_from=fabric_from,
        minutes=rules.minutes_per_run,
        note=json.dumps("; ".join(layer.note for layer in (schedule, others) if layer.note)),
        env="\n".join(_lines(schedule, others)) + "\n",
    )
    _check(text, outline.name)
    return Draft(text, (schedule.note,) if schedule.stopgap else ())


def _check(text: str, name: str) -> None:
    document = parsed(Path(f"{name}.yaml"), text)
    system = validate(document, System)
    if system is not None:
        check_system(document, system)
    if document.problems:
        problems = [f"{problem.key}: {problem.text}" for problem in document.problems]
        raise UsageError("\n".join(problems))


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


def _fabric(catalogue: Catalogue, outline: Outline) -> tuple[str, str]:
    accelerator, nodes = outline.accelerator, outline.nodes
    if outline.fabric is not None:
        _known(catalogue, "fabric", outline.fabric)
        return outline.fabric, "from systems/shared/fabrics.yaml"
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
        like,
        key=lambda system: (outline.workload not in system.workloads, *_distance(system, nodes)),
    )
    return str(best.fabric), f"taken over from {best.name}"


def _schedule(catalogue: Catalogue, outline: Outline, rules: WorkloadRound) -> _Layer:
    batch = outline.global_batch
    names = list(dict.fromkeys(name for env in rules.reference.values() for name in env))
    if not names:
        return _Layer({}, "")
    names_text = " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
    for system, part in _parts(catalogue, outline):
        if part.global_batch == batch and part.env_from != "assumed":
            entry = load_entry(
                system.name, outline.workload, round=outline.round, systems_dirs=catalogue.dirs
            )
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


def _nearest(catalogue: Catalogue, outline: Outline, rules: WorkloadRound, which: str) -> _Layer:
    """`which` names the variables."""
    candidates = [
        (system, part)
        for system, part in _parts(catalogue, outline)
        if not (part.whole_env or part.stack or part.image)
    ]
    if not candidates:
        return _Layer(
            {},
            f"nobody published it on {outline.accelerator}: {which} variables are those of the "
            "workload",
        )
    best, _ = min(
        candidates,
        key=lambda candidate: (
            abs(candidate[0].nodes - outline.nodes),
            candidate[1].submitter != "AMD",
            *_rank(candidate[0]),
        ),
    )
    workloads = catalogue.system(best.name)[0].data["workloads"]
    raw = workloads[outline.workload][outline.round].get("env", {})
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


def _parts(catalogue: Catalogue, outline: Outline) -> list[tuple[System, SystemRound]]:
    """Return the round of each system: with results first, then AMD's."""
    parts = [
        (system, system.workloads[outline.workload][outline.round])
        for system in _of_gpu(catalogue, outline.accelerator)
        if outline.round in system.workloads.get(outline.workload, {})
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

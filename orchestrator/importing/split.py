"""Split a config's environment like the catalogue: workload, system, fabric, site, run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.importing.evaluate import ConfigEnvironment
from orchestrator.inspection.trace import whole_number
from orchestrator.model import Catalogue
from orchestrator.model.compose import round_order
from orchestrator.model.documents import SystemRound, WorkloadRound
from orchestrator.model.shared_documents import Fabric
from orchestrator.model.values import (
    NETWORK_NAMES,
    OWNED_BY_THE_LOOP,
    EnvValue,
    Minutes,
    Ref,
    Text,
    empty_problem,
    secret_problem,
)
from orchestrator.words import count

SITE_NAMES = (*(name for name in NETWORK_NAMES if name != "NCCL_IB_GID_INDEX"), "UCX_NET_DEVICES")
"""Names of devices and interfaces. A GID's index is a number, which systems have."""
LEAST_SHARED = 0.3
"""Share of a config's variables in a known round; published configs share 0.6 and more."""
_SHAPE = re.compile(r"_0*([0-9]+)x0*([0-9]+)(?:x|_|$)")
_PARALLEL = {
    "tensor_parallel": ("TP", "PRIMUS_TP", "MLLOG_TENSOR_PARALLELISM"),
    "pipeline_parallel": ("PP", "PRIMUS_PP", "MLLOG_PIPELINE_PARALLELISM"),
    "context_parallel": ("CP", "PRIMUS_CP", "MLLOG_CONTEXT_PARALLELISM"),
}


@dataclass(frozen=True)
class ImportOptions:
    """The user's choices; "" and 0: computed."""

    round: str
    workload: str = ""
    name: str = ""
    accelerator: str = ""
    nodes: int = 0
    gpus_per_node: int = 0
    micro_batch: int = 0
    global_batch: int = 0


@dataclass(frozen=True)
class Placed:
    """A variable that differs from the known round: value there, value here, place."""

    name: str
    known: str | None
    value: EnvValue | None
    part: str
    why: str = ""


@dataclass(frozen=True)
class Import:
    """Parts of documents. `base`: the nearest known round; `new_round`: the workload lacks it;
    `stack`: the round exists, but the config comes from an earlier round."""

    evaluation: ConfigEnvironment
    given: ImportOptions
    workload: str
    base: str
    new_round: bool
    stack: bool
    accelerator: str
    facts: dict[str, str]
    known_env: Mapping[str, Any]
    fabric: str | Fabric
    placed: tuple[Placed, ...]

    @property
    def published_as(self) -> str:
        return self.facts["system"]

    def env(self, part: str) -> dict[str, EnvValue | None]:
        """Return variables of a new document: `part` is "workload" or "system"."""
        return {row.name: row.value for row in self.placed if row.part == part}


def split(evaluation: ConfigEnvironment, given: ImportOptions, catalogue: Catalogue) -> Import:
    """Raises UsageError for a fact that cannot be computed."""
    workload, base = _nearest_round(evaluation, given, catalogue)
    rounds = catalogue.workload(workload)[1].rounds
    exists = given.round in rounds
    known = rounds[base]
    accelerator = _accelerator(evaluation, given, catalogue, known)
    facts = _facts(evaluation, given, known, accelerator)
    facts.setdefault("minutes_per_run", str(known.minutes_per_run))
    fabric = _fabric(evaluation, facts, workload, catalogue)
    shared = _fabric_env(fabric, catalogue)
    placed = [
        Placed(name, None, None, "run", "a random number at every start")
        for name in evaluation.chance
    ]
    rest = dict(evaluation.env)
    for name, value in evaluation.env.items():
        if (elsewhere := _placed_elsewhere(name, value, shared)) is not None:
            placed.append(elsewhere)
            del rest[name]
    systems = None if exists else _set_by_systems(catalogue, workload, base, known)
    return Import(
        evaluation,
        given,
        workload,
        base,
        new_round=not exists,
        stack=exists and base != given.round,
        accelerator=accelerator,
        facts=facts,
        known_env=known.env,
        fabric=fabric,
        placed=(*placed, *_differences(facts, known, rest, systems)),
    )


# ---- the nearest round ----


def _nearest_round(
    evaluation: ConfigEnvironment, given: ImportOptions, catalogue: Catalogue
) -> tuple[str, str]:
    """Return workload and round with the most similar variables; a workload named by the config
    comes first."""
    candidates = []
    named = str(evaluation.env.get("MLLOG_SUBMISSION_BENCHMARK", ""))
    for workload in catalogue.workloads():
        if given.workload and workload.name != given.workload:
            continue
        for name, part in workload.rounds.items():
            if part.env:
                like = _likeness(evaluation, part)
                same = name == given.round
                order = (
                    workload.benchmark == named,
                    round(like + 0.1 * same, 6),
                    round_order(name),
                )
                candidates.append((order, workload.name, name))
    if not candidates:
        raise UsageError(f"{given.workload}: no round of it has an environment to compare with")
    (is_named, *_), workload_name, base = max(candidates)
    known = catalogue.workload(workload_name)[1].rounds[base].env
    shared = len(set(evaluation.env) & set(known)) / len(evaluation.env)
    if shared < LEAST_SHARED and not (given.workload or is_named):
        raise UsageError(
            f"{evaluation.name} is like no known workload: of its "
            f"{count(len(evaluation.env), 'variable')} "
            f"{workload_name} {base} has {shared:.0%}",
            hint=f"--workload NAME; there are: {', '.join(catalogue.workload_names())}",
        )
    return workload_name, base


def _likeness(evaluation: ConfigEnvironment, part: WorkloadRound) -> float:
    ours, theirs = set(evaluation.env), set(part.env)
    return len(ours & theirs) / len(ours | theirs)


# ---- facts ----


def _accelerator(
    evaluation: ConfigEnvironment, given: ImportOptions, catalogue: Catalogue, known: WorkloadRound
) -> str:
    facts = catalogue.shared("accelerators")[0]
    if given.accelerator:
        if given.accelerator not in facts:
            raise UsageError(
                f"there is no accelerator {given.accelerator}; there are: "
                f"{', '.join(sorted(facts))}"
            )
        return given.accelerator
    texts = [evaluation.name, *(str(value) for value in _of_ref(evaluation, known, "accelerator"))]
    for text in texts:
        named = [name for name in sorted(facts, key=len, reverse=True) if name in text]
        if named:
            return str(named[0])
    raise UsageError(
        f"{evaluation.name} names no known GPU", hint=f"--accelerator: {', '.join(sorted(facts))}"
    )


def _of_ref(evaluation: ConfigEnvironment, known: WorkloadRound, fact: str) -> Iterator[str]:
    """Yield the values of variables that mean `fact` in the known round."""
    for name, value in known.env.items():
        if isinstance(value, Ref) and value.name == fact and name in evaluation.env:
            yield str(evaluation.env[name])


def _facts(
    evaluation: ConfigEnvironment, given: ImportOptions, known: WorkloadRound, accelerator: str
) -> dict[str, str]:
    stem = evaluation.name.removeprefix("config_").removesuffix(".sh")
    shape = _SHAPE.search(stem)
    facts = {"system": stem, "config_file": evaluation.name, "accelerator": accelerator}
    numbers: dict[str, int] = {
        "nodes": given.nodes,
        "gpus_per_node": given.gpus_per_node,
        "micro_batch": given.micro_batch,
        "global_batch": given.global_batch,
    }
    by_shape = {"nodes": shape[1], "gpus_per_node": shape[2]} if shape else {}
    for name in ("nodes", "gpus_per_node"):
        numbers[name] = (
            numbers[name] or _number(evaluation, known, name, by_shape.get(name, "")) or 0
        )
    numbers["nodes"] = numbers["nodes"] or 1
    numbers["gpus_per_node"] = numbers["gpus_per_node"] or 8
    for name, variables in _PARALLEL.items():
        texts = [
            str(evaluation.env[variable]) for variable in variables if variable in evaluation.env
        ]
        numbers[name] = _number(evaluation, known, name, texts[0] if texts else "") or 1
    numbers["micro_batch"] = (
        numbers["micro_batch"] or _number(evaluation, known, "micro_batch") or 0
    )
    minutes = _number(evaluation, known, "minutes_per_run")
    steps = _number(evaluation, known, "accumulation")
    batch = numbers["global_batch"] or _number(evaluation, known, "global_batch")
    parallel = (
        numbers["tensor_parallel"] * numbers["pipeline_parallel"] * numbers["context_parallel"]
    )
    ranks = numbers["nodes"] * numbers["gpus_per_node"]
    if not numbers["micro_batch"]:
        raise UsageError(
            f"no variable of {evaluation.name} is known to be the micro batch",
            hint="--micro-batch N",
        )
    numbers["global_batch"] = batch or numbers["micro_batch"] * (steps or 1) * ranks // parallel
    per_step = numbers["micro_batch"] * ranks // parallel
    numbers["accumulation"] = steps or max(numbers["global_batch"] // max(per_step, 1), 1)
    facts |= {name: str(number) for name, number in numbers.items()}
    if minutes:
        facts["minutes_per_run"] = str(minutes)
    return facts


def _number(
    evaluation: ConfigEnvironment, known: WorkloadRound, fact: str, otherwise: str = ""
) -> int | None:
    numbers = map(whole_number, _of_ref(evaluation, known, fact))
    votes = Counter(number for number in numbers if number is not None and number >= 0)
    return votes.most_common(1)[0][0] if votes else whole_number(otherwise)


# ---- fabric ----


def _fabric(
    evaluation: ConfigEnvironment, facts: Mapping[str, str], workload: str, catalogue: Catalogue
) -> str | Fabric:
    """Return the fabric whose variables the config sets; of several, whichever has most variables,
    then the most used with this GPU. Without any: the most used, with the config's variables."""
    if facts["nodes"] == "1":
        return "none"
    ours = {name: str(value) for name, value in evaluation.env.items()}
    fabrics = {
        name: fact for name, fact in catalogue.shared("fabrics")[0].items() if fact.kind != "none"
    }
    used = Counter(
        system.fabric
        for system in catalogue.systems()
        if system.nodes > 1 and system.accelerator == facts["accelerator"]
        for _ in range(1 + 2 * (workload in system.workloads))
    )
    fitting = [
        name
        for name, fact in fabrics.items()
        if all(ours.get(variable) == str(value) for variable, value in fact.env.items())
    ]
    if fitting:
        return max(fitting, key=lambda name: (len(fabrics[name].env), used[name], name))
    nearest = max(fabrics, key=lambda name: (used[name], name))
    names = {variable for fact in fabrics.values() for variable in fact.env}
    fact = fabrics[nearest]
    env = {name: evaluation.env[name] for name in ours if name in names}
    return Fabric.model_construct(
        **{**dict(fact), "title": f"{fact.title}, as in the config", "env": env}
    )


def _fabric_env(fabric: str | Fabric, catalogue: Catalogue) -> Mapping[str, Any]:
    if isinstance(fabric, str):
        return dict(catalogue.fact("fabrics", fabric).env)
    return dict(fabric.env)


# ---- variables ----


def _placed_elsewhere(name: str, value: EnvValue, shared: Mapping[str, Any]) -> Placed | None:
    """Return the place of a variable of neither workload nor system."""
    if name in OWNED_BY_THE_LOOP:
        return Placed(name, None, value, "run", OWNED_BY_THE_LOOP[name])
    if name in shared:
        return Placed(name, str(shared[name]), value, "fabric")
    if name in SITE_NAMES:
        why = "names of its author's network" if not empty_problem(name, value) else "empty"
        return Placed(name, None, value, "site", f"{why}; the site file or each node gives its own")
    if secret_problem(name):
        return Placed(name, None, None, "site", "looks like a secret: `pass_env` of the site")
    return None


def _differences(
    facts: Mapping[str, str],
    known: WorkloadRound,
    env: Mapping[str, EnvValue],
    systems: set[str] | None,
) -> Iterator[Placed]:
    """Yield differences from the known round; `systems`: names of systems' variables, None: all."""
    for name in dict.fromkeys([*known.env, *env]):
        part = "system" if systems is None or name in systems else "workload"
        theirs = known.env.get(name)
        before = _resolved(facts, theirs) if name in known.env else None
        if name not in env:
            if before is not None:
                yield Placed(name, str(before), None, part, "not in the config")
            continue
        mine = env[name]
        if before is not None and mine != before:
            mine = _computed_like(mine, theirs)
            if isinstance(mine, Text) and mine.text == f"{before}:":
                mine = Text(str(before))  # it appends the caller's value, missing in runs
        if mine != before:
            yield Placed(name, None if before is None else str(before), mine, part)


def _resolved(facts: Mapping[str, str], value: Any) -> EnvValue | None:
    if isinstance(value, Ref):
        text = facts.get(value.name, "")
        return Text(text) if text else None
    placed: EnvValue | None = value
    return placed


def _computed_like(value: EnvValue, known: Any) -> EnvValue:
    """Return minutes as the known round computes them, with its fixed part."""
    number = whole_number(value.text) if isinstance(value, Text) else None
    if isinstance(known, Minutes) and number is not None:
        per_run = number - known.fixed
        return Minutes(known.fixed, per_run) if per_run >= 0 else value
    return value


def _set_by_systems(
    catalogue: Catalogue, workload: str, base: str, known: WorkloadRound
) -> set[str]:
    """Return variables of systems: set by systems of the round, tied to the global batch, or the
    submitter's."""
    names = {name for env in known.reference.values() for name in env}
    for system in catalogue.systems():
        part: SystemRound | None = system.workloads.get(workload, {}).get(base)
        if part is not None and not part.whole_env:
            names |= {name for name, value in part.env.items() if value is not None}
    return names | {name for name in known.env if "_SUBMISSION_" in name}

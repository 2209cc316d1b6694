"""Writing a new system descriptor with comments, for a person to go on with."""

from __future__ import annotations

import json

from orchestrator.errors import UsageError
from orchestrator.model.catalogue import Catalogue
from orchestrator.model.compose import newest
from orchestrator.model.documents import Accelerator
from orchestrator.model.fields import NAME

_TEXT = """\
# {title}. Every key, with its accepted values: docs/descriptors.md. Check it with
#     orchestrator systems validate {name}.yaml
kind: system
name: {name}                # must be the file's name, and agree with nodes and GPUs where it has their shape
title: {title_quoted}
accelerator: {accelerator}              # from systems/shared/accelerators.yaml, or a mapping written here
nodes: {nodes}
gpus_per_node: {gpus}
fabric: {fabric}                # from systems/shared/fabrics.yaml; names of interfaces belong into the site file
workloads:
  {workload}:
    "{round}":
      note: {note}
      micro_batch: {micro_batch}           # samples per GPU and step
      global_batch: {global_batch}        # micro batch x GPUs x accumulation / (tensor x pipeline x context parallel)
      accumulation: {accumulation}
      # minutes_per_run: {minutes}       # of the job's time limit: 5 + NEXP x (minutes_per_run + 5)
      env:                     # only what differs from workloads/{workload}.yaml; values in quotes, null removes
{env}"""


def draft_system(
    catalogue: Catalogue,
    name: str,
    *,
    accelerator: str,
    nodes: int,
    gpus: int,
    fabric: str,
    workload: str,
    round_name: str | None,
    micro_batch: int,
    accumulation: int,
) -> str:
    """Return the text of a new descriptor for `name`.

    Where a system of the catalogue runs the workload on the same GPU, its variables are taken over as a start, and the
    text says from where. Raises UsageError for a name that cannot be one, or a workload that does not exist.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a name; accepted: letters, digits, '.', '_' and '-'")
    _, found = catalogue.workload(workload)
    chosen = round_name or newest(found.rounds)
    like, env = _closest(catalogue, accelerator, nodes, workload, chosen)
    lines = [f"        {key}: {_value(value)}" for key, value in env.items()] or ["        {}"]
    title = f"{nodes} x {gpus} {accelerator}"
    return _TEXT.format(
        title=title,
        title_quoted=json.dumps(title),
        name=name,
        accelerator=accelerator,
        nodes=nodes,
        gpus=gpus,
        fabric=fabric,
        workload=workload,
        round=chosen,
        micro_batch=micro_batch,
        accumulation=accumulation,
        global_batch=nodes * gpus * micro_batch * accumulation,
        minutes=found.rounds[chosen].minutes_per_run if chosen in found.rounds else 60,
        note=json.dumps(like),
        env="\n".join(lines) + "\n",
    )


def _closest(
    catalogue: Catalogue, accelerator: str, nodes: int, workload: str, round_name: str
) -> tuple[str, dict[str, object]]:
    candidates = []
    for system in catalogue.systems():
        given = system.accelerator.title if isinstance(system.accelerator, Accelerator) else system.accelerator
        if given == accelerator and round_name in system.workloads.get(workload, {}):
            candidates.append(system)
    if not candidates:
        return "not published by anybody; the variables are those of the workload", {}
    best = min(candidates, key=lambda system: (abs(system.nodes - nodes), len(system.name), system.name))
    raw = catalogue.system(best.name)[0].data["workloads"][workload][round_name].get("env", {})
    return f"variables taken over from {best.name}; check learning rate and warm-up for this batch", raw


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)

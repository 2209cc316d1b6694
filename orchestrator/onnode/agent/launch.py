"""The start of a run on a node: its environment, and the end of its script.

By LAUNCH_RANKS, a launcher per node makes the processes (torchrun, a vendor's command), or each GPU
gets a process, like a task of Slurm.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from shlex import quote
from typing import Any, NamedTuple

from ..kernel import jobs
from ..kernel.settings import Settings
from .executor import Executor
from .node import Node

END_S = 10
"""After a failure, the node's other processes get this time together, and again after TERM."""

# Each process sends a line on pipe 5 at its end. TERM goes to the run's whole group; the shells
# wait for their children. The caller ends the remaining group.
_EACH_GPU = r"""
trap : TERM
exec 5<> <(:)
for ((i = 0; i < %(gpus)d; i++)); do
  (
    trap : TERM
    export LOCAL_RANK=$i %(localid)s=$i RANK=$((%(first)d + i)) %(procid)s=$((%(first)d + i))
    TORCHELASTIC_ERROR_FILE="${TORCHELASTIC_ERROR_FILE%%.json}_$i.json"
    %(command)s 5>&-
    echo "$i $?" >&5
  ) &
done
code=0 left=%(gpus)d wait=() asked=0
while ((left)); do
  ((code)) && wait=(-t $((rest = end - SECONDS)))
  if ((code && rest <= 0)); then
    ((asked)) && break
    asked=1 end=$((SECONDS + %(limit)d))
    kill -TERM 0
  elif read -r "${wait[@]}" i status <&5; then
    ((left -= 1, status == 0 || code)) && continue
    code=$status end=$((SECONDS + %(limit)d))
    echo "orchestrator: local rank $i (rank $((%(first)d + i))) exited $code"
  fi
done
exit "$code"
"""
LOOK_UP_S = 20


class RunRequest(NamedTuple):
    """The loop's request for a run. `nodes`: in rank order; `hosts`: lines for /etc/hosts."""

    id: str
    nodes: list[str]
    run: int
    attempt: int
    seed: int
    port: int
    master: str
    clear: bool = True
    hosts: tuple[str, ...] = ()
    verbose: bool = False
    """Let the program show all its output."""

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> RunRequest | None:
        """None if a part is missing or of another type."""
        kinds = {
            "id": str,
            "nodes": list,
            "run": int,
            "attempt": int,
            "seed": int,
            "port": int,
            "master": str,
        }
        if any(type(request.get(name)) is not kind for name, kind in kinds.items()):
            return None
        hosts = request.get("hosts")
        lines = tuple(str(host) for host in hosts) if isinstance(hosts, list) else ()
        return cls(
            **{name: request[name] for name in kinds},
            clear=request.get("clear") is not False,
            hosts=lines,
            verbose=request.get("verbose") is True,
        )


def environment(
    request: RunRequest, rank: int, settings: Settings, job_id: str
) -> dict[str, str | None]:
    """None: unset."""
    nodes, gpus = len(request.nodes), settings.gpus_per_node
    values: dict[str, str | None] = {
        "SEED": str(request.seed),
        "MASTER_ADDR": request.master,
        "MASTER_PORT": str(request.port),
        # Images read these, whatever the scheduler.
        jobs.NNODES: str(nodes),
        jobs.NODEID: str(rank),
        jobs.JOB_ID: job_id,
        "ORCH_RUN": str(request.run),
        "ORCH_ATTEMPT": str(request.attempt),
    }
    # Single-node configs export NODE_RANK=0, which would be every node's.
    if nodes > 1:
        values["NODE_RANK"] = str(rank)
    values.update(
        (name, filled(text, request, rank, gpus)) for name, text in _pairs(settings.launch_env)
    )
    if request.verbose:
        values.update(_pairs(settings.launch_verbose))
    if settings.launch_ranks == "gpu":  # each process gets the others at its start
        tasks, each = str(nodes * gpus), str(gpus)
        values.update({"WORLD_SIZE": tasks, "LOCAL_WORLD_SIZE": each})
        values.update({jobs.NTASKS: tasks, jobs.NTASKS_PER_NODE: each})
    values.update(dict.fromkeys(settings.launch_unset))
    return values


def start(request: RunRequest, rank: int, settings: Settings) -> str:
    gpus = settings.gpus_per_node
    command = " ".join(quote(filled(word, request, rank, gpus)) for word in settings.command)
    if settings.launch_ranks != "gpu":
        return f"exec {command}\n"
    numbers = {"gpus": gpus, "first": rank * gpus, "limit": END_S}
    names = {"localid": jobs.LOCALID, "procid": jobs.PROCID}
    return _EACH_GPU % {**numbers, **names, "command": command}


def host_entries(lines: tuple[str, ...]) -> str:
    """Shell text that completes a container's /etc/hosts."""
    each = " ".join(map(quote, lines))
    return (
        f'for one in {each}; do grep -qxF "$one" /etc/hosts || echo "$one" >>/etc/hosts; done'
        if lines
        else ""
    )


def look_up_master(request: RunRequest) -> str:
    """Shell text that ends the script if the first node's name is unknown.

    A container's resolver often lacks the host's sources (nsswitch plugins, mDNS); its launcher
    would wait for the rendezvous until a limit. Without getent the name counts as known.
    """
    master = request.master
    if len(request.nodes) == 1 or not re.search("[A-Za-z]", master.partition(":")[0]):
        return ""
    text = (
        f"error: the container does not know MASTER_ADDR={master}; give the site file "
        "`network: {master: address}` or `network: {hosts: true}`"
    )
    look = f"timeout {LOOK_UP_S} getent ahosts {quote(master)} >/dev/null"
    return f"! type getent >/dev/null 2>&1 || {look} || {{ echo {quote(text)}; exit 1; }}"


def _pairs(lines: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(name, text) for name, _, text in (line.partition("\t") for line in lines)]


def filled(text: str, request: RunRequest, rank: int, gpus: int) -> str:
    """Replace {node_rank} and the like; other braces stay."""
    nodes = len(request.nodes)
    values = {
        "node_rank": rank,
        "nodes": nodes,
        "gpus_per_node": gpus,
        "world_size": nodes * gpus,
        "master": request.master,
        "port": request.port,
    }
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def preamble(
    node: Node,
    request: RunRequest,
    rank: int,
    executor: Executor,
    exports: list[tuple[str, str | None]],
) -> str:
    """Return a run's script without its end. `exports`: of the node's network; None: unset."""
    settings = node.settings
    # torchrun gives its workers their own files, and copies the first error to this file.
    results = "/results" if settings.engine != "none" else node.results
    error_file = {"TORCHELASTIC_ERROR_FILE": f"{results}/elastic_error.json"}
    values = {**error_file, **dict(exports), **environment(request, rank, settings, node.job_id)}
    values.update((name, os.environ[name]) for name in settings.pass_env if name in os.environ)
    lines = [
        f"exec >{quote(f'{executor.inside}/out.{request.run}.{request.attempt}')} 2>&1 </dev/null",
        f". {quote(f'{executor.inside}/environment.sh')}",
    ]
    for name, value in values.items():
        lines.append(f"unset {name}" if value is None else f"export {name}={quote(value)}")
    if executor.inside == "/orch":
        lines += [host_entries(request.hosts), look_up_master(request)]
    return "\n".join([*lines, f"cd {quote(executor.code)} || exit 1", ""])

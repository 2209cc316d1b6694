"""The simulated cluster held against a real one: the same questions in the same situations, and the same words.

Times, job numbers, priorities and processors are compared by their presence alone. The jobs name their nodes: which
of the idle ones a job gets is the real scheduler's own choice, and not always the first.

One difference is waited for: Slurm's backfill marks idle nodes as planned for a job that waits, and takes the marks
away only when it next plans (`_attempt_backfill`), at most once a second and never while a job completes. So they can
outlive the job that they were for. The simulated scheduler plans anew with every change.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from pprint import pformat
from typing import TYPE_CHECKING, Protocol

import pytest
from until import LIMIT_S, until

from orchestrator.scheduler import slurm as client
from orchestrator.simulation.engine import Engine
from orchestrator.simulation.slurm import Cluster, SimJob, SlurmConf

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab

SCRIPT = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --exclusive
#SBATCH --nodelist={}
#SBATCH --time=10
#SBATCH --no-kill
#SBATCH --no-requeue
#SBATCH --signal=B:USR1@120
#SBATCH --output=out
trap 'exit 3' TERM
env >env && mv env env.$SLURM_JOB_ID
while :; do sleep 0.05; done
"""
ENV = {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
Answer = tuple[int, str, str]


class Asked(Protocol):
    """A cluster that can be asked, and waited for."""

    def ask(self, *argv: str) -> Answer: ...

    def until_state(self, job_id: str, *states: str) -> None: ...

    def until_plan_is_new(self) -> None:
        """Return when no node is planned any more, while no job waits for nodes."""

    def variables(self, job_id: str) -> dict[str, str]: ...


@dataclass
class Real:
    lab: Lab
    folder: Path

    def ask(self, *argv: str) -> Answer:
        env = self.lab.env | ENV
        done = subprocess.run(
            argv,
            env=env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        return done.returncode, done.stdout, done.stderr

    def until_state(self, job_id: str, *states: str) -> None:
        until(lambda: state(self, job_id) in states, lambda: state(self, job_id))

    def until_plan_is_new(self) -> None:
        until(lambda: not planned(self), lambda: planned(self))

    def variables(self, job_id: str) -> dict[str, str]:
        file = self.folder / f"env.{job_id}"
        until(file.exists)
        return dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)


@dataclass
class Simulated:
    """Its batch scripts end as SCRIPT does."""

    nodes: tuple[str, ...]
    folder: Path
    jobs: dict[str, SimJob] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = Engine(1)
        self.cluster = Cluster(self.engine, self.nodes, self, SlurmConf("lab", kill_wait_s=15))

    def start(self, job: SimJob) -> None:
        self.jobs[job.id] = job

    def signal(self, job: SimJob, number: int, *, batch_only: bool) -> None:
        if number == 15 and self.jobs.pop(job.id, None):
            self.cluster.ended(job.id, 3)

    def kill(self, job: SimJob) -> None:
        raise AssertionError("it ends by itself")

    def left(self, job: SimJob) -> Collection[str]:
        return job.nodes if job.id in self.jobs else ()

    def ask(self, *argv: str) -> Answer:
        reply = self.cluster.command(argv, ENV, str(self.folder), host="vm", uid=0)
        return reply.status, reply.out, reply.err

    def until_state(self, job_id: str, *states: str) -> None:
        self.engine.run(lambda: state(self, job_id) in states, self.engine.now + 60)

    def until_plan_is_new(self) -> None:
        assert not planned(self), "a job waits for nodes, for which Slurm plans some, too"

    def variables(self, job_id: str) -> dict[str, str]:
        return dict(self.jobs[job_id].env)


def state(cluster: Asked, job_id: str) -> str:
    return cluster.ask("squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%T")[
        1
    ].strip()


def planned(cluster: Asked) -> list[str]:
    """Return the nodes that the scheduler keeps for a job, as Slurm shows them: `planned`, or `mixed-`."""
    lines = cluster.ask("sinfo", "--noheader", "--Node", "--partition=batch", "--format=%N %T")[1]
    return [line for line in lines.splitlines() if line.endswith(("planned", "-"))]


@pytest.fixture
def clusters(lab: Lab) -> Iterator[tuple[Real, Simulated]]:
    folder = Path(tempfile.mkdtemp(prefix="contract-", dir=lab.shared))
    (folder / "job.sh").write_text(SCRIPT.format(",".join(lab.nodes[:2])))
    real = Real(lab, folder)
    yield real, Simulated(lab.nodes, folder)
    real.ask("scancel", "--name=contract")


REFUSED = (
    "sbatch --nonsense job.sh",
    "sbatch none.sh",
    "sbatch --time=1x job.sh",
    "sbatch --nodes=x job.sh",
    "sbatch --begin=whenever job.sh",
    "sbatch --signal=Q:X job.sh",
    "sbatch --dependency=foo:1 job.sh",
    "sbatch --partition=gpu job.sh",
    "sbatch --nodelist=other9 job.sh",
    "sbatch --reservation=none job.sh",
    "sbatch --constraint=none job.sh",
    "squeue --nonsense",
    "squeue --states=bogus",
    "squeue --jobs=99999",
    "squeue --jobs=99998,99999 --noheader",
    "squeue --jobs=abc",
    "squeue --noheader --states=all --name=nobody",
    "scontrol --nonsense show job",
    "scontrol nonsense",
    "scontrol show",
    "scontrol show nonsense",
    "scontrol show job 99999",
    "scontrol show job abc",
    "scontrol requeue",
    "scontrol requeue 99999",
    "scontrol hold 99999",
    "scontrol release 99999",
    "scontrol show hostnames n[1-3,7],x",
    "scontrol show hostnames",
    "scontrol --oneliner show reservation",
    "scancel",
    "scancel abc",
    "scancel 99999",
    "scancel --nonsense 1",
    "scancel --signal=TERM --batch 99999",
    "sinfo --nonsense",
    "sinfo --noheader --Node --partition=none --format=%N",
    "sinfo --noheader --Node --nodes=other9 --format=%N",
)


def test_the_same_words_where_nothing_is_done(clusters: tuple[Real, Simulated]) -> None:
    real, simulated = clusters
    asked = {line: (real.ask(*line.split()), simulated.ask(*line.split())) for line in REFUSED}
    assert {line: answer for line, (answer, other) in asked.items() if answer != other} == {
        line: other for line, (answer, other) in asked.items() if answer != other
    }


CELLS = "%i|%T|%t|%M|%l|%L|%D|%u|%P|%j|%r|%R|%S|%e|%N"
MARK = "mark"
QUESTIONS = (
    (
        "squeue",
        "--noheader",
        "--all",
        "--states=all",
        "--jobs={}",
        f"--format={client.queue_format(MARK)}",
    ),
    ("squeue", "--noheader", "--jobs={}", "--format=%T"),
    ("squeue", "--noheader", "--jobs={}", "--format=%L"),
    ("squeue", "--states=all", "--jobs={}", f"--format={CELLS}"),
    ("squeue", "--jobs={}"),
    ("scontrol", "--oneliner", "show", "job", "{}"),
    ("scontrol", "show", "job", "{}"),
    ("sinfo", "--noheader", "--Node", "--partition=batch", "--format=%N|%T|%P|%E"),
    ("sinfo", "--noheader", "--partition=batch", "--format=%P|%l|%a|%D|%G"),
    ("sinfo", "--partition=batch"),
)
ANY = (
    (r"\b1[0-9]{9}\b", "TIME"),
    (r"\b[0-9]{1,2}(:[0-9]{2}){1,2}\b", "CLOCK"),
    (r"Priority=[1-9][0-9]*", "Priority=ANY"),
    (r" *\b(AccrueTime|AllocNode:Sid|LastSchedEval|Scheduler|NumCPUs|TRES|MinMemoryNode)=\S+", ""),
)


def plain(answer: Answer, job_id: str) -> Answer:
    status, *texts = answer
    # The id last: what is left of the time may begin with the same number.
    for pattern, text in (*ANY, (rf"(?m)(JobId=|job id |job |\x1f|^ *){job_id}\b", r"\1JOB")):
        texts = [re.sub(pattern, text, part) for part in texts]
    return status, re.sub("(?m)^ *JOB", "JOB", texts[0]), texts[1]


def answers(cluster: Asked, job_id: str) -> dict[str, Answer]:
    cluster.until_plan_is_new()
    return {
        " ".join(question): plain(cluster.ask(*(word.format(job_id) for word in question)), job_id)
        for question in QUESTIONS
    }


def submit(cluster: Asked, *options: str) -> str:
    status, out, err = cluster.ask(
        "sbatch", "--parsable", "--job-name=contract", *options, "job.sh"
    )
    assert (status, err) == (0, "")
    return out.strip()


def life(cluster: Asked) -> Iterator[tuple[str, object]]:
    """Have a job go through everything; what there is to compare, with a name."""
    later = submit(cluster, "--begin=now+1hour")
    yield "waiting", answers(cluster, later)
    yield "hold", (cluster.ask("scontrol", "hold", later), answers(cluster, later))
    yield "cancelled", (cluster.ask("scancel", later), answers(cluster, later))
    for command in (
        ("scancel", later),
        ("scancel", "--signal=TERM", "--batch", later),
        ("scontrol", "hold", later),
    ):
        yield f"{command[0]} after the end", plain(cluster.ask(*command), later)
    job_id = submit(cluster, "--requeue")
    cluster.until_state(job_id, "RUNNING")
    yield "running", answers(cluster, job_id)
    held = submit(cluster, "--hold", "--begin=now+1hour")  # released, it must not begin at once
    yield (
        "release",
        (cluster.ask("scontrol", "release", held), cluster.ask("scontrol", "hold", held)),
    )
    yield (
        "held",
        plain(cluster.ask("squeue", "--noheader", f"--jobs={held}", f"--format={CELLS}"), held),
    )
    yield "suspended", (cluster.ask("scontrol", "suspend", job_id), state(cluster, job_id))
    yield "resumed", (cluster.ask("scontrol", "resume", job_id), state(cluster, job_id))
    yield "requeued", cluster.ask("scontrol", "requeue", job_id)
    cluster.until_state(job_id, "PENDING")
    yield "to begin again", answers(cluster, job_id)
    cluster.ask("scancel", job_id)
    once = submit(cluster)
    cluster.until_state(once, "RUNNING")
    yield "not to be requeued", plain(cluster.ask("scontrol", "requeue", once), once)
    seen = cluster.variables(once)
    yield (
        "environment",
        {name: "JOB" if seen.get(name) == once else seen.get(name) for name in NAMES},
    )
    yield "signalled", cluster.ask("scancel", "--signal=TERM", "--batch", once)
    cluster.until_state(once, "FAILED")
    yield "failed", answers(cluster, once)
    cluster.ask("scancel", held)


NAMES = (
    "SLURMD_NODENAME",
    "SLURM_CLUSTER_NAME",
    "SLURM_JOBID",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_UID",
    "SLURM_JOB_USER",
    "SLURM_NNODES",
    "SLURM_NODELIST",
    "SLURM_RESTART_COUNT",
    "SLURM_SUBMIT_DIR",
    "SLURM_TASKS_PER_NODE",
)


def test_a_job_is_shown_in_the_same_words_all_its_life(clusters: tuple[Real, Simulated]) -> None:
    real, simulated = (dict(life(cluster)) for cluster in clusters)
    texts = [pformat(stages, width=160).splitlines() for stages in (real, simulated)]
    others = clusters[0].ask("squeue", "--all")[1]
    assert real == simulated, "\n".join((*unified_diff(*texts, "real", "simulated", n=1), others))

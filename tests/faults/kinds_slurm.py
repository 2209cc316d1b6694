"""What Slurm, its operators, the container engine and their daemons do to a set."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from kinds import SLURM, Act, kind
from trial import TOP, NothingToHit, Trial

# ---- Slurm ----------------------------------------------------------------------------------------


def _at_job(*argv: str) -> Act:
    def act(trial: Trial) -> None:
        job = trial.slurm(
            "squeue", "--noheader", "--format=%i", f"--name=orch-{trial.set.name}"
        ).split()
        if not job:
            raise NothingToHit
        trial.slurm(*argv, job[0])

    return act


for _name, _words in {
    "scancel": ("scancel",),
    "scancel_kill": ("scancel", "--signal=KILL", "--full"),
    "scancel_term_full": ("scancel", "--signal=TERM", "--full"),
    "usr1": ("scancel", "--signal=USR1", "--batch"),
}.items():
    kind(_name, SLURM)(_at_job(*_words))


@kind("requeue", SLURM)
def _(trial: Trial) -> None:
    """By an operator, although the job says --no-requeue."""
    job = trial.job()
    if trial.slurm("squeue", "--noheader", "--format=%T", f"--jobs={job}").strip() != "RUNNING":
        raise NothingToHit
    trial.slurm("scontrol", "update", f"jobid={job}", "requeue=1")
    trial.slurm("scontrol", "requeue", job)
    restarts = trial.slurm("scontrol", "--oneliner", "show", "job", job)
    if not re.search(r" Restarts=[1-9]", restarts):
        raise NothingToHit
    # It would begin in two minutes, when all credentials of its first start have expired.
    reason = lambda: trial.slurm("squeue", "--noheader", "--format=%T %r", f"--jobs={job}").strip()  # noqa: E731
    trial.wait(lambda: reason() in ("", "PENDING BeginTime"), 30)
    trial.slurm("scontrol", "update", f"jobid={job}", "starttime=now")


@kind("preempted", SLURM)
def _(trial: Trial) -> None:
    """A job of a partition of higher priority takes the nodes of the set's job."""
    job = trial.job()
    nodes = trial.slurm(
        "squeue", "--noheader", "--states=RUNNING", "--format=%N", f"--jobs={job}"
    ).strip()
    if not job or not nodes:
        raise NothingToHit
    name = f"urgent{trial.set.name[-4:]}"
    trial.slurm(
        "scontrol", "create", f"partition={name}", "nodes=ALL", "prioritytier=100", "maxtime=10"
    )
    words = (
        "--wrap=sleep 5",
        f"--partition={name}",
        f"--nodelist={nodes}",
        "--exclusive",
        "--output=/dev/null",
    )
    other = trial.slurm("sbatch", "--parsable", "--job-name=urgent", *words).strip()

    def back() -> None:
        trial.wait(lambda: not trial.slurm("squeue", "--noheader", f"--jobs={other}").strip(), 60)
        trial.slurm("scancel", other)
        trial.slurm("scontrol", "delete", f"partition={name}")

    trial.undo.append(back)

    def begun() -> bool:
        state = trial.slurm("squeue", "--noheader", "--format=%T", f"--jobs={other}")
        return state.strip() != "PENDING"

    if not trial.wait(begun, 60):
        trial.said.append(
            f"pre-empted, but its nodes are not free: {trial.slurm('squeue', '--noheader')}"
        )


@kind("suspend", SLURM)
def _(trial: Trial) -> None:
    _at_job("scontrol", "suspend")(trial)
    time.sleep(trial.dice.uniform(0.5, 3))
    with contextlib.suppress(NothingToHit):
        _at_job("scontrol", "resume")(trial)


@kind("kill9_stepd", SLURM)
def _(trial: Trial) -> None:
    """slurmstepd of one of the job's steps."""
    jobs = trial.slurm(
        "squeue", "--noheader", "--format=%i", f"--name=orch-{trial.set.name}"
    ).split()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes()
            if any(words.startswith(f"slurmstepd: [{job}.".encode()) for job in jobs):
                found.append(int(entry.name))
    if not found:
        raise NothingToHit
    with contextlib.suppress(ProcessLookupError):
        os.kill(trial.dice.choice(found), signal.SIGKILL)


@kind("drain", SLURM)
def _(trial: Trial) -> None:
    _node_state(trial, "state=drain", "reason=fault", mend="state=resume")


@kind("node_down", SLURM)
def _(trial: Trial) -> None:
    _node_state(trial, "state=down", "reason=fault", mend="state=resume")


def _node_state(trial: Trial, *words: str, mend: str) -> None:
    names = trial.slurm(
        "squeue", "--noheader", "--format=%N", f"--name=orch-{trial.set.name}"
    ).split()
    nodes = trial.slurm("scontrol", "show", "hostnames", names[0]).split() if names else []
    if not nodes:
        raise NothingToHit
    node = f"nodename={trial.dice.choice(nodes)}"
    trial.slurm("scontrol", "update", node, *words)
    trial.undo.append(lambda: trial.slurm("scontrol", "update", node, mend))


# ---- engines --------------------------------------------------------------------------------------


def _engine(*words: str) -> Act:
    def act(trial: Trial) -> None:
        trial.slurm(trial.podman or "docker", *words, trial.container())

    return act


kind("container_kill", SLURM)(_engine("kill"))
kind("container_rm", SLURM)(_engine("rm", "--force"))
kind("container_stop", SLURM)(_engine("stop", "--time", "1"))


@kind("container_pause", ("docker",))
def _(trial: Trial) -> None:
    one = trial.container()
    trial.slurm("docker", "pause", one)
    time.sleep(trial.dice.uniform(0.5, 3))
    trial.slurm("docker", "unpause", one)


# ---- daemons of the cluster -----------------------------------------------------------------------


def _daemon(pattern: str, *, seconds: float = 0.0) -> Act:
    """Kill one of the lab's daemons; it comes back after a while."""

    def act(trial: Trial) -> str:
        lab = Path(trial.env["ORCHESTRATOR_LAB"])
        found = sorted(lab.glob(f"pids/{pattern}"))
        if not found:
            raise NothingToHit
        chosen = trial.dice.choice(found)
        pid = int(chosen.read_text().split()[0])

        def back() -> None:
            subprocess.run(
                [TOP / "lab/up"],
                env=trial.env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=400,
            )

        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        time.sleep(trial.dice.uniform(0, seconds))
        back()
        trial.undo.append(back)
        return chosen.name

    return act


kind("slurmctld_restart", SLURM)(_daemon("slurmctld", seconds=3))
kind("slurmd_restart", SLURM)(_daemon("slurmd-*", seconds=3))
kind("dockerd_restart", ("docker",))(_daemon("dockerd", seconds=2))
# Only where the lab has them (LAB_ACCOUNTING=yes): nothing of a set needs the accounting, and nothing may wait for it.
kind("slurmdbd_restart", SLURM)(_daemon("slurmdbd", seconds=3))
kind("mariadb_restart", SLURM)(_daemon("mariadbd", seconds=3))

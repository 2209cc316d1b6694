"""The simulated cluster: its answers are read by the real parsers, and its jobs live as those of a real one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.onnode.loop.slurm import job_end
from orchestrator.onnode.policy.job_state import last_state
from orchestrator.scheduler import slurm as client
from orchestrator.scheduler.command import Answer
from orchestrator.scheduler.job import Job
from orchestrator.scheduler.slurm import parse_queue, parse_show
from orchestrator.simulation.engine import NEVER, Engine
from orchestrator.simulation.slurm import Cluster, Reply, SimJob, SlurmConf, Unsupported

SCRIPT = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --time=10
#SBATCH --no-kill
#SBATCH --no-requeue
#SBATCH --signal=B:USR1@120
exec sleep 600
#SBATCH --nodes=4
"""
MARK = "0123456789abcdef"
QUEUE = ("squeue", "--noheader", "--all", "--states=all", f"--format={client.queue_format(MARK)}")


@dataclass
class Jobs:
    """A runner whose batch scripts do nothing until a test ends them."""

    engine: Engine
    started: list[SimJob] = field(default_factory=list)
    signals: list[tuple[float, int, bool, tuple[str, ...]]] = field(default_factory=list)
    killed: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    alive: dict[str, set[str]] = field(default_factory=dict)
    on_signal: Callable[[SimJob, int], object] = lambda job, number: None

    def start(self, job: SimJob) -> None:
        self.started.append(job)
        self.alive[job.id] = set(job.nodes)

    def signal(self, job: SimJob, number: int, *, batch_only: bool) -> None:
        self.signals.append((self.engine.now, number, batch_only, tuple(job.nodes)))
        self.on_signal(job, number)

    def kill(self, job: SimJob) -> None:
        self.killed.append((job.id, tuple(job.nodes)))
        self.alive[job.id] -= set(job.nodes)

    def left(self, job: SimJob) -> Collection[str]:
        return self.alive.get(job.id, ())


class Site:
    """A cluster with a script to submit."""

    def __init__(self, folder: Path, **options: float) -> None:
        self.folder, self.engine = folder, Engine(7)
        self.runner = Jobs(self.engine)
        self.cluster = Cluster(
            self.engine, ["n1", "n2", "n3", "n4"], self.runner, SlurmConf(**options)
        )  # type: ignore[arg-type]
        (folder / "job.sh").write_text(SCRIPT)

    def ask(self, *argv: str, uid: int = 1000, env: dict[str, str] | None = None) -> Reply:
        env = {"SLURM_TIME_FORMAT": "%s", "NAME": "value"} if env is None else env
        return self.cluster.command(argv, env, str(self.folder), host="login", uid=uid)

    def submit(self, *options: str) -> str:
        reply = self.ask("sbatch", "--parsable", "--export=ALL", *options, "job.sh")
        assert (reply.status, reply.err) == (0, "")
        return reply.out.strip()

    def running(self, *options: str) -> str:
        job_id = self.submit(*options)
        self.wait(2)
        assert self.state(job_id) == "RUNNING"
        return job_id

    def wait(self, seconds: float) -> None:
        until = self.engine.now + seconds
        while self.engine.turn(until):
            pass
        self.engine.now = until

    def over(self, job_id: str, status: int = 0) -> None:
        """Have the batch script and all steps end."""
        self.runner.alive[job_id] = set()
        self.cluster.ended(job_id, status)
        self.wait(1)

    def queue(self, **options: str) -> dict[str, Job]:
        words = [f"--{name}={value}" for name, value in options.items()]
        reply = self.ask(*QUEUE, *words)
        assert reply.status == 0
        return {job.id: job for job in parse_queue(Answer([*QUEUE], 0, reply.out, reply.err), MARK)}

    def state(self, job_id: str) -> str:
        return self.queue()[job_id].state if job_id in self.queue() else ""

    def shown(self, job_id: str) -> dict[str, str]:
        reply = self.ask("scontrol", "--oneliner", "show", "job", job_id)
        return dict(word.split("=", 1) for word in reply.out.split())

    def node(self, name: str) -> str:
        return self.ask(
            "sinfo", "--noheader", "--Node", f"--nodes={name}", "--format=%N %T"
        ).out.split()[1]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_job_from_submission_to_end(site: Site) -> None:
    job_id = site.submit("--job-name=orch-a", "--output=out_%j.txt", f"--chdir={site.folder}")
    waiting = site.queue(name="orch-a")[job_id]
    assert (waiting.state, waiting.reason, waiting.start_ms, waiting.nodes) == (
        "PENDING",
        "",
        0,
        "",
    )
    site.wait(2)
    running = site.queue()[job_id]
    assert (running.state, running.nodes, running.end_ms - running.start_ms) == (
        "RUNNING",
        "n[1-2]",
        600_000,
    )
    assert re.fullmatch(
        r"9:5[0-9]\n", site.ask("squeue", "--noheader", f"--jobs={job_id}", "--format=%L").out
    )
    [job] = site.runner.started
    assert (job.nodes, job.batch_host, job.request.script.output) == (
        ["n1", "n2"],
        "n1",
        f"{site.folder}/out_1.txt",
    )
    about = {
        name: job.env.get(name)
        for name in ("NAME", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_RESTART_COUNT")
    }
    assert about == {
        "NAME": "value",
        "SLURM_JOB_ID": "1",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_RESTART_COUNT": None,
    }
    assert site.node("n1") == "allocated"
    site.over(job_id)
    assert site.state(job_id) == "COMPLETED"
    assert site.node("n1") == "idle"
    site.wait(400)
    assert site.queue() == {}
    reply = site.ask("squeue", "--noheader", f"--jobs={job_id}", "--format=%T")
    assert (reply.status, reply.err) == (1, "slurm_load_jobs error: Invalid job id specified\n")


# ---- answers ----


def test_scontrol_is_read_as_squeue_is(site: Site) -> None:
    running, held = (
        site.running("--job-name=orch a=b"),
        site.submit("--job-name=orch-b", "--begin=now+1hour", "--nodes=1"),
    )
    site.wait(2)
    site.cluster.cancel(site.cluster.jobs[running])
    site.wait(0.01)
    reply = site.ask("scontrol", "--oneliner", "--all", "show", "job")
    shown = {job.id: job for job in parse_show(Answer([], 0, reply.out, reply.err))}
    assert shown == site.queue()
    assert {name: (job.state, job.reason) for name, job in shown.items()} == {
        running: ("COMPLETING", ""),
        held: ("PENDING", "BeginTime"),
    }
    assert (
        parse_show(
            Answer([], 0, Site(site.folder).ask("scontrol", "--oneliner", "show", "job").out, "")
        )
        == []
    )


@pytest.mark.parametrize(
    ("argv", "status", "err"),
    [
        ("sbatch --nonsense job.sh", 255, "sbatch: unrecognized option '--nonsense'"),
        ("sbatch none.sh", 1, "sbatch: error: Unable to open file none.sh"),
        ("sbatch --time=1x job.sh", 255, "sbatch: error: Invalid --time specification"),
        ("sbatch --nodes=x job.sh", 255, 'sbatch: error: "x" is not a valid node count'),
        ("sbatch --begin=whenever job.sh", 255, "Invalid time specification (pos=0): whenever"),
        ("sbatch --signal=Q:X job.sh", 255, "sbatch: error: Invalid --signal specification"),
        (
            "sbatch --dependency=foo:1 job.sh",
            1,
            "sbatch: error: Batch job submission failed: Job dependency problem",
        ),
        ("sbatch --partition=gpu job.sh", 1, "sbatch: error: invalid partition specified: gpu"),
        (
            "sbatch --nodelist=n9 job.sh",
            1,
            "sbatch: error: Batch job submission failed: Invalid node name specified",
        ),
        ("squeue --nonsense", 1, "squeue: unrecognized option '--nonsense'"),
        ("squeue --states=bogus", 1, "squeue: error: Invalid job state specified: bogus"),
        ("squeue --jobs=999", 1, "slurm_load_jobs error: Invalid job id specified"),
        ("scontrol nonsense", 1, "invalid keyword: nonsense"),
        ("scontrol show nonsense", 1, "invalid entity:nonsense for keyword:show "),
        ("scontrol hold 999", 1, "Invalid job id specified for job 999"),
        ("scancel", 1, "scancel: error: No job identification provided"),
        ("scancel --bogus 1", 1, "scancel: unrecognized option '--bogus'"),
        (
            "scancel --signal=TERM --batch 999",
            1,
            "scancel: error: Kill job error on job id 999: Invalid job id specified",
        ),
        ("scancel 999", 0, ""),
        ("squeue --jobs=998,999", 0, ""),
        ("sacct", 127, "sacct: command not found"),
    ],
)
def test_what_is_refused(site: Site, argv: str, status: int, err: str) -> None:
    reply = site.ask(*argv.split())
    assert (reply.status, reply.err.partition("\n")[0]) == (status, err)
    assert site.cluster.jobs == {}


def test_what_only_slurm_can_do_is_no_answer(site: Site) -> None:
    for argv in (
        "scontrol update jobid=1",
        "squeue -h",
        "squeue --format=%Q",
        "scontrol show node n1",
    ):
        with pytest.raises(Unsupported):
            site.ask(*argv.split())


def test_a_job_that_can_never_start_is_refused_and_kept(site: Site) -> None:
    reply = site.ask("sbatch", "--job-name=orch-a", "--exclude=n[1-3]", "job.sh")
    assert "Requested node configuration is not available" in reply.err
    assert [(job.state, job.reason) for job in site.queue(name="orch-a").values()] == [
        ("FAILED", "BadConstraints")
    ]


def test_another_user_may_not_cancel(site: Site) -> None:
    job_id = site.running()
    reply = site.ask("scancel", job_id, uid=1001)
    assert (reply.status, "Access/permission denied" in reply.err) == (210, True)
    assert site.state(job_id) == "RUNNING"


def test_names_of_hosts_and_of_the_cluster(site: Site) -> None:
    assert site.ask("scontrol", "show", "hostnames", "n[1-2],x").out == "n1\nn2\nx\n"
    assert re.search(
        r"^ClusterName\s*=\s*sim$", site.ask("scontrol", "show", "config").out, re.MULTILINE
    )
    assert (
        site.ask("sinfo", "--noheader", "--all", "--format=%P\x1f%l").out == "batch*\x1finfinite\n"
    )
    lines = site.ask(
        "sinfo", "--noheader", "--Node", "--all", "--format=%N\x1f%T\x1f%P\x1f%E"
    ).out.splitlines()
    assert lines[0].split("\x1f") == ["n1", "idle", "batch*", "none"]


# ---- the queue ----


def test_jobs_wait_in_order_for_what_they_need(site: Site) -> None:
    first = site.running("--nodes=3")
    second, third = site.submit(), site.submit("--nodes=1")
    behind, never = (
        site.submit("--nodes=1", f"--dependency=afterok:{first}"),
        site.submit("--nodes=9"),
    )
    site.wait(2)
    jobs = site.queue()
    reasons = [jobs[job_id].reason for job_id in (second, third, behind, never)]
    assert reasons == ["Resources", "Priority", "Dependency", "PartitionNodeLimit"]
    assert site.node("n4") == "planned"
    site.over(first, status=1)
    site.wait(2)
    assert [site.queue()[job_id].nodes for job_id in (second, third)] == ["n[1-2]", "n3"]
    assert site.queue()[behind].reason == "DependencyNeverSatisfied"


def test_named_nodes_drained_nodes_and_jobs_of_others(site: Site) -> None:
    site.cluster.occupy(["n1"], 60)
    site.cluster.drain("n2", "bad fan")
    named, any_two = (
        site.submit("--nodelist=n2", "--nodes=1"),
        site.submit("--exclude=n4", "--nodes=2"),
    )
    site.wait(2)
    assert site.queue()[named].reason == "ReqNodeNotAvail, UnavailableNodes:n2"
    assert site.node("n1") == "allocated"
    assert site.node("n2") == "drained"
    assert site.state(any_two) == "PENDING"
    site.cluster.undrain("n2")
    site.wait(62)
    assert site.queue()[named].nodes == "n2"
    assert site.queue()[any_two].nodes == "n[1,3]"


def test_a_held_job_and_one_that_begins_later(site: Site) -> None:
    held, later = site.submit("--hold"), site.submit("--begin=now+90")
    site.wait(5)
    assert [site.queue()[job_id].reason for job_id in (held, later)] == ["JobHeldUser", "BeginTime"]
    site.ask("scontrol", "release", held)
    site.wait(90)
    assert [site.state(job_id) for job_id in (held, later)] == ["RUNNING", "RUNNING"]


# ---- the end of a job ----


def test_slurmd_checks_an_ended_job_once_a_second(site: Site) -> None:
    """So a job that is cancelled is completing for a second although its processes end at once: the lab shows it."""
    job_id = site.running()
    site.ask("scancel", job_id)
    site.wait(0.5)
    site.runner.alive[job_id].clear()
    site.wait(0.4)
    assert site.state(job_id) == "COMPLETING"
    site.wait(0.5)
    assert site.state(job_id) == "CANCELLED"


def test_scancel_asks_first_and_kills_after_kill_wait(site: Site) -> None:
    job_id = site.running()
    site.ask("scancel", "--signal=TERM", "--batch", job_id)
    site.wait(1)
    assert [one[1:] for one in site.runner.signals] == [(15, True, ("n1",))]
    assert site.state(job_id) == "RUNNING"
    site.ask("scancel", job_id)
    assert site.state(job_id) == "COMPLETING"
    site.wait(29)
    assert site.runner.signals[1][1:] == (15, False, ("n1", "n2"))
    assert site.runner.killed == []
    site.wait(7)
    assert site.runner.killed == [(job_id, ("n1", "n2"))]
    assert site.state(job_id) == "CANCELLED"
    assert site.ask("scancel", job_id).status == 0


def test_nodes_are_given_back_one_by_one(site: Site) -> None:
    job_id = site.running()
    site.runner.alive[job_id] = {"n2"}
    site.cluster.ended(job_id, 3)
    site.wait(1)
    job = site.queue()[job_id]
    assert (job.state, job.reason, job.nodes) == ("COMPLETING", "NonZeroExitCode", "n2")
    assert (site.node("n1"), site.node("n2")) == ("idle", "completing")
    site.wait(40)
    assert (site.state(job_id), site.queue()[job_id].nodes) == ("FAILED", "n[1-2]")
    assert site.shown(job_id)["ExitCode"] == "3:0"


def test_the_time_limit(site: Site) -> None:
    job_id = site.running()
    start = site.cluster.jobs[job_id].times.start_ms
    site.wait(800)
    (warned, number, batch_only, _), *terms = site.runner.signals
    begin = (start - site.engine.start_ms) / 1000
    assert (number, batch_only) == (10, True)
    assert 600 - 150 <= warned - begin <= 600 - 120
    assert [one[1:] for one in terms] == [(15, False, ("n1", "n2"))] * 2
    assert 600 <= terms[0][0] - begin <= 631
    assert (site.state(job_id), site.queue()[job_id].reason) == ("TIMEOUT", "TimeLimit")


def test_a_time_limit_that_is_changed(site: Site) -> None:
    job_id = site.running()
    site.cluster.shorten(site.cluster.jobs[job_id], 60)
    assert site.ask("squeue", "--noheader", f"--jobs={job_id}", "--format=%L").out in (
        "1:00\n",
        "0:59\n",
    )
    site.wait(130)
    assert [one[1] for one in site.runner.signals] == [10, 15, 15]


@pytest.mark.parametrize("grace_s", [0.0, 20.0])
def test_pre_emption(site: Site, grace_s: float) -> None:
    job_id = site.running()
    site.cluster.preempt(site.cluster.jobs[job_id], grace_s)
    site.wait(0.06)
    times = [one[0] for one in site.runner.signals]
    assert len(times) == 1 if grace_s else 2 <= len(times) <= 3
    assert times[-1] - times[0] <= 0.05
    assert site.state(job_id) == ("RUNNING" if grace_s else "COMPLETING")
    text = site.ask("scontrol", "--oneliner", "show", "job", job_id).out
    assert last_state(["SIGTERM"], job_end(text))[0] == "paused"
    site.wait(100)
    assert site.state(job_id) == "PREEMPTED"


def test_requeue_only_where_it_is_allowed(site: Site) -> None:
    refused = site.running()
    reply = site.ask("scontrol", "requeue", refused)
    assert (reply.status, reply.err) == (
        1,
        f"Requested operation is presently disabled for job {refused}\n",
    )
    site.over(refused)
    job_id = site.running("--requeue")
    site.ask("scontrol", "requeue", job_id)
    assert site.state(job_id) == "COMPLETING"
    site.over(job_id, status=143)
    job = site.queue()[job_id]
    assert (job.state, job.reason, site.shown(job_id)["Restarts"]) == ("PENDING", "BeginTime", "1")
    site.wait(125)
    assert site.state(job_id) == "RUNNING"
    assert site.runner.started[-1].env["SLURM_RESTART_COUNT"] == "1"


def test_a_suspended_job_keeps_its_time(site: Site) -> None:
    job = site.cluster.jobs[site.running()]
    left = ("squeue", "--noheader", f"--jobs={job.id}", "--format=%L")
    assert site.cluster.suspend(job)
    before = site.ask(*left).out
    site.wait(3600)
    assert (site.state(job.id), site.ask(*left).out) == ("SUSPENDED", before)
    assert site.cluster.unsuspend(job)
    assert site.state(job.id) == "RUNNING"
    assert [one[1] for one in site.runner.signals] == [19, 18]


def test_purged_jobs_are_forgotten_at_once(site: Site) -> None:
    job_id = site.running()
    site.cluster.purge()
    site.over(job_id)
    assert site.queue() == {}


# ---- nodes that are lost ----


def test_a_node_that_dies_leaves_the_job_of_no_kill_running(site: Site) -> None:
    job_id = site.running()
    site.cluster.node_down("n2")
    assert site.node("n2") == "allocated"
    site.wait(250)
    assert site.node("n2") == "allocated*"
    site.wait(200)
    assert site.node("n2") == "down*"
    job = site.queue()[job_id]
    assert (job.state, job.nodes, site.runner.killed) == ("RUNNING", "n1", [])
    site.cluster.node_up("n2")
    site.wait(6)
    assert site.node("n2") == "idle"
    assert site.runner.killed == [(job_id, ("n2",))]


def test_a_lost_batch_host_leaves_the_job_of_no_kill_without_a_script(site: Site) -> None:
    job_id = site.running("--time=20")
    site.cluster.node_down("n1")
    site.cluster.ended(job_id, 1)  # nobody hears of it
    site.wait(450)
    job = site.queue()[job_id]
    assert (job.state, job.nodes, site.shown(job_id)["BatchHost"]) == ("RUNNING", "n2", "n1")
    site.cluster.node_up("n1")
    site.wait(60)
    assert site.state(job_id) == "RUNNING"
    site.wait(800)
    assert site.state(job_id) == "TIMEOUT"


@pytest.mark.parametrize(
    ("option", "state"), [("--no-requeue", "NODE_FAIL"), ("--requeue", "PENDING")]
)
def test_a_lost_node_ends_a_job_without_no_kill(site: Site, option: str, state: str) -> None:
    (site.folder / "job.sh").write_text(SCRIPT.replace("#SBATCH --no-kill\n", ""))
    job_id = site.running(option)
    site.cluster.node_down("n2")
    site.runner.on_signal = lambda job, number: site.runner.alive[job.id].difference_update(
        job.nodes
    )
    site.wait(450)
    assert site.state(job_id) == state


def test_a_batch_host_that_was_rebooted_has_lost_its_script(site: Site) -> None:
    job_id = site.running()
    site.cluster.node_down("n1")
    site.cluster.node_up("n1", rebooted=True)
    site.runner.alive[job_id] = set()
    site.wait(10)
    assert site.state(job_id) == "NODE_FAIL"


def test_a_job_is_completing_as_long_as_its_batch_host_is_silent(site: Site) -> None:
    job_id = site.running()
    site.cluster.node_down("n1")
    site.ask("scancel", job_id)
    site.wait(60)
    assert (site.state(job_id), site.queue()[job_id].nodes) == ("COMPLETING", "n1")
    assert site.runner.killed == [(job_id, ("n2",))]
    site.wait(400)
    assert site.state(job_id) == "CANCELLED"
    site.cluster.node_up("n1")
    site.wait(40)
    assert site.runner.signals[-1][1:] == (15, False, ("n1",))
    assert site.runner.killed[-1] == (job_id, ("n1",))


def test_a_short_silence_changes_nothing_and_ends_are_reported_late(site: Site) -> None:
    job_id = site.running()
    site.cluster.node_down("n1")
    site.over(job_id)
    site.wait(20)
    assert site.state(job_id) == "RUNNING"
    site.cluster.node_up("n1")
    site.wait(10)
    assert site.state(job_id) == "COMPLETED"


def test_an_operator_takes_nodes_down(site: Site) -> None:
    job_id = site.running("--nodes=3")
    site.cluster.set_down("n3", "bad fan")
    site.wait(1)
    assert (site.state(job_id), site.node("n3")) == ("RUNNING", "down")
    assert site.runner.killed == [(job_id, ("n3",))]
    site.cluster.set_down("n1")
    site.wait(0.01)
    job = site.queue()[job_id]
    assert (job.state, job.reason, job.nodes) == ("COMPLETING", "JobLaunchFailure", "n2")
    site.cluster.node_up("n3")
    site.wait(6)
    assert site.node("n3") == "idle"


# ---- answers that fail ----


def test_slurmctld_is_down(site: Site) -> None:
    job_id = site.running()
    site.cluster.slurmctld_down(60)
    site.over(job_id)
    for argv, seconds in (
        (QUEUE, 18),
        (("sbatch", "job.sh"), 9),
        (("scancel", job_id), 9),
        (("sinfo",), 9),
    ):
        reply = site.ask(*argv)
        assert reply.status
        assert client.NO_ANSWER.search(reply.err)
        assert reply.delay_s >= seconds
    assert site.ask("scontrol", "show", "hostnames", "n[1-2]").status == 0
    site.wait(62)
    assert site.state(job_id) == "COMPLETED"


def test_a_client_waits_for_a_slurmctld_that_is_back_soon(site: Site) -> None:
    site.cluster.slurmctld_down(5)
    reply = site.ask("sinfo")
    assert (reply.status, reply.delay_s) == (0, 5)


def test_a_fault_that_nothing_causes_cannot_be_planned(site: Site) -> None:
    with pytest.raises(KeyError, match="submission lots"):
        site.cluster.plan("submission lots", 8)  # type: ignore[arg-type]


def test_answers_are_lost_after_the_deed(site: Site) -> None:
    site.cluster.plan("submission lost", 8)
    replies = [site.ask("sbatch", "--job-name=orch-a", "job.sh") for _ in range(8)]
    assert len(site.queue()) == 8
    assert {reply.delay_s for reply in replies} == {10.0, NEVER}
    assert all(client.NO_ANSWER.search(reply.err) for reply in replies if reply.delay_s != NEVER)
    site.cluster.lose_replies(1)
    assert site.ask("scancel", "1").delay_s >= 10
    assert site.state("1") == "CANCELLED"
    site.cluster.plan("command lost")
    assert site.ask("scancel", "2").delay_s >= 10
    assert site.state("2") == "PENDING"
    site.cluster.lose_replies(share=1.0)
    assert site.ask("sinfo").delay_s >= 10
    site.cluster.lose_replies()
    assert site.ask("sinfo").delay_s < 1


def test_submissions_that_are_turned_away(site: Site) -> None:
    site.cluster.plan("busy")
    busy = site.ask("sbatch", "job.sh")
    assert client.BUSY.search(busy.err)
    assert busy.delay_s == 120
    site.cluster.plan("refused")
    refused = site.ask("sbatch", "job.sh")
    assert refused.status == 1
    assert not client.NO_ANSWER.search(refused.err)
    assert site.cluster.jobs == {}
    assert site.submit() == "1"


def test_empty_and_slow_answers(site: Site) -> None:
    site.submit()
    site.cluster.empty_answers(1)
    assert site.queue() == {}
    assert len(site.queue()) == 1
    site.cluster.slow(30, for_s=60)
    assert site.ask("sinfo").delay_s > 30
    site.wait(61)
    assert site.ask("sinfo").delay_s < 1


def test_the_same_seed_gives_the_same_cluster(tmp_path: Path) -> None:
    stories = []
    for _ in range(2):
        site = Site(tmp_path)
        job = site.cluster.jobs[site.running()]
        site.cluster.node_down("n2")
        site.cluster.lose_replies(share=0.5)
        replies = [site.ask("squeue", "--noheader") for _ in range(10)]
        site.wait(1000)
        stories.append((replies, site.runner.signals, job.times.end_ms))
    assert stories[0] == stories[1]


def test_two_clusters_in_one_world(site: Site) -> None:
    other = Cluster(site.engine, ["m1", "m2"], site.runner, SlurmConf("other"), 100)
    here = site.submit()
    there = other.command(
        ["sbatch", "--parsable", "job.sh"], {}, str(site.folder), host="login2"
    ).out.strip()
    site.wait(2)
    assert (here, there) == ("1", "100")
    assert {job.id: job.env["SLURM_CLUSTER_NAME"] for job in site.runner.started} == {
        here: "sim",
        there: "other",
    }

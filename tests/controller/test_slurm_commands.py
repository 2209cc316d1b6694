"""Slurm's commands when they answer oddly: programs of the same names on PATH that do what real ones could do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from controller_parts import FORGOTTEN

from orchestrator.errors import SchedulerError, SchedulerUnknown
from orchestrator.onnode.kernel.jobs import ENDED_STATES
from orchestrator.scheduler import slurm
from orchestrator.scheduler.job import Job, JobRequest
from orchestrator.scheduler.slurm import Slurm

Fake = Callable[[str, str], Path]
SHOWN = (
    "JobId={} JobName={} UserId=root(0) JobState={} Reason=None Restarts=0 StartTime=1795224286 "
    r"EndTime=Unknown NodeList=lab1 NumNodes=1\n"
)
ROW = r"\x1fMARK\x1f{}\x1f{}\x1f1795224286\x1fN/A\x1flab[1-8]\x1f{}\x1f{}\n"


def request_in(tmp_path: Path) -> JobRequest:
    return JobRequest(
        tmp_path / "job.sh",
        "orch-x",
        tmp_path,
        {"PATH": os.environ["PATH"], "A": "1,2"},
        str(tmp_path / "job_%j.out"),
    )


@pytest.mark.parametrize(
    ("message", "job_id"), [("17", "17"), ("17;cluster", "17"), ("Welcome to the site!\\n17", "17")]
)
def test_sbatch_prints_the_id(fake: Fake, tmp_path: Path, message: str, job_id: str) -> None:
    calls = fake("sbatch", f'printf "{message}\\n"')
    assert Slurm().submit(request_in(tmp_path)) == job_id
    assert calls.read_text().split() == [
        "--parsable",
        "--job-name=orch-x",
        f"--output={tmp_path}/job_%j.out",
        f"--chdir={tmp_path}",
        "--export=ALL",
        f"{tmp_path}/job.sh",
    ]


@pytest.mark.parametrize(
    "body",
    [
        "true",
        'echo "Submitted, thank you"',
        'printf "17\\n18\\n"',
        'echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1',
        'echo "sbatch: error: Batch job submission failed: Unable to contact slurm controller" >&2; exit 1',
        'echo "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying" >&2; exit 1',
        "printf 'sbatch: error: Slurm job queue full, retrying\\nsbatch: error: Socket timed out\\n' >&2; exit 1",
        "kill -9 $$",
    ],
    ids=[
        "empty",
        "words",
        "two ids",
        "socket",
        "no controller",
        "throttled",
        "full, then socket",
        "killed",
    ],
)
def test_unclear_answers_are_unknown(fake: Fake, tmp_path: Path, body: str) -> None:
    fake("sbatch", body)
    with pytest.raises(SchedulerUnknown):
        Slurm().submit(request_in(tmp_path))


def test_no_answer_in_time_is_unknown(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake("sbatch", "echo 17; exec sleep 60")
    monkeypatch.setattr(slurm, "SUBMIT_S", 0.2)
    with pytest.raises(SchedulerUnknown, match="did not answer within 0.2 s"):
        Slurm().submit(request_in(tmp_path))


def test_refusal_keeps_what_was_said(fake: Fake, tmp_path: Path) -> None:
    fake(
        "sbatch",
        'printf "sbatch: error: invalid partition specified: gpu\\n'
        'sbatch: error: Batch job submission failed: Invalid partition name specified\\n" >&2; exit 1',
    )
    with pytest.raises(SchedulerError, match="Invalid partition name specified") as caught:
        Slurm().submit(request_in(tmp_path))
    assert not isinstance(caught.value, SchedulerUnknown)
    assert caught.value.returncode == 1
    assert "partition specified: gpu" in caught.value.stderr
    assert caught.value.argv[0] == "sbatch"


def test_slurm_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedulerError, match="`squeue` is not on PATH"):
        Slurm().jobs(names=["orch-x"])


def test_callers_slurm_variables_do_not_reach_the_commands(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SBATCH_PARTITION", "SLURM_JOB_ID", "SQUEUE_FORMAT", "SLURM_CLUSTERS"):
        monkeypatch.setenv(name, "leak")
    monkeypatch.setenv("SLURM_CONF", "/etc/here")
    seen = tmp_path / "seen"
    fake("sbatch", f"env >{seen}; echo 17")
    fake("squeue", f"env >>{seen}")
    Slurm().submit(request_in(tmp_path))
    Slurm().jobs(names=["orch-x"])
    text = seen.read_text()
    assert "leak" not in text
    assert text.count("SLURM_CONF=/etc/here") == 2
    assert text.count("A=1,2") == 1


def test_one_query_for_many_jobs(fake: Fake) -> None:
    calls = fake(
        "squeue",
        "printf '"
        + ROW.format(4, "RUNNING", "None", "orch-a")
        + ROW.format(5, "PENDING", "Priority", "orch-b")
        + ROW.format(6, "RUNNING", "None", "other")
        + "'",
    )
    jobs = Slurm().jobs(names=["orch-a", "orch-b", "orch-c"])
    assert jobs == {
        "4": Job("4", "orch-a", "RUNNING", "", 1795224286000, 0, "lab[1-8]"),
        "5": Job("5", "orch-b", "PENDING", "Priority", 1795224286000, 0, "lab[1-8]"),
    }
    assert calls.read_text().count("\n") == 1
    assert "--name=orch-a,orch-b,orch-c" in calls.read_text()


def test_nothing_is_asked_about_nothing(fake: Fake) -> None:
    calls = fake("squeue", "exit 1")
    assert Slurm().jobs() == {}
    assert not calls.exists()


def test_odd_names_of_others_do_not_disturb(fake: Fake) -> None:
    fake(
        "squeue",
        "printf '"
        + ROW.format(3, "RUNNING", "None", r"two\nlines | \xff")
        + ROW.format("4_[1-9]", "PENDING", "None", "array")
        + ROW.format(5, "RUNNING", "None", "x")
        + "'",
    )
    assert list(Slurm().jobs(ids=["5"])) == ["5"]


@pytest.mark.parametrize(
    "body",
    [
        "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
        "echo garbage",
        r"printf '\x1fMARK\x1f4\x1fRUNNING\n'",
        "kill -9 $$",
    ],
    ids=["no controller", "garbage", "cut", "killed"],
)
def test_unreadable_queue_is_unknown(fake: Fake, body: str) -> None:
    fake("squeue", body)
    fake("scontrol", "exit 1")
    with pytest.raises(SchedulerUnknown):
        Slurm().jobs(names=["orch-a"])


def test_scontrol_is_asked_when_squeue_fails(fake: Fake) -> None:
    fake("squeue", "exit 1")
    fake(
        "scontrol",
        r"""printf 'JobId=7 JobName=orch-t\nx y UserId=root(0) JobState=RUNNING Reason=None Restarts=0 """
        r"""StartTime=1795224286 EndTime=Unknown NodeList=lab1 NumNodes=1\n"""
        r"""JobId=8 JobName=orch-a UserId=root(0) JobState=PENDING Reason=Resources StartTime=Unknown """
        r"""EndTime=Unknown NodeList=(null)\n'""",
    )
    assert Slurm().jobs(names=["orch-a"]) == {"8": Job("8", "orch-a", "PENDING", "Resources")}
    assert Slurm().jobs(ids=["7"])["7"].name == "orch-t\nx y"


@pytest.mark.parametrize(
    ("state", "phase", "alive", "waiting"),
    [
        ("PENDING", "pending", True, True),
        ("REQUEUE_HOLD", "held", True, True),
        ("SUSPENDED", "suspended", True, False),
        ("CONFIGURING", "starting", True, False),
        ("RUNNING", "running", True, False),
        ("COMPLETING", "ending", True, False),
        ("NODE_FAIL", "ended", False, False),
        ("A_STATE_OF_2030", "starting", True, False),
    ],
)
def test_states_have_a_plain_meaning(state: str, phase: str, alive: bool, waiting: bool) -> None:
    job = Job("1", "n", state)
    assert (job.account.phase, job.alive, job.waiting) == (phase, alive, waiting)


def test_every_end_has_a_cause_and_a_text() -> None:
    for state in ENDED_STATES:
        account = Job("1", "n", state).account
        assert account.phase == "ended" and account.text and account.cause


@pytest.mark.parametrize(
    ("state", "grace_s", "ends_on", "calls"),
    [
        pytest.param("RUNNING", 5, "*", "--signal=TERM --batch 4\n", id="the batch script first"),
        pytest.param("RUNNING", 0.1, "4", "--signal=TERM --batch 4\n4\n", id="then by force"),
        pytest.param("PENDING", 60, "*", "4\n", id="a waiting job needs no grace"),
        pytest.param("SUSPENDED", 60, "*", "4\n", id="a suspended job takes no signal"),
    ],
)
def test_cancel(
    fake: Fake, tmp_path: Path, state: str, grace_s: float, ends_on: str, calls: str
) -> None:
    over = tmp_path / "over"
    fake("squeue", f"[[ -e {over} ]] || printf '" + ROW.format(4, state, "None", "orch-a") + "'")
    record = fake("scancel", f'[[ "$*" != {ends_on} ]] || touch {over}')
    assert Slurm().cancel("4", grace_s)
    assert record.read_text() == calls


def test_a_job_is_gone_only_by_the_word_of_the_controller(fake: Fake) -> None:
    """squeue may be a site's wrapper with a cache."""
    fake("squeue", "true")
    calls = fake("scontrol", f"printf '{SHOWN.format(4, 'orch-a', 'RUNNING')}'")
    job = Slurm().job("4")
    assert job is not None and (job.id, job.name, job.alive) == ("4", "orch-a", True)
    assert calls.read_text() == "--oneliner --all show job 4\n"
    fake("scontrol", FORGOTTEN)
    assert Slurm().job("4") is None
    assert Slurm().job("local-4-5") is None
    parts = "JobId=7 ArrayJobId=4 ArrayTaskId=1 JobName=x UserId=other(7) JobState=RUNNING"
    fake("scontrol", f"echo '{parts}'")
    assert Slurm().job("4") is None


@pytest.mark.parametrize(
    "body",
    [
        "exit 0",
        "echo No jobs in the system",
        f"printf '{SHOWN.format(5, 'orch-a', 'RUNNING')}'",
        "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
        "exit 1",
    ],
)
def test_no_word_on_a_job_is_unknown(fake: Fake, body: str) -> None:
    fake("squeue", "true")
    fake("scontrol", body)
    with pytest.raises(SchedulerUnknown, match="job 4"):
        Slurm().job("4")


def test_cancel_of_another_users_job_is_refused(fake: Fake) -> None:
    fake("squeue", "printf '" + ROW.format(4, "RUNNING", "None", "orch-a") + "'")
    fake(
        "scancel",
        "echo 'scancel: error: Kill job error on job id 4: Access/permission denied' >&2; exit 1",
    )
    with pytest.raises(SchedulerError, match="permission denied"):
        Slurm().cancel("4", 5)


def test_the_folder_of_the_output_is_no_pattern(tmp_path: Path) -> None:
    request = JobRequest(
        tmp_path / "x", "orch-x", tmp_path, {}, "/shared/R&D 100% %j/set/job_%j.out"
    )
    assert "--output=/shared/R&D 100%% %%j/set/job_%j.out" in Slurm().command(request)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        r"a\x1eb\x1fc\n\x1e\x1f",
        r"x\n\x1e4\x1fCANCELLED\x1f0\x1f0\x1fn1\x1fNone\x1forch-a",
        r"x\n\x1f0123456789abcdef\x1f4\x1fCANCELLED\x1f0\x1f0\x1fn1\x1fNone\x1forch-a",
    ],
)
def test_the_name_of_a_job_makes_no_other_job(fake: Fake, name: str, known: bool) -> None:
    """Whether there is such a job or not, and whatever separators the name holds."""
    mine = ROW.format(4, "RUNNING", "None", "orch-a") if known else ""
    fake("squeue", f"printf '{ROW.format(3, 'RUNNING', 'None', name)}{mine}'")
    found = Slurm().jobs(ids=["4"], names=["orch-a"])
    assert {job.id: job.state for job in found.values()} == ({"4": "RUNNING"} if known else {})


@pytest.mark.parametrize(
    "name",
    [
        r"x\nJobId=4 JobName=orch-a UserId=me(0) JobState=CANCELLED",
        r"x UserId=me(0) JobState=RUNNING\nJobId=4 JobName=orch-a JobState=CANCELLED",
        r"x\nJobId=4 JobName=orch-a JobState=CANCELLED",
    ],
)
def test_a_name_that_looks_like_a_job_is_not_believed_when_squeue_fails(
    fake: Fake, name: str
) -> None:
    """scontrol takes no separators: the whole answer counts as none."""
    rest = r"Reason=None StartTime=0 EndTime=0 NodeList=n1\n"
    fake("squeue", "exit 1")
    fake("scontrol", f"printf 'JobId=3 JobName={name} UserId=other(7) JobState=RUNNING {rest}'")
    with pytest.raises(SchedulerUnknown):
        Slurm().jobs(ids=["4"])

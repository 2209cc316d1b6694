"""The state of a set, from its files and the scheduler's word."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from controller_parts import Clock, Commands, mllog, one_node, write_set
from damaged_sets import events
from effort import bytes_read
from hypothesis import given
from hypothesis import strategies as st
from sites import write_site

from orchestrator.cli.closing import closing_lines
from orchestrator.errors import ExitCode, SchedulerUnknown, SetError
from orchestrator.evidence.asking import Asking
from orchestrator.evidence.explain import explain
from orchestrator.evidence.files import Findings
from orchestrator.evidence.logs import follow, run_logs
from orchestrator.evidence.picture import as_json, ask_all, look, picture
from orchestrator.evidence.progress import (
    TAIL_BYTES,
    KeptLogs,
    Logs,
    Tail,
    minutes,
    score_so_far,
    tail_of,
)
from orchestrator.evidence.sets import SetEvidence, SubmissionRecord, open_set, set_folders
from orchestrator.evidence.state import STATES
from orchestrator.evidence.watch import Watch
from orchestrator.mllog.reader import read_log
from orchestrator.onnode.kernel.records import Finding, JobRecord, RunRecord, SetRecord, read, write
from orchestrator.onnode.kernel.walk import ANY
from orchestrator.runset.find import find_set, short_name
from orchestrator.scheduler.job import Job
from orchestrator.scheduler.slurm import Slurm
from orchestrator.views.sets import describe, headline, now_text, run_table

SENT = SubmissionRecord(number=1, state="submitted", job_id="7", requested_ms=1_000)
OWN = JobRecord(job_id="7", state="running", run=2, attempt=1, started_ms=2_000)


def job(state: str, reason: str = "") -> dict[str, Job]:
    return {"7": Job("7", "orch-s", state, reason)}


HELD = (
    "Slurm has put job 7 back into the queue and holds it; it starts after: scontrol release 7 "
    "(or `orchestrator cancel`, then `resume`) (JobHeldUser)"
)
REQUEUED = "Slurm has put job 7 back into the queue; it continues at the first missing run"
NODE_FAIL = "lost its batch host (resume with --exclude NODE keeps off it)"


@pytest.mark.parametrize(
    ("submission", "own", "jobs", "state", "reason"),
    [
        (None, None, {}, "new", ""),
        (
            SENT,
            None,
            job("PENDING", "Priority"),
            "pending",
            "jobs with a higher priority come first (Priority)",
        ),
        (SENT, None, job("REQUEUE_HOLD", "JobHeldUser"), "held", HELD),
        (SENT, None, job("CONFIGURING"), "starting", "CONFIGURING"),
        (SENT, None, job("RUNNING"), "starting", ""),
        (
            SENT,
            None,
            {"7": Job("7", "orch-s", "FAILED", "BadConstraints")},
            "lost",
            (
                "job 7 failed: no node has the requested resources (BadConstraints); the set had not "
                "started; the job printed nothing"
            ),
        ),
        (
            SENT,
            None,
            {"7": Job("7", "orch-s", "FAILED", "NonZeroExitCode")},
            "lost",
            "job 7 failed; the set had not started; the job printed nothing",
        ),
        (SENT, None, job("CANCELLED"), "cancelled", "job 7 was cancelled; the set had not started"),
        (
            SENT,
            None,
            job("NODE_FAIL"),
            "lost",
            f"job 7 {NODE_FAIL}; the set had not started; the job printed nothing",
        ),
        (
            SENT,
            None,
            {},
            "lost",
            "job 7 ended before it started the set; the job printed nothing",
        ),
        (
            SENT,
            None,
            None,
            "pending",
            "no answer from the scheduler; the job has written nothing yet",
        ),
        (
            SubmissionRecord(number=1, state="unknown", error="time-out"),
            None,
            None,
            "unknown",
            "time-out; no answer from the scheduler now",
        ),
        (SubmissionRecord(number=1, state="unknown"), None, job("RUNNING"), "starting", ""),
        (
            SubmissionRecord(number=1, state="intended"),
            None,
            {},
            "refused",
            "the submission was interrupted, and no job of this name ever appeared; resume submits it again",
        ),
        (SubmissionRecord(number=1, state="refused", error="no"), None, {}, "refused", "no"),
        (
            SubmissionRecord(number=1, state="submitted", job_id="7", cancelled_ms=5),
            None,
            {},
            "cancelled",
            "cancelled before it started",
        ),
        (SENT, OWN, job("RUNNING"), "running", ""),
        (SENT, OWN, job("COMPLETING"), "ending", ""),
        (SENT, OWN, job("REQUEUED"), "pending", REQUEUED),
        (
            SENT,
            OWN,
            job("TIMEOUT"),
            "time_limit",
            "job 7 was ended by its time limit without closing the set",
        ),
        (SENT, OWN, {}, "lost", "job 7 ended without closing the set"),
        (
            SENT,
            OWN,
            None,
            "running",
            "no answer from the scheduler; showing the job's own files",
        ),
        (
            SENT,
            JobRecord(job_id="7", state="time_limit", reason="near", started_ms=2_000),
            None,
            "time_limit",
            "near",
        ),
        (
            SENT,
            JobRecord(job_id="7", state="complete", started_ms=2_000),
            job("RUNNING"),
            "complete",
            "",
        ),
        # a resumed set: the old job is closed, the new one waits
        (
            SubmissionRecord(number=2, state="submitted", job_id="8", requested_ms=9_000),
            JobRecord(job_id="7", state="cancelled", started_ms=2_000),
            {"8": Job("8", "orch-s", "PENDING", "Resources")},
            "pending",
            "other jobs hold the nodes it needs (Resources)",
        ),
        # refused after an earlier job: what that one left still holds
        (
            SubmissionRecord(number=2, state="refused", requested_ms=9_000),
            JobRecord(job_id="7", state="cancelled", reason="TERM", started_ms=2_000),
            {},
            "cancelled",
            "TERM",
        ),
        # `sbatch job.sh` by hand: no submission at all
        (None, OWN, job("RUNNING"), "running", ""),
    ],
)
def test_state(
    tmp_path: Path,
    submission: SubmissionRecord | None,
    own: JobRecord | None,
    jobs: dict[str, Job] | None,
    state: str,
    reason: str,
) -> None:
    files = SetEvidence(write_set(tmp_path, "s", submission=submission, job=own))
    drawn = picture(files, jobs, Logs())
    assert (drawn.state, drawn.reason) == (state, reason)
    assert drawn.state in STATES
    assert not drawn.findings


def test_progress_of_a_running_set(tmp_path: Path) -> None:
    root = write_set(
        tmp_path,
        "s",
        nexp=5,
        done=3,
        submission=SENT,
        job=JobRecord(job_id="7", state="running", run=4, attempt=2, started_ms=2_000),
    )
    attempt = root / "runs/4/attempt_2"
    attempt.mkdir()
    running = RunRecord(run=4, attempt=2, state="running", start_ms=1_000)
    write(running, attempt / "state.json")
    write(running, attempt.parent / "state.json")
    (attempt / "node_0.log").write_text(
        mllog("eval_accuracy", 5, 0.75, samples_count=64) + ":::MLLOG {torn"
    )
    drawn = picture(SetEvidence(root), job("RUNNING"), Logs())
    assert (drawn.done, drawn.failed, drawn.current, drawn.attempt, drawn.attempts) == (
        3,
        0,
        4,
        2,
        5,
    )
    assert drawn.evaluation is not None
    assert (drawn.evaluation.value, drawn.evaluation.samples) == (0.75, 64)
    # run_stop - run_start is 61, 62 and 63 s: the middle one is left
    assert drawn.score_so_far == pytest.approx(62 / 60)


@pytest.mark.parametrize(
    ("outcomes", "reason"),
    [
        (("", "", ""), ""),
        (("", "not_converged", ""), "1 of 3 runs did not converge"),
        (
            ("infrastructure", "not_converged", "infrastructure"),
            "1 of 3 runs did not converge, 2 failed in all their attempts",
        ),
    ],
)
def test_a_complete_set_says_what_failed(
    tmp_path: Path, outcomes: tuple[str, ...], reason: str
) -> None:
    """`complete` means that every run is final, whatever became of it."""
    closed = JobRecord(job_id="7", state="complete", started_ms=2_000, ended_ms=9_000)
    root = write_set(tmp_path, "s", nexp=3, done=3, submission=SENT, job=closed)
    for run, outcome in enumerate(outcomes, 1):
        if outcome:
            path = root / f"runs/{run}/state.json"
            record = RunRecord(run=run, attempt=1, state="failed", outcome=outcome, end_ms=5)
            write(record, path)
            write(record, path.parent / "attempt_1/state.json")
    drawn = picture(SetEvidence(root), job("COMPLETED"), Logs())
    assert (drawn.state, drawn.reason) == ("complete", reason)
    shown = dict(describe(drawn))["state"]
    assert shown == f"complete: {reason or 'all 3 runs are done'}"
    missed, failed = outcomes.count("not_converged"), outcomes.count("infrastructure")
    shown = as_json(drawn)
    assert [shown[name] for name in ("done", "not_converged", "failed")] == [
        3 - failed,
        missed,
        failed,
    ]
    words = {"": "success", "not_converged": "not converged", "infrastructure": "failed"}
    assert [row[1] for row in run_table(drawn.runs).rows] == [
        words[outcome] for outcome in outcomes
    ]
    for run, outcome in zip(shown["runs"], outcomes, strict=True):
        assert run["state"] == words[outcome].replace(" ", "_")
        assert run["done"] == (outcome != "infrastructure")
    counts = f"{missed} not converged, {failed} failed" if failed else f"{missed} not converged"
    assert headline(drawn).startswith(
        f"complete  {3 - failed}/3 done  " + (counts if missed else "")
    )


def test_progress_of_runs_side_by_side(tmp_path: Path, cli: Commands) -> None:
    going = [(4, 1, "n1", 0.75), (5, 2, "n2", 0.5), (6, 1, "n3", None)]
    groups = [{"nodes": [node], "run": run, "attempt": attempt} for run, attempt, node, _ in going]
    own = JobRecord(
        job_id="7",
        state="running",
        run=6,
        attempt=1,
        started_ms=2_000,
        groups=[*groups, {"run": "x"}, 7],
    )  # type: ignore[list-item]
    root = write_set(tmp_path, "s", nexp=9, done=3, submission=SENT, job=own)
    for run, number, node, value in going:
        attempt = root / f"runs/{run}/attempt_{number}"
        attempt.mkdir()
        running = RunRecord(run=run, attempt=number, state="running", start_ms=1_000, nodes=[node])
        write(running, attempt / "state.json")
        write(running, attempt.parent / "state.json")
        (attempt / "node_0.log").write_text(
            f"log of {run}\n" + (mllog("eval_accuracy", 5, value) if value else "")
        )
    logs = KeptLogs()
    for _ in range(2):
        drawn = picture(SetEvidence(root), job("RUNNING"), logs)
        assert [run.run for run in drawn.going] == [4, 5, 6] == as_json(drawn)["current_runs"]
    assert now_text(drawn) == "runs 4, 5 (attempt 2), 6 of 9"
    assert "eval 0.75, 0.5, none (target 0.5)" in headline(drawn)
    now = [value.partition("; last line")[0] for name, value in describe(drawn) if name == "now"]
    assert now == [
        "run 4 of 9 on n1, evaluation 0.75 (target 0.5)",
        "run 5 of 9, attempt 2 on n2, evaluation 0.5 (target 0.5)",
        "run 6 of 9 on n3, no evaluation yet",
    ]
    assert Watch(open_set(root), Running())._growing(SetEvidence(root))
    assert [path.parent.parent.name for path in run_logs(open_set(root), None, None, "0")] == [
        "4",
        "5",
        "6",
    ]
    cli("logs", root)
    assert [line for line in cli.out.splitlines() if "log of" in line] == [
        "log of 4",
        "log of 5",
        "log of 6",
    ]
    followed = follow(
        open_set(root),
        Running(),
        run=None,
        attempt=None,
        node="0",
        job=False,
        findings=Findings(),
        pause=lambda _: _end(root, own),
    )
    assert sorted(text.split(b"\n")[0] for _, text in followed) == [
        b"log of 4",
        b"log of 5",
        b"log of 6",
        b"more",
    ]


def _end(root: Path, own: JobRecord) -> None:
    with open(root / "runs/5/attempt_2/node_0.log", "a") as log:
        log.write("more\n")
    write(replace(own, state="complete", ended_ms=9_000, groups=[]), root / "jobs/7.json")


class Running(Slurm):
    """One in which job 7 runs."""

    def jobs(self, *, names: Iterable[str] = (), ids: Iterable[str] = ()) -> dict[str, Job]:
        return job("RUNNING")


def test_last_words_of_a_job_that_could_not_start(tmp_path: Path) -> None:
    root = write_set(tmp_path, "s", submission=SENT)
    (root / "job_7.out").write_text("one\norchestrator: error: no such image\n\n")
    drawn = picture(SetEvidence(root), {}, Logs())
    assert (
        drawn.reason
        == "job 7 ended before it started the set; the job's last line: orchestrator: error: no such image"
    )


def test_one_query_for_all_sets_and_none_for_closed_ones(tmp_path: Path) -> None:
    class Counting:
        name = "slurm"
        runs_here = False
        asked: ClassVar[list[tuple[list[str], list[str]]]] = []

        def jobs(self, *, names: list[str], ids: list[str]) -> dict[str, Job]:
            self.asked.append((names, ids))
            return {}

    closed = JobRecord(job_id="1", state="complete", started_ms=1)
    sets = [
        SetEvidence(write_set(tmp_path, "a", submission=SENT)),
        SetEvidence(write_set(tmp_path, "b", job=OWN)),
        SetEvidence(write_set(tmp_path, "c", job=closed)),
        SetEvidence(write_set(tmp_path, "d", scheduler="local")),
    ]
    assert ask_all(sets, Counting()) == {}
    assert Counting.asked == [(["orch-a"], ["7"])]
    assert ask_all(sets[2:], Counting()) == {}
    assert len(Counting.asked) == 1


def test_no_answer_is_not_gone(tmp_path: Path) -> None:
    class Silent:
        name = "slurm"
        runs_here = False

        def jobs(self, **_: object) -> dict[str, Job]:
            raise SchedulerUnknown("no answer")

    [drawn] = look([write_set(tmp_path, "s", submission=SENT, job=OWN)], [Silent()])
    assert (drawn.state, drawn.job_state, drawn.live) == ("running", "no answer", True)


def test_watching_asks_slurm_rarely(tmp_path: Path) -> None:
    """One question while the log of the current run grows, however many looks, and none more when the set is closed."""

    class Counting:
        name = "slurm"
        runs_here = False
        asked = 0

        def jobs(self, **_: object) -> dict[str, Job]:
            self.asked += 1
            return job("RUNNING")

    own = JobRecord(job_id="7", state="running", run=1, attempt=1, started_ms=2_000)
    run_set = open_set(write_set(tmp_path, "s", submission=SENT, job=own))
    log = run_set.layout.node_log(1, 1, 0)
    log.parent.mkdir()
    log.write_text("output")
    scheduler = Counting()
    watch = Watch(run_set, scheduler, 1.0)
    looks = 0

    def pause(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 50:
            write(
                JobRecord(job_id="7", state="complete", started_ms=2_000), run_set.layout.job("7")
            )

    assert [drawn.state for drawn in watch.pictures(pause)] == ["running"] * 50 + ["complete"]
    assert scheduler.asked == 1


@pytest.mark.parametrize("state", ["starting", "running"])
def test_a_job_that_was_not_asked_about_is_not_unanswered(tmp_path: Path, state: str) -> None:
    """The scheduler answered just now; what a new job's files say stands without a remark."""

    class Answering:
        name = "slurm"
        runs_here = False

        def jobs(self, **_: object) -> dict[str, Job]:
            return {"7": Job("7", "orch-s", "PENDING", "Resources")}

    run_set = open_set(write_set(tmp_path, "s", submission=SENT))
    watch = Watch(run_set, Answering(), asking=Asking(Clock()))
    assert watch.look().state == "pending"
    write(JobRecord(job_id="7", state=state, started_ms=2_000), run_set.layout.job("7"))
    assert not watch.asking.due
    drawn = watch.look()
    assert (drawn.state, drawn.reason, drawn.job_state) == (state, "", "")


def test_newest_set_first_whatever_its_system(tmp_path: Path) -> None:
    for name in (
        "a-w-20260101-000000-0001",
        "z-w-20250101-000000-0002",
        "b-w-20260101-000001-0003",
        "other",
        ".tmp",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / "loop").symlink_to("loop")
    names = [path.name for path in set_folders(tmp_path)]
    assert [name[0] for name in names if name != "work"] == ["b", "a", "z", "o"]
    assert set_folders(tmp_path / "nowhere") == []
    with pytest.raises(SetError, match="cannot be read: Too many levels"):
        set_folders(tmp_path / "loop")


def test_newest_first_of_sets_of_the_same_second(tmp_path: Path) -> None:
    """A script submits two sets within a second; a third one's record is damaged."""
    made = {"0003": 5, "0001": 7, "0004": None, "0002": 6}
    for name, created_ms in made.items():
        root = write_set(tmp_path, f"a-w-20260101-000000-{name}")
        record = json.loads((root / "set.json").read_text()) | {"created_ms": created_ms}
        (root / "set.json").write_text(json.dumps(record) if created_ms else "{")
    names = [path.name for path in set_folders(tmp_path) if path.name.startswith("a-w-")]
    assert [name[-4:] for name in names] == ["0001", "0002", "0003", "0004"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "is no JSON"),
        ("[]", "is not a JSON object"),
        ("\xff", "is no JSON"),
        ("{", "is no JSON"),
        ('{"nexp": 3, "scheduler": "slurm"}', "lacks `set_id`"),
        ('{"set_id": "s", "nexp": "3", "scheduler": "slurm"}', '`nexp` is "3", not int'),
        ('{"set_id": "s", "nexp": true, "scheduler": "slurm"}', "`nexp` is true, not int"),
        ('{"set_id": "s", "nexp": 3, "scheduler": "slurm", "schema": 9}', "newer version"),
    ],
)
def test_a_damaged_set_is_a_finding(tmp_path: Path, content: str, problem: str) -> None:
    root = write_set(tmp_path, "s")
    (root / "set.json").write_text(content, encoding="latin-1")
    result = read(SetRecord, root / "set.json")
    assert isinstance(result, Finding)
    assert problem in str(result)
    [drawn] = look([root], [])
    assert drawn.state == "damaged"


def test_unknown_members_are_ignored_and_damaged_runs_named(tmp_path: Path) -> None:
    root = write_set(tmp_path, "s", done=1)
    path = root / "set.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "from_the_future": 1}))
    (root / "runs/2/state.json").write_text("{")
    drawn = picture(SetEvidence(root), {}, Logs())
    assert drawn.done == 1
    assert [finding.path.name for finding in drawn.findings] == ["state.json"]


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_around_an_evaluation(before: bytes, after: bytes) -> None:
    line = mllog("eval_accuracy", 5, 0.25).encode()
    result = tail_of(before + line + after.replace(b":", b".")).evaluation
    assert result is not None
    assert result.value == 0.25


def test_the_tail_is_read_once_in_pieces_of_any_size(tmp_path: Path) -> None:
    text = "".join(f"noise {i}\n" + mllog("eval_accuracy", i, i / 8) for i in range(300)).encode()
    path, random_ = tmp_path / "log", random.Random(1)
    tail, at = Tail(path), 0
    assert tail.look() is None
    while at < len(text):
        step = random_.randint(1, 900)
        with open(path, "ab") as file:
            file.write(text[at : at + step])
        at += step
        seen = tail.look()
        assert seen == tail_of(text[:at].rpartition(b"\n")[0]).evaluation


def test_a_huge_log_costs_its_tail(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with open(path, "wb") as file:
        file.write(mllog("run_start", 1_000, None).encode())
        file.seek(1 << 30)
        end = mllog("eval_accuracy", 1, 0.5) + mllog("run_stop", 61_000, None, status="success")
        file.write(b"\n" + end.encode())

    def read() -> None:
        assert KeptLogs().tail(path, ANY).evaluation is not None
        assert minutes(path, ANY) == 1.0

    assert bytes_read(read) < (1 << 30) / 100
    assert TAIL_BYTES <= 64 * 1024


def test_times_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        mllog("run_start", 0, None)
        + mllog("run_start", 30_000, None)
        + mllog("run_stop", 90_000, None, status="success")
    )
    assert minutes(path, ANY) == 1.0  # the last run_start before the first run_stop
    path.write_text(path.read_text() + mllog("run_stop", 99_000, None, status="aborted"))
    assert minutes(path, ANY) is None
    assert minutes(tmp_path / "missing", ANY) is None


def test_a_log_has_one_time_to_the_last_bit(tmp_path: Path) -> None:
    """Else `status` rounds a mean to 0.393 s that is 0.394 s in `score`."""
    path = tmp_path / "log"
    for ms in range(391, 3_000, 7):
        start = mllog("run_start", 1_000, None)
        path.write_text(start + mllog("run_stop", 1_000 + ms, None, status="success"))
        assert minutes(path, ANY) == read_log(str(path)).minutes, ms


def test_a_set_is_a_stand_in_from_its_first_log_on(tmp_path: Path) -> None:
    """A view that stays open reads the mark once."""
    root = write_set(tmp_path, "s", scheduler="local")
    attempt = root / "runs/1/attempt_1"
    attempt.mkdir()
    going = RunRecord(run=1, attempt=1, state="running", start_ms=1_000, nodes=["n1"])
    write(going, attempt / "state.json")
    write(going, attempt.parent / "state.json")
    logs = KeptLogs()
    assert not picture(SetEvidence(root), {}, logs).stand_in
    log = attempt / "node_0.log"
    log.write_text(mllog("submission_benchmark", 1, "flux1", stand_in=True))
    assert picture(SetEvidence(root), {}, logs).stand_in
    log.unlink()
    assert picture(SetEvidence(root), {}, logs).stand_in
    assert not picture(SetEvidence(root), {}, Logs()).stand_in


def test_what_a_score_is_going_to_be() -> None:
    assert score_so_far("flux1", [3.0, 1.0, 2.0, 9.0], 0) == 2.5
    assert score_so_far("flux1", [3.0, 1.0, 2.0], 1) == 2.5
    assert score_so_far("flux1", [1.0, 2.0], 0) is None
    assert score_so_far("flux1", [1.0, 2.0, 3.0, 4.0], 2) is None
    assert (
        score_so_far("unet3d", [float(k) for k in range(9)], 0) == 4.0
    )  # the rules drop four on each side of it
    assert score_so_far("unet3d", [1.0, 2.0, 3.0], 0) is None


@pytest.mark.parametrize("begun", [True, False])
def test_the_clock_of_a_batch_host_does_not_say_which_job_is_the_last_one(
    tmp_path: Path, begun: bool
) -> None:
    """The first job ran where it was tomorrow already; the second one was submitted later, and started earlier."""
    ahead = replace(
        OWN,
        state="cancelled",
        reason="ended by a signal",
        started_ms=86_400_000,
        ended_ms=86_400_001,
    )
    root = write_set(tmp_path, "s", done=3 if begun else 1, job=ahead, submission=SENT)
    write(replace(SENT, number=2, job_id="8", requested_ms=5_000), root / "submissions/2.json")
    if begun:
        write(
            replace(OWN, job_id="8", state="complete", started_ms=6_000, ended_ms=9_000),
            root / "jobs/8.json",
        )
    files = SetEvidence(root)
    now = picture(files, {"8": Job("8", "orch-s", "PENDING", "Priority")}, KeptLogs())
    assert (now.state, now.job_id, files.settled) == (
        "complete" if begun else "pending",
        "8",
        begun,
    )


def test_status_names_nodes_that_did_not_report_their_release(
    cli: Commands, tmp_path: Path
) -> None:
    ended = JobRecord(job_id="7", state="cancelled", started_ms=2_000, ended_ms=9_000)
    root = write_set(tmp_path, "set-a", job=ended, submission=SENT)
    words = [("node", "network", "n1", "off"), ("node", "network", "n2", "off")]
    (root / "events-7.tsv").write_text(events(*words, ("node", "left", "n2", "")))
    line = "n1 did not confirm the end of job 7; check there: ps -ef | grep orch-"
    assert cli.json("status", root)["warnings"] == [line]
    assert cli("status", root).code == ExitCode.OK and line in " ".join(cli.out.split())
    (root / "events-7.tsv").write_text(
        events(*words, *(("node", "left", n, "") for n in ("n1", "n2")))
    )
    assert cli.json("status", root)["warnings"] == []


def fails(root: Path, run: int, *reasons: str, outcome: str = "infrastructure") -> None:
    """Let the attempts of a run fail, each for its reason."""
    folder = root / f"runs/{run}"
    for number, reason in enumerate(reasons, 1):
        (folder / f"attempt_{number}").mkdir(exist_ok=True)
        record = RunRecord(
            run=run, attempt=number, state="failed", outcome=outcome, reason=reason, start_ms=1
        )
        write(record, folder / f"attempt_{number}/state.json")
        write(record, folder / "state.json")


def turns(*rows: tuple[str, dict[str, object]]) -> str:
    """The event file of a loop that takes and gives back runs."""
    begun = ("runs", {"missing": [1, 2, 3], "most": 2, "groups": [1]})
    return events(*(("loop", word, "", json.dumps(about)) for word, about in (begun, *rows)))


TAKES, DIED = ("take", {"group": 1, "run": 1}), ("gives", {"group": 1, "run": 1, "why": "died"})


@pytest.mark.parametrize(
    ("reasons", "rows", "state", "failed", "why"),
    [
        (("killed",), [], "queued", 0, "attempt 1: killed"),
        (("killed",), [TAKES], "queued", 0, "attempt 1: killed"),
        (("killed",), [TAKES, DIED], "queued", 0, "attempt 1: killed"),
        (("killed", "gone"), [TAKES, DIED, TAKES, DIED], "failed", 1, "gone"),
    ],
)
def test_a_run_counts_as_failed_once_the_job_gives_it_up(
    tmp_path: Path,
    reasons: tuple[str, ...],
    rows: list[tuple[str, dict[str, object]]],
    state: str,
    failed: int,
    why: str,
) -> None:
    root = write_set(tmp_path, "s", submission=SENT, job=OWN)
    fails(root, 1, *reasons)
    (root / "events-7.tsv").write_text(turns(*rows))
    drawn = picture(SetEvidence(root), job("RUNNING"), Logs())
    table = run_table(drawn.runs)
    assert (table.rows[0][1], drawn.failed, table.below[0]) == (state, failed, why)
    assert ("failed" in headline(drawn)) == bool(failed)
    sentence = explain(SetEvidence(root), drawn).sentence
    assert sentence == "the next run of 3 is about to start"
    write(replace(OWN, state="cancelled", ended_ms=9_000), root / "jobs/7.json")
    ended = picture(SetEvidence(root), job("CANCELLED"), Logs())
    assert (run_table(ended.runs).rows[0][1], ended.failed) == ("failed", 1)


@pytest.mark.parametrize(
    ("later_ms", "shown"), [(701_000, "11m40s, of which 1m40s in jobs"), (101_000, "1m40s")]
)
def test_elapsed_time_says_what_jobs_had_of_it(tmp_path: Path, later_ms: int, shown: str) -> None:
    first = replace(OWN, state="cancelled", started_ms=1_000, ended_ms=61_000)
    begin = later_ms - 40_000
    root = write_set(tmp_path, "s", submission=SENT, job=first)
    last = replace(first, job_id="8", started_ms=begin, ended_ms=later_ms)
    write(last, root / "jobs/8.json")
    drawn = picture(SetEvidence(root), {}, Logs())
    assert dict(describe(drawn))["elapsed"] == shown


def test_an_interrupted_run_has_not_failed(tmp_path: Path) -> None:
    closed = replace(OWN, state="cancelled", ended_ms=9_000)
    root = write_set(tmp_path, "s", submission=SENT, job=closed)
    fails(root, 1, "cancelled", outcome="interrupted")
    lost = RunRecord(run=2, attempt=1, state="running", start_ms=5)
    write(lost, root / "runs/2/state.json")  # its job had no time to write its end
    drawn = picture(SetEvidence(root), job("CANCELLED"), Logs())
    assert drawn.failed == 0
    assert [row[1] for row in run_table(drawn.runs).rows] == [
        "interrupted",
        "interrupted",
        "queued",
    ]
    assert [run["state"] for run in as_json(drawn)["runs"]] == [run.state for run in drawn.runs]


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("success", "s is complete: all 3 runs are done; run 2 took 2 attempts"),
        ("running", "s is running: run 2 (attempt 2) of 3 is running"),
    ],
)
def test_a_run_that_was_tried_again_says_why(tmp_path: Path, state: str, sentence: str) -> None:
    own = replace(OWN, host=os.uname().nodename)
    if state == "success":
        own = replace(own, state="complete", ended_ms=9_000)
    root = write_set(tmp_path, "s", done=3, submission=SENT, job=own)
    good = read(RunRecord, root / "runs/2/state.json")
    assert isinstance(good, RunRecord)
    fails(root, 2, "node n1 (rank 0) was killed")
    for folder in ("runs/2/attempt_2", "runs/2"):
        (root / folder).mkdir(exist_ok=True)
        write(replace(good, attempt=2, state=state, outcome=""), root / folder / "state.json")
    why = "attempt 1: node n1 (rank 0) was killed"
    drawn = picture(SetEvidence(root), job("RUNNING"), Logs())
    assert run_table(drawn.runs).below == ["", why, ""]
    shown = as_json(drawn)["runs"][1]
    assert f"attempt {shown['failed_attempt']}: {shown['failure']}" == why
    found = explain(SetEvidence(root), drawn)
    assert f"s is {found.state}: {found.sentence}" == sentence
    proof = "runs/2/attempt_1/state.json: node n1 (rank 0) was killed"
    assert proof in map(str, found.evidence)


def test_a_complete_set_with_failed_runs_is_in_trouble(tmp_path: Path, cli: Commands) -> None:
    """Its last lines name the cause of its failed runs, and the command that tries them again."""
    closed = replace(OWN, state="complete", ended_ms=9_000)
    root = write_set(tmp_path, "s", submission=SENT, job=closed)
    for run in (1, 2):
        fails(root, run, "", "node n1 (rank 0) exited with 3; no run_stop")
    error = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB."
    record = read(RunRecord, root / "runs/2/attempt_2/state.json")
    assert isinstance(record, RunRecord)
    (root / "runs/2/attempt_2/node_0.log").write_text(error)
    write(replace(record, nodes=["n1"], start_ms=5), root / "runs/2/attempt_2/state.json")
    # The newest failed attempt is that of a run with a result.
    fails(root, 3, "node n1 (rank 0) exited with 1")
    late = RunRecord(run=3, attempt=1, state="failed", outcome="infrastructure", start_ms=7)
    write(late, root / "runs/3/attempt_1/state.json")
    good = RunRecord(run=3, attempt=2, state="success", outcome="success", start_ms=8, end_ms=9)
    write(good, root / "runs/3/state.json")
    drawn = picture(SetEvidence(root), job("COMPLETED"), Logs())
    assert headline(drawn).startswith("complete  1/3 done  2 failed")
    why, fix, command = closing_lines(drawn)
    assert why == "why: run 2 of 3 failed: the memory of a GPU is used up"
    assert fix.startswith("fix: ") and command == f"  orchestrator resume {root}"
    explained = cli("explain", root).out
    assert "run 2 of 3 failed: the memory of a GPU is used up" in explained
    assert explained.endswith(f"{command}\n")
    assert command in cli("status", root).out.splitlines()


def test_the_last_command_names_a_set_as_commands_find_it(
    tmp_path: Path, cli: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the end of its id with the site in use; by its path with a site that is named."""
    closed = replace(OWN, state="paused", reason="no node is left", ended_ms=9_000)
    log_dir = tmp_path / "sets"
    one, other = (
        write_set(log_dir, name, submission=SENT, job=closed)
        for name in ("S-w-20261121-101500-9f3c", "S-w-20261122-101500-77aa")
    )
    site = write_site(tmp_path / "site.yaml", log_dir)
    command = f"  orchestrator logs {one} --job"
    assert cli("status", one).out.splitlines()[-1] == command
    assert cli("status", one, "--site", site).out.splitlines()[-1] == command
    monkeypatch.setenv("ORCHESTRATOR_SITE", str(site))
    for words in (("status",), ("explain",)):
        for root, name in ((one, "9f3c"), (other, "77aa")):
            assert cli(*words, root).out.splitlines()[-1] == f"  orchestrator logs {name} --job"
            assert cli.json("status", name)["set"] == str(root)
    assert cli.json("explain", one)["next"] == command.strip(), "programs get the path"
    write_set(log_dir, "S-w-20261123-101500-9f3c", submission=SENT, job=closed)
    last = cli("status", one).out.splitlines()[-1]
    assert last == "  orchestrator logs 20261121-101500-9f3c --job"
    elsewhere = write_set(tmp_path / "others", "S-w-20261121-101500-0001", job=closed)
    last = cli("status", elsewhere).out.splitlines()[-1]
    assert last == f"  orchestrator logs {elsewhere} --job"


def test_the_command_of_the_score_names_the_set(
    tmp_path: Path, cli: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a set it would score the newest one."""
    closed = replace(OWN, state="complete", ended_ms=9_000)
    old, _ = (
        write_set(tmp_path, name, done=3, submission=SENT, job=closed)
        for name in ("S-w-20261121-101500-9f3c", "S-w-20261122-101500-77aa")
    )
    monkeypatch.setenv("ORCHESTRATOR_SITE", str(write_site(tmp_path / "site.yaml", tmp_path)))
    out = cli("status", "9f3c").out
    [command] = re.findall(r"\(the score: orchestrator (.*)\)", out)
    assert command == "score 9f3c"
    assert json.loads(cli(*command.split(), "--json").out)["directory"] == str(old)


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (("a-w-1-9f3c",), "9f3c"),
        (("a-w-1-9f3c", "b-w-1-9f3c"), "a-w-1-9f3c"),
        (("a-w-1-9f3c", "a-w-2-9f3c"), "1-9f3c"),
        (("a-w-1-9f3c", "9f3c-w-2-0001"), "1-9f3c"),
        (("s", "a-s"), "s"),
    ],
)
def test_the_shortest_name_is_found_again(
    tmp_path: Path, names: tuple[str, ...], short: str
) -> None:
    root, *_ = [write_set(tmp_path, name) for name in names]
    assert short_name(root, tmp_path) == short
    assert find_set(short, tmp_path) == root


def test_run_says_why_no_run_of_a_complete_set_has_a_result(
    tmp_path: Path, cli: Commands, site: Path
) -> None:
    words = one_node(tmp_path, site)
    (tmp_path / "code/run_and_time.sh").write_text("echo 'broken part'; exit 3\n")
    cli("run", *words)
    last = [line for line in (cli.out + cli.err).splitlines() if line][-3:]
    assert cli.code == ExitCode.NO_SCORE and "complete  0/1 done  1 failed" in cli.out
    assert last[0].startswith("why: run 1 of 1 failed: ")
    assert last[1] == "fix: look at its log, then resume"
    show, _, options = last[2].partition(" --run ")
    assert show.startswith(f"  orchestrator logs {tmp_path}/sets/")
    assert options.startswith("1 --attempt 3 --node ")
    explained = cli("explain", show.split()[-1]).out
    assert "runs/1/attempt_3/node_0.log:1: broken part\n" in explained
    assert explained.endswith(f"{last[2]}\n")

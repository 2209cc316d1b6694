"""One verdict on a silent run: what the loop decides, and what every command shows of the same set folder."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from controller_parts import Commands, mllog, write_set
from hypothesis import given
from hypothesis import strategies as st
from sites import write_site
from until import make_older, now_ms

from orchestrator.cli.frame import many_sets, one_set
from orchestrator.evidence.events import parse_event, read_events
from orchestrator.evidence.explain import explain
from orchestrator.evidence.explanation import Explanation
from orchestrator.evidence.picture import SetPicture, as_json, look
from orchestrator.evidence.replay import replay
from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.silence import LOOP_SILENT_S, recorded
from orchestrator.onnode.kernel.events import UNIT, Event, EventLog, Pulse
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.records import JobRecord, RunRecord, write
from orchestrator.onnode.kernel.settings import Settings
from orchestrator.onnode.kernel.system import process_start
from orchestrator.onnode.loop.allocation import LocalAllocation
from orchestrator.onnode.loop.attempt_reports import AttemptReports, HangWatch
from orchestrator.onnode.loop.batch_job import BatchJob
from orchestrator.onnode.loop.group import Group
from orchestrator.onnode.loop.host import BatchHost
from orchestrator.scheduler.local import Local
from orchestrator.views.sets import describe, headline, left_text
from orchestrator.words import Screen

NODES = ["n0", "n1"]
JOB = f"local-{os.getpid()}-{process_start(os.getpid())}"
"""The job is this process: the scheduler shows it as running."""
SCREEN = Screen(120, signs="unicode")
MINUTE = 60_000
HUNG = (
    "hung: no output of any node for 600 s (limit 600 s: its evaluations came 30 s apart at most)"
)


def limits(**changes: int) -> Settings:
    values = {"nnodes": 2, "hang_multiple": 3, "hang_s": 1200, "hang_start_s": 5400, **changes}
    kinds = {"int": 0, "str": "", "tuple[str, ...]": (), "dict[str, str]": {}}
    names = Settings.__dataclass_fields__
    return Settings(
        **{name: values.get(name, kinds[str(item.type)]) for name, item in names.items()}
    )  # type: ignore[arg-type]


class Loop:
    """The real loop's part in an attempt, at moments that the test names."""

    def __init__(
        self, root: Path, run: int = 1, group: int = 1, settings: Settings | None = None
    ) -> None:
        job = BatchJob(root, settings or limits(), Layout(root), world := BatchHost())
        job.allocation, job.job_id, job.log = LocalAllocation({}, 2, world), JOB, lambda text: None  # type: ignore[method-assign]
        self.path = Layout(root).events(JOB if group == 1 else f"{JOB}.{group}")
        self.group = Group(job, NODES, EventLog(self.path), group)
        self.group.record.start_attempt(run, 1)
        self.reports = AttemptReports(run, 1, NODES)
        self.watch = HangWatch(self.group, self.reports)
        self.group.record.note("go", detail=self.reports.id)

    def hears(self, node: str, pulse: Pulse) -> None:
        self.reports.take_pulse(node, self.reports.id, pulse)

    def decides(self, now: float = 0.0, left: list[str] = NODES) -> str:
        """Why the attempt is ended at `now` while `left` run, "" if it is not."""
        for _ in self.watch.check(left, now):
            pass
        return self.watch.stop_reason

    def at(
        self,
        quiet_ms: int,
        began: int = 1,
        interval_ms: int = 0,
        stopped: int = 0,
        now: float = 0.0,
    ) -> str:
        """Its decision when the first node has been quiet for so long, and the other one for longer."""
        self.hears("n0", Pulse(quiet_ms, began, interval_ms, stopped))
        self.hears("n1", Pulse(quiet_ms + 100_000, 0, 0, 0))
        return self.decides(now)

    def pulses(self) -> list[Event]:
        return [event for event in read_events(self.path) if event.word == "pulse"]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A set whose run 1 is running on two nodes; the signals that a loop takes over are given back."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)
    before, wakeup = (
        {number: signal.getsignal(number) for number in numbers},
        signal.set_wakeup_fd(-1),
    )
    write_site(tmp_path / "site.yaml", tmp_path / "sets")
    started = now_ms() - 30_000
    job = JobRecord(
        job_id=JOB,
        state="running",
        host=os.uname().nodename,
        started_ms=started,
        run=1,
        attempt=1,
        nodes=NODES,
    )
    folder = write_set(tmp_path / "sets", "S-w-20261121-101500-9f3c", scheduler="local", job=job)
    goes_on(folder, 1)
    yield folder
    signal.set_wakeup_fd(wakeup)
    for number, handler in before.items():
        signal.signal(number, handler)


def goes_on(root: Path, run: int) -> None:
    attempt = root / f"runs/{run}/attempt_1"
    attempt.mkdir()
    going = RunRecord(run=run, attempt=1, state="running", start_ms=now_ms() - 20_000, nodes=NODES)
    write(going, attempt / "state.json")
    write(going, attempt.parent / "state.json")
    (attempt / "node_0.log").write_text(mllog("eval_start", 1, None))


def drawn(root: Path) -> tuple[SetPicture, Explanation]:
    [picture] = look([root], [Local()])
    return picture, explain(SetEvidence(root), picture)


def aged(path: Path, seconds: float, *, storage: bool = True) -> None:
    """Make an event file look as if nothing had been written for so long; with `storage`, by the storage's clock too."""
    events = [parse_event(line) for line in path.read_bytes().splitlines(keepends=True)]
    rows = [
        (event.ms - int(1000 * seconds), event.source, event.word, event.node, event.detail)
        for event in events
        if event
    ]
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    if storage:
        make_older(path, seconds)


# ---- one verdict


@pytest.mark.parametrize(
    ("pulse", "verdict"),
    [
        (Pulse(299_000, 1, 30_000, 0), ""),
        (Pulse(420_000, 1, 30_000, 0), "run 1: silent for 7 min; ended as hung after 10 min"),
        (Pulse(599_999, 1, 30_000, 0), "run 1: silent for 9 min; ended as hung after 10 min"),
        (Pulse(420_000, 1, 400_000, 0), ""),  # its own rhythm: 20 minutes
        (Pulse(610_000, 1, 400_000, 0), "run 1: silent for 10 min; ended as hung after 20 min"),
        (Pulse(1000_000, 0, 0, 0), ""),  # it compiles
        (Pulse(50 * MINUTE, 0, 0, 0), "run 1: silent for 50 min; ended as hung after 90 min"),
        (Pulse(20 * MINUTE, 1, 0, 0), ""),
        (Pulse(30 * MINUTE, 1, 0, 0), "run 1: silent for 30 min; ended as hung after 60 min"),
        (Pulse(301_000, 1, 400_000, 1), "run 1: silent for 5 min; ended as hung after 10 min"),
        (
            Pulse(600_000, 1, 30_000, 0),
            f"run 1: {HUNG}; the loop is ending it",
        ),
    ],
)
def test_everybody_shows_what_the_loop_decides(
    root: Path, cli: Commands, pulse: Pulse, verdict: str
) -> None:
    decision = Loop(root).at(*pulse)
    assert bool(decision) == ("the loop is ending it" in verdict)
    assert decision.partition("; evidence")[0] in verdict
    picture, result = drawn(root)
    assert picture.reason == verdict
    status = cli.json("status", root)
    assert (status["state"], status["reason"]) == ("running", verdict)
    [shown] = [run for run in status["runs"] if run["state"] == "running"]
    limit = {600: 600, 1200: 1200, 3600: 3600, 5400: 5400}[int(shown["hang_limit_s"])]
    assert (shown["quiet_s"] >= limit) == bool(decision)
    explained = cli.json("explain", root)
    assert explained["sentence"] == (verdict or "run 1 (attempt 1) of 3 is running")
    assert explained["cause"] == ("hung" if decision else "silent" if verdict else "running")
    assert "cancel" not in explained["remedy"] + explained["next"] + explained["sentence"]
    assert any(f"limit {limit} s" in proof["text"] for proof in explained["evidence"])
    assert (result.cause, result.sentence) == (explained["cause"], explained["sentence"])
    for text in (
        headline(picture),
        "\n".join(one_set(picture, SCREEN, 24)),
        "\n".join(many_sets([picture], SCREEN, 24)),
        cli("status", root).out,
    ):
        assert " ".join(verdict.split()[:6]) in " ".join(text.split())
    labels = f'set="{root.name}",run="1"' + "}"
    site = root.parents[1] / "site.yaml"
    samples = dict(
        line.split() for line in cli("metrics", "--site", site).out.splitlines() if labels in line
    )
    assert {name.partition("{")[0]: float(value) for name, value in samples.items()} == {
        "orchestrator_live_run_quiet_seconds": shown["quiet_s"],
        "orchestrator_live_run_hang_limit_seconds": limit,
    }


def test_the_node_that_stands_out_is_named_while_the_run_is_silent(
    root: Path, cli: Commands
) -> None:
    loop = Loop(root)
    loop.at(70_000, interval_ms=5_000)
    for node, activity in zip(
        NODES, ("in all_reduce", "stopped: rank 1 does not run (state T)"), strict=True
    ):
        loop.reports.doing[node] = activity
    loop.at(75_000, interval_ms=5_000, now=5.0)
    sentence = (
        "run 1: silent for 70 s; ended as hung after 10 min; "
        "node n1 (rank 1): stopped: rank 1 does not run (state T)"
    )
    assert cli.json("status", root)["reason"] == sentence
    assert sentence in " ".join(cli("status", root).out.split())
    loop.at(1_000, interval_ms=5_000, now=60.0)
    assert cli.json("status", root)["reason"] == ""


def test_a_log_that_does_not_grow_is_no_verdict(root: Path) -> None:
    """Another node prints, or the storage shows the log late: the loop knows."""
    loop = Loop(root)
    loop.at(5_000)
    make_older(root / "runs/1/attempt_1/node_0.log", 3960)
    picture, result = drawn(root)
    assert (picture.reason, result.cause) == ("", "running")
    assert (
        "last line 1h06m ago" in (text := "\n".join(one_set(picture, SCREEN, 24)))
        and "ago !" not in text
    )


def test_a_record_of_the_loop_is_shown_with_its_age(root: Path) -> None:
    """It makes one a minute, about the time before it."""
    loop = Loop(root)
    loop.at(5_000)
    aged(loop.path, 45)
    record = drawn(root)[1].evidence[0].text
    age = re.fullmatch(r"(\d+) s ago: no output of any node for 5 s \(.*\)", record)
    assert age and int(age[1]) >= 45, record


def test_a_record_without_silence_is_no_evidence(root: Path) -> None:
    Loop(root).at(0)
    assert not [proof for proof in drawn(root)[1].evidence if "no output" in proof.text]


def test_a_late_run_shows_its_silence_and_promises_no_end(root: Path) -> None:
    """Long before the limit of a hang: the record of the loop is a minute old, the log is not."""
    goes_on(root, 2)
    (root / "runs/2/attempt_1/node_0.log").write_text(mllog("eval_start", 1, None))
    good = RunRecord(run=1, attempt=1, state="success", start_ms=1_000, end_ms=2_000, nodes=NODES)
    for folder in ("runs/1", "runs/1/attempt_1"):
        write(good, root / folder / "state.json")
    Loop(root, 2).at(0)
    make_older(root / "runs/2/attempt_1/node_0.log", 3660)
    picture, result = drawn(root)
    assert left_text(picture) == "" and as_json(picture)["left_s"] is None
    facts = describe(picture)
    assert ("left", "unknown: run 2 takes longer than any before it") in facts
    [now] = [value for name, value in facts if name == "now"]
    assert now.startswith("run 2 of 3, ") and now.endswith("; last line 1h01m ago")
    assert result.sentence == "run 2 takes longer than any before it; last line 1h01m ago"
    assert (result.cause, result.next) == (
        "slow",
        f"orchestrator logs {root} --run 2 --attempt 1",
    )
    assert "its log" in result.remedy
    assert result.evidence[-1].text == "the last MLLOG key is eval_start; last line 1h01m ago"


def test_a_run_does_not_hang_once_the_only_node_that_printed_has_ended(root: Path) -> None:
    """Two hours without output before run_start: the limit is 90 minutes, and the run has just converged."""
    loop = Loop(root)
    loop.hears("n0", Pulse(1_000, 1, 60_000, 1))
    loop.hears("n1", Pulse(120 * MINUTE, 0, 0, 0))
    assert loop.decides() == ""
    loop.reports.take(Event(0, "node", "exit", "n0", UNIT.join(("1.1", "0", "1", "2", "success"))))
    assert loop.decides(left=["n1"]) == ""


def test_a_run_that_is_never_ended_as_hung_is_not_said_to_be(root: Path) -> None:
    assert Loop(root, settings=limits(hang_multiple=0)).at(10**9) == ""
    picture, _ = drawn(root)
    assert (
        picture.reason == ""
        and picture.going[0].silence is not None
        and picture.going[0].silence.silence is not None
    )


def test_no_verdict_before_every_node_has_sent_a_pulse(root: Path) -> None:
    loop = Loop(root)
    loop.hears("n0", Pulse(10**7, 1, 1000, 0))
    assert loop.decides() == "" and drawn(root)[0].reason == ""


def test_of_several_runs_the_most_urgent_is_shown(root: Path) -> None:
    goes_on(root, 2)
    Loop(root).at(400_000, 1, 30_000)
    Loop(root, 2, group=2).at(700_000, 1, 30_000)
    job = JobRecord(
        job_id=JOB, state="running", host=os.uname().nodename, started_ms=1, nodes=NODES
    )
    write(job, root / f"jobs/{JOB}.json")
    picture, result = drawn(root)
    assert picture.reason.startswith("run 2: hung: ") and result.cause == "hung"
    assert [run.silence.cause for run in picture.going if run.silence] == ["silent", "hung"]


# ---- what is on record


def test_pulses_are_recorded_once_a_minute_and_when_the_stage_changes(root: Path) -> None:
    loop = Loop(root)
    loop.decides(0)  # nobody has answered yet: this shows that the loop records pulses
    for now in range(15, 600, 15):
        loop.at(1000 * now, began=0, now=now)
    assert len(loop.pulses()) == 1 + 10
    loop.at(100, began=1, now=600)  # run_start
    loop.at(100, began=1, now=601)
    loop.at(100, began=1, interval_ms=230_000, now=602)  # the first evaluation
    loop.at(100, began=1, interval_ms=230_000, now=640)
    loop.at(346_000, began=1, interval_ms=230_000, now=641)  # half of the limit
    loop.at(100, began=1, interval_ms=230_000, stopped=1, now=642)  # run_stop
    kept = [result for event in loop.pulses() if (result := recorded(event))]
    assert [
        (silence.limit_ms, silence.unheard, silence.pulse.quiet_ms) for _, silence in kept[11:]
    ] == [
        (3_600_000, 0, 100),
        (690_000, 0, 100),
        (690_000, 0, 346_000),
        (600_000, 0, 100),
    ]
    assert {attempt for attempt, _ in kept} == {"1.1"}


def test_a_run_of_92_minutes_costs_six_kilobytes_on_any_number_of_nodes(root: Path) -> None:
    loop = Loop(root)
    before = loop.path.stat().st_size
    for now in range(0, 92 * 60, 15):
        loop.at(
            now % 20_000, began=int(now > 600), interval_ms=220_000 if now > 900 else 0, now=now
        )
    assert 92 <= len(loop.pulses()) <= 96
    assert loop.path.stat().st_size - before < 6_000


def test_replay_decides_again_how_long_a_run_may_be_silent(root: Path) -> None:
    loop = Loop(root)
    loop.decides()
    loop.at(420_000, 1, 30_000)
    loop.at(620_000, 1, 30_000)
    result = replay(read_events(loop.path))
    assert (result.decisions, result.differences) == (4, [])
    text = loop.path.read_text()
    loop.path.write_text(text.replace(f"1.1{UNIT}600000", f"1.1{UNIT}900000"))
    assert [difference.event.word for difference in replay(read_events(loop.path)).differences] == [
        "pulse",
        "pulse",
    ]


def test_event_files_without_pulses_give_no_verdict(root: Path) -> None:
    loop = Loop(root)
    loop.at(420_000, 1, 30_000)
    rows = loop.path.read_text().splitlines(keepends=True)
    loop.path.write_text("".join(row for row in rows if "\tpulse\t" not in row))
    aged(loop.path, 10_000)
    picture, result = drawn(root)
    assert (picture.reason, result.cause, picture.going[0].silence) == ("", "running", None)
    loop.path.unlink()
    assert drawn(root)[0].reason == ""


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_a_damaged_pulse_is_none(detail: str) -> None:
    result = recorded(Event(1, "loop", "pulse", "", detail))
    assert result is None or result[1].detail(result[0]).count(UNIT) == 6


# ---- the loop itself


@pytest.mark.parametrize("quiet_ms", [1000, 420_000, 700_000])
def test_a_loop_that_does_not_write_is_a_finding_of_its_own(
    root: Path, cli: Commands, quiet_ms: int
) -> None:
    loop = Loop(root)
    loop.at(quiet_ms, 1, 30_000)
    aged(loop.path, LOOP_SILENT_S + 120)
    picture, result = drawn(root)
    assert (
        picture.reason
        == "the loop is silent: it has recorded nothing for 7 min while run 1 is running"
    )
    assert (result.cause, result.sentence) == ("loop_silent", picture.reason)
    assert result.next == f"orchestrator logs {root} --job"
    assert "the loop is silent" in cli("status", root).out
    loop.group.record.note("outcome", detail={})
    assert drawn(root)[0].reason == ""


def test_a_wrong_clock_does_not_make_the_loop_silent(root: Path) -> None:
    loop = Loop(root)
    loop.at(1000, 1, 30_000)
    aged(loop.path, 4000, storage=False)  # the batch host's clock is behind
    assert drawn(root)[0].reason == ""
    aged(loop.path, -4000)  # it is ahead
    assert drawn(root)[0].reason == ""

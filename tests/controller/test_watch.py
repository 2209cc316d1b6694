"""The live view: on a real pseudo-terminal of 80x24, as lines, as a stream of objects, and of several sets."""

from __future__ import annotations

import codecs
import fcntl
import io
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from controller_parts import Commands, mllog, write_set
from sites import write_site
from until import now_ms, until

from orchestrator.cli import closing
from orchestrator.cli.frame import bar, cropped, curve, many_sets, one_set
from orchestrator.cli.fullscreen import FullScreen
from orchestrator.cli.watch import (
    VIEWS,
    Explained,
    View,
    WaitReason,
    _below,
    _log_lines,
    _telling,
)
from orchestrator.evidence.picture import RunPicture, SetPicture, look, picture
from orchestrator.evidence.progress import Evaluation, KeptLogs, time_left
from orchestrator.evidence.sets import SetEvidence, SubmissionRecord, open_set
from orchestrator.evidence.silence import RunSilence
from orchestrator.evidence.watch import WatchAll
from orchestrator.onnode.kernel.events import Pulse
from orchestrator.onnode.kernel.records import (
    Finding,
    JobRecord,
    RunRecord,
    SetRecord,
    read,
    write,
)
from orchestrator.onnode.policy.hang import Silence
from orchestrator.scheduler.local import Local
from orchestrator.scheduler.slurm import Slurm
from orchestrator.views.sets import describe, left_text
from orchestrator.words import PIPE, Screen, width_of

WIDE, HIGH = 80, 24
SCREEN = Screen(WIDE, signs="unicode")


class Terminal:
    """What a terminal makes of what is written to it, as far as the view uses one: two screens, and what scrolled away."""

    def __init__(self) -> None:
        self.main, self.other = [""], [""]
        self.alternate = self.cursor_hidden = False
        self.scrolled: list[str] = []
        self.row = self.column = 0
        self.written = ""

    @property
    def lines(self) -> list[str]:
        return self.other if self.alternate else self.main

    def feed(self, text: str) -> None:
        self.written += text
        for part in re.findall(r"\x1b\[\??[0-9;]*[A-Za-z]|[^\x1b]", text):
            if len(part) > 1:
                self._command(part)
            elif part == "\r":
                self.column = 0
            elif part == "\n":
                self._down()
            else:
                self._put(part)

    def _put(self, letter: str) -> None:
        if self.column >= WIDE:
            self._down()
            self.column = 0
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + letter + line[self.column + 1 :]
        self.column += 1

    def _down(self) -> None:
        if self.row == HIGH - 1:
            gone = self.lines.pop(0)
            if not self.alternate:
                self.scrolled.append(gone)
        else:
            self.row += 1
        if len(self.lines) <= self.row:
            self.lines.append("")

    def _command(self, code: str) -> None:
        match code[2:]:
            case "?1049h" | "?1049l":
                self.alternate = code.endswith("h")
                self.row, self.column = (0, 0) if self.alternate else (len(self.main) - 1, 0)
                if self.alternate:
                    self.other[:] = [""]
            case "?25h" | "?25l":
                self.cursor_hidden = code.endswith("l")
            case "H":
                self.row = self.column = 0
            case "K":
                self.lines[self.row] = self.lines[self.row][: self.column]
            case "J":
                self.lines[self.row] = self.lines[self.row][: self.column]
                del self.lines[self.row + 1 :]
            case code_ if code_.endswith("m"):
                pass
            case _:
                raise AssertionError(f"the view wrote {code!r}")


class Viewer:
    """`orchestrator watch` on a terminal of its own."""

    def __init__(self, *argv: str | Path, height: int = HIGH) -> None:
        self.terminal = Terminal()
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, WIDE, 0, 0))
        self.before = termios.tcgetattr(theirs)
        env = {
            name: value
            for name, value in os.environ.items()
            if name not in ("COLUMNS", "LINES", "NO_COLOR")
        }
        env |= {
            "TERM": "xterm",
            "PYTHONIOENCODING": "utf-8",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        arguments = [sys.executable, "-m", "orchestrator", *map(str, argv)]
        self.child = subprocess.Popen(
            arguments, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        self.theirs = theirs
        # A reading ends anywhere: within a letter, or within an escape sequence.
        self.decoder, self.rest = codecs.getincrementaldecoder("utf-8")(), ""

    def sees(self, text: str) -> None:
        until(
            lambda: self.look() and any(text in line for line in self.terminal.lines),
            self.terminal.lines,
        )

    def look(self) -> bool:
        while select.select([self.ours], [], [], 0.01)[0]:
            text = self.rest + self.decoder.decode(os.read(self.ours, 1 << 16))
            whole = re.search(r"(\x1b(\[\??[0-9;]*)?)?\Z", text).start()
            self.rest = text[whole:]
            self.terminal.feed(text[:whole])
        return True

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def end(self) -> int:
        until(lambda: self.look() and self.child.poll() is not None)
        self.look()
        assert termios.tcgetattr(self.theirs) == self.before, "the terminal is not as it was"
        os.close(self.ours)
        os.close(self.theirs)
        return self.child.returncode


@contextmanager
def growing(tmp_path: Path, name: str = "S-w-20261121-101500-9f3c") -> Iterator[Path]:
    """A set whose fourth run goes on: its job is this test, as its files say on another host."""
    job = JobRecord(
        job_id="local-1", state="running", host="far", started_ms=now_ms() - 400_000, run=4, attempt=2,
        nodes=["n1", "n2"], warnings=["clock: off (n1)", "limits: few files (n2)"],
    )  # fmt: skip
    sent = SubmissionRecord(number=1, state="submitted", job_id="local-1", requested_ms=1)
    root = write_set(tmp_path, name, nexp=30, done=3, scheduler="local", submission=sent, job=job)
    attempt = root / "runs/4/attempt_2"
    attempt.mkdir()
    going = RunRecord(
        run=4, attempt=2, state="running", start_ms=now_ms() - 30_000, nodes=["n1", "n2"]
    )
    write(going, attempt / "state.json")
    write(going, attempt.parent / "state.json")
    text = "".join(mllog("eval_error", k, 0.9 - k / 20, samples_count=k) for k in range(1, 7))
    text += "".join(mllog("tracked_stats", k, {"throughput": 100.0 + k}) for k in range(1, 7))
    (attempt / "node_0.log").write_text(f"step 1 \x1b[31mred\x1b[0m\n{text}last words of the log\n")
    yield root


def finish(root: Path, state: str = "complete") -> None:
    job = read(JobRecord, root / "jobs/local-1.json")
    assert isinstance(job, JobRecord)
    ended = replace(job, state=state, ended_ms=job.started_ms + 400_000)
    write(ended, root / "jobs/local-1.json")


def test_a_terminal_of_80_by_24_keeps_one_summary(tmp_path: Path) -> None:
    with growing(tmp_path) as root:
        viewer = Viewer("watch", root, "--interval", "0.1")
        viewer.sees("q detach")
        shown = viewer.terminal
        assert shown.alternate and shown.cursor_hidden and len(shown.lines) <= HIGH
        text = "\n".join(shown.lines)
        assert (
            "3 of 30 done" in text
            and "run 4" in text
            and "attempt 2" in text
            and "0.6, target 0.5" in text
        )
        assert (
            "106 samples/s" in text
            and "until" in text
            and "so far" in text
            and "(and 1 more: w)" in text
        )
        assert shown.lines[0].rstrip() == root.name and shown.lines[-1].rstrip().endswith(
            "q detach"
        )
        viewer.press("l")
        viewer.sees("last words of the log")
        assert "\x1b[31mred" not in shown.written
        viewer.press("n")
        viewer.sees("RANK")
        viewer.press("e")
        viewer.sees("run 4 (attempt 2) of 30 is running")
        viewer.sees("node_0.log: the last MLLOG key is tracked_stats")
        assert not any("orchestrator watch" in line for line in shown.lines), "it is running"
        viewer.press("?")
        viewer.sees("w  warnings: all warnings and damaged files")
        viewer.press("w")
        viewer.sees("limits: few files (n2)")
        viewer.press("w")
        viewer.sees("TIME TO TRAIN")
        fcntl.ioctl(viewer.ours, termios.TIOCSWINSZ, struct.pack("HHHH", 12, WIDE, 0, 0))
        until(lambda: viewer.look() and len(shown.lines) <= 12, shown.lines)
        finish(root)
        assert viewer.end() == 0
    assert not shown.alternate and not shown.cursor_hidden
    kept = [*shown.scrolled, *shown.main]
    assert (
        sum("every run is final" in line for line in kept) == 1
        and sum("TIME TO TRAIN" in line for line in kept) == 1
    )
    assert not any("q detach" in line for line in kept) and "elapsed" in "\n".join(kept)


@pytest.mark.parametrize(
    ("keys", "code"), [("q", 130), ("lq", 130), ("\x1b[1;5C\x1bOAq", 130), ("\x03", 130)]
)
def test_detaching_leaves_the_job(tmp_path: Path, keys: str, code: int) -> None:
    with growing(tmp_path) as root:
        viewer = Viewer("watch", root)
        viewer.sees("q detach")
        if keys == "\x03":
            viewer.child.send_signal(2)
        else:
            viewer.press(keys)
        assert viewer.end() == code
    kept = "\n".join([*viewer.terminal.scrolled, *viewer.terminal.main])
    assert "reattach: orchestrator watch" in kept and not viewer.terminal.alternate


def test_a_killed_view_gives_the_terminal_back(tmp_path: Path) -> None:
    with growing(tmp_path) as root:
        viewer = Viewer("watch", root)
        viewer.sees("q detach")
        viewer.child.terminate()
        assert viewer.end() == 128 + 15
    assert not viewer.terminal.alternate and not viewer.terminal.cursor_hidden


def test_objects_come_when_something_changes(tmp_path: Path) -> None:
    with growing(tmp_path) as root:
        argv = [sys.executable, "-m", "orchestrator", "watch", root, "--json", "--interval", "0.1"]
        env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            first = json.loads(child.stdout.readline())
            assert first["state"] == "running" and first["current_run"] == 4 and first["left_s"] > 0
            [going] = [run for run in first["runs"] if run["state"] == "running"]
            assert going["rate"] == 106.0 and going["silent_s"] >= 0 and "rates" not in going
            with (root / "runs/4/attempt_2/node_0.log").open("a") as log:
                log.write(mllog("eval_error", 9, 0.55, samples_count=9))
            second = json.loads(child.stdout.readline())
            assert second["evaluation"]["value"] == 0.55
            finish(root, "paused")
            rest = child.stdout.readlines()
        assert [json.loads(line)["state"] for line in rest] == ["paused"] and child.returncode == 5


def test_all_sets_that_go_on(tmp_path: Path, cli: Commands) -> None:
    site = write_site(tmp_path / "site.yaml", tmp_path / "sets")
    assert cli("watch", "--all", "--site", site).code == 0 and "no set is running" in cli.err
    assert cli("watch", "x", "--all", "--site", site).code == 2
    with (
        growing(tmp_path / "sets") as root,
        growing(tmp_path / "sets", "S-w-20261122-101500-77aa") as other,
    ):
        write_set(
            tmp_path / "sets", "done", job=JobRecord(job_id="1", state="complete", started_ms=1)
        )
        seen: list[list[str]] = []
        looks = WatchAll(tmp_path / "sets", 0.1).pictures(
            lambda _: finish((root, other)[len(seen) - 1])
        )
        for result in looks:
            seen.append([f"{each.set_id[-4:]} {each.state}" for each in result])
        assert seen == [
            ["77aa running", "9f3c running"],
            ["77aa running", "9f3c complete"],
            ["77aa complete", "9f3c complete"],
        ]
    with (
        growing(tmp_path / "sets", "S-w-20261123-101500-0001") as root,
        growing(tmp_path / "sets", "S-w-20261123-101500-0002") as two,
    ):
        viewer = Viewer("watch", "--all", "--site", site, "--interval", "0.1")
        viewer.sees("q detach")
        text = "\n".join(viewer.terminal.lines)
        assert root.name in text and two.name in text and "…0001" in text and "run 4 of 30" in text
        finish(root)
        finish(two)
        assert viewer.end() == 0
    kept = [*viewer.terminal.scrolled, *viewer.terminal.main]
    assert sum(root.name in line for line in kept) == 1 and not viewer.terminal.alternate


# ---- the frame alone ----


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (160, 50), (20, 3)])
def test_a_frame_fits(tmp_path: Path, width: int, height: int) -> None:
    with growing(tmp_path) as root:
        drawn = picture(SetEvidence(root), {}, KeptLogs())
    for colour in (False, True):
        screen = Screen(width, colour=colour, signs="unicode")
        lines = one_set(drawn, screen, height)
        assert len(lines) <= height
        assert max(width_of(re.sub(r"\x1b\[\d*m", "", line)) for line in lines) <= width
        assert len(many_sets([drawn] * 40, screen, height)) <= height
    if height >= 24:
        assert any(
            line.startswith("  4  ▸ running")
            for line in one_set(drawn, Screen(width, signs="unicode"), height)
        )


def test_the_frame_of_an_ended_set_has_no_running_run(tmp_path: Path) -> None:
    with growing(tmp_path) as root:
        live = "\n".join(one_set(picture(SetEvidence(root), {}, KeptLogs()), SCREEN, 24))
        finish(root, "cancelled")
        ended = "\n".join(one_set(picture(SetEvidence(root), {}, KeptLogs()), SCREEN, 24))
    assert "▸ running" in live and "so far;" in live
    assert (
        "▸ running" not in ended
        and "! interrupted" in ended
        and re.search("\ntime +6m40s\n", ended)
    )


def test_a_run_that_takes_too_long_has_no_full_bar() -> None:
    done = RunPicture(1, "success", done=True, seconds=2.1)
    going = RunPicture(2, "running", attempt=1, seconds=54.0)
    record = SetRecord(set_id="s", system="S", nexp=2, nodes=1)
    drawn = SetPicture(
        Path("s"), "s", "running", record=record, runs=(done, going), going=(going,), current=2
    )
    text = "\n".join(one_set(drawn, SCREEN, 24))
    assert "run 2  54s, longer than the usual 2.1s" in text
    going = replace(going, seconds=2.1)
    soon = replace(drawn, runs=(done, going), going=(going,), started_ms=1)
    assert left_text(soon) == "about to end"
    assert "█ 2.1s of about 2.1s" in "\n".join(one_set(soon, SCREEN, 24))


def test_the_rows_of_a_running_set_do_not_wrap() -> None:
    """Long curves, a second attempt and a silent log on 80 columns."""
    run = RunPicture(
        10, "running", attempt=2, seconds=40_000.0, silent_s=400.0,
        evaluation=Evaluation(0.03265, 5, 9),
        evaluations=tuple(1 / k for k in range(1, 40)), rates=(157_500.0, 157_600.0) * 15,
    )  # fmt: skip
    done = RunPicture(1, "success", done=True, seconds=50_000.0)
    record = SetRecord(set_id="s-0001", system="S", nexp=2, nodes=1, target=0.033)
    drawn = SetPicture(
        Path("s-0001"), "s-0001", "running", record=record, runs=(done, run), going=(run,), current=10,
        attempt=2, evaluation=run.evaluation, started_ms=1, warnings=("w" * 9 + " x" * 90,) * 2,
    )  # fmt: skip
    screen = Screen(80, signs="unicode")
    facts = one_set(drawn, screen, 24)[1:]
    facts = facts[: facts.index("")]
    assert max(map(width_of, facts)) <= 80
    wrapped = [line for line in facts if line.startswith(" ")]
    [curves] = wrapped
    assert curves.endswith(" 157,600 samples/s") and ", target 0.033   " in curves
    assert len(re.findall("[▁-█]{4,}", curves)) == 2
    assert facts[-1].endswith("… (and 1 more: w)")
    once = replace(drawn, attempt=1, going=(replace(run, attempt=1),))
    line = many_sets([once], screen, 24)[-1]
    assert line.startswith("…0001") and "until" in line and width_of(line) <= 80, line


EVIL = "\x1b]0;owned\x07\x1b[2J\x9b\u202e"


def spoilt(value: Any) -> Any:
    """Put what a terminal obeys into every text of a picture."""
    if isinstance(value, str):
        return value + EVIL
    if isinstance(value, Path):
        return Path(f"{value}{EVIL}")
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(map(spoilt, value))
    if is_dataclass(value) and not isinstance(value, type):
        members = {item.name: spoilt(getattr(value, item.name)) for item in fields(value)}
        return replace(value, **members)
    return value


@pytest.mark.parametrize("chosen", ["", *VIEWS])
def test_no_view_shows_hidden_characters(tmp_path: Path, chosen: str) -> None:
    """The screen is written past the stream that cleans what others wrote."""
    with growing(tmp_path, f"S-w-20261121-101500-{EVIL}") as root:
        for path in root.rglob("*.json"):
            members = json.loads(path.read_bytes())
            evil = {"warnings": [EVIL], "reason": EVIL, "system": EVIL, "image": EVIL}
            evil |= {"set_aside": [{"node": "n1", "run": 1, "attempt": 1, "reason": EVIL}]}
            path.write_text(json.dumps(members | {k: v for k, v in evil.items() if k in members}))
        with (root / "runs/4/attempt_2/node_0.log").open("a") as log:
            log.write(f"{EVIL}\n" + mllog(f"key{EVIL}", 7, EVIL, more=EVIL))
        drawn = picture(SetEvidence(root), {}, KeptLogs())
        assert any(EVIL in warning for warning in drawn.warnings)
        hostile = spoilt(replace(drawn, state="running", findings=(Finding(root, "bad"),)))
        hostile = replace(hostile, state="running", root=root)
        for seen in (drawn, hostile):
            view = View(cast(FullScreen, SimpleNamespace(size=(WIDE, HIGH))), lambda _: [], "")
            view.chosen = chosen
            below = _below(open_set(root), seen, view, Explained(None))
            for screen in (SCREEN, PIPE):
                why = [f"why: {EVIL}", f"  orchestrator explain {EVIL}"]
                lines = one_set(seen, screen, 200, below, why) + many_sets([seen], screen, 200)
                assert "\\x1b]0;owned" in "\n".join(lines)
                assert [line for line in lines if not line.isprintable()] == []


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_a_character_gets_its_escape(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    FullScreen(keys=False).show(["evaluation ☃"])
    assert b"evaluation \\u2603" in cast(io.BytesIO, out.buffer).getvalue()


def test_the_log_view_shows_values(tmp_path: Path) -> None:
    """The head of an MLLOG line is as wide as a terminal, and the same in every line."""
    with growing(tmp_path) as root:
        log = root / "runs/4/attempt_2/node_0.log"
        where = {"file": "/workspace/code/flux/callbacks.py", "lineno": 107}
        stop = mllog("run_stop", 86_400_000, None, **where, status="success")
        log.write_text("step 1\n" + mllog("eval_error", 9, 0.6, **where, samples_count=64) + stop)
        drawn = picture(SetEvidence(root), {}, KeptLogs())
        path, *lines = _log_lines(open_set(root), drawn, 500, 24)
        narrow = _log_lines(open_set(root), drawn, 30, 24)
    shown = one_set(drawn, Screen(30), 60, narrow)
    head = shown[shown.index("") + 1 : shown.index("step 1")]
    assert "".join(head) == str(log), "no piece is cut off"
    assert head[-1] == "runs/4/attempt_2/node_0.log"
    assert path == str(log) and lines[0] == "step 1"
    clock = time.strftime("%H:%M:%S", time.localtime(0))
    assert lines[1:] == [
        f"{clock}  eval_error  0.6  samples_count 64",
        f'{clock}  run_stop  status "success"',
    ]


def test_the_published_time_stands_in_before_the_first_run_has_ended() -> None:
    record = SetRecord(
        set_id="s", system="MI325X_08x08x32", benchmark="flux1", round="6.0.0", nexp=2, nodes=8
    )
    silence = RunSilence(1, 1, Path("events"), Silence(Pulse(400_000, 1, 0, 0), 600_000))
    run = RunPicture(
        1,
        "running",
        attempt=1,
        seconds=60.0,
        evaluation=Evaluation(0.7, 5, 9),
        silent_s=400.0,
        silence=silence,
    )
    drawn = SetPicture(
        Path("s"),
        "s",
        "running",
        record=record,
        runs=(run, RunPicture(2, "queued")),
        going=(run,),
        current=1,
        started_ms=1,
    )
    assert drawn.left_s() is None
    assert left_text(drawn, 1_000_000.0).startswith("about 3h03m, until ")
    text = "\n".join(one_set(drawn, SCREEN, 24))
    assert "1m of about 1h32m" in text and "to beat 92.36 min (AMD, round 6.0)" in text
    assert "last line 6m40s ago !" in text


def test_the_screen_says_why_a_set_waits(tmp_path: Path, fake: Callable[[str, str], Path]) -> None:
    """Drained nodes: the fix is a line to paste, and Slurm is asked once for one reason."""
    asked = SubmissionRecord(
        number=1, job_name="orch-s", requested_ms=5, state="submitted", job_id="7"
    )
    root = write_set(tmp_path, "s", submission=asked)
    reason = "ReqNodeNotAvail, UnavailableNodes:node3"
    row = "\\x1f".join(("7", "PENDING", "0", "0", "", reason, "orch-s"))
    fake("squeue", f"printf '\\x1fMARK\\x1f{row}\\n'")
    fake("scontrol", 'echo "ClusterName             = beta"')
    calls = fake("sinfo", "printf 'node3\\x1fdrained\\x1fbad fan\\n'")
    [drawn] = look([root], [Slurm()])
    waiting = WaitReason(None)
    lines = one_set(drawn, SCREEN, 24, None, waiting.why(drawn))
    assert any(line.startswith("why: ") for line in lines), lines
    assert all(width_of(line) <= WIDE for line in lines)
    before = calls.read_text()
    assert waiting.why(drawn) and calls.read_text() == before
    assert waiting.why(replace(drawn, state="running")) == []


def test_the_explanation_is_read_again_only_for_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A screen draws every second, and the logs of a set are large."""
    read: list[str] = []
    real = closing.explained

    def counted(one: SetPicture, site: str | None) -> object:
        read.append(one.state)
        return real(one, site)

    monkeypatch.setattr(closing, "explained", counted)
    explained = Explained(None)
    with growing(tmp_path) as root:
        [drawn] = look([root], [Local()])
        first = explained.lines(drawn, 80)
        assert explained.lines(drawn, 80) == first and read == ["running"]
        assert first[0].startswith(f"{root.name} is running: ")
        explained.lines(replace(drawn, state="paused"), 80)
    assert read == ["running", "paused"]


@pytest.mark.parametrize(("stand_in", "named"), [(True, False), (False, True)])
def test_a_stand_in_has_nothing_to_beat(tmp_path: Path, stand_in: bool, named: bool) -> None:
    """Its log names the published benchmark, and says that it is none."""
    root = write_set(tmp_path, "s", done=1, scheduler="local")
    known = read(SetRecord, root / "set.json")
    assert isinstance(known, SetRecord)
    flux1 = {"system": "MI325X_08x08x32", "benchmark": "flux1", "round": "6.0"}
    write(replace(known, **flux1), root / "set.json")  # type: ignore[arg-type]
    log = root / "runs/1/result_1.txt"
    assert "to beat" in dict(describe(look([root], [Local()])[0])), "not known before it says so"
    more = {"stand_in": True} if stand_in else {}
    log.write_text(mllog("submission_benchmark", 1, "flux1", **more) + log.read_text())
    [drawn] = look([root], [Local()])
    assert ("to beat" in dict(describe(drawn))) is named
    assert ("to beat" in "\n".join(one_set(drawn, SCREEN, 24))) is named


def test_time_left() -> None:
    assert time_left(100, [30], 2) == 270
    assert time_left(100, [30, 50], 3) == 250
    assert time_left(100, [130], 0) == 0
    assert time_left(100, [], 2) == 200


def test_bars_curves_and_cuts() -> None:
    assert (
        bar(0.5, SCREEN, 4) == "██░░" and bar(7, SCREEN, 4) == "████" and bar(-1, PIPE, 4) == "----"
    )
    assert (
        curve([], SCREEN, 9) == ""
        and curve([3, 2, 1], SCREEN, 9) == "█▅▁"
        and curve([1, 1], SCREEN, 9) == "▄▄"
    )
    assert (
        curve([1.7e308, 0, -1.7e308], SCREEN, 9) == "█▅▁" and curve([0, 5e-324], SCREEN, 9) == "▄▄"
    )
    assert curve([3, 2], SCREEN, 9, also=1) == "█▅" and curve(range(100), SCREEN, 5)[-1] == "█"
    assert (
        cropped("\x1b[32mabcdef\x1b[0m", 3) == "\x1b[32mabc\x1b[0m"
        and cropped("\x1b[32mabc\x1b[0m", 3) == "\x1b[32mabc\x1b[0m"
    )


@pytest.mark.parametrize("depth", [10, 900, 990, 100_000])
def test_the_log_view_bears_records_of_any_depth(depth: int) -> None:
    value = "[" * depth + "]" * depth
    line = f':::MLLOG {{"key": "k", "value": {value}, "metadata": {{}}}}'.encode()
    assert _telling(line).strip()

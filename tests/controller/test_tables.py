"""What every command that prints a table looks like on terminals of 80, 100 and 160 columns, compared with tests/data/tables/.

The commands run in one process on a real pseudo-terminal. After a change that is meant: `GOLDEN=write pytest tests/controller/test_tables.py`,
and read the difference.
"""

from __future__ import annotations

import ast
import json
import math
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import set_of_logs
from controller_parts import Commands, mllog, write_set
from sites import write_site
from sources import PACKAGE, tree

from orchestrator.cli.doctor import summary, verdict
from orchestrator.cli.doctor import table as checks_table
from orchestrator.cli.frame import many_sets, one_set
from orchestrator.cli.nodes import history_table
from orchestrator.cli.preflight import lines as node_lines
from orchestrator.evidence.picture import look
from orchestrator.evidence.sets import SubmissionRecord
from orchestrator.model import Site, load_entry
from orchestrator.model.prerequisites import name_folders
from orchestrator.nodes.names import expand, fold
from orchestrator.onnode.kernel.records import (
    JobRecord,
    NodeRunRecord,
    RunRecord,
    SetRecord,
    read,
    write,
)
from orchestrator.onnode.policy.verdict import NodeVerdict, Row, Verdicts
from orchestrator.scheduler.local import Local
from orchestrator.scheduler.slurm_site import Partition
from orchestrator.site.remedies import Remedies, through_slurm
from orchestrator.views.figures import moment
from orchestrator.views.nodes import LEGEND
from orchestrator.views.parts import FactList, Table
from orchestrator.views.terminal import lines as part_lines
from orchestrator.words import (
    MISSING,
    PIPE,
    Screen,
    duration,
    local_time,
    rate,
    train_time,
    utc_time,
    width_of,
)

GOLDEN = set_of_logs.DATA.parent / "tables"
WIDTHS = (80, 100, 160)
GOOD = "MI325X_08x08x32-flux1-20261121-101500-9f3c"
FAILED = "MI355X_1x8x1_Supermicro_MangoBoost-llama2_70b_lora-20261121-120000-77aa"
PAUSED = "MI325X_08x08x32-flux1-20261122-080000-1b2d"
RUNNING = "MI325X_08x08x32-flux1-20261123-060000-5c1e"
MI325X = {
    "system": "MI325X_08x08x32", "workload": "flux1", "benchmark": "flux1", "round": "6.0.0",
    "target": 0.586, "metric": "eval_error", "target_is_upper_bound": True, "nodes": 8,
    "engine": "docker",
}  # fmt: skip
CHECKED = (
    Row("here", "version", "pass", 0, "orchestrator 1.0, Python 3.11.7"),
    Row("here", "site", "pass", 0, "/home/you/site.yaml (site)"),
    Row(
        "here", "slurm", "pass", 0,
        f"reachable; partition batch: {Partition('batch', True, True, 'infinite', 8, 8).description}",
    ),
    Row(
        "here", "contract", "skip", 0, "rocm/amd-mlperf:flux1_training_6.0 was not inspected",
        "orchestrator images inspect MI325X_08x08x32 flux1",
    ),
    *(Row("node01", check, "pass", 1, "8 GPUs") for check in ("gpu_count", "gpu_model")),
    Row("node01", "data", "fail", 1, "DATADIR is not set", "give the site file data.flux1.DATADIR, or export DATADIR"),
    Row("node01", "rdma", "fail", 1, "rdma3: DOWN", "check the cable, the switch port and rdma link; docs/network.md"),
    Row(
        "node01", "image", "warn", 1, "image rocm/amd-mlperf:flux1_training_6.0 is not on this node yet",
        "it will be pulled when the job starts, which may take a while",
    ),
)  # fmt: skip
"""What `doctor` finds at a new site: no data folder is named, and a node has a cable that hangs loose."""
OF_NODES = {
    "node02": [Row("node02", "gpu_errors", "fail", 1, "uncorrectable errors since the driver was loaded: GPU 3: 2", "drain the node; reset or replace the GPU (amd-smi bad-pages)")],
    "node03": [Row("node03", "clock", "fail", 1, "its clock differs by 3100 ms from the batch host's", "synchronise it (chronyc makestep, or systemctl restart systemd-timesyncd)")],
    "node04": [Row("node04", check, "warn", 1, "cannot be checked: no amd-smi, rocm-smi or amdgpu driver", "install the amdgpu driver and amd-smi, or take another partition") for check in ("gpu_count", "gpu_model")],
}  # fmt: skip
LIMITED = (
    "limits", "warn", 1, "open files are limited to 1024",
    "nofile 65536 or more (limits.conf, slurmd's LimitNOFILE, --ulimit nofile=1048576)",
)  # fmt: skip
COMMAND_LINES = (
    "$ orchestrator ",
    "  orchestrator ",
    "fix: orchestrator ",
    "ORCH_SET_DIR=",
    "hint: orch",
)
"""To be pasted: never broken."""
NODES = [f"node{number:02}" for number in range(1, 9)]
LOGS = set_of_logs.MI355X.relative_to(set_of_logs.DATA)
COMMANDS = (
    "systems --gpu MI325X",
    "systems show MI355X_1x8x1",
    "systems show MI325X_08x08x32 --workload flux1",
    "systems show MI325X_08x08x32 --workload flux1 --why",
    "systems diff MI300X_08x08x32 MI325X_08x08x32",
    "status",
    f"status {GOOD}",
    "status 1b2d",
    "ls",
    "explain 1b2d",
    f"explain {FAILED}",
    "submit MI325X_08x08x32 flux1 --dry-run",
    f"report {GOOD} -o page.html",
    f"nodes {GOOD}",
    f"tune facts {GOOD}",
    "tune plan --nodes n1 --via local",
    f"score {LOGS}",
    f"compare 5.1/llama2_70b_lora/MI355X_1x8x1 {LOGS}",
    "prepare flux1 --check",
    "published --round 6.0 --benchmark flux1",
    "published --others --benchmark llama2_70b_lora",
)
NOW_S = 1_795_000_000
"""The time of these screens."""
RUN = """
import fcntl, json, os, shlex, struct, sys, termios, time
from orchestrator.cli import main
from orchestrator.onnode.kernel.world import World
time.time, time.time_ns = (lambda: NOW_S), (lambda: NOW_S * 10**9)
World.token = lambda self, size=8: "ab" * size
for width in json.loads(sys.argv[1]):
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    for line in json.loads(sys.argv[2]):
        print(f"$ orchestrator {line}   # {width} columns", flush=True)
        main(shlex.split(line))
        print(flush=True)
""".replace("NOW_S", str(NOW_S))


def remedies() -> Remedies:
    """Of a site that names no data."""
    site = Site(log_dir="/shared/results", partition="batch")
    entry = load_entry("MI325X_08x08x32", "flux1", site=site)
    return Remedies(entry, ["MI325X_08x08x32", "flux1"], through_slurm("batch"))


def checked_rows() -> list[Row]:
    """The rows of `doctor`, as it shows them."""
    named = remedies()
    text, fix = named.of_need(name_folders("flux1", {"DATADIR": ""}))
    return [*map(named.with_command, CHECKED), Row("here", "data", "fail", 0, text, fix)]


def node_verdicts() -> Verdicts:
    passed = [NodeVerdict(node, (Row(node, "engine", "pass", 1),)) for node in NODES[:7]]
    found = [
        replace(one, rows=(*one.rows, *OF_NODES.get(one.node, []), Row(one.node, *LIMITED)))
        for one in passed
    ]
    drained = NodeVerdict("node08", problem="drained: bad fan", asked=False)
    return Verdicts((*found, drained))


def record(root: Path, **members: object) -> None:
    known = read(SetRecord, root / "set.json")
    assert isinstance(known, SetRecord)
    write(replace(known, **members), root / "set.json")  # type: ignore[arg-type]


def make_sets(log_dir: Path) -> None:
    """A complete set of ten runs on eight nodes, one that failed, and one that paused."""
    first = JobRecord(
        job_id="4711", state="complete", started_ms=1_000, ended_ms=61_000_000, nodes=NODES
    )
    good = write_set(log_dir, GOOD, nexp=10, done=10, scheduler="local", job=first)
    record(good, **MI325X)
    for run in range(1, 11):
        attempt, minutes = good / f"runs/{run}/attempt_1", 92 + run / 7
        start = run * 6_000_000
        attempt_record = RunRecord(
            run=run, attempt=1, state="success", outcome="success", seed=1000 + run, nodes=NODES,
            start_ms=start, end_ms=start + int(60_000 * (minutes + 4)), exit_codes=dict.fromkeys(NODES, 0),
        )  # fmt: skip
        write(attempt_record, attempt / "state.json")
        write(attempt_record, attempt.parent / "state.json")
        begin, end = start + 120_000, start + 120_000 + int(60_000 * minutes)
        log = mllog("run_start", begin, None) + mllog("run_stop", end, None, status="success")
        (attempt.parent / f"result_{run}.txt").write_text(log)
        (attempt / "node_0.log").write_text(log)
        for rank, node in enumerate(NODES):
            late = 200_000 if node == "node07" else 0
            write(
                NodeRunRecord(
                    node=node,
                    rank=rank,
                    exit=0,
                    start_ms=start,
                    end_ms=attempt_record.end_ms + late,
                ),
                attempt / f"node_{rank}.json",
            )
    (good / "preflight").mkdir()
    rows = [f"{node}\tclock\tpass\t1\t\t\n" for node in NODES[1:]]
    rows.append(
        "node01\tclock\twarn\t1\tits clock is 3.1 s off the others'\tsynchronise it: chronyc makestep\n"
    )
    (good / "preflight/4711.tsv").write_text(
        "node\tcheck\tverdict\tms\ttext\tremedy\n" + "".join(rows)
    )

    reason = "no node is left: node01 has no image rocm/amd-mlperf:llama2_70b_training_5.1, and the registry said \x1b[31mdenied\x1b[0m"
    gone = JobRecord(
        job_id="4712",
        state="failed",
        reason=reason,
        started_ms=1_000,
        ended_ms=95_000,
        nodes=["node01"],
    )
    lora = {
        "system": "MI355X_1x8x1_Supermicro_MangoBoost",
        "workload": "llama2_70b_lora",
        "benchmark": "llama2_70b_lora",
    }
    record(
        write_set(log_dir, FAILED, nexp=10, scheduler="local", job=gone),
        **lora,
        round="5.1.0",
        target=0.925,
    )

    reason = "8 nodes are needed and 7 can be used: node03 was set aside (its container ended 3 times in run 4)"
    aside = [
        {
            "node": "node03",
            "reason": "its container ended 3 times",
            "run": 4,
            "attempt": 3,
            "time_ms": 9,
        }
    ]
    held = JobRecord(
        job_id="4713", state="paused", reason=reason, started_ms=1_000, ended_ms=20_000_000, nodes=NODES, set_aside=aside,
        warnings=["the nodes' kernels differ: 5.15.0-91 on node08, 5.15.0-94 on the others"],
    )  # fmt: skip
    record(write_set(log_dir, PAUSED, nexp=10, done=3, scheduler="local", job=held), **MI325X)


def of_length(folder: Path) -> Path:
    """Make a folder in `folder` whose path is as long on every machine: lines are wrapped there."""
    made = folder / ("x" * max(1, 90 - len(str(folder)) - 1))
    made.mkdir()
    return made


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = of_length(tmp_path_factory.mktemp("tables"))
    make_sets(folder / "sets")
    write_site(folder / "site.yaml", folder / "sets", data={"flux1": {"DATADIR": "/nowhere/flux1"}})
    (folder / "v5.1").symlink_to(set_of_logs.DATA / "v5.1")
    for name in ("root", "state"):
        (folder / name).mkdir()
    return folder


def on_terminal(place: Path, widths: tuple[int, ...], commands: tuple[str, ...], **env: str) -> str:
    """What the commands print, one after the other, on a terminal of each width."""
    ours, theirs = pty.openpty()
    kept = {
        "PATH": os.environ["PATH"], "SHELL": "/bin/bash", "LANG": "C.UTF-8", "TERM": "xterm-256color", "TZ": "UTC", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(Path(__file__).parents[2]),
        "HOME": str(place), "XDG_CONFIG_HOME": str(place), "ORCH_TUNABLES_ROOT": str(place / "root"),
        "ORCH_TUNABLES_STATE": str(place / "state"),
    }  # fmt: skip
    argv = [sys.executable, "-c", RUN, json.dumps(widths), json.dumps(commands)]
    with subprocess.Popen(
        argv, cwd=place, env=kept | env, stdin=theirs, stdout=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        text = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    assert child.returncode == 0
    shown = text.decode().replace("\r\n", "\n").replace(str(place), "PLACE")
    # What `reading the logs` drew and erased again depends on the time that it takes.
    return re.sub(r"\x1b\[\?25l.*?\x1b\[\?25h\r?\x1b\[1A\x1b\[2K", "", shown, flags=re.DOTALL)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the other end is closed
        return b""


def make_running(log_dir: Path) -> Path:
    """A set in the middle of its fourth run, with a spare that took a place."""
    nodes = [*NODES[:2], "node09", *NODES[3:]]
    aside = {"node": "node03", "reason": "it went silent in run 2", "run": 2, "attempt": 1}
    job = JobRecord(
        job_id="local-9", state="running", host="far", started_ms=1000 * (NOW_S - 26_000),
        run=4, attempt=1, nodes=nodes, spares=["node10"], set_aside=[{**aside, "time_ms": 9}],
        warnings=["the nodes' kernels differ: 5.15.0-91 on node08, 5.15.0-94 on the others"],
    )  # fmt: skip
    sent = SubmissionRecord(number=1, state="submitted", job_id="local-9", requested_ms=1)
    root = write_set(log_dir, RUNNING, nexp=10, done=3, scheduler="local", job=job, submission=sent)
    record(root, **MI325X)
    for run in (1, 2, 3):
        start_ms = 1000 * (NOW_S - 26_000 + 6_500 * (run - 1))
        ended = RunRecord(
            run=run, attempt=1, state="success", outcome="success", seed=41 + run, nodes=nodes,
            start_ms=start_ms, end_ms=start_ms + 6_000_000 + 60_000 * run,
        )  # fmt: skip
        for folder in (root / f"runs/{run}/attempt_1", root / f"runs/{run}"):
            write(ended, folder / "state.json")
        log = mllog("run_start", start_ms, None)
        log += mllog("run_stop", start_ms + 5_550_000 + 30_000 * run, None, status="success")
        (root / f"runs/{run}/result_{run}.txt").write_text(log)
    attempt = root / "runs/4/attempt_1"
    attempt.mkdir()
    going = RunRecord(
        run=4, attempt=1, state="running", start_ms=1000 * (NOW_S - 3_000), seed=45, nodes=nodes
    )
    write(going, attempt / "state.json")
    write(going, attempt.parent / "state.json")
    text = mllog("submission_benchmark", 1, "flux1")
    for k in range(1, 13):
        text += mllog("eval_error", k, 0.58 + 0.4 / k, samples_count=262_144 * k)
        text += mllog("tracked_stats", k, {"throughput": 1960.0 + 5 * (k % 4)})
    log = attempt / "node_0.log"
    log.write_text(text)
    os.utime(log, (NOW_S - 20, NOW_S - 20))
    return root


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """The views that no command prints here: `watch` of one set and of several, and `doctor`."""
    folder = of_length(tmp_path_factory.mktemp("running"))
    make_sets(folder)
    running = make_running(folder)
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: NOW_S)
        patch.setattr(time, "time_ns", lambda: NOW_S * 10**9)
        patch.setenv("TZ", "UTC")
        patch.delenv("DATADIR", raising=False)
        time.tzset()
        rows, verdicts = checked_rows(), node_verdicts()
        [picture] = look([running], [Local()])
        pictures = look([running, folder / PAUSED, folder / GOOD], [Local()])
        for width in WIDTHS:
            screen = Screen(width, signs="unicode")
            views = {
                "watch": one_set(picture, screen, 24),
                "watch, 12 lines high": one_set(picture, screen, 12),
                "watch, key n": one_set(
                    picture, screen, 24, part_lines([history_table(running)], screen)
                ),
                "watch --all": many_sets(pictures, screen, 24),
                "doctor": list(summary(rows, screen)),
                "doctor --all": [*part_lines([checks_table(rows)], screen), verdict(rows)],
                "doctor --all-nodes": list(node_lines(verdicts, remedies(), screen, deep=False)),
            }
            found[width] = "".join(
                "\n".join([f"$ orchestrator {name}   # {width} columns", *lines, "", ""])
                for name, lines in views.items()
            ).replace(str(folder), "PLACE")
    time.tzset()
    return found


@pytest.fixture(scope="module")
def screens(place: Path, drawn: dict[int, str]) -> dict[int, str]:
    text = on_terminal(place, WIDTHS, COMMANDS, NO_COLOR="1")
    found: dict[int, str] = dict.fromkeys(WIDTHS, "")
    for part in re.split(r"(?=^\$ orchestrator )", text, flags=re.MULTILINE)[1:]:
        found[int(part.partition("\n")[0].split()[-2])] += part
    return {width: text + drawn[width] for width, text in found.items()}


@pytest.mark.parametrize("width", WIDTHS)
def test_every_table_is_as_it_was(screens: dict[int, str], width: int) -> None:
    path = GOLDEN / f"{width}.txt"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(screens[width])
    assert screens[width] == path.read_text()


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_longer_than_the_terminal_but_a_word_that_is_copied(
    screens: dict[int, str], width: int
) -> None:
    fixes = doctors_fixes()
    long = [
        line
        for line in screens[width].splitlines()
        if width_of(line) > width
        and not any(one in line for one in COMMAND_LINES)
        and line.strip().removeprefix("fix: ") not in fixes
    ]
    rest = [
        line for line in long if len(line.split()) > 2 and " · " not in line and "; " not in line
    ]
    assert rest == []
    assert "\x1b" not in screens[width].replace("\x1b[?25l", "").replace("\x1b[?25h", "")


@pytest.mark.parametrize("width", WIDTHS)
def test_ids_and_headers_never_break(screens: dict[int, str], width: int) -> None:
    shown = screens[width].partition("$ orchestrator status ")[2].partition("$ orchestrator")[0]
    for name in (GOOD, FAILED, PAUSED):
        assert sum(re.match(rf"{name}(\s|$)", line) is not None for line in shown.splitlines()) == 1


def doctors_fixes() -> set[str]:
    return {row.remedy for row in checked_rows() if row.remedy} | {
        row.remedy
        for node in node_verdicts().nodes
        for row in map(remedies().with_command, node.rows)
        if row.remedy and row.check != "limits"
    }


@pytest.mark.parametrize("width", WIDTHS)
def test_doctors_commands_stay_whole_and_its_prose_breaks_at_words(
    drawn: dict[int, str], width: int
) -> None:
    shown = drawn[width].partition("$ orchestrator doctor ")[2].splitlines()
    fixes = doctors_fixes()
    common = "orchestrator config --set 'container.options=[--ulimit=nofile=1048576]'"
    for fix in (*fixes, common):
        assert any(line.endswith(fix) for line in shown), fix
    assert sum(line.endswith(common) for line in shown) == 1, "all tested nodes have it"
    words = {word for line in shown for word in line.split()}
    texts = [row.text for row in checked_rows() if row.verdict != "pass"]
    texts += [row.text for rows in OF_NODES.values() for row in rows]
    assert {word.rstrip(";") for text in texts for word in text.split()} <= {
        word.rstrip(";") for word in words
    }


def test_doctor_says_what_is_wrong_in_about_ten_lines(drawn: dict[int, str]) -> None:
    shown = drawn[80].partition("$ orchestrator doctor ")[2].partition("\n\n")[0].splitlines()[1:]
    assert len(shown) <= 12 and shown[-1] == "not ready: 2 problems (data, rdma), 1 warning"


@pytest.mark.parametrize("width", WIDTHS)
def test_the_line_under_the_nodes_explains_the_shown_columns_alone(
    screens: dict[int, str], width: int
) -> None:
    part = screens[width].partition(f"$ orchestrator nodes {GOOD}")[2]
    table, legend = part.split("\n\n")[:2]
    columns = table.splitlines()[1].lower().split()
    sentence = " ".join(legend.split()).partition(". ")[0].lower()
    explained = [text.partition(":")[0] for text in sentence.split("; ")]
    assert explained == [name for name in LEGEND if name in columns]
    assert ("last" in explained, "without" in explained) == (width > 80, width > 100)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_dry_run_begins_with_its_summary(screens: dict[int, str], width: int) -> None:
    part = screens[width].partition("--dry-run ")[2].partition("$ orchestrator")[0]
    places = [part.index(f"\n{start}") for start in ("set  ", "results", "warning: ", "cd ")]
    assert places == sorted(places) and places[0] == part.index("\n")


def test_why_is_short(screens: dict[int, str]) -> None:
    part = screens[80].partition("--why ")[2].partition("$ orchestrator")[0]
    assert 70 < len(part.splitlines()) < 100 and part.count(": training_results_v6.0:") == 3


def test_states_have_a_sign_and_a_colour(place: Path) -> None:
    answer = on_terminal(place, (100,), ("status",))
    assert (
        "\x1b[32m✓ complete\x1b[0m" in answer
        and "\x1b[31m✗ failed\x1b[0m" in answer
        and "\x1b[33m! paused\x1b[0m" in answer
    )
    assert "\x1b[31mdenied" not in answer
    plain = on_terminal(place, (100,), ("status",), NO_COLOR="1")
    assert "✓ complete" in plain and "\x1b" not in plain
    ascii_only = on_terminal(
        place, (100,), ("status",), NO_COLOR="1", PYTHONIOENCODING="ascii:replace"
    )
    assert "+ complete" in ascii_only and "x failed" in ascii_only
    dumb = on_terminal(place, (100,), ("status",), TERM="dumb")
    assert "complete" in dumb and "✓" not in dumb and "\x1b" not in dumb
    assert any(FAILED in line and "the registry said" in line for line in dumb.splitlines())


def test_a_pipe_gets_every_column_in_one_line(place: Path, cli: Commands) -> None:
    lines = cli("status", "--site", place / "site.yaml").out.splitlines()
    heads = "SET STATE RUNS ATTEMPTS NOW LAST EVAL ELAPSED LEFT OLYMPIC MEAN JOB REASON"
    assert lines[0].split() == heads.split()
    assert len(lines) == 4 and "\x1b" not in cli.out
    assert lines[1].split()[:3] == [PAUSED, "paused", "3/10"] and lines[1].endswith(
        "3 times in run 4)"
    )


def test_a_short_name_is_enough(place: Path, cli: Commands) -> None:
    site = place / "site.yaml"
    for name in ("9f3c", "101500-9f3c", "MI325X_08x08x32-flux1-20261121", GOOD):
        assert cli.json("status", name, "--site", site)["set_id"] == GOOD
    cli("status", "MI325X", "--site", site)
    assert cli.code == 2 and "matches 2 sets" in cli.err and GOOD in cli.err and PAUSED in cli.err
    assert (
        cli.json("systems", "show", "MI325X_08x08x32_D", "--workload", "flux1")["system"]
        == "MI325X_08x08x32_Dell"
    )
    cli("systems", "show", "MI300X_1x")
    assert cli.code == 2 and "matches" in cli.err and "\n    MI300X_1x8x1\n" in cli.err


def test_systems_are_chosen(cli: Commands) -> None:
    def names(*arguments: str) -> set[str]:
        return {system["name"] for system in cli.json("systems", *arguments)["systems"]}

    everything, mine = names(), names("--gpu", "mi325x")
    assert mine == names("--accelerator", "MI325X") and "MI325X_08x08x32" in mine < everything
    assert names("--gpu", "MI325X", "--workload", "flux1", "--round", "6.0", "--nodes", "8") == {
        "MI325X_08x08x32",
        "MI325X_08x08x32_Dell",
    }
    assert "MI355X_1x8x1_Supermicro_MangoBoost" not in names("--submitter", "AMD")
    assert names("--submitter", "oracle") and names("--submitter", "oracle") < everything
    assert names("--round", "0.1") == set()
    assert (
        cli("systems", "--gpu", "MI325X", "show", "MI325X_08x08x32").code == 2
        and "--help" in cli.err
    )


def test_acknowledged_warnings_are_not_told_again(place: Path, cli: Commands) -> None:
    path = place / "known.yaml"
    arguments = ("systems", "show", "MI325X_08x08x32", "--workload", "flux1", "--site", path)
    path.write_text("kind: site\nlog_dir: /x\n")
    names = re.findall(r"^warning: .* \[([\w.]+)\]$", cli(*arguments).err, re.MULTILINE)
    assert names == ["network.socket_ifname", "network.ib_hca", "data"]
    path.write_text(f"kind: site\nlog_dir: /x\nacknowledged: [{', '.join(names[:2])}]\n")
    assert re.findall(r"\[([\w.]+)\]$", cli(*arguments).err, re.MULTILINE) == ["data"]
    path.write_text("kind: site\nlog_dir: /x\nacknowledged: [dat]\n")
    assert (
        cli(*arguments).code == 2
        and "site.yaml" not in cli.err
        and 'did you mean "data"' in cli.err
    )


def pads(node: ast.AST) -> bool:
    """Does `node` lay out columns: by a method, by a width that is computed, or by the renderer's class?"""
    if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
        return any(isinstance(part, ast.FormattedValue) for part in ast.walk(node.format_spec))
    if isinstance(node, ast.Attribute):
        return node.attr in ("ljust", "rjust")
    return isinstance(node, ast.alias) and node.name in ("TableLayout", "orchestrator.views.layout")


def test_commands_draw_no_tables_of_their_own() -> None:
    """A table is a `views.parts.Table`, which `print_parts` prints. The help has lists of its own."""
    paths = {path.name: path for path in (PACKAGE / "cli").glob("*.py")}
    padding = {
        name for name, path in paths.items() if any(pads(node) for node in ast.walk(tree(path)))
    }
    assert padding == {"command.py", "index.py"}


# ---- the printer itself ----


def lines(table: Table, width: int | None, *rows: tuple[str, ...]) -> list[str]:
    return part_lines([table.replace(rows=rows)], PIPE if width is None else Screen(width))


def test_columns_leave_by_priority_and_reasons_stand_below() -> None:
    header = ("id", "state", "note", "job", "reason")
    table = Table("t", header, (), states=(1,), under=("reason",), leave=("job", "note"))
    name, reason = "n" * 12, "it broke, and this is why it did so"
    row = (name, "failed", "a note", "4711", reason)
    assert len(lines(table, 90, row)) == 2
    assert lines(table, 60, row)[1:] == [f"{name}  failed  a note  4711", f"    {reason}"]
    assert lines(table, 30, row)[0].split() == ["ID", "STATE", "NOTE"]
    assert lines(table, 24, row)[0].split() == ["ID", "STATE"]
    assert lines(table, 24, row)[2:] == ["    it broke, and this", "    is why it did so"]
    assert lines(table, 12, row)[:3] == ["ID  STATE", name, "    failed"]  # the id as it is, alone
    # What says nothing goes first, even what would stay longest.
    silent = (name, "failed", "-", "4711", "")
    assert lines(table, 30, silent)[0].split() == ["ID", "STATE", "JOB"]
    # Texts `below` the rows are the last column of a wide terminal.
    table = Table("t", header[:4], (), leave=("job", "note"), remark="reason", below=[reason])
    assert lines(table, 90, row[:4])[1] == f"{name}  failed  a note  4711  {reason}"
    assert lines(table, 60, row[:4])[1:] == [f"{name}  failed  a note  4711", f"    {reason}"]


def test_cells_are_one_line_without_control_characters() -> None:
    table = Table("t", ("a", "b"), ())
    [_, row] = lines(table, None, ("x\x1b[2Jy", "one\ntwo\tthree\r\x07\u202e"))
    assert row.isprintable() and row.startswith("x\\x1b[2Jy  one two three")
    [fact] = part_lines([FactList([("name\x1b", "a\nb\x1b]0;title\x07")])])
    assert fact.isprintable()
    [_, wide, _] = lines(table, None, ("日本", "x"), ("abcdef", "y"))
    assert wide == "日本    x"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([f"node{one}" for one in range(1, 65)], "node[1-64]"),
        ([f"node{one:02}" for one in (1, 2, 3, 9, 10, 11, 20)], "node[01-03,09-11,20]"),
        (["n9", "n10", "n11", "gpu-a"], "n[9-11],gpu-a"),
        (["rack1-ib0", "rack2-ib0"], "rack1-ib0,rack2-ib0"),
        (["n098", "n099", "n100"], "n[098-100]"),
        (["b1"], "b1"),
        ([], ""),
    ],
)
def test_node_lists_are_folded(names: list[str], text: str) -> None:
    assert fold(names) == text
    assert sorted(expand(text)) == sorted(names)


def test_one_unit_per_size() -> None:
    texts = [duration(value) for value in (0.84, 12, 60, 200, 18_420, 86_400, 187_200)]
    assert texts == ["0.8s", "12s", "1m", "3m20s", "5h07m", "1d", "2d04h"]
    assert duration(1450 * 60, 3) == "1d00h10m"
    assert [rate(value) for value in (6.4861, 2039.6, 4.391e7)] == ["6.486", "2,040", "43,910,000"]
    assert [train_time(value) for value in (0.014, 10.1847, None)] == ["0.840 s", "10.185 min", "-"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "1",
        True,
        0,
        -1,
        pytest.param(10**400, id="huge"),
        253_402_300_800_000,
        1e300,
        math.nan,
    ],
)
def test_a_value_that_is_no_time_is_missing(value: object) -> None:
    """Not the present, and no exception."""
    assert local_time(value) == utc_time(value) == moment(value) == MISSING
    assert utc_time(1000, "%Y-%m-%d %H:%M") == "1970-01-01 00:00 UTC"


@pytest.fixture(autouse=True)
def no_terminal_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("COLUMNS", raising=False)
    return

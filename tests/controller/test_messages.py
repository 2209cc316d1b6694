"""What people are told when something is not as it should be, and the exit code with it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import outputs
import pytest
from controller_parts import Commands, write_set
from sites import write_site

from orchestrator.errors import ExitCode
from orchestrator.evidence.sets import SubmissionRecord
from orchestrator.onnode.kernel.records import JobRecord, RunRecord, read, write
from orchestrator.runset import submit as submission

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def log_dir(site: Path) -> Path:
    return site.parent / "sets"


def test_no_site(cli: Commands) -> None:
    assert cli("status").code == ExitCode.BAD_INPUT
    assert "--site, $ORCHESTRATOR_SITE, ./site.yaml" in cli.err
    assert cli("submit", "local_2x2x8", "builtin").code == ExitCode.BAD_INPUT
    assert cli("watch").code == ExitCode.BAD_INPUT
    assert "a set has to be named" in cli.err


def test_site_order(cli: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def site(path: Path, name: str) -> Path:
        return write_site(path, tmp_path / name)

    site(tmp_path / "config/orchestrator/site.yaml", "in-config")
    assert "in-config" in cli("status").err
    site(tmp_path / "work/site.yaml", "in-cwd")
    assert "in-cwd" in cli("status").err
    monkeypatch.setenv("ORCHESTRATOR_SITE", str(site(tmp_path / "env.yaml", "in-env")))
    assert "in-env" in cli("status").err
    assert "in-option" in cli("status", "--site", site(tmp_path / "option.yaml", "in-option")).err
    monkeypatch.setenv("ORCHESTRATOR_SITE", "/nowhere/site.yaml")
    assert cli("status").code == ExitCode.BAD_INPUT
    assert "ORCHESTRATOR_SITE: there is no file /nowhere/site.yaml" in cli.err


def test_which_set(cli: Commands, site: Path, log_dir: Path) -> None:
    for name in (
        "a-w-20260101-000000-0001",
        "a-w-20260102-000000-0002",
        "b-w-20250101-000000-0003",
    ):
        write_set(log_dir, name)

    def found(*arguments: str | Path) -> str:
        return str(cli.json("status", *arguments, "--site", site)["set_id"])

    assert found("b") == "b-w-20250101-000000-0003"
    assert found("a-w-20260102") == "a-w-20260102-000000-0002"
    assert found(log_dir / "b-w-20250101-000000-0003") == "b-w-20250101-000000-0003"
    assert cli("logs", "--site", site).code == ExitCode.BAD_INPUT  # the newest one
    assert "a-w-20260102-000000-0002" in cli.err
    assert cli("status", "a-w", "--site", site).code == ExitCode.BAD_INPUT
    assert "`a-w` matches 2 sets:\n    a-w-20260102-000000-0002\n    a-w-20260101" in cli.err
    assert cli("status", "a-w-20260103-000000-0002", "--site", site).code == ExitCode.BAD_INPUT
    assert "did you mean a-w-20260102-000000-0002?" in cli.err
    assert cli("status", "nowhere/else", "--site", site).code == ExitCode.BAD_INPUT
    assert "nowhere/else is no set: there is no such folder" in cli.err
    assert cli("status", log_dir).code == ExitCode.BAD_INPUT
    assert "is no set but holds 3" in cli.err


def test_a_name_finds_its_set(cli: Commands, site: Path, log_dir: Path) -> None:
    for number, label in enumerate(("base", "lr03", "lr03", "a-w-2", "0001"), 1):
        write_set(log_dir, f"a-w-{number}0260101-000000-000{number}", label=label)

    def found(name: str) -> str:
        return str(cli.json("status", name, "--site", site)["set_id"])

    assert found("base") == "a-w-10260101-000000-0001"
    assert found("a-w-2") == "a-w-20260101-000000-0002"  # ids come first
    assert found("0001") == "a-w-10260101-000000-0001"
    for command in (("score",), ("report",), ("rm",), ("compare", "base")):
        assert cli(*command, "lr03", "--site", site).code == ExitCode.BAD_INPUT
        assert "`lr03` matches 2 sets:\n    a-w-3" in cli.err, command
    assert cli("score", "base", "--site", site).code == ExitCode.NO_SCORE
    assert "/a-w-10260101-000000-0001\n" in cli.out
    assert cli("score", "bse", "--site", site).code == ExitCode.BAD_INPUT
    assert "did you mean base?" in cli.err


def test_a_renamed_and_a_copied_set_are_listed_by_the_names_that_find_them(
    cli: Commands, site: Path, log_dir: Path
) -> None:
    root = write_set(log_dir, "a-w-20260101-000000-0001", done=3)
    shutil.copytree(root, log_dir / "copy.bak")
    root.rename(log_dir / "baseline")
    listed = cli("status", "--site", site).out.splitlines()
    names = [line.split()[0] for line in listed if "3/3" in line]
    assert sorted(names) == ["baseline", "copy.bak"], listed
    for name in names:
        answer = cli.json("status", name, "--site", site)
        assert answer["set"] == str(log_dir / name)
        assert answer["set_id"] == "a-w-20260101-000000-0001"


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "koi8-r", "utf-8"])
def test_json_is_json_in_any_encoding(encoding: str, log_dir: Path) -> None:
    label = "größe 😀 \x85"
    root = write_set(log_dir, "s", scheduler="local", label=label)
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "status", root, "--json"],
        env=os.environ | {"PYTHONIOENCODING": encoding, "PYTHONPATH": str(DOCS.parent)},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert outputs.checked(done.stdout.decode(encoding))["name"] == label
    assert ("größe 😀".encode() in done.stdout) == (encoding == "utf-8")


def test_a_path_needs_no_site(cli: Commands, log_dir: Path) -> None:
    root = write_set(log_dir, "s", scheduler="local", done=3)
    assert cli.json("status", root)["done"] == 3
    assert cli("resume", root).code == ExitCode.SET_STATE
    assert "s is done: 3 runs" in cli.err
    assert f"hint: orchestrator score {root}" in cli.err


def test_no_set_yet(cli: Commands, site: Path) -> None:
    assert cli("status", "--site", site).code == ExitCode.OK
    assert "there is no set in" in cli.err
    assert cli.json("status", "--site", site)["sets"] == []
    assert cli("watch", "--site", site).code == ExitCode.BAD_INPUT


def test_log_dir_is_missing(cli: Commands, site: Path, log_dir: Path) -> None:
    log_dir.rmdir()
    try:
        for command in (["status"], ["watch"], ["submit", "local_2x2x8", "builtin"]):
            assert cli(*command, "--site", site).code == ExitCode.SET_STATE
            assert str(log_dir) in cli.err
        assert f"mkdir -p {log_dir}" in cli.err
    finally:
        log_dir.mkdir()


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system needs root")
    yield
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def unwritable(log_dir: Path) -> Iterator[str]:
    """The log directory without the right to write; for root, who has every right, on a read-only file system. The command that shows why."""
    if os.geteuid() == 0:
        with mounted(log_dir, "ro"):
            yield f"findmnt --target {log_dir}"
        return
    log_dir.chmod(0o555)
    yield f"ls -ld {log_dir}"
    log_dir.chmod(0o755)


def test_log_dir_is_not_writable(cli: Commands, site: Path, unwritable: str) -> None:
    assert cli("submit", "local_2x2x8", "builtin", "--site", site).code == ExitCode.SET_STATE
    assert unwritable in cli.err


@pytest.fixture
def small_disk(log_dir: Path) -> Iterator[None]:
    """The log directory on a file system of 64 KiB."""
    with mounted(log_dir, "size=64k"):
        yield


@pytest.mark.usefixtures("small_disk")
def test_disk_full(cli: Commands, site: Path, log_dir: Path) -> None:
    assert cli("submit", "local_2x2x8", "builtin", "--site", site).code == ExitCode.SET_STATE
    assert "No space left on device\n" in cli.err
    assert f"df -h {log_dir}" in cli.err
    assert list(log_dir.iterdir()) == []


def test_a_damaged_set_is_shown_and_named(cli: Commands, site: Path, log_dir: Path) -> None:
    root = write_set(log_dir, "s")
    (root / "set.json").write_text('{"nexp": ')
    assert cli("status", root).code == ExitCode.SET_STATE
    assert re.search(r"s/set.json: is no JSON", cli.err)
    [status] = cli.json("status", "--site", site)["sets"]
    assert (status["set_id"], status["state"]) == ("s", "damaged")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nexp", "0"], "'0' is not a whole number above 0"),
        (["--nexp", "ten"], "'ten' is not a whole number above 0"),
        (["--env", "A"], "'A' is not NAME=VALUE"),
        (["--env", "1A=2"], "'1A=2' is not NAME=VALUE"),
    ],
)
def test_bad_arguments(cli: Commands, arguments: list[str], message: str) -> None:
    assert cli("submit", "local_2x2x8", "builtin", *arguments).code == ExitCode.BAD_INPUT
    assert message in cli.err


def test_nothing_to_cancel(cli: Commands, log_dir: Path) -> None:
    root = write_set(log_dir, "s", scheduler="local")
    assert cli("cancel", root).code == ExitCode.SET_STATE
    assert "set s has no job to cancel" in cli.err


def test_logs_say_what_there_is(cli: Commands, log_dir: Path) -> None:
    root = write_set(log_dir, "s", done=1)
    (root / "runs/1/attempt_1/node_0.log").write_bytes(b"one\xff\n")
    assert cli("logs", root).code == ExitCode.OK
    assert "one" in cli.out
    assert cli("logs", root, "--node", "n1").code == ExitCode.OK
    for arguments, message in (
        (["--run", "9"], "s has runs 1 to 3, not 9"),
        (["--run", "2"], "run 2 has not started yet"),
        (["--attempt", "2"], "run 1 has attempts 1, not 2"),
        (["--node", "n2"], "has no node 'n2'; its nodes by rank: n1"),
        (["--node", "1"], "has no node '1'"),
        (["--job"], "no job of s has printed anything yet"),
    ):
        assert cli("logs", root, *arguments).code == ExitCode.BAD_INPUT
        assert message in cli.err


def test_an_empty_log_is_named_with_the_nodes_that_have_lines(cli: Commands, log_dir: Path) -> None:
    root = write_set(log_dir, "s", done=1)
    attempt = root / "runs/1/attempt_1"
    record = read(RunRecord, attempt / "state.json")
    assert isinstance(record, RunRecord)
    write(replace(record, nodes=["lab1", "lab2", "lab3"]), attempt / "state.json")
    for rank, text in enumerate(("one\n", "", "")):
        (attempt / f"node_{rank}.log").write_text(text)
    assert cli("logs", root, "--node", "lab2").code == ExitCode.OK and cli.out == ""
    path = attempt / "node_1.log"
    *_, sentence, nodes, command = cli.err.splitlines()
    assert sentence == f"the log of lab2 for run 1 attempt 1 is empty: {path}"
    assert nodes == "nodes with lines: lab1"
    assert command == f"  orchestrator logs {root} --run 1 --attempt 1 --node lab1"
    assert cli(*command.split()[1:]).out == "one\n" and "is empty" not in cli.err
    (attempt / "node_0.log").write_text("")
    assert cli("logs", root).code == ExitCode.OK
    assert cli.err.splitlines()[-1] == "no node of this attempt has lines in its log"
    (root / "job_7.out").write_text("")
    assert cli("logs", root, "--job").code == ExitCode.OK
    assert cli.err.splitlines()[-1] == f"the log is empty: {root / 'job_7.out'}"


def test_a_silent_scheduler_is_said(
    cli: Commands, log_dir: Path, site: Path, fake: Callable[[str, str], Path]
) -> None:
    fake("squeue", "exit 1")
    fake("scontrol", "exit 1")
    root = write_set(
        log_dir,
        "s",
        submission=SubmissionRecord(number=1, state="submitted", job_id="7", requested_ms=1),
        job=JobRecord(job_id="7", state="running", run=1, attempt=1, started_ms=2),
    )
    assert cli("status", "--site", site).code == ExitCode.OK
    assert "no answer from the scheduler; the states are those of the sets' own files" in cli.err
    assert "running" in cli.out
    for command in ("resume", "cancel"):
        assert cli(command, root).code == ExitCode.UNKNOWN
        assert "squeue does not answer" in cli.err


def test_submit_refused_and_unknown(
    cli: Commands, tmp_path: Path, fake: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "LOOK_AGAIN_S", (0.0,))
    path = write_site(tmp_path / "slurm.yaml", tmp_path / "slurm-sets", scheduler="slurm")
    fake("squeue", "true")
    fake(
        "sbatch",
        'echo "sbatch: error: Batch job submission failed: Invalid partition name specified" >&2; exit 1',
    )
    assert cli("submit", "local_2x2x8", "builtin", "--site", path).code == ExitCode.SCHEDULER
    assert (
        "Slurm refused the job: sbatch: error: Batch job submission failed: Invalid partition"
        in cli.err
    )
    assert cli.json("status", "--site", path)["sets"] == []
    fake("sbatch", "echo Submitted")
    assert cli("submit", "local_2x2x8", "builtin", "--site", path).code == ExitCode.UNKNOWN
    assert "Nothing will be submitted twice" in cli.err
    [status] = cli.json("status", "--site", path)["sets"]
    assert cli.json("status", status["set"])["state"] == "unknown"


def test_dry_run_makes_nothing(cli: Commands, tmp_path: Path) -> None:
    path = write_site(tmp_path / "slurm.yaml", tmp_path / "slurm-sets", scheduler="slurm")
    assert (
        cli("submit", "local_2x2x8", "builtin", "--site", path, "--nexp", "4", "--dry-run").code
        == ExitCode.OK
    )
    assert re.search(
        r"NEXP=4 sbatch --parsable --job-name=orch-local_2x2x8-builtin-\S+ --output=\S+/job_%j.out",
        cli.out,
    )
    assert list((tmp_path / "slurm-sets").iterdir()) == []


def test_exit_codes_are_documented() -> None:
    rows = re.findall(
        r"^\| (\d+) \| `(\w+)` \|", (DOCS / "exit-codes.md").read_text(), re.MULTILINE
    )
    assert rows == [(str(code.value), code.name) for code in ExitCode]

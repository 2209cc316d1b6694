"""`orchestrator rm` and `ls`: what leaves the lists, what is refused, and the way back."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import outputs
import pytest
from controller_parts import Commands, write_set
from until import until

from orchestrator.errors import ExitCode
from orchestrator.onnode.kernel.records import JobRecord, RunRecord, write

WHAT = ("local_2x2x8", "builtin")


def closed(state: str) -> JobRecord:
    return JobRecord(job_id="7", state=state, started_ms=1_000, ended_ms=9_000)


@pytest.fixture
def sets(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log directory with a complete set, a failed one, and one that failed after its first run."""
    folder = tmp_path / "sets"
    for name, done, state in (
        ("aaaa", 3, "complete"),
        ("bbbb", 0, "failed"),
        ("cccc", 1, "failed"),
    ):
        write_set(
            folder, f"S-w-20261121-101500-{name}", done=done, scheduler="local", job=closed(state)
        )
    monkeypatch.setenv("ORCHESTRATOR_SITE", str(site))
    return folder


def listed(cli: Commands) -> set[str]:
    return {one["set_id"][-4:] for one in cli.json("ls")["sets"]}


def test_a_removed_set_is_in_no_list_and_comes_back(cli: Commands, sets: Path) -> None:
    answer = cli.json("rm", "bbbb", "cccc")
    assert [Path(one["trash"]).parent.name for one in answer["removed"]] == [".trash"] * 2
    assert listed(cli) == {"aaaa"}
    assert cli("status", "bbbb").code == ExitCode.BAD_INPUT
    trash = Path(answer["removed"][0]["trash"])
    for command in ("status", "score", "resume", "rm"):
        assert cli(command, trash).code == ExitCode.BAD_INPUT
        assert "is in the trash\n  hint: to get it back: mv " in cli.err
    back = cli.err.partition("to get it back: ")[2].strip()
    subprocess.run(shlex.split(back), check=True)
    assert listed(cli) == {"aaaa", "bbbb"}


def test_text_says_how_to_get_it_back_and_it_does(cli: Commands, sets: Path) -> None:
    assert cli("rm", "bbbb").code == ExitCode.OK
    back = cli.out.partition("to get it back: ")[2].strip()
    subprocess.run(shlex.split(back), check=True)
    assert listed(cli) == {"aaaa", "bbbb", "cccc"}
    assert not (sets / "S-w-20261121-101500-bbbb/.controller.lock").exists()
    # A second set of the same name in the trash overwrites nothing.
    cli("rm", "bbbb")
    subprocess.run(["cp", "-r", sets / ".trash/S-w-20261121-101500-bbbb", sets], check=True)
    assert cli("rm", "bbbb").code == ExitCode.OK, cli.err
    assert len(list((sets / ".trash").iterdir())) == 2


@pytest.mark.parametrize("state_is_lost", [False, True])
def test_a_complete_set_needs_force(cli: Commands, sets: Path, state_is_lost: bool) -> None:
    if state_is_lost:
        next(sets.glob("*-aaaa/jobs/7.json")).unlink()
    assert cli("rm", "bbbb", "aaaa").code == ExitCode.SET_STATE
    assert "is complete" in cli.err and "rm --force" in cli.err
    assert listed(cli) == {"aaaa", "bbbb", "cccc"}, "none is moved if one is refused"
    assert cli("rm", "--force", "aaaa").code == ExitCode.OK
    assert listed(cli) == {"bbbb", "cccc"}


def test_failed_sets_without_a_run(cli: Commands, sets: Path) -> None:
    assert cli("rm", "--failed", "--force").code == ExitCode.OK
    assert listed(cli) == {"aaaa", "cccc"}
    assert cli("rm", "--failed").code == ExitCode.OK
    assert cli.out == "" and "no set of yours" in cli.err
    assert cli("rm").code == cli("rm", "--failed", "cccc").code == ExitCode.BAD_INPUT
    assert cli("rm", "").code == ExitCode.BAD_INPUT


@pytest.mark.parametrize(
    ("state", "goes"), [("complete", True), ("paused", True), ("cancelled", False)]
)
def test_a_set_whose_runs_all_failed_goes_too(
    cli: Commands, sets: Path, state: str, goes: bool
) -> None:
    root = write_set(sets, "S-w-20261121-101500-dddd", scheduler="local", job=closed(state))
    dead = RunRecord(run=1, attempt=3, state="failed", outcome="infrastructure")
    write(dead, root / "runs/1/state.json")
    assert cli("rm", "--failed").code == ExitCode.OK, cli.err
    assert listed(cli) == {"aaaa", "cccc", *(() if goes else ("dddd",))}
    if not goes:
        assert cli("rm", "dddd").code == ExitCode.OK, "it has no results"


def test_a_set_of_others_stays(cli: Commands, sets: Path) -> None:
    (sets / "S-w-20261121-101500-bbbb/set.json").chmod(0o666)
    for words in (("bbbb",), ("bbbb", "--force")):
        assert cli("rm", *words).code == ExitCode.SET_STATE
        assert (
            "another user can change set S-w-20261121-101500-bbbb: everybody may write" in cli.err
        )
    cli("rm", "--failed")
    assert listed(cli) == {"aaaa", "bbbb", "cccc"}


def test_the_trash_of_another_user_is_left_alone(cli: Commands, sets: Path) -> None:
    (sets / ".trash").mkdir()
    (sets / ".trash").chmod(0o777)
    assert cli("rm", "bbbb").code == ExitCode.OK
    assert not list((sets / ".trash").iterdir()) and len(list(sets.glob(".trash-*/*"))) == 1


def test_sets_moved_before_a_failure_are_named_with_their_way_back(
    cli: Commands, sets: Path, tmp_path: Path
) -> None:
    far = write_set(tmp_path / "far", "far", scheduler="local", job=closed("failed"))
    for name in (".trash", f".trash-{os.getuid()}"):
        (far.parent / name).touch()
    assert cli("rm", "bbbb", "cccc", far).code == ExitCode.SET_STATE
    assert f"cannot move {far}: File exists" in cli.err
    assert "-bbbb, S-w-20261121-101500-cccc were moved before; to get back:\n" in cli.err
    back = cli.err.splitlines()[-1]
    assert far.is_dir() and listed(cli) == {"aaaa"}
    subprocess.run(back, shell=True, check=True)
    assert listed(cli) == {"aaaa", "bbbb", "cccc"}


def test_a_running_set_stays(cli: Commands, site: Path) -> None:
    cli("submit", *WHAT, "--nexp", 1, "--env", "BUILTIN_FAULT=hang:run=1", "--site", site, "--json")
    root = outputs.checked(cli.out)["set"]
    until(lambda: bool(cli.json("status", root)["current_run"]))
    first = Path(root) / "submissions/1.json"
    kept = first.read_bytes()
    other = write_set(Path(root).parent, "other", scheduler="local", job=closed("failed"))
    for _ in range(2):  # with its submission; without, as if started by hand
        assert cli("rm", other, root, "--force", "--site", site).code == ExitCode.SET_STATE
        assert "is alive" in cli.err and "orchestrator cancel" in cli.err
        assert "nothing was moved" in cli.err and other.is_dir()
        assert not (other / ".controller.lock").exists()
        first.unlink(missing_ok=True)
    first.write_bytes(kept)
    assert cli("cancel", root, "--grace", 5).code == ExitCode.OK, cli.err
    assert cli("rm", root, "--site", site).code == ExitCode.OK, cli.err
    assert not Path(root).exists()

"""What runs is what was declared, and of one's own sets; everything else needs a word."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from controller_parts import Commands, one_node, put_back, write_set
from processes import see_them_go
from sites import write_site
from until import until

from orchestrator.cli import main
from orchestrator.evidence.ledger import verify
from orchestrator.evidence.sets import open_set
from orchestrator.onnode.kernel.records import RunRecord, write, write_bytes
from orchestrator.onnode.set import bundle, ledger
from orchestrator.runset.create import find_unsubmitted
from orchestrator.scheduler.local import Local


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with a complete set of one run of a program that says so at once, and a copy of the folder."""
    place = tmp_path_factory.mktemp("complete") / "place"
    place.mkdir()
    site = write_site(place / "local.yaml", place / "sets")
    assert main(["submit", *map(str, one_node(place, site))]) == 0
    [made] = (place / "sets").glob("one_node-*")
    until(
        lambda: (
            (made / "results/result_1.txt").exists()
            and not Local().jobs(names=[f"orch-{made.name}"])
        )
    )
    see_them_go(place)
    return made, Path(shutil.copytree(place, place.with_name("copy"), symlinks=True))


@pytest.fixture
def root(complete: tuple[Path, Path]) -> Iterator[Path]:
    """The complete set as it was made, at its place; whatever runs there is ended afterwards."""
    made, copy = complete
    with put_back(copy, made.parents[1]):
        yield made


def site_of(root: Path) -> Path:
    return root.parents[1] / "local.yaml"


def wait_for_its_job(root: Path, number: int) -> None:
    """Wait until a submission's job is over. Its name is unknown for a moment after its start."""
    job_id = json.loads((root / f"submissions/{number}.json").read_text())["job_id"]
    until(lambda: not Local().jobs(ids=[job_id]))


def again(root: Path) -> None:
    """Make the set's run missing: there is something to resume."""
    state = root / "runs/1/state.json"
    write(RunRecord(run=1, state="queued"), state)


def edit(root: Path) -> None:
    with open(root / "bundle/rccl_env.sh", "a") as file:
        file.write("export NCCL_DEBUG=INFO\n")


def test_an_edited_bundle_needs_a_word_and_stays_on_record(root: Path, cli: Commands) -> None:
    again(root)
    edit(root)
    assert cli("resume", root).code == 5
    assert "was edited since it was declared: rccl_env.sh" in cli.err
    assert cli("resume", root, "--nexp", 3).code == 5
    assert cli.err.endswith(f"\n  orchestrator resume {root} --nexp 3 --edited\n")
    assert (
        cli("ledger", "verify", root).code == 1
        and "bundle/rccl_env.sh: was edited since it was declared" in cli.out
    )
    assert cli("resume", root, "--edited").code == 0, cli.err
    job = cli.out.split()[3]
    until(lambda: (root / f"jobs/{job}.json").exists() and not Local().jobs(ids=[job]))
    answer = json.loads((root / f"jobs/{job}.json").read_text())
    assert answer["edited"] == ["rccl_env.sh"] and any(
        "rccl_env.sh" in one for one in answer["warnings"]
    )
    [entry] = [one for one in ledger.read(root)[0] if one.kind == "edit"]
    assert list(entry.data["files"]) == ["rccl_env.sh"]
    assert not [one for one in verify(root).problems if one.file.startswith("bundle/")]


def edits(root: Path) -> list[list[str]]:
    """The edited files of each record of them in the ledger."""
    return [sorted(one.data["files"]) for one in ledger.read(root)[0] if one.kind == "edit"]


def test_a_deleted_file_is_put_back_as_declared(root: Path, cli: Commands) -> None:
    """It is no edit, with or without --edited: most sets do not run without it."""
    before = bundle.hashes(root / "bundle")
    again(root)
    [config] = (root / "bundle").glob("config_*.sh")
    config.unlink()
    shutil.rmtree(root / "bundle/lib/set")  # what decides whether the set takes more runs
    (root / "bundle/job.sh").unlink()
    (root / "program/damaged.tar.gz").write_bytes(b"no archive")
    assert cli("resume", root, "--nexp", 2, "--edited").code == 0, cli.err
    assert f"note: {config.name}, job.sh, lib/set/" in cli.err
    assert "were missing, and were put back as declared" in " ".join(cli.err.split())
    assert bundle.hashes(root / "bundle") == before and edits(root) == []
    assert (root / "bundle/job.sh").stat().st_mode & 0o777 == 0o755
    assert config.stat().st_mode & 0o777 == 0o644
    assert (root / "bundle/lib/set").stat().st_mode & 0o777 == 0o755
    wait_for_its_job(root, 2)
    assert not list(root.glob(".*.tmp.*"))
    assert (root / "results/result_2.txt").exists() and not verify(root).problems


@pytest.mark.parametrize(
    ("folder", "names"), [("", "manifest.json of"), ("lib", "lib/__init__.py, lib/__main__.py, ")]
)
def test_a_deleted_manifest_is_put_back_with_the_other_files(
    root: Path, cli: Commands, folder: str, names: str
) -> None:
    """The set declares its hash. The set needs no more runs, but its records are whole again."""
    before = bundle.hashes(root / "bundle")
    (root / "bundle/manifest.json").unlink()
    if folder:
        shutil.rmtree(root / "bundle" / folder)
    assert cli("audit", root, "--only", "ledger").code == 1
    assert "bundle/manifest.json: is missing" in cli.out
    assert cli("resume", root).code == 5
    text = " ".join(cli.err.split())
    assert text.startswith(f"note: {names}") and "put back as declared" in text
    assert (" more of the bundle" in text) is bool(folder) and "nothing is left to run" in text
    assert bundle.hashes(root / "bundle") == before
    assert cli("audit", root, "--only", "ledger").code == 0, cli.out


def test_a_complete_set_names_the_files_that_nothing_puts_back(root: Path, cli: Commands) -> None:
    shutil.rmtree(root / "program")
    shutil.rmtree(root / "bundle/lib/set")
    assert cli("resume", root).code == 5 and "nothing is left to run" in cli.err
    text = " ".join(cli.err.split())
    names = [f"lib/set/{name}.py" for name in ("bundle", "folder", "lease")]
    assert f"note: {', '.join(names)} and " in text and "no job's archive has the" in text
    (root / "bundle/manifest.json").unlink()
    assert cli("resume", root).code == 5
    assert f"note: manifest.json of the bundle of {root.name} is missing" in cli.err


def test_an_edited_manifest_hinders_no_deleted_file(root: Path, cli: Commands) -> None:
    again(root)
    (root / "bundle/manifest.json").write_text("{}")
    (root / "bundle/job.sh").unlink()
    assert cli("resume", root).code == 5
    assert "note: job.sh of the bundle was missing" in cli.err
    assert "was edited since it was declared: manifest.json" in cli.err


def test_a_file_that_nothing_puts_back_refuses_more_runs(root: Path, cli: Commands) -> None:
    shutil.rmtree(root / "program")
    [config] = (root / "bundle").glob("config_*.sh")
    config.unlink()
    for words in ((), ("--edited",)):
        assert cli("resume", root, "--nexp", 2, *words).code == 5
        assert f"{config.name} of the bundle of {root.name} is missing" in cli.err
        assert "orchestrator submit one_node builtin --round 1.0 --nexp 2" in cli.err
    assert {one.kind for one in ledger.read(root)[0]}.isdisjoint({"edit", "extend"})


def test_a_deleted_file_is_not_put_back_through_a_link(
    root: Path, cli: Commands, tmp_path: Path
) -> None:
    again(root)
    (root / "bundle/lib").rename(tmp_path / "lib")
    (root / "bundle/lib").symlink_to(tmp_path / "lib")
    (tmp_path / "lib/loop/job.py").unlink()
    assert cli("resume", root, "--edited").code == 5 and "missing" in cli.err
    assert not (tmp_path / "lib/loop/job.py").exists()


def test_who_reads_the_bundle_reads_what_is_put_back(root: Path, cli: Commands) -> None:
    again(root)
    folder = root / "bundle"
    folder.chmod(0o750)
    shutil.rmtree(folder / "lib")
    before = os.umask(0o077)
    try:
        assert cli("resume", root).code == 0, cli.err
    finally:
        os.umask(before)
    assert (folder / "lib/loop").stat().st_mode & 0o777 == 0o750
    assert (folder / "lib/loop/job.py").stat().st_mode & 0o777 == 0o640


def test_submit_does_not_take_an_edited_set(root: Path) -> None:
    """It would be refused for its edit each time, and `submit` takes no edits."""
    for name in ("jobs", "runs", "submissions"):
        shutil.rmtree(root / name)
    run_set = open_set(root)
    wanted = replace(run_set.record, created_ms=run_set.record.created_ms + 3_600_000)
    taken = find_unsubmitted(wanted, root.parent)
    assert taken is not None and taken.layout.root == root
    edit(root)
    assert find_unsubmitted(wanted, root.parent) is None


def test_the_declared_file_is_no_edit(root: Path, cli: Commands) -> None:
    """Also after an edit that was accepted: the ledger records that the edit has ended."""
    declared = (root / "bundle/rccl_env.sh").read_bytes()
    again(root)
    edit(root)
    assert cli("resume", root, "--edited").code == 0, cli.err
    wait_for_its_job(root, 2)
    again(root)
    (root / "bundle/rccl_env.sh").write_bytes(declared)
    assert cli("audit", root, "--only", "ledger").code == 0, cli.out
    assert cli("resume", root).code == 0, cli.err
    wait_for_its_job(root, 3)
    assert edits(root) == [["rccl_env.sh"], []]
    for number in (2, 3):
        job_id = json.loads((root / f"submissions/{number}.json").read_text())["job_id"]
        answer = json.loads((root / f"jobs/{job_id}.json").read_text())
        assert answer.get("edited", []) == (["rccl_env.sh"] if number == 2 else [])


def test_a_job_started_by_hand_records_that_an_edit_has_ended(root: Path, cli: Commands) -> None:
    """The runs after it are not of the edit."""
    again(root)
    ledger.append(root, ("edit", {"files": {"rccl_env.sh": "0" * 64}}))
    environment = {**os.environ, "ORCH_SET_DIR": str(root)}
    loop = ["bash", root / "bundle/run_with_docker.sh"]
    done = subprocess.run(loop, env=environment, capture_output=True, text=True)
    assert edits(root) == [["rccl_env.sh"], []], done.stderr


def test_a_file_deleted_after_the_submission_is_missing(root: Path) -> None:
    again(root)
    (root / "bundle/rccl_env.sh").unlink()
    environment = {**os.environ, "ORCH_SET_DIR": str(root)}
    loop = ["bash", root / "bundle/run_with_docker.sh"]
    done = subprocess.run(loop, env=environment, capture_output=True, text=True)
    assert "rccl_env.sh of the bundle is missing" in done.stderr
    assert f"orchestrator resume {root}\n" in done.stderr


def test_the_environment_of_every_job_stays_on_record(root: Path) -> None:
    [job] = [one for one in ledger.read(root)[0] if one.kind == "job"]
    kept = gzip.decompress((root / f"jobs/{job.data['job_id']}.env.gz").read_bytes())
    assert kept == (root / "environment.sh").read_bytes()
    assert (root / f"jobs/{job.data['job_id']}.env.gz").stat().st_size < len(kept)


def test_the_loop_does_not_run_what_was_edited_after_the_submission(root: Path) -> None:
    result = bundle.hashes(root / "bundle")
    kept = bundle.digest(result)
    again(root)
    edit(root)
    environment = {**os.environ, "ORCH_SET_DIR": str(root), "ORCH_BUNDLE_SHA256": kept}
    loop = ["bash", root / "bundle/run_with_docker.sh"]
    done = subprocess.run(loop, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "was edited since it was declared: rccl_env.sh" in done.stderr
    now = bundle.changed(bundle.hashes(root / "bundle"), root / "bundle")
    ledger.append(root, ("edit", {"files": now}))  # somebody's word, but not for this job
    done = subprocess.run(loop, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "was edited since this job was submitted" in done.stderr


def test_the_script_that_slurm_keeps_runs_what_was_submitted(root: Path, tmp_path: Path) -> None:
    """job.sh runs from Slurm's spool folder with the environment of the submission: no file of the bundle is executed."""
    spool = shutil.copy(root / "bundle/job.sh", tmp_path / "slurm_script")
    [archive] = (root / "program").iterdir()
    environment = {
        "PATH": os.environ["PATH"],
        "SLURM_SUBMIT_DIR": str(root / "bundle"),
        "ORCH_PROGRAM": str(archive),
        "ORCH_PROGRAM_SHA256": hashlib.sha256(archive.read_bytes()).hexdigest(),
    }

    def run() -> subprocess.CompletedProcess[str]:
        argv = ["bash", spool]
        return subprocess.run(argv, env=environment, capture_output=True, text=True)

    assert "not inside a Slurm allocation" in run().stderr
    for path in [*(root / "bundle").rglob("*.sh"), *(root / "bundle/lib").rglob("*.py")]:
        path.write_text(f"raise SystemExit(open({str(tmp_path / 'ran')!r}, 'w'))\n")
    assert "not inside a Slurm allocation" in run().stderr and not (tmp_path / "ran").exists()
    archive.write_bytes(archive.read_bytes()[:-1] + b"?")
    assert run().returncode == 1 and "was changed, and is not run" in run().stderr
    archive.unlink()
    assert run().returncode == 1 and "No such file or directory" in run().stderr
    os.mkfifo(archive)
    assert run().returncode == 1 and "was changed, and is not run" in run().stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("what", ["", "bundle", "bundle/job.sh", "set.json"])
def test_anothers_set_is_not_executed_unless_it_is_named_so(
    root: Path, cli: Commands, what: str
) -> None:
    site = site_of(root)
    again(root)
    os.chown(root / what, 4242, 4242)
    for command in ("resume", "cancel"):
        assert cli(command, root).code == 5
        assert "belongs to user 4242" in cli.err and "--others" in cli.err
        # Nothing of the bundle runs when a job is cancelled.
        assert ("its owner may still need the job" in cli.err) is (command == "cancel")
        assert ("of its bundle run as you" in cli("help", command).out) is (command == "resume")
    if not what:
        for command in ("resume", "cancel"):
            assert cli(command, "--site", site).code == 2 and "is yours" in cli.err
    assert cli("resume", "--site", site, "--others").code == 2
    assert cli("resume", root, "--others").code == 0, cli.err


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_without_a_name_the_newest_of_mine_is_meant(
    root: Path, cli: Commands, tmp_path: Path
) -> None:
    """Another user's set is newer, by the time in its name, and its program would run as whoever goes on with it."""
    again(root)
    site = site_of(root)
    trap, other = (
        tmp_path / "trap",
        write_set(root.parent, "one_node-builtin-20991231-235959-ffff", scheduler="local"),
    )
    (other / "bundle").mkdir()
    (other / "bundle/run_with_docker.sh").write_text(f"touch {trap}\n")
    for path in (other, *other.rglob("*")):
        os.chown(path, 4242, 4242)
    assert cli("cancel", "--site", site).code == 5 and root.name in cli.err
    assert cli("resume", "--site", site).code == 0, cli.err
    until(lambda: not Local().jobs(names=[f"orch-{root.name}", f"orch-{other.name}"]))
    assert (
        (root / "submissions/2.json").exists()
        and not any((other / "submissions").iterdir())
        and not trap.exists()
    )


def test_others_cannot_write_in_a_set(root: Path) -> None:
    for path in (
        root,
        root / "bundle",
        root / "bundle/job.sh",
        root / "set.json",
        root / "jobs",
        root / "runs/1",
    ):
        assert not path.stat().st_mode & 0o022, path


def test_a_loose_umask_gives_a_set_to_nobody(site: Path, cli: Commands, tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        cli("submit", *one_node(tmp_path, site))
        assert cli.code == 0, cli.err
        made = Path(cli.out.split()[1])
        wait_for_its_job(made, 1)
        again(made)
        (made / "runs/1/state.json").chmod(0o644)
        assert cli("resume", made).code == 0, cli.err
        # A job that is cancelled earlier has no output.
        until(lambda: len(list(made.glob("job_*"))) == 2)
        assert cli("cancel", made).code in (0, 5), cli.err
        wait_for_its_job(made, 2)
        assert os.umask(0o002) == 0o002, "the caller's umask stays"
    finally:
        os.umask(before)
    names = {path.relative_to(made).as_posix() for path in made.rglob("*")}
    assert {"submissions/1.json", "submissions/2.json", "ledger.jsonl"} <= names
    loose = {
        name: stat.filemode((made / name).stat().st_mode)
        for name in names
        if not (made / name).is_symlink() and (made / name).stat().st_mode & 0o022
    }
    assert loose == {}


def test_a_planted_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "state.json").symlink_to(victim)
    (tmp_path / f".state.json.tmp.{os.getpid()}").symlink_to(victim)
    write(RunRecord(run=1, state="queued"), tmp_path / "state.json")
    write_bytes(tmp_path / "other", b"x")
    assert victim.read_text() == "mine" and not (tmp_path / "state.json").is_symlink()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_users_set_is_not_taken_instead_of_a_new_one(
    root: Path, cli: Commands, tmp_path: Path
) -> None:
    """An exact copy without a job, whose own ledger accepts what its owner put into the bundle."""
    trap, log_dir, site = tmp_path / "trap", root.parent, site_of(root)
    again(root)
    other = log_dir / root.name.replace(root.name[-4:], "0000")
    for folder in log_dir.parents:
        if folder != Path("/") and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    log_dir.chmod(0o1777)
    for folder in (root, root / "bundle"):
        folder.chmod(0o755)
    user = ["setpriv", "--reuid=4242", "--regid=4242", "--clear-groups"]
    steal = (
        'mkdir "$2" "$2/submissions" "$2/jobs" "$2/results" && cp "$1/set.json" "$2" && '
        'cp -r "$1/bundle" "$2" && sed -n 1p "$1/ledger.jsonl" >"$2/ledger.jsonl" && '
        'echo "touch $3" >"$2/bundle/run_with_docker.sh"'
    )
    subprocess.run([*user, "sh", "-c", steal, "sh", root, other, trap], check=True)
    kept = json.loads((other / "set.json").read_text())
    subprocess.run(
        [*user, "sh", "-c", 'cat >"$1"', "sh", other / "set.json"],
        input=json.dumps({**kept, "set_id": other.name}).encode(),
        check=True,
    )
    shutil.rmtree(root)
    options = ("--site", site, "--nexp", "1", "--systems-dir", site.parent / "systems")
    cli("submit", "one_node", "builtin", *options)
    assert cli.code == 0, cli.err
    made = Path(cli.out.split()[1])
    assert made != other and not any((other / "submissions").iterdir())
    until(lambda: not Local().jobs(names=[f"orch-{made.name}", f"orch-{other.name}"]))
    assert not trap.exists()

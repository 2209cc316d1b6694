"""`orchestrator submit` as a user sees it: the folder first, Slurm's own words, one set for one wish, options for sbatch."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from controller_parts import FORGOTTEN, Commands, write_set
from sites import write_site
from until import now_ms, until

from orchestrator.container.image import Image
from orchestrator.container.image_nodes import keep
from orchestrator.container.store import StoredImage, tar_name
from orchestrator.errors import ExitCode, SchedulerUnknown
from orchestrator.evidence.sets import open_set
from orchestrator.onnode.kernel.records import JobRecord, SetRecord, read, write
from orchestrator.scheduler import advice
from orchestrator.scheduler.command import ask, last_lines

Fake = Callable[[str, str], Path]
TOP = Path(__file__).resolve().parents[2]
WHAT = ("local_2x2x8", "builtin", "--nexp", "3")
NO_ANSWER = "echo 'sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)' >&2; exit 1"
BUSY = "echo 'sbatch: error: Batch job submission failed: Resource temporarily unavailable' >&2; exit 1"
REFUSED = "echo 'sbatch: error: invalid account acme' >&2; echo 'sbatch: error: Batch job submission failed: Invalid account' >&2; exit 1"


@pytest.fixture
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log directory of a site with Slurm, which $ORCHESTRATOR_SITE names."""
    folder = tmp_path / "sets"
    path = write_site(tmp_path / "slurm.yaml", folder, scheduler="slurm", sbatch=["--comment=site"])
    monkeypatch.setenv("ORCHESTRATOR_SITE", str(path))
    return folder


@pytest.fixture
def slurm(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A Slurm without jobs that takes one."""
    fake("sinfo", "exit 1")
    fake("squeue", "true")
    fake("sbatch", "echo 17")
    monkeypatch.setattr("orchestrator.runset.submit.BUSY_AGAIN_S", ())
    return fake


def test_the_folder_is_named_before_slurm_is_asked(slurm: Fake, sets: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    slurm("sbatch", f"touch {asked}; exec sleep 60")
    code = f"import sys; from orchestrator.cli import main; sys.exit(main({['submit', *WHAT]!r}))"
    submitting = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TOP)},
    )
    try:
        assert submitting.stdout is not None
        line = submitting.stdout.readline()
        [made] = [path for path in sets.iterdir() if not path.name.startswith(".")]
        assert line == f"set  {made}\n"
        assert submitting.poll() is None
    finally:
        submitting.terminate()
        submitting.communicate()


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (NO_ANSWER, ExitCode.UNKNOWN, "Unable to contact slurm controller"),
        (BUSY, ExitCode.SCHEDULER, "Resource temporarily unavailable"),
    ],
)
def test_an_error_has_slurms_words_and_names_the_set(
    slurm: Fake,
    cli: Commands,
    sets: Path,
    body: str,
    code: ExitCode,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("orchestrator.runset.submit.LOOK_AGAIN_S", (0.0,))
    slurm("sbatch", body)
    assert cli("submit", *WHAT).code == code
    [made] = sets.iterdir()
    assert cli.out == f"set  {made}\n"
    assert message in cli.err and f"orchestrator resume {made}" in cli.err


def test_a_refused_set_is_gone(slurm: Fake, cli: Commands, sets: Path) -> None:
    """Its bundle has what was refused: to resume it would be refused again."""
    slurm("sbatch", REFUSED)
    assert cli("submit", *WHAT).code == ExitCode.SCHEDULER
    assert (
        "invalid account acme; sbatch: error: Batch job submission failed: Invalid account"
        in cli.err
    )
    assert "correct `account` in the site file, then submit again" in cli.err
    assert cli.err.splitlines()[-1] == f"  {advice.ACCOUNTS}", "as `explain` of a refused set"
    assert list(sets.iterdir()) == []


def test_a_refused_job_of_more_runs_says_that_the_set_has_them(
    slurm: Fake, cli: Commands, sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = write_site(tmp_path / "slurm.yaml", sets, scheduler="slurm", nodelist=["n1"])
    slurm("scontrol", FORGOTTEN)
    assert cli("submit", *WHAT, "--site", site).code == 0, cli.err
    [root] = sets.iterdir()
    # What this command refuses itself, it refuses before.
    assert cli("resume", root, "--nexp", "5", "--exclude", "n1").code == ExitCode.BAD_INPUT
    assert "every node of the nodelist" in cli.err and open_set(root).record.nexp == 3
    slurm("sbatch", REFUSED)
    assert cli("resume", root, "--nexp", "5", "--sbatch=--account=acme").code == ExitCode.SCHEDULER
    command = f"orchestrator resume {root}"
    assert f"the set has 5 runs all the same, and does not shrink: {command}\n" in cli.err
    slurm("sbatch", "echo 18")
    assert cli(*command.split()[1:]).code == 0 and "5 of 5 runs left" in cli.out


def test_a_set_of_an_earlier_submit_stays_when_it_is_refused(
    slurm: Fake, cli: Commands, sets: Path
) -> None:
    slurm("sbatch", BUSY)
    cli("submit", *WHAT)
    before = set_names(sets)
    slurm("sbatch", REFUSED)
    assert cli("submit", *WHAT).code == ExitCode.SCHEDULER
    assert set_names(sets) == before and len(before) == 1
    assert cli("resume", sets / before[0]).code == ExitCode.SCHEDULER
    assert set_names(sets) == before


def set_of_no_answer(slurm: Fake, cli: Commands, sets: Path) -> Path:
    """Submit a set that Slurm is never asked for, as it does not answer; return its folder."""
    slurm("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    slurm("scontrol", "exit 1")
    assert cli("submit", *WHAT).code == ExitCode.UNKNOWN
    [made] = sets.iterdir()
    return made


def test_a_squeue_that_fails_before_names_the_set_too(
    slurm: Fake, cli: Commands, sets: Path
) -> None:
    made = set_of_no_answer(slurm, cli, sets)
    assert (
        "slurm_load_jobs error: Unable to contact" in cli.err
        and f"orchestrator resume {made}" in cli.err
    )


def test_what_a_command_said_before_it_hung_is_told(fake: Fake) -> None:
    fake("squeue", "echo 'slurm_load_jobs: cannot stat file /etc/none.conf' >&2; exec sleep 10000")
    limits = itertools.count(1)

    def answer() -> SchedulerUnknown | None:
        limit_s = next(limits)
        with pytest.raises(SchedulerUnknown, match=f"did not answer within {limit_s} s") as caught:
            ask(["squeue"], timeout_s=limit_s)
        return caught.value if caught.value.stderr else None  # a busy machine: it had not begun

    error = until(answer)
    assert error and "its message: slurm_load_jobs: cannot stat" in str(error)
    assert "cannot stat file" in error.stderr


def test_words_are_bounded_and_printable() -> None:
    assert last_lines("a\n\x1b[31mred\n\nb\nb\nc\n") == "[31mred; b; c"
    assert len(last_lines("x" * 5000)) == 600
    assert last_lines(" \n") == ""


# ---- one set for one wish ----


def set_names(sets: Path) -> list[str]:
    return sorted(path.name for path in sets.iterdir())


def test_a_set_without_a_job_is_taken_again(slurm: Fake, cli: Commands, sets: Path) -> None:
    slurm("sbatch", BUSY)
    assert cli("submit", *WHAT).code == ExitCode.SCHEDULER
    before = set_names(sets)
    slurm("sbatch", "echo 18")
    assert cli("submit", *WHAT).code == ExitCode.OK, cli.err
    assert set_names(sets) == before and f"{before[0]} is the same" in cli.err
    assert cli.out == f"set  {sets / before[0]}\njob  18\n"
    assert sorted(path.name for path in (sets / before[0] / "submissions").iterdir()) == [
        "1.json",
        "2.json",
    ]
    # It has a job now, so the next wish is another set.
    slurm("sbatch", "echo 19")
    assert cli("submit", *WHAT).code == ExitCode.OK, cli.err
    assert len(set_names(sets)) == 2


def test_a_set_that_was_never_asked_for_is_taken_again(
    slurm: Fake, cli: Commands, sets: Path
) -> None:
    made = set_of_no_answer(slurm, cli, sets)
    described = json.loads((made / "set.json").read_text())
    (made / "set.json").write_text(
        json.dumps({**described, "created_ms": described["created_ms"] - 1000})
    )
    slurm("squeue", "true")
    answer = cli.json("submit", *WHAT)
    assert answer["set"] == str(made) and cli.err.splitlines()[-1] == f"set  {made}"


@pytest.mark.parametrize("change", ["nexp", "environment", "lock", "unknown", "just made"])
def test_another_wish_is_another_set(slurm: Fake, cli: Commands, sets: Path, change: str) -> None:
    slurm("sbatch", BUSY)
    cli("submit", *WHAT)
    [made] = sets.iterdir()
    arguments = list(WHAT)
    if change == "nexp":
        arguments[-1] = "4"
    elif change == "environment":
        arguments += ["--env", "BUILTIN_STEP_MS=2"]
    elif change == "lock":
        (made / ".controller.lock").touch()
    elif change == "unknown":
        path = made / "submissions/1.json"
        path.write_text(path.read_text().replace('"refused"', '"unknown"'))
    else:
        (made / "submissions/1.json").unlink()
        described = json.loads((made / "set.json").read_text())
        (made / "set.json").write_text(json.dumps({**described, "created_ms": now_ms() + 60_000}))
    slurm("sbatch", "echo 18")
    assert cli("submit", *arguments).code == ExitCode.OK, cli.err
    assert len(set_names(sets)) == 2


# ---- data ----

FLUX = ("MI325X_08x08x32", "flux1")
KEY = "data.flux1.DATADIR"
ASK = f"  orchestrator config --set {KEY} --site HERE/site.yaml && "
SUBMIT = "orchestrator submit MI325X_08x08x32 flux1 --site HERE/site.yaml"
UNNAMED = f"the site file names no folder for {KEY}\n"


@pytest.mark.parametrize(
    ("site", "environment", "said", "fix"),
    [
        ("", {}, UNNAMED, f"{ASK}{SUBMIT}\n"),
        (
            "data: {llama2_70b_lora: {DATADIR: /elsewhere/llama2}}\n",
            {},
            UNNAMED,
            f"{ASK}{SUBMIT}\n",
        ),
        ("", {"DATADIR": "/x"}, UNNAMED, f"  {SUBMIT} --override {KEY}=/x\n"),
        ("", {"DATADIR": "HERE/gone"}, UNNAMED, f"{ASK}{SUBMIT}\n"),
        (
            "data: {llama2_70b_lora: {DATADIR: HERE/near/x}}\n",
            {},
            UNNAMED,
            f"  {SUBMIT} --override {KEY}=HERE/near/flux1\n",
        ),
        ("pass_env: [DATADIR]\n", {}, UNNAMED, f"{ASK}{SUBMIT}\n"),
        ("pass_env: [DATADIR]\n", {"DATADIR": "/x"}, "", ""),
        ("acknowledged: [data]\n", {}, "", ""),
        ("data: {flux1: {DATADIR: HERE}}\n", {}, "", ""),
        ("data: {flux1: {DATADIR: /scratch/of/nodes}}\n", {}, "", ""),
        (
            "data: {flux1: {DATADIR: HERE/gone}}\n",
            {},
            "HERE/gone (data.flux1.DATADIR of the site file) does not exist",
            "correct `data.flux1.DATADIR` in the site file, or prepare the data there; --force",
        ),
        ("acknowledged: [data]\ndata: {flux1: {DATADIR: HERE/gone}}\n", {}, "", ""),
    ],
)
def test_data_that_the_runs_cannot_find_are_refused(
    slurm: Fake,
    cli: Commands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    site: str,
    environment: dict[str, str],
    said: str,
    fix: str,
) -> None:
    path = tmp_path / "site.yaml"
    (tmp_path / "sets").mkdir()
    (tmp_path / "near/flux1").mkdir(parents=True)
    path.write_text(f"log_dir: {tmp_path}/sets\n{site.replace('HERE', str(tmp_path))}")
    for name, value in environment.items():
        monkeypatch.setenv(name, value.replace("HERE", str(tmp_path)))
    done = cli("submit", *FLUX, "--site", path)
    assert done.code == (ExitCode.BAD_INPUT if said else ExitCode.OK), done.err
    shown = done.err.replace(str(tmp_path), "HERE")
    assert said in shown and fix in shown
    assert bool(list((tmp_path / "sets").iterdir())) == (not said)
    if said == UNNAMED:
        refusal = shown[shown.index("orchestrator submit: ") :]
        assert refusal.count("\n") == 3 and refusal.endswith(fix)
        assert "[data]" not in shown and shown.count("names no folder") == 1
        cli("submit", *FLUX, "--site", path, "--dry-run")
        assert "[data]" not in cli.err and cli.err.count("names no folder") == 1


def test_the_command_that_asks_for_the_folder_works(
    slurm: Fake, cli: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_site(tmp_path / "site.yaml", tmp_path / "sets", scheduler="slurm")
    (tmp_path / "somewhere").mkdir()
    cli("submit", *FLUX, "--site", path)
    asking, submitting = cli.err.splitlines()[-1].split(" && ")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{tmp_path}/somewhere\n"))
    assert cli(*asking.split()[1:]).code == ExitCode.OK, cli.err
    assert cli(*submitting.split()[1:]).code == ExitCode.OK, cli.err
    assert cli.out.endswith("job  17\n") and "missing" not in cli.err


# ---- options for sbatch ----


def test_options_for_sbatch(slurm: Fake, cli: Commands, sets: Path) -> None:
    asked = slurm("sbatch", "echo 17")
    arguments = [
        "--sbatch=--mail-type=END",
        "--sbatch=--nice=5",
        "--dependency",
        "afterany:4711",
        "--begin",
        "now+2hours",
    ]
    answer = cli.json("submit", *WHAT, *arguments)
    [line] = asked.read_text().splitlines()
    assert line.endswith(" --dependency=afterany:4711 --begin=now+2hours"), (
        "the script is its input"
    )
    script = (Path(answer["set"]) / "bundle/job.sh").read_text()
    assert "#SBATCH --comment=site\n#SBATCH --mail-type=END\n#SBATCH --nice=5\n" in script
    assert "--dependency" not in script


def test_options_of_a_later_job(slurm: Fake, cli: Commands, sets: Path) -> None:
    slurm("sbatch", BUSY)
    cli("submit", *WHAT)
    [made] = sets.iterdir()
    asked = slurm("sbatch", "echo 18")
    before = len(asked.read_text().splitlines())
    assert cli("resume", made, "--sbatch=--nice=5", "--begin", "22:00").code == ExitCode.OK, cli.err
    assert asked.read_text().splitlines()[before].endswith(" --nice=5 --begin=22:00")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sbatch=--nodes=4"], "--nodes is set by orchestrator itself"),
        (["--sbatch=comment"], "is not an sbatch option"),
        (["--sbatch=--export=ALL,HF_TOKEN=x"], "HF_TOKEN looks like a secret"),
        (["--test-only", "--dry-run"], "not allowed with"),
    ],
)
def test_options_that_cannot_be(
    slurm: Fake, cli: Commands, sets: Path, arguments: list[str], message: str
) -> None:
    assert cli("submit", *WHAT, *arguments).code == ExitCode.BAD_INPUT
    assert message in cli.err and set_names(sets) == []


@pytest.mark.parametrize(
    "arguments",
    [["--sbatch=--nice=5"], ["--dependency", "after:1"], ["--begin", "now"], ["--test-only"]],
)
def test_without_a_scheduler_nothing_is_asked_of_one(
    cli: Commands, site: Path, arguments: list[str]
) -> None:
    assert cli("submit", *WHAT, "--site", site, *arguments).code == ExitCode.BAD_INPUT
    assert arguments[0].partition("=")[0] in cli.err


def test_only_a_test(slurm: Fake, cli: Commands, sets: Path) -> None:
    message = "sbatch: Job 20 to start at 2026-11-22T10:00:00 using 64 processors on nodes n[1-2] in partition gpu"
    asked = slurm("sbatch", f"echo '{message}' >&2; [[ -s ${{!#}} ]]")
    assert cli("submit", *WHAT, "--test-only", "--begin", "22:00").code == ExitCode.OK, cli.err
    assert cli.out == f"{message}\n" and set_names(sets) == []
    assert (
        asked.read_text().startswith("--test-only --parsable ")
        and " --begin=22:00 " in asked.read_text()
    )
    slurm("sbatch", REFUSED)
    assert (
        cli("submit", *WHAT, "--test-only").code == ExitCode.SCHEDULER
        and "invalid account acme" in cli.err
    )
    slurm("sbatch", NO_ANSWER)
    assert cli("submit", *WHAT, "--test-only").code == ExitCode.UNKNOWN


# ---- the image ----

FLUX1 = ("submit", "MI325X_08x08x32", "flux1", "--dry-run")
NAME = "rocm/amd-mlperf:flux1_training_6.0"
PULL = "orchestrator images pull MI325X_08x08x32 flux1 --round 6.0"
CHECK = "orchestrator doctor {} --round 6.0 --all-nodes"
DISTRIBUTE = "orchestrator images distribute MI325X_08x08x32 flux1 --round 6.0"


def image_lines(cli: Commands, *argv: str) -> list[str]:
    """The warning about the image, and the line behind it."""
    lines = cli(*argv).err.splitlines()
    return next((lines[k : k + 2] for k, line in enumerate(lines) if "the image" in line), [])


@pytest.fixture
def site_of_images(
    slurm: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """Write a site with Slurm and Docker; return its log directory."""

    def make(**container: str) -> Path:
        (tmp_path / "data").mkdir(exist_ok=True)
        folder = tmp_path / "shared/sets"
        data = {"flux1": {"DATADIR": str(tmp_path / "data")}}
        keys = {"scheduler": "slurm", "container": {"engine": "docker", **container}, "data": data}
        path = write_site(tmp_path / "images.yaml", folder, **keys)
        monkeypatch.setenv("ORCHESTRATOR_SITE", str(path))
        return folder

    return make


def test_nodes_that_may_pull_need_no_image(
    site_of_images: Callable[..., Path], cli: Commands
) -> None:
    site_of_images()
    assert image_lines(cli, *FLUX1) == [] and cli.code == 0


def test_nodes_that_may_not_pull_need_the_image(
    site_of_images: Callable[..., Path], cli: Commands
) -> None:
    log_dir = site_of_images(pull="never")
    warning, fix = image_lines(cli, *FLUX1)
    assert warning.startswith("warning: ")
    assert "`container.pull` is `never`, and no set ran with it" in warning
    assert fix == f"  {CHECK.format('MI325X_08x08x32 flux1')}", "they may have it already"
    assert cli.code == 0, "a warning, no refusal"
    submitting = [word for word in FLUX1 if word != "--dry-run"]
    assert image_lines(cli, *submitting) == [warning, fix] and cli.code == 0
    # A tar on shared storage needs no pull.
    image = Image(f"sha256:{'ab' * 32}", (), (), 3)
    tar = log_dir.parent / "images" / tar_name(NAME, image)
    tar.parent.mkdir()
    tar.write_bytes(b"tar")
    kept = StoredImage(tar, NAME, image, 3, 1).to_json()
    tar.with_name(f"{tar.name}.json").write_text(json.dumps(kept))
    assert image_lines(cli, *FLUX1)[1] == f"  {DISTRIBUTE}"
    # Nodes that were found to have it, as many as are needed; a set has run on none of them.
    nodes = [f"n{number}" for number in range(1, 9)]
    keep(tar.parent, NAME, nodes, [])
    assert image_lines(cli, *FLUX1) == []
    keep(tar.parent, NAME, [], ["n8"])
    assert "only 7 nodes had it" in image_lines(cli, *FLUX1)[0]
    keep(tar.parent, NAME, [], nodes)
    # Nodes on which a set ran have it, too.
    for count, silent in ((7, False), (8, True)):
        job = JobRecord(
            job_id=str(count), state="complete", started_ms=1, ended_ms=2, image_digest=image.id,
            nodes=[f"n{number}" for number in range(1, count + 1)],
        )  # fmt: skip
        root = write_set(log_dir, f"s{count}", job=job)
        record = read(SetRecord, root / "set.json")
        assert isinstance(record, SetRecord)
        write(replace(record, image=NAME), root / "set.json")
        lines = image_lines(cli, *FLUX1)
        assert bool(lines) is not silent, lines
        assert silent or "only 7 nodes had it" in lines[0]


def test_the_summary_names_the_submitter_in_the_logs(
    site_of_images: Callable[..., Path], cli: Commands, slurm: Fake
) -> None:
    site_of_images()
    assert cli(*FLUX1).code == ExitCode.OK
    line = "submitter AMD in the logs (to change it: MLPERF_SUBMISSION_ORG in the site's `env`)"
    assert line in " ".join(cli.err.split())
    mine = ("--env", "MLPERF_SUBMISSION_ORG=Site A")
    assert cli.json(*FLUX1, *mine)["submitter"] == "Site A"
    slurm("sbatch", "echo 'sbatch: error: no' >&2; exit 1")
    note = "the logs will name AMD as the submitter"
    assert note in cli(*FLUX1[:-1]).err and note not in cli(*FLUX1[:-1], *mine).err


def test_an_image_that_no_registry_has_is_built(
    site_of_images: Callable[..., Path], cli: Commands
) -> None:
    site_of_images()
    warning, fix = image_lines(
        cli, "submit", "MI355X_1x8x1_Oracle", "gpt_oss_20b", "--dry-run", "--force"
    )
    assert "no registry has it" in warning
    assert fix == f"  {CHECK.format('MI355X_1x8x1_Oracle gpt_oss_20b')}"


def test_the_engine_of_this_host_is_asked(
    site_of_images: Callable[..., Path], fake: Fake, cli: Commands, tmp_path: Path
) -> None:
    site_of_images(pull="never")
    path = tmp_path / "images.yaml"
    path.write_text(path.read_text().replace("scheduler: slurm", "scheduler: local"))
    for body, known in (
        ("""echo '[{"Id": "sha256:1"}]'""", True),
        ("echo 'Error response from daemon: No such image: x' >&2; exit 1", False),
        ("echo 'permission denied' >&2; exit 1", True),
    ):
        fake("docker", body)
        lines = image_lines(cli, *FLUX1)
        assert lines == [] if known else lines[1] == f"  {PULL}"
    # `build` asks for the published tree.
    names = ("MI355X_1x8x1_Oracle", "gpt_oss_20b", "--round", "6.0")
    fake("docker", "echo 'Error response from daemon: No such image: x' >&2; exit 1")
    warning, fix = image_lines(cli, "submit", *names, "--dry-run", "--force")
    assert "this host does not have the image" in warning
    assert fix == f"  orchestrator images build {' '.join(names)}"

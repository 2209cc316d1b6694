"""Every command with --json, about one real set: what is printed is as schemas/outputs.json and docs/reference/json.md say."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import outputs
import pytest
from controller_parts import Commands
from processes import see_them_go
from sites import write_site
from until import until

from orchestrator.cli import COMMANDS, main
from orchestrator.cli.output import SCHEMA
from orchestrator.scheduler.local import Local

TOP = Path(__file__).resolve().parent.parent.parent
LOGS = TOP / "tests/data/mllog/v5.1/AMD/MI325X_EPYC_9575F_pytorch_llama2_70b/llama2_70b_lora"
IMAGE = TOP / "lab/standins/images/llama31-nemo"
WHAT = "local_2x2x8 builtin"

# What is run, and the kind that it prints. SET, SITE, LOGS and DIR and IMAGE are put in; so is --json.
CALLS = {
    "init --yes --scheduler local -o DIR/site.yaml": "init",
    f"doctor {WHAT}": "doctor",
    "systems --gpu MI325X": "systems",
    "systems show MI325X_08x08x32": "system",
    "systems show MI325X_08x08x32 --workload flux1": "entry",
    "systems show tinybox_8xMI300X --workload bert": "entry",
    "systems diff MI325X_08x08x32 MI325X_08x08x32_Dell": "systems-diff",
    "systems import DIR/config_MI355X_1x8x1.sh --round 7.0 --dry-run": "systems-import",
    "validate SITE": "systems-validate",
    "validate /nowhere.yaml": "systems-validate",
    f"render {WHAT} -o DIR/bundle": "render",
    f"render {WHAT} --diff SET --env X=1": "render-diff",
    f"doctor {WHAT} --all-nodes": "preflight",
    f"submit {WHAT} --dry-run": "submit-dry-run",
    "status": "sets",
    "ls --all": "sets",
    "config --all": "config",
    "status SET": "set",
    "watch SET": "set",
    "export --format prometheus": "metrics",
    "explain SET": "explain",
    "nodes SET": "nodes",
    "audit SET": "audit",
    "audit SET --only replay": "replay",
    "audit SET --only ledger": "ledger",
    "audit SET --only compliance": "check",
    "rm SET": "error",
    "score SET": "score",
    "score LOGS --window": "score",
    "score SET LOGS /nowhere": "error",
    "score SET LOGS DIR": "scores",
    "score --compliance LOGS": "check",
    "score --compliance SET LOGS": "checks",
    "images check --image x --nodes localhost --timeout 1": "images",
    "images inspect MI355X_1x8x1 llama31_8b --round 5.1 --from IMAGE": "images-inspect",
    "prepare flux1 --check --site DIR/data.yaml": "prepare-check",
    "prepare flux1 --dry-run --site DIR/data.yaml": "prepare-plan",
    "prepare flux1": "error",
    "published --benchmark flux1 --minutes 93": "published",
    "published --others": "published-others",
    "tune plan": "tune",
    "tune status": "tune",
    "tune facts SET": "tune-facts",
    "compare 6.0-0037 6.0/flux1/MI325X_08x08x32": "comparison",
    "compare LOGS LOGS": "comparison",
    "compare SET SET SET": "comparisons",
    "cancel SET": "error",
    "resume SET": "error",
    "export LOGS -o DIR/runs.csv": "export",
    "package LOGS -o DIR/tree --submitter AMD": "error",
    "docs": "docs",
    "docs exit-codes": "page",
    "docs --search spares": "docs_search",
    f"rehearse {WHAT} --nexp 1": "rehearsal",
    f"rehearse {WHAT} --nexp 1 --node-mtbf 2000h --trials 2": "rehearsal-trials",
    "nonsense": "error",
}
NOT_RUN = {
    "submit-test-only": "Slurm alone answers it",
    "images-build": "a container engine",
    "images-pull": "a container engine",
    "code": "a container engine",
    "prepare": "a container engine",
    "package": "tests/submission",
}
"""Kinds that need more than this machine has: their tests, of the lab most of them, hold them against the schema."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a site and one real set of one run."""
    folder = tmp_path_factory.mktemp("outputs")
    write_site(folder / "site.yaml", folder / "sets")
    write_site(
        folder / "data.yaml", folder / "sets", data={"flux1": {"DATADIR": str(folder / "data")}}
    )
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert (
            main(
                ["run", *WHAT.split(), "--nexp", "1", "--site", str(folder / "site.yaml"), "--json"]
            )
            == 1
        )
    assert outputs.checked(out.getvalue())["kind"] == "score"
    see_them_go(folder)  # the score is there before the job has ended
    yield folder
    for folder_of_set in (folder / "sets").iterdir():
        for job_id in Local().jobs(names=[f"orch-{folder_of_set.name}"]):
            Local().cancel(job_id, 0.1)


@pytest.fixture
def site(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORCHESTRATOR_SITE", str(made / "site.yaml"))
    monkeypatch.setenv("ORCH_TUNABLES_ROOT", "/nowhere")
    return made / "site.yaml"


@pytest.mark.parametrize(("arguments", "kind"), CALLS.items(), ids=list(CALLS))
def test_outputs_are_as_described(
    arguments: str, kind: str, cli: Commands, site: Path, made: Path, tmp_path: Path
) -> None:
    [a_set] = (made / "sets").iterdir()
    (tmp_path / "data.yaml").write_text((made / "data.yaml").read_text())
    (tmp_path / "config_MI355X_1x8x1.sh").write_text(
        "export MLLOG_SUBMISSION_BENCHMARK=llama31_8b PRIMUS_MICRO_BATCH_SIZE=2\n"
    )
    places = {"SET": a_set, "SITE": site, "LOGS": LOGS, "DIR": tmp_path, "IMAGE": IMAGE}
    cli(
        *(
            re.sub("SET|SITE|LOGS|DIR|IMAGE", lambda name: str(places[name[0]]), word)
            for word in arguments.split()
        ),
        "--json",
    )
    for line in cli.out.splitlines() if arguments.startswith("watch") else [cli.out]:
        assert outputs.checked(line)["kind"] == kind, line


def test_the_page_as_json_is_as_described(
    cli: Commands, site: Path, made: Path, tmp_path: Path
) -> None:
    [a_set] = (made / "sets").iterdir()
    for folder in (a_set, LOGS):
        assert cli("report", folder, "-o", tmp_path / "report.json").code == 0, cli.err
        assert outputs.checked((tmp_path / "report.json").read_text())["kind"] == "report"


def test_a_set_that_is_cancelled_and_resumed(
    cli: Commands, site: Path, made: Path, tmp_path: Path
) -> None:
    own = write_site(tmp_path / "own.yaml", tmp_path / "sets")
    cli(
        "submit",
        *WHAT.split(),
        "--nexp",
        "2",
        "--env",
        "BUILTIN_FAULT=hang:run=1",
        "--site",
        own,
        "--json",
    )
    root = outputs.checked(cli.out)["set"]

    def running() -> bool:
        cli("status", root, "--json")
        return bool(outputs.checked(cli.out)["current_run"])

    for arguments in (["cancel", root], ["resume", root], ["cancel", root]):
        if arguments[0] == "cancel":
            until(running)
        cli(*arguments, "--json")
        assert outputs.checked(cli.out)["kind"] == arguments[0], cli.err


def test_every_kind_and_every_command_is_looked_at() -> None:
    described = {
        name.removeprefix("output:") for name in outputs.parts() if name.startswith("output:")
    }
    assert described == {*CALLS.values(), *NOT_RUN, "report", "cancel", "resume", "submit", "rm"}
    none = {"run", "demo", "report"}  # above and in NOT_RUN; demo is run
    assert {arguments.split()[0] for arguments in CALLS} >= set(COMMANDS) - none - {
        "logs",
        "completion",
    }, "these print no facts"


def test_the_version_is_the_one_that_is_described() -> None:
    assert all(
        about["properties"]["schema"]["const"] == SCHEMA
        for name, about in outputs.parts().items()
        if name.startswith("output:")
    )


def test_what_is_not_as_described_is_found() -> None:
    good = {
        "schema": 1,
        "kind": "error",
        "error": {"code": 2, "message": "m", "hint": "", "fix": ""},
    }
    assert outputs.checked(json.dumps(good)) == good
    for bad in (
        {**good, "more": 1},
        {**good, "schema": 2},
        {"schema": 1, "kind": "error"},
        {**good, "error": {"code": "2", "message": "m", "hint": "", "fix": ""}},
        {**good, "error": {"code": True, "message": "m", "hint": "", "fix": ""}},
        {**good, "error": None},
    ):
        with pytest.raises(AssertionError):
            outputs.checked(json.dumps(bad))

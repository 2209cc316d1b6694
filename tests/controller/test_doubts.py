"""Sites with which a set can run to no avail: `doctor`, `submit` and `validate` warn or refuse before it does."""

from __future__ import annotations

import grp
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import outputs
import pytest
from controller_parts import Commands, write_set

from orchestrator.errors import ExitCode
from orchestrator.mllog.rounds import requires_key
from orchestrator.mllog.shipped import ROUNDS

Fake = Callable[[str, str], Path]
FLUX1 = ("MI325X_08x08x32", "flux1")  # 127 minutes a run, with 30 %


@pytest.fixture
def slurm(cli: Commands, fake: Fake, tmp_path: Path) -> Callable[..., Path]:
    """`slurm(lines)`: a site file with these lines, for a Slurm without a node."""
    (tmp_path / "sets").mkdir()
    fake(
        "sinfo",
        r"""case "$*" in *--Node*) ;; *) printf 'gpu*\x1fup\x1finfinite\x1f8\x1fgpu:8\n' ;; esac""",
    )
    fake("squeue", "true")
    fake("sbatch", "echo 17")

    def write(lines: str = "") -> Path:
        path = tmp_path / "site.yaml"
        data = f"data: {{flux1: {{DATADIR: {tmp_path}}}}}\n"
        path.write_text(f"kind: site\npartition: gpu\nlog_dir: {tmp_path}/sets\n{data}{lines}")
        return path

    return write


def doctor(cli: Commands, site: Path, *words: str) -> dict[str, dict[str, Any]]:
    cli("doctor", *words, "--site", site, "--json")
    return {row["check"]: row for row in outputs.checked(cli.out)["checks"]}


def test_every_round_wants_the_proof_and_a_workloads_own_rules_do_not() -> None:
    assert all(requires_key(ruleset, "cache_clear") for ruleset in ROUNDS)
    assert not requires_key("6.0.0", "no_such_key")
    assert not requires_key("own", "cache_clear") and not requires_key("9.9.9", "cache_clear")


def test_a_set_without_the_proof_of_cold_caches(cli: Commands, slurm: Callable[..., Path]) -> None:
    site = slurm("clear_caches: false\n")
    row = doctor(cli, site, *FLUX1)["clear_caches"]
    assert row["verdict"] == "warn" and "the set has no valid score" in row["text"]
    assert "by the rules of round 6.0.0 they are bad runs" in row["text"]
    fix = f"orchestrator submit MI325X_08x08x32 flux1 --site {site} --override clear_caches=true"
    assert row["remedy"] == fix
    for words in (("--dry-run",), ()):
        cli("submit", *FLUX1, "--site", site, *words)
        assert cli.code == ExitCode.OK and "warning: `clear_caches: false`: the runs" in cli.err
    assert "clear_caches" not in doctor(cli, slurm(), *FLUX1)


def test_a_workload_with_its_own_rules_needs_no_proof(cli: Commands, site: Path) -> None:
    site.write_text(site.read_text().replace("clear_caches: true", "clear_caches: false"))
    assert "clear_caches" not in doctor(cli, site, "local_2x2x8", "builtin")


@pytest.mark.parametrize(
    ("limit", "text", "remedy"),
    [
        (
            '"12:00"',
            "`time_limit: 12:00` is 12m, and one run of flux1 may take 2h07m",
            "time_limit=12:00:00",
        ),
        ("100", "`time_limit: 100` is 1h40m, and", "time_limit=254"),
        ('"1:30"', "is 2m, and", "time_limit=254"),
        ('"12:00:00"', "", ""),
        ("127", "", ""),
    ],
)
def test_a_limit_below_one_run(
    cli: Commands, slurm: Callable[..., Path], limit: str, text: str, remedy: str
) -> None:
    site = slurm(f"time_limit: {limit}\n")
    row = doctor(cli, site, *FLUX1).get("time_limit", {"text": "", "remedy": ""})
    assert text in row["text"] and remedy in row["remedy"]
    cli("submit", *FLUX1, "--site", site, "--dry-run")
    assert cli.code == ExitCode.OK
    assert ("the job may end before its first run" in cli.err) == bool(text)


def test_a_group_that_is_missing(cli: Commands, slurm: Callable[..., Path]) -> None:
    site = slurm("shared_group: no_such_group\n")
    problem = f"there is no group no_such_group (`shared_group`) on {os.uname().nodename}"
    assert cli("validate", site).code == ExitCode.OK
    assert f"warning: {problem}" in cli.err
    assert doctor(cli, site)["shared_group"]["text"] == problem
    for words in (("--dry-run",), ()):
        assert cli("submit", *FLUX1, "--site", site, *words).code == ExitCode.BAD_INPUT
        assert problem in cli.err and "--override shared_group=null" in cli.err
    cli("submit", *FLUX1, "--site", site, "--dry-run", "--override", "shared_group=null")
    assert cli.code == ExitCode.OK, cli.err
    site = slurm(f"shared_group: {grp.getgrgid(os.getegid()).gr_name}\n")
    assert "shared_group" not in doctor(cli, site)


def test_validate_without_a_file_takes_the_one_that_others_take(
    cli: Commands, slurm: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = slurm()
    assert cli("validate", "--site", site).out == f"{site}: site, fine\n"
    monkeypatch.setenv("ORCHESTRATOR_SITE", str(site))
    assert cli("validate").out == f"{site}: site, fine\n"
    monkeypatch.delenv("ORCHESTRATOR_SITE")
    monkeypatch.chdir(tmp_path)
    assert cli("validate").out == "site.yaml: site, fine\n"
    site.unlink()
    assert cli("validate").code == ExitCode.BAD_INPUT and "orchestrator init" in cli.err


def test_validate_shows_all_problems_of_a_site_at_once(cli: Commands, tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(
        "kind: site\nscheduler: slrum\ndata:\n  flux1: {DATADRI: /data}\n  flux2: {DATADIR: /data}\n"
        "tuning: {profile: /no/such/profile.yaml}\n"
    )
    assert cli("validate", path).code == ExitCode.BAD_INPUT
    for problem in (
        'did you mean "slurm"',
        'did you mean "DATADIR"',
        "there is no workload flux2",
        "log_dir: this key is required",
        "tuning.profile: /no/such/profile.yaml",
    ):
        assert problem in cli.err, problem
    path.write_text(f"kind: site\nlog_dir: {tmp_path}\ntuning: {{profile: mi32}}\n")
    assert cli("validate", path).code == ExitCode.BAD_INPUT
    assert "there is no tuning profile mi32" in cli.err


def test_the_next_job_of_a_set_gets_another_limit(
    cli: Commands, fake: Fake, tmp_path: Path
) -> None:
    root = write_set(tmp_path, "s", done=1)
    (root / "bundle").mkdir()
    (root / "bundle/job.sh").write_text("#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --time=12:00\n")
    log = fake("sbatch", "echo 8")
    fake("squeue", "exit 0")
    assert cli("resume", root, "--time", "12:00:00").code == ExitCode.OK, cli.err
    assert "--time=12:00:00 " in log.read_text()
    for text in ("soon", "1d", "1:2:3:4", "0:00"):
        assert cli("resume", root, "--time", text).code == ExitCode.BAD_INPUT
        assert f"'{text}' is not a time such as" in cli.err
    assert cli("resume", root, "--sbatch=--time=10").code == ExitCode.BAD_INPUT
    assert "the next job `resume --time`" in cli.err
    local = write_set(tmp_path, "l", scheduler="local")
    assert cli("resume", local, "--time", "60").code == ExitCode.BAD_INPUT
    assert "--time: without a scheduler" in cli.err

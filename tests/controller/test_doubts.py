"""Sites with which a set can run to no avail: `doctor`, `submit` and `validate` warn or refuse before it does."""

from __future__ import annotations

import grp
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import outputs
import pytest
from controller_parts import Commands

from orchestrator.errors import ExitCode

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

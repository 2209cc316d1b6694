"""Spare nodes and nodes to avoid: from the command line into a bundle, and onto the command line of a later job."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from controller_parts import Commands, write_set

from orchestrator.errors import ExitCode, UsageError
from orchestrator.evidence.sets import open_set
from orchestrator.nodes.names import names_given
from orchestrator.onnode.kernel.records import JobRecord
from orchestrator.runset.allocation import Allocation
from orchestrator.runset.submit import request_for

SITE = "kind: site\nlog_dir: {}\nexclude: ['node[1-2]']\nnodelist: ['node[3-12]']\n"


@pytest.fixture
def slurm_site(tmp_path: Path) -> Path:
    (tmp_path / "sets").mkdir()
    path = tmp_path / "slurm.yaml"
    path.write_text(SITE.format(tmp_path / "sets"))
    return path


def sbatch_lines(cli: Commands, site: Path, *options: str) -> set[str]:
    cli("render", "MI325X_08x08x32", "flux1", "--site", site, "-o", "-", *options)
    assert cli.code == 0, cli.err
    return {
        line.removeprefix("#SBATCH ")
        for line in cli.out.splitlines()
        if line.startswith("#SBATCH ")
    }


def test_a_bundle_asks_for_spares_and_avoids_nodes(
    cli: Commands, slurm_site: Path, tmp_path: Path
) -> None:
    lines = sbatch_lines(cli, slurm_site, "--spares", "2", "--exclude", "node[4,6]")
    assert {"--nodes=10", "--exclude=node[1-2],node4,node6"} <= lines
    assert "--nodelist=node3,node5,node7,node8,node9,node10,node11,node12" in lines
    bad = tmp_path / "bad.txt"
    bad.write_text("# from preflight\n\nnode4   # 7 of 8 GPUs\nnode[6-7],node4\n")
    assert "--exclude=node[1-2],node4,node6,node7" in sbatch_lines(
        cli, slurm_site, "--exclude", f"@{bad}"
    )
    bad.write_text("# all fit\n")
    assert {"--exclude=node[1-2]", "--nodelist=node[3-12]", "--nodes=8"} <= sbatch_lines(
        cli, slurm_site, "--exclude", f"@{bad}"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--spares", "-1"], "not a whole number from 0 to 1000"),
        (["--spares", "1001"], "not a whole number from 0 to 1000"),
        (["--exclude", "node[4"], "is not a node's name"),
        (["--exclude", ","], "names no node"),
        (["--exclude", "@/no/such"], "--exclude: /no/such: No such file or directory"),
        (["--exclude", "node[3-12]"], "every node of the nodelist"),
    ],
)
def test_what_cannot_be_meant(
    cli: Commands, slurm_site: Path, arguments: list[str], message: str
) -> None:
    cli("render", "MI325X_08x08x32", "flux1", "--site", slurm_site, "-o", "-", *arguments)
    assert cli.code == 2 and message in cli.err


def test_a_file_names_its_wrong_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("node1\nnode[2\n")
    with pytest.raises(UsageError, match=r"bad\.txt:2: "):
        names_given(f"@{bad}", "--exclude")


def test_without_a_scheduler_nothing_is_excluded(cli: Commands, site: Path) -> None:
    cli("submit", "local_2x2x8", "builtin", "--site", site, "--exclude", "a", "--dry-run")
    assert cli.code == 2 and "scheduler: local" in cli.err


def test_a_later_job_asks_on_its_command_line(tmp_path: Path) -> None:
    root = write_set(tmp_path, "s", done=1)
    (root / "bundle").mkdir()
    (root / "bundle/job.sh").write_text(
        "#!/bin/bash\n#SBATCH --nodes=3\n#SBATCH --exclude=node[1-2]\n#SBATCH --nodelist=node[3-5]\n"
    )
    run_set = open_set(root)
    assert request_for(run_set, {}).options == ()
    request = request_for(run_set, {}, Allocation(spares=2, exclude=("node4", "node1")))
    assert request.options == ("--nodes=3", "--exclude=node1,node2,node4", "--nodelist=node3,node5")
    assert request.env["SPARES"] == "2"
    assert request_for(run_set, {}, Allocation(spares=0)).options == ("--nodes=1",)
    # without a scheduler the loop is told, and there is nothing to ask for
    local = open_set(write_set(tmp_path, "t", scheduler="local"))
    asked = request_for(local, {}, Allocation(spares=1))
    assert asked.options == () and asked.env["SPARES"] == "1"


def test_a_bundle_asks_for_the_nodes_of_all_runs_at_once(cli: Commands, slurm_site: Path) -> None:
    alone = sbatch_lines(cli, slurm_site, "--nexp", "10")
    [minutes] = [int(line.removeprefix("--time=")) for line in alone if line.startswith("--time=")]
    each = minutes // 11
    lines = sbatch_lines(cli, slurm_site, "--nexp", "10", "--side-by-side", "3", "--spares", "1")
    assert {"--nodes=25", f"--time={5 * each}"} <= lines
    slurm_site.write_text(slurm_site.read_text() + "side_by_side: 10\n")
    assert {"--nodes=80", f"--time={2 * each}"} <= sbatch_lines(cli, slurm_site, "--nexp", "10")
    for wrong in ("0", "1000", "x"):
        cli(
            "render",
            "MI325X_08x08x32",
            "flux1",
            "--site",
            slurm_site,
            "-o",
            "-",
            "--side-by-side",
            wrong,
        )
        assert cli.code == 2 and "--side-by-side" in cli.err


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        (Allocation(side_by_side=2), ("--nodes=3",)),
        (Allocation(side_by_side=1), ("--nodes=2", "--time=490")),
        (Allocation(side_by_side=4, spares=0), ("--nodes=4",)),
        (Allocation(spares=2), ("--nodes=5",)),
    ],
)
def test_a_later_job_with_another_number_side_by_side(
    tmp_path: Path, asked: Allocation, options: tuple[str]
) -> None:
    root = write_set(tmp_path, "s", nexp=9, done=3)
    (root / "bundle").mkdir()
    (root / "bundle/settings.sh").write_text("use SPARES 1\nuse SIDE_BY_SIDE 3\n")
    (root / "bundle/README").write_text(
        "Time asked for: (runs + 1) x 70 min, for one repeated run.\n"
    )
    (root / "bundle/job.sh").write_text("#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --time=280\n")
    request = request_for(open_set(root), {}, asked)
    assert request.options == options
    assert request.env.get("SIDE_BY_SIDE") == (
        None if asked.side_by_side is None else str(asked.side_by_side)
    )
    for edited in ("12:00:00", "284"):
        (root / "bundle/job.sh").write_text(
            f"#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --time={edited}\n"
        )
        assert request_for(open_set(root), {}, asked).options == options[:1]


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [("", 11 * 127), ("time_limit: 1440\n", 0)],
)
@pytest.mark.parametrize("before", [10, 5])
def test_a_later_job_keeps_a_limit_of_the_site(
    cli: Commands, slurm_site: Path, tmp_path: Path, limit: str, minutes: int, before: int
) -> None:
    """Plain minutes, as `submit` suggests them, divide by the runs that follow one another as
    computed minutes do."""
    slurm_site.write_text(f"kind: site\nlog_dir: {tmp_path}/sets\nside_by_side: {before}\n{limit}")
    root = write_set(tmp_path, "s", nexp=10)
    what = ("MI325X_08x08x32", "flux1", "--nexp", "10")
    assert cli("render", *what, "--site", slurm_site, "-o", root / "bundle").code == 0, cli.err
    options = request_for(open_set(root), {}, Allocation(side_by_side=1)).options
    assert options == ("--nodes=1", *([f"--time={minutes}"] if minutes else []))
    text = (root / "bundle/settings.sh").read_text()
    (root / "bundle/settings.sh").write_text(re.sub("(?m)^RUN_MINUTES=.*$", "", text))
    assert request_for(open_set(root), {}, Allocation(side_by_side=1)).options == options


def test_resume_tells_who_was_set_aside(
    cli: Commands, tmp_path: Path, fake: Callable[[str, str], Path]
) -> None:
    aside = [
        {
            "node": "n3",
            "reason": "check gpu_count: 7 of 8 GPUs",
            "run": 2,
            "attempt": 1,
            "time_ms": 5,
        },
        {"node": 7},
        {"node": "n2", "reason": "run 2 died there", "run": 2, "attempt": 1, "time_ms": 6},
    ]
    job = JobRecord(job_id="7", state="paused", started_ms=2_000, set_aside=aside)  # type: ignore[arg-type]
    root = write_set(tmp_path, "s", done=1, job=job)
    (root / "bundle").mkdir()
    blame = "\x1f".join(("exit", "run 2 died there", "2", "1"))
    (root / "events-7.tsv").write_text(f"6\tloop\tblamed\tn2\t{blame}\n")
    log = fake("sbatch", "echo 8")
    fake("squeue", "exit 0")
    cli("resume", root, "--spares", "1", "--exclude", "n9")
    assert cli.code == 0, cli.err
    assert (
        "note: n3 was excluded in an earlier job (run 2, attempt 1): check gpu_count: 7 of 8 GPUs; --exclude n3 "
        in cli.err
    )
    assert "note: n2 was blamed in an earlier job (run 2, attempt 1): run 2 died there" in cli.err
    assert "--nodes=2 --exclude=n9" in log.read_text()
    cli("resume", root, "--exclude", "@/no/such")
    assert cli.code == 2


@pytest.mark.parametrize(
    ("more", "left", "fix"),
    [
        (["--exclude", "n2"], "2 nodes (2 nodes for the runs), and the partition has 1 without the excluded n2", "orchestrator resume {root}"),
        (["--exclude", "n2", "--spares", "1"], "2 nodes (1 node for the runs, 1 spare), and the partition has 1", "--exclude n2 --spares 0"),
        (["--exclude", "n9"], "", ""),
        ([], "", ""),
        (["--exclude", "n2", "--sbatch=--partition=other"], "", ""),
    ],
)  # fmt: skip
def test_resume_refuses_to_exclude_too_many_nodes(
    cli: Commands,
    tmp_path: Path,
    fake: Callable[[str, str], Path],
    more: list[str],
    left: str,
    fix: str,
) -> None:
    root = write_set(
        tmp_path, "s", done=1, job=JobRecord(job_id="7", state="paused", started_ms=2_000)
    )
    (root / "bundle").mkdir()
    (root / "bundle/job.sh").write_text("#SBATCH --nodes=2\n#SBATCH --partition=batch\n")
    fake("sbatch", "echo 8")
    fake("squeue", "exit 0")
    sinfo = fake(
        "sinfo", "printf 'n1\\037idle\\037batch\\037none\\nn2\\037idle\\037batch\\037none\\n'"
    )
    assert cli("resume", root, *more).code == (ExitCode.BAD_INPUT if left else ExitCode.OK), cli.err
    assert left in cli.err and cli.err.endswith(f"{fix.format(root=root)}\n" if fix else "")
    assert sinfo.is_file() is bool(left or "n9" in more)

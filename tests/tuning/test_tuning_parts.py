"""The lab tests end processes and remove folders of their own job only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tuning_parts import channels_of, loops
from until import until


def test_only_the_loop_of_the_own_job_is_ended(tmp_path: Path) -> None:
    """Other jobs of the cluster, and jobs with the same number of another cluster, go on."""
    bundle, other = tmp_path / "bundle", tmp_path / "other"
    number, conf = "7", f"{tmp_path}/own.conf"

    def job(bundle: Path, number: str, conf: str) -> subprocess.Popen[bytes]:
        env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": number, "SLURM_CONF": conf}
        argv = ["bash", "-c", "read -r _; :", f"{bundle}/lib", "loop", "slurm"]
        return subprocess.Popen(argv, env=env, stdin=subprocess.PIPE)

    jobs = [
        job(bundle, number, conf),
        job(bundle, "8", conf),
        job(bundle, "77", conf),
        job(bundle, number, f"{tmp_path}/other.conf"),
        job(other, number, conf),
    ]
    until(
        lambda: all("slurm" in Path(f"/proc/{process.pid}/cmdline").read_text() for process in jobs)
    )
    assert loops(bundle, number, conf) == [jobs[0].pid]
    for process in jobs:
        process.communicate()


def test_only_the_channels_of_the_own_agents_are_removed(tmp_path: Path) -> None:
    for name, pid in (("orch-0-7-lab1", "11"), ("orch-0-7-lab2", "12"), ("orch-0-8-lab1", "13")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "hold_pid").write_text(f"{pid} 5\n")
    (tmp_path / "orch-0-7-lab3").mkdir()
    assert [path.name for path in channels_of([11], tmp_path)] == ["orch-0-7-lab1"]

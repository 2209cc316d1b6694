"""A scheduler that starts the batch script on every node of a job, as ROCm/spur does: one loop works, the others leave."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_line import call
from replayed import differences
from run_sets import Set
from sites import write_code, write_site, write_system

from orchestrator.errors import ExitCode
from orchestrator.onnode.kernel.layout import Layout

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab

TOP = Path(__file__).resolve().parents[2]
NODES = 2
# Slurm's own sbatch, with a script that starts the given one, a file or the input, on each node
# at once, and creates a file when the first copy ends: the training waits for it.
SBATCH = """#!/bin/bash
every=$(dirname "$0")/every_node.$$
if [ -f "${!#}" ]; then
    script=${!#}
    set -- "${@:1:$#-1}"
else
    script=$every.given
    cat >"$script"
fi
printf '%%s\\n' "bash '$script'; status=\\$?" 'touch %s; exit $status' >"$every.copy"
{ grep -E '^#(!|SBATCH)' "$script"; echo "srun --overlap --ntasks-per-node=1 --kill-on-bad-exit=0 %s bash '$every.copy'"; } >"$every"
exec %s "$@" "$every"
"""
LEAVES = re.compile(
    r"job (\d+) started on several nodes; the copy on (\S+) works on the set, and this one has nothing to do"
)


@pytest.fixture
def folder(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Path]:
    root = (
        lab.shared / f"test-{os.getpid()}-{request.node.name.translate(str.maketrans('[]', '--'))}"
    )
    code = write_code(root / "code", f"until [ -e {root}/left ]; do sleep 0.05; done")
    keys = {"nodelist": [*lab.nodes[:NODES]], "code": {"builtin": str(code)}}
    write_site(root / "site.yaml", root / "results", scheduler="slurm", **keys)
    write_system(root, "two_nodes", nodes=NODES)
    yield root
    for job in lab.queue():
        lab.run("scancel", job)
    lab.free()
    assert differences(root) == []
    shutil.rmtree(root)


def every_node(lab: Lab, folder: Path, without: str = "") -> dict[str, str]:
    """The environment in which sbatch starts scripts on every node, `without` some variables."""
    sbatch = shutil.which("sbatch", path=lab.env["PATH"])
    stand_in = folder / "bin/sbatch"
    stand_in.parent.mkdir()
    stand_in.write_text(SBATCH % (folder / "left", without, sbatch))
    stand_in.chmod(0o755)
    return lab.env | {
        "PYTHONPATH": str(TOP),
        "ORCHESTRATOR_SITE": str(folder / "site.yaml"),
        "PATH": f"{stand_in.parent}:{lab.env['PATH']}",
    }


@pytest.mark.parametrize(
    "without",
    [
        pytest.param("env -u SLURM_NODEID", id="named", marks=pytest.mark.long),
        pytest.param("env -u SLURM_NODEID -u SLURMD_NODENAME", id="leased"),
    ],
)
def test_one_loop_works(lab: Lab, folder: Path, without: str) -> None:
    """Without the node's number: by its name, else by the set's lease."""
    env = every_node(lab, folder, without)
    arguments = ("run", "two_nodes.yaml", "builtin", "--nexp", "1", "--json")
    done = call(arguments, env, cwd=folder)
    [record] = (folder / "results").glob("*/set.json")
    run_set = Set(record.parent)
    layout = Layout(record.parent)
    said = "".join(layout.job_output(job["job_id"]).read_text() for job in run_set.jobs())
    assert done.returncode in (ExitCode.OK, ExitCode.NO_SCORE), done.stderr + said
    assert [job["state"] for job in run_set.jobs()] == ["complete"], said
    assert run_set.results() == [1] and run_set.outcomes(1) == ["success"]
    leaving = LEAVES.findall(said)
    assert len(leaving) == NODES - 1 and "error:" not in said, said
    [job] = run_set.jobs()
    assert {number for number, _ in leaving} == {str(job["job_id"])}
    if "NODENAME" not in without:
        assert {node for _, node in leaving} == {lab.nodes[0]}


def test_a_bundle_started_by_hand_makes_one_set(lab: Lab, folder: Path) -> None:
    """Without the controller each loop would make a set of its own. The node's number chooses."""
    env = every_node(lab, folder)
    arguments = ("render", "two_nodes.yaml", "builtin", "--nexp", "1", "-o", "bundle")
    done = call(arguments, env, cwd=folder)
    assert done.returncode == 0, done.stderr
    output = folder / "by_hand.out"
    status = lab.batch(
        f"--output={output}", folder / "bundle/job.sh", cwd=folder / "bundle", env=env
    )
    said = output.read_text()
    assert status == 0, said
    assert [node for _, node in LEAVES.findall(said)] == [lab.nodes[0]] * (NODES - 1), said
    [record] = (folder / "results").glob("*/set.json")
    assert Set(record.parent).results() == [1]

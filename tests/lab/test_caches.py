"""Compile caches on the nodes, with the real engine: cold once in a job, warm in a container that replaces another one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from command_line import call
from sites import write_code

from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.startup import startups
from orchestrator.model import load_entry, load_site
from orchestrator.render import render_bundle, write_bundle

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab

TOP = Path(__file__).resolve().parents[2]
SYSTEM, WORKLOAD, NOBODY = "MI300X_01x08x32", "flux1", 65534
# As a compiler that finds nothing; its folders are root's alone. The second run ends its container when it is asked to.
SCRIPT = """
( umask 077
  [ "$TRITON_CACHE_DIR" = /orch-scratch/cache/triton ] && [ "$TMPDIR" = /orch-scratch/tmp ] && [ "$HF_HOME" = /hf ]
  mktemp >/dev/null
  if [ ! -e "$TRITON_CACHE_DIR/kernel/one" ]; then
    echo compiling
    mkdir "$TRITON_CACHE_DIR/kernel"
    head -c 5000 /dev/zero >"$TRITON_CACHE_DIR/kernel/one"
  fi )
# The signal spares its sender, which would train until the container is gone.
[ "$ORCH_RUN.$ORCH_ATTEMPT" != "${DIES_AT:-}" ] || { kill -TERM -1; exec sleep infinity; }
"""


class Place:
    """A folder on storage, a site file with a scratch folder, its bundle, and sets of it."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder, self.scratch = lab, folder, folder / "nvme"
        self.scratch.mkdir(mode=0o1777)
        self.scratch.chmod(0o1777)

    def run(self, *prefix: str, dies_at: str = "", nexp: int = 3, **container: Any) -> Path:
        """Run a set; its folder."""
        folder = self.folder / f"set{len(list(self.folder.glob('set*')))}"
        (folder / "results").mkdir(parents=True)
        folder.chmod(0o777)
        (folder / "results").chmod(0o777)
        code = write_code(folder / "code", SCRIPT)
        site = yaml.safe_load(self.lab.run(TOP / "lab/site").stdout)
        site |= {
            "log_dir": str(folder / "results"),
            "scheduler": "local",
            "code": {WORKLOAD: str(code)},
        }
        site |= {
            "tunables": "off",
            "clear_caches": False,
            "env": {"DIES_AT": dies_at, "HF_HOME": "/hf"},
        }
        site["container"] |= {
            "command": ["docker", "-H", self.lab.env["DOCKER_HOST"]],
            "scratch": str(self.scratch),
        }
        site["container"] |= container
        (folder / "site.yaml").write_text(yaml.safe_dump(site))
        entry = load_entry(SYSTEM, WORKLOAD, site=load_site(folder / "site.yaml"))
        write_bundle(render_bundle(entry, nexp=nexp), folder / "bundle")
        self.ended = subprocess.run(
            [*prefix, "bash", str(folder / "bundle/run_with_docker.sh")], cwd="/", text=True, capture_output=True,
            env={"PATH": os.environ["PATH"], "HOME": str(folder)}, timeout=300, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert self.ended.returncode == 0, self.ended.stdout + self.ended.stderr
        [root] = [path for path in (folder / "results").iterdir() if (path / "set.json").exists()]
        return root

    def left(self) -> list[str]:
        return [path.name for path in self.scratch.iterdir()]


def ends(root: Path) -> dict[str, dict[str, Any]]:
    """`run.attempt` -> node_0.json"""
    return {
        f"{path.parents[1].name}.{path.parent.name.removeprefix('attempt_')}": json.loads(
            path.read_text()
        )
        for path in sorted(root.glob("runs/*/attempt_*/node_0.json"))
    }


@pytest.fixture
def place(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Place]:
    folder = lab.shared / f"caches-{os.getpid()}-{request.node.name.partition('[')[0]}"
    folder.mkdir()
    folder.chmod(0o755)
    yield Place(lab, folder)
    shutil.rmtree(folder)


def test_a_new_container_of_the_job_does_not_compile_again(place: Place) -> None:
    root = place.run(dies_at="2.1")
    entries = ends(root)
    assert {at: (run["container_run"], run["cache"]["state"]) for at, run in entries.items()} == {
        "1.1": (1, "cold"),
        "2.1": (2, "warm"),
        "2.2": (1, "warm"),
        "3.1": (2, "warm"),
    }
    assert (
        entries["2.2"]["cache"]["files"],
        entries["2.2"]["cache"]["bytes"],
        entries["2.2"]["cache"]["whole"],
    ) == (
        1,
        5000,
        True,
    )
    logs = {at: root / f"runs/{at[0]}/attempt_{at[2]}/node_0.log" for at in entries}
    assert [at for at, log in logs.items() if "compiling" in log.read_text().splitlines()] == [
        "1.1"
    ]
    assert place.left() == [], "the node removes it with the job"
    entries = [
        (f"{run.run}.{run.attempt}", run.cold, run.cache) for run in startups(SetEvidence(root))
    ]
    assert entries == [("1.1", True, "cold"), ("2.2", True, "warm"), ("3.1", False, "warm")]
    shown = call(["nodes", root], {}).stdout
    assert shown.count(" new ") == shown.count(" warm") == 2 and shown.count(" cold") == 1, shown


@pytest.mark.long
@pytest.mark.parametrize("keep", [False, True])
def test_caches_outlive_a_job_only_where_the_site_says_so(place: Place, keep: bool) -> None:
    states = [
        [run["cache"]["state"] for run in ends(place.run(nexp=1, keep_caches=keep)).values()]
        for _ in range(2)
    ]
    assert states == [["cold"], ["warm" if keep else "cold"]]
    assert place.left() == (["orch-cache-0"] if keep else [])


def test_a_user_without_rights_removes_what_root_made_and_what_a_killed_job_left(
    place: Place,
) -> None:
    lab = place.lab
    modes = {guarded: guarded.stat().st_mode & 0o7777 for guarded in (lab.docker_socket, lab.state)}
    lab.docker_socket.chmod(0o666)
    lab.state.chmod(modes[lab.state] | 0o055)
    gone = place.scratch / f"orch-scratch-{NOBODY}-local-1-1-n"
    stays = [
        place.scratch / f"orch-scratch-{NOBODY}-local-{os.getpid()}-x",
        place.scratch / "orch-scratch-0-local-1-1-n",
    ]
    start = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    for folder, job in (
        (gone, "local-1-1"),
        (stays[0], f"local-{os.getpid()}-{start}"),
        (stays[1], "local-1-1"),
    ):
        (folder / "cache").mkdir(parents=True)
        (folder / "job").write_text(job + "\n")
    for folder in (gone, stays[0]):
        os.chown(folder, NOBODY, NOBODY)  # not what root of a container made in it
    try:
        place.run("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", nexp=1)
    finally:
        for guarded, mode in modes.items():
            guarded.chmod(mode)
    assert sorted(place.left()) == sorted(path.name for path in stays)


@pytest.mark.long
def test_what_a_killed_job_left_is_removed_by_the_next(place: Place) -> None:
    folder = place.scratch / "orch-scratch-0-local-1-1-n"
    (folder / "cache").mkdir(parents=True)
    (folder / "job").write_text("local-1-1\n")
    place.run(nexp=1)
    assert place.left() == []
    assert f"removes {folder}, which job local-1-1 left" in place.ended.stderr

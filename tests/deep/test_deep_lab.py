"""The deep step in an allocation of a real Slurm, with a real container on every node."""

from __future__ import annotations

import csv
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import pytest
from command_line import call
from until import until

from orchestrator.model import load_entry
from orchestrator.render import render_bundle, write_bundle

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab

TOP = Path(__file__).resolve().parents[2]
TWO_NODES = ("local_2x2x8", "builtin")

STAND_IN = Path(__file__).parent / "stand_in"


@pytest.fixture
def folder(lab: Lab) -> Iterator[Path]:
    """A folder on the lab's shared storage."""
    place = Path(tempfile.mkdtemp(prefix="deep-", dir=lab.shared))
    yield place
    shutil.rmtree(place)


def site(lab: Lab, folder: Path) -> Path:
    data = folder / "data"
    data.mkdir()
    path = folder / "site.yaml"
    path.write_text(
        f"kind: site\nname: lab\nscheduler: slurm\nlog_dir: {folder}\ndata: {{flux1: {{DATADIR: {data}}}}}\n"
        "network: {socket_ifname: lo, gloo_socket_ifname: lo}\ncontainer: {engine: docker, pull: never}\n"
        "preflight: {deep: true}\n"
    )
    return path


def bundle_of(lab: Lab, folder: Path, *what: str) -> Path:
    bundle = folder / "bundle"
    write_bundle(render_bundle(load_entry(*what, site=site(lab, folder)), nexp=1), bundle)
    return bundle


def in_a_job(bundle: Path, nodes: Sequence[str]) -> list[str]:
    """The words that measure between `nodes`, in this order, in a job of these."""
    table = bundle.parent / "checks.tsv"
    script = bundle.parent / "job.sh"
    script.write_text(
        f"#!/bin/bash\nexec bash {bundle}/preflight.sh --deep --json --tsv {table} --nodes {','.join(nodes)}\n"
    )
    output = f"--output={bundle.parent}/job.out"
    allocation = (f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}")
    return [*allocation, "--time=10", output, f"--chdir={bundle.parent}", str(script)]


def containers(lab: Lab) -> list[str]:
    with closing(docker.APIClient(base_url=f"unix://{lab.docker_socket}")) as api:
        return [one["Id"] for one in api.containers(all=True, filters={"name": "-deep-"})]


def replace(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))


def give_torch(bundle: Path, rates: str = "", *, hangs: bool = False) -> None:
    """Let the measuring processes of a bundle find the stand-in for torch, beside their own code."""
    measure = bundle / "lib/measure"
    shutil.copytree(STAND_IN / "torch", measure / "torch")
    replace(
        measure / "__main__.py",
        "    service = ",
        "    sys.path.insert(1, os.path.dirname(os.path.abspath(__file__)))\n"
        f'    os.environ.update(STAND_IN_GPUS="1", STAND_IN_RATES="{rates}")\n'
        "    service = ",
    )
    replace(
        measure / "rccl.py",
        "    _, address, port = members[0]\n",
        "    _, address, port = members[0]\n"
        '    os.environ["STAND_IN_NODE"] = members[request["rank"]][0]\n',
    )
    if hangs:
        replace(
            measure / "torch/distributed.py",
            '    assert backend == "nccl"\n',
            "    time.sleep(1000)\n",
        )


@pytest.mark.long  # what eight nodes on two cores reach tells of the machine's other work, too
def test_the_slow_node_of_eight_is_named(lab: Lab, folder: Path) -> None:
    slow, bundle = lab.nodes[4], bundle_of(lab, folder, "MI325X_08x08x32", "flux1")
    give_torch(bundle, f"{slow}=900")
    nodes = [*lab.nodes[1:8], lab.nodes[0]]
    status = lab.batch(*in_a_job(bundle, nodes))
    output = (folder / "job.out").read_text()
    assert status == 1, output
    told = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    rows = {
        node["node"]: row
        for node in told["nodes"]
        for row in node["checks"]
        if row["check"] == "deep"
    }
    assert list(rows) == nodes and told["exclude"] == [slow], output
    assert rows[slow]["text"].startswith("slow: pairs with it reach 0.")
    # The stand-in is far slower than the fabric of the descriptor.
    assert {row["verdict"] for node, row in rows.items() if node != slow} == {"warn"}
    with (folder / "checks.tsv.deep").open() as table:
        first = next(csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE))
    # The order that was given, not the one that Slurm gives the tasks.
    assert (first["round"], first["nodes"].split(",")) == ("all", nodes)
    assert containers(lab) == []


def test_a_cancelled_job_leaves_no_container(lab: Lab, folder: Path) -> None:
    bundle = bundle_of(lab, folder, *TWO_NODES)
    give_torch(bundle, hangs=True)
    words = in_a_job(bundle, lab.nodes[:2])
    job = lab.run("sbatch", "--parsable", *words).stdout.strip()

    def queued() -> str:
        return lab.run("squeue", "--noheader", f"--jobs={job}", check=False).stdout

    until(lambda: len(containers(lab)) == 2 or not queued())
    assert len(containers(lab)) == 2, (folder / "job.out").read_text()

    lab.run("scancel", job)

    until(lambda: not containers(lab) and not queued(), lambda: (containers(lab), queued()))
    assert not list(folder.glob(".preflight-*"))


@pytest.mark.long
def test_preflight_measures_with_containers(lab: Lab, folder: Path) -> None:
    """An allocation, the checks, one container per node, and nothing left."""
    path = site(lab, folder)
    two = ",".join(lab.nodes[:2])
    words = (
        "preflight",
        *TWO_NODES,
        "--site",
        path,
        "--nodes",
        two,
        "--deep",
        "--json",
    )
    done = call(words, lab.env)
    assert done.returncode == 0, done.stderr + done.stdout
    rows = [
        row
        for node in json.loads(done.stdout)["nodes"]
        for row in node["checks"]
        if row["check"] == "deep"
    ]
    # The image has no torch: each container says so, and no node is blamed.
    reason = f"{lab.nodes[0]}: no torch in the image"
    assert [(row["verdict"], row["text"]) for row in rows] == [("skip", reason)] * 2
    assert all(row["ms"] > 0 for row in rows)
    assert (
        lab.run("docker", "ps", "--all", "--quiet", "--filter", "label=orchestrator.job").stdout
        == ""
    )

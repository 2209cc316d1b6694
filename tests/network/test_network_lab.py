"""Nodes that disagree, on a real Slurm with real containers; their networks are made up."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_sys import Port, build_proc, build_sys, renamed_broadcom
from network_parts import Place
from replayed import differences

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab


@dataclass
class LabPlace:
    """Two nodes of the lab, a folder on the storage that they share, and a bundle for them."""

    lab: Lab
    place: Place

    @property
    def nodes(self) -> tuple[str, str]:
        return self.lab.nodes[0], self.lab.nodes[1]

    def tree(self, node: str, outside: list[Port], inside: list[Port] | None = None) -> None:
        """The network of a node, and what its containers see of it: all of it by default."""
        build_sys(self.place.folder / node / "sys", outside)
        build_proc(self.place.folder / node / "proc")
        root = self.place.folder / "code/inside" / node
        build_sys(root / "sys", outside if inside is None else inside)
        (root / "dev/infiniband").mkdir(parents=True)
        for number in range(8):
            (root / f"dev/infiniband/uverbs{number}").touch()

    def run(self, network: str = "{}") -> tuple[dict[str, Any], str, Path]:
        """Run a set of one run; return the job's record, its output and the set folder."""
        slurm = {
            "scheduler": "slurm",
            "nodelist": [*self.nodes],
            "time_limit": 5,
            "container": {"pull": "never"},
        }
        site = {**self.place.code(), **slurm}
        bundle = self.place.render(
            "broadcom_roce", accelerator="MI325X", network=network, site=site
        )
        env = {
            **self.lab.env,
            **self.place.env(
                PATH=self.lab.env["PATH"], ORCH_CONTAINER_ROOT="/workspace/code/inside/%n"
            ),
        }
        self.lab.batch("job.sh", cwd=bundle, env=env)
        [output] = bundle.glob("job_*.out")
        [root] = (self.place.folder / "sets").iterdir()
        [record] = (root / "jobs").glob("*.json")
        return json.loads(record.read_bytes()), output.read_text(), root


@pytest.fixture
def two(lab: Lab) -> Iterator[LabPlace]:
    folder = Path(tempfile.mkdtemp(prefix="network-", dir=lab.shared))
    yield LabPlace(lab, Place(folder))
    assert differences(folder) == []
    shutil.rmtree(folder)


def test_agreeing_nodes_run_with_what_they_detect(two: LabPlace) -> None:
    for node in two.nodes:
        two.tree(node, renamed_broadcom(1))
    job, output, root = two.run()
    assert job["state"] == "complete", output
    # This machine has no GPUs, and the check of them says so.
    assert [line for line in job["warnings"] if "no amd-smi" not in line] == []
    for rank in (0, 1):
        lines = (root / f"runs/1/attempt_1/node_{rank}.log").read_text().splitlines()
        assert {
            "NCCL_IB_GID_INDEX=1",
            "NCCL_IB_HCA=rdma0,rdma1,rdma2,rdma3,rdma4,rdma5,rdma6,rdma7",
        } < set(lines)
        record = json.loads((root / f"nodes/{two.nodes[rank]}/network.json").read_bytes())
        assert [line for line in record["container"] if line.startswith("device")] == [
            f"device rdma{n}" for n in range(8)
        ]


def test_a_container_that_lacks_devices_stops_the_set(two: LabPlace) -> None:
    one, other = two.nodes
    two.tree(one, renamed_broadcom())
    two.tree(other, renamed_broadcom(), renamed_broadcom()[:6])
    job, _, root = two.run()
    assert job["state"] == "failed"
    assert job["reason"].startswith(
        f"network: node {other} (rank 1): rdma6,rdma7: on the node, but not in the container"
    )
    assert not list(root.glob("runs/*/attempt_*"))

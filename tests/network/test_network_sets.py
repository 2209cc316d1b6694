"""From what real agents detect to the environment of their runs; who differs, and what follows: tests/onnode/test_policy_agree.py."""

from __future__ import annotations

import pytest
from fake_sys import Port, down, renamed_broadcom
from network_parts import Place, SetRun


def run_set(place: Place, nodes: dict[str, list[Port]], *words: str, network: str = "{}") -> SetRun:
    for node, ports in nodes.items():
        place.tree(node, ports)
    return place.run_set(place.render("broadcom_roce", network=network, site=place.code(*words)))


def test_each_node_runs_with_what_it_detects(place: Place) -> None:
    """They differ, and the site allows it. Sockets in the log are a finding where the nodes have RDMA."""
    ended = run_set(
        place,
        {"local0": renamed_broadcom(3), "local1": renamed_broadcom(1)},
        "x:1:1 [0] NCCL INFO NET/IB : No device found.",
        "x:1:1 [0] NCCL INFO Using network Socket",
        network="{allow_differences: true}",
    )
    assert (ended.code, ended.job["state"], ended.job["reason"]) == (0, "complete", "")
    [warning] = ended.job["warnings"]  # type: ignore[misc]
    assert "node local1 (rank 1) is not like local0: " in warning
    assert ended.output.count("WARNING") == 1
    for rank, gid in enumerate((3, 1)):
        assert ended.log(rank).splitlines()[:5] == [
            "GLOO_SOCKET_IFNAME=lo",
            f"NCCL_IB_GID_INDEX={gid}",
            "NCCL_IB_HCA=rdma0,rdma1,rdma2,rdma3,rdma4,rdma5,rdma6,rdma7",
            "NCCL_PXN_DISABLE=0",
            "NCCL_SOCKET_IFNAME=lo",
        ]
        table = (ended.root / f"nodes/local{rank}/network.tsv").read_text()
        assert f"NCCL_IB_GID_INDEX\t{gid}\tdetected\n" in table
        assert "NCCL_PXN_DISABLE\t0\tdescriptor\n" in table
    told = "local0 and 1 more node, 1 of 1 process: NET/IB : No device found."
    assert (ended.run()["state"], ended.run()["reason"]) == (
        "success",
        f"RCCL used TCP sockets although the nodes have RDMA ({told})",
    )


@pytest.mark.parametrize(
    ("rdma", "reason"),
    [
        ("required", "neither log nor RCCL's files show whether RDMA was used (docs/network.md)"),
        ("preferred", ""),
    ],
)
def test_a_run_that_names_no_network_proves_nothing(place: Place, rdma: str, reason: str) -> None:
    nodes = {"local0": renamed_broadcom(), "local1": renamed_broadcom()}
    ended = run_set(place, nodes, network=f"{{rdma: {rdma}}}")
    assert (ended.code, ended.run()["state"], ended.run()["reason"]) == (0, "success", reason)


def test_two_nodes_that_disagree_stop_the_set(place: Place) -> None:
    ports = renamed_broadcom()
    ended = run_set(place, {"local0": ports, "local1": [*ports[:5], down(ports[5]), ports[6]]})
    assert (ended.code, ended.job["state"], ended.run()["state"]) == (1, "failed", "queued")
    reason = str(ended.job["reason"])
    for text in (
        "node local1 (rank 1): rdma5: the port is DOWN",
        "7 RDMA devices for 8 GPUs",
        "no rdma7",
    ):
        assert text in reason
    assert "network.allow_differences" in reason and reason in ended.output

"""What nodes with different networks mean for a set: the bundle's own loop, this machine as two nodes."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from fake_sys import Port, down, renamed_broadcom
from network_parts import Place, SetRun


def run_set(place: Place, nodes: dict[str, list[Port]], *words: str, network: str = "{}") -> SetRun:
    for node, ports in nodes.items():
        place.tree(node, ports)
    return place.run_set(place.render("broadcom_roce", network=network, site=place.code(*words)))


def test_nodes_that_agree_run_with_what_each_detects(place: Place) -> None:
    ended = run_set(place, {"local0": renamed_broadcom(1), "local1": renamed_broadcom(1)})
    assert (ended.code, ended.job["state"], ended.job["reason"], ended.job["warnings"]) == (0, "complete", "", [])
    for rank in (0, 1):
        assert ended.log(rank).splitlines()[:5] == [
            "GLOO_SOCKET_IFNAME=lo",
            "NCCL_IB_GID_INDEX=1",
            "NCCL_IB_HCA=rdma0,rdma1,rdma2,rdma3,rdma4,rdma5,rdma6,rdma7",
            "NCCL_PXN_DISABLE=0",
            "NCCL_SOCKET_IFNAME=lo",
        ]
        table = (ended.root / f"nodes/local{rank}/network.tsv").read_text()
        assert "NCCL_IB_GID_INDEX\t1\tdetected\n" in table
        assert "NCCL_PXN_DISABLE\t0\tdescriptor\n" in table
    assert ended.run()["reason"] == ""


CASES = {
    "other GID index": (renamed_broadcom(1), r"rdma0,rdma1,.*rdma7: GID index 1 instead of 3"),
    "fewer devices": (renamed_broadcom()[:7], r"node local1 \(rank 1\): 7 RDMA devices for 8 GPUs.*: no rdma7"),
    "other names": (
        [replace(port, name=f"bnxt_re{n}") for n, port in enumerate(renamed_broadcom())],
        r"no rdma0 rdma1 .*; but bnxt_re0 bnxt_re1",
    ),
    "a port down": (
        [*renamed_broadcom()[:5], down(renamed_broadcom()[5]), *renamed_broadcom()[6:]],
        r"node local1 \(rank 1\): rdma5: the port is DOWN",
    ),
    "missing netdev": (
        [replace(renamed_broadcom()[0], netdev=""), *renamed_broadcom()[1:]],
        r"node local1 \(rank 1\): rdma0: no network interface",
    ),
    "other rate": (
        [replace(port, rate="200 Gb/sec (4X HDR)") for port in renamed_broadcom()],
        r"rdma0,rdma1,.*rdma7: Gb/s 200 instead of 400",
    ),
    "no RDMA on one": ([], r"no RDMA device \(/sys/class/infiniband\) on local1; local0 has 8"),
}


@pytest.mark.parametrize("case", CASES)
def test_two_nodes_that_disagree_stop_the_set(place: Place, case: str) -> None:
    ports, message = CASES[case]
    ended = run_set(place, {"local0": renamed_broadcom(), "local1": ports})
    assert (ended.code, ended.job["state"]) == (1, "failed")
    reason = str(ended.job["reason"])
    assert re.search(message, reason), reason
    assert "local1" in reason
    assert "network.allow_differences" in reason
    assert ended.run()["state"] == "queued"
    assert reason in ended.output


def test_the_site_may_allow_it(place: Place) -> None:
    ended = run_set(
        place, {"local0": renamed_broadcom(3), "local1": renamed_broadcom(1)}, network="{allow_differences: true}"
    )
    assert (ended.code, ended.job["state"], ended.job["reason"]) == (0, "complete", "")
    [warning] = ended.job["warnings"]  # type: ignore[misc]
    assert "node local1 (rank 1) is not like local0: " in warning
    assert ended.output.count("WARNING") == 1
    # Each node runs with its own.
    assert "NCCL_IB_GID_INDEX=3\n" in ended.log(0)
    assert "NCCL_IB_GID_INDEX=1\n" in ended.log(1)


def test_a_difference_that_the_site_has_decided_is_none(place: Place) -> None:
    ended = run_set(place, {"local0": renamed_broadcom(3), "local1": renamed_broadcom(1)}, network="{gid_index: 1}")
    assert (ended.code, ended.job["warnings"]) == (0, [])
    assert "NCCL_IB_GID_INDEX=1\n" in ended.log(0)


def test_no_rdma_anywhere_is_a_loud_warning(place: Place) -> None:
    ended = run_set(place, {"local0": [], "local1": []}, "NCCL INFO Using network Socket")
    assert (ended.code, ended.job["state"]) == (0, "complete")
    [warning] = ended.job["warnings"]  # type: ignore[misc]
    assert "RCCL will use TCP sockets" in warning
    assert ended.output.count("WARNING: no node has an RDMA device") == 1
    # Sockets were announced, so they are no finding.
    assert ended.run()["reason"] == ""
    assert "NCCL_IB_HCA" not in ended.log(0)


def test_required_means_required(place: Place) -> None:
    ended = run_set(place, {"local0": [], "local1": []}, network="{rdma: required, allow_differences: true}")
    assert (ended.code, ended.job["state"]) == (1, "failed")
    assert "the site says network.rdma: required" in str(ended.job["reason"])


def test_off_means_off(place: Place) -> None:
    ended = run_set(place, {"local0": renamed_broadcom(), "local1": []}, network="{rdma: off}")
    assert (ended.code, ended.job["warnings"]) == (0, [])
    assert "NCCL_IB_DISABLE=1\n" in ended.log(0)
    assert "NCCL_IB_HCA" not in ended.log(0)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["x:1:1 [0] NCCL INFO NET/IB : No device found.", "x:1:1 [0] NCCL INFO Using network Socket"], True),
        (["x:1:1 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [receive] via NET/Socket/0"], True),
        (["x:1:1 [0] NCCL INFO Using network IB", "x:1:1 [0] NCCL INFO NET/Socket : Using [0]eno0:10.0.0.1<0>"], False),
        (["RCCL version 2.26.6"], False),
    ],
)
def test_sockets_in_the_log_are_a_finding_where_rdma_is(place: Place, words: list[str], found: bool) -> None:
    ended = run_set(place, {"local0": renamed_broadcom(), "local1": renamed_broadcom()}, *words)
    assert (ended.code, ended.run()["state"]) == (0, "success")
    reason = str(ended.run()["reason"])
    line = words[0].partition("NCCL INFO ")[2]
    told = f"local0 and 1 more nodes, 1 of 1 processes: {line}"
    assert reason == (f"RCCL used TCP sockets although the nodes have RDMA ({told})" if found else "")


OVER_SOCKETS = ["x:1:1 [0] NCCL INFO Using network Socket", "x:2:2 [1] NCCL INFO Using network IB"]


@pytest.mark.parametrize(("node", "words"), [(0, OVER_SOCKETS), (1, OVER_SOCKETS), (2, OVER_SOCKETS[1:])])
def test_where_rdma_is_required_an_attempt_over_sockets_ends_at_once(place: Place, node: int, words: list[str]) -> None:
    """RCCL falls back to sockets on one rank of one node: any node counts, not only the one that logs."""
    for name in ("local0", "local1"):
        place.tree(name, renamed_broadcom())
    bundle = place.render("broadcom_roce", network="{rdma: required}", site=place.code(*words))
    program, script = place.folder / "code/run_and_time.sh", bundle / "lib/agent/run.py"
    quiet = f"[ $NODE_RANK.$ORCH_ATTEMPT = {node}.1 ] || exec >/dev/null\n" if node < 2 else ""
    pause = "exec >/proc/self/fd/7; [ $ORCH_ATTEMPT = 2 ] || sleep " + ("60" if node < 2 else "2")
    text = (
        program.read_text()
        .replace("env |", f"exec 7>&1\n{quiet}env |")
        .replace('[ "$NODE_RANK"', f'{pause}\n[ "$NODE_RANK"')
    )
    program.write_text(text)
    script.write_text(script.read_text().replace("TRANSPORT_S = 60", "TRANSPORT_S = 0.5"))
    ended = place.run_set(bundle)
    assert (ended.code, ended.run()["state"]) == (0, "success"), ended.output
    first = json.loads((ended.root / "runs/1/attempt_1/state.json").read_bytes())
    if node == 2:
        assert (first["outcome"], first["reason"]) == ("success", "")
        return
    assert first["outcome"] == "infrastructure"
    assert first["reason"] == (
        "RCCL does not use RDMA although the site says network.rdma: required "
        f"(local{node}, 1 of 2 processes: Using network Socket)"
    )


def test_many_troubles_are_shortened(place: Place) -> None:
    broken = [down(port) for port in renamed_broadcom()]
    ended = run_set(place, {"local0": broken, "local1": broken})
    assert "; and 8 more, see nodes/*/network.json" in str(ended.job["reason"])
    assert ended.output.count("the port is DOWN") >= 16

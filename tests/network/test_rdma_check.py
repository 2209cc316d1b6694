"""The check `rdma`: the same rules as the look before a container starts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_sys import down, eight, mellanox_with_front_end, renamed_broadcom
from network_parts import Place

REMEDY = "check the cable, the switch port and rdma link; docs/network.md"


def test_all_is_well(place: Place) -> None:
    place.tree("n1", renamed_broadcom())
    assert place.verdict(place.render("broadcom_roce")) == ("pass", "8 ports up at 400 Gb/s", "")


def test_the_route_tells_the_front_end(place: Place) -> None:
    ports = mellanox_with_front_end()
    ports[6] = down(ports[6])
    place.tree("n1", ports, (("bond0", "0.0.0.0", "0.0.0.0"),), ("lo", "bond0"))
    assert place.verdict(place.render("mellanox_roce")) == ("pass", "8 ports up at 400 Gb/s", "")


def test_every_trouble_is_told(place: Place) -> None:
    ports = renamed_broadcom()
    ports[2] = down(ports[2])
    ports[5] = replace(ports[5], rate="100 Gb/sec (4X EDR)")
    place.tree("n1", ports)
    text = "rdma2: the port is DOWN (physical state Disabled); rdma5: 100 Gb/s, others 400"
    assert place.verdict(place.render("broadcom_roce")) == ("fail", text, REMEDY)


def test_slow_for_the_fabric_fails_the_check(place: Place) -> None:
    place.tree("n1", eight("rdma{}", "bnxt_en", rate="200 Gb/sec (4X HDR)"))
    text = "RDMA devices run at 200 Gb/s, the fabric of two_nodes has 400"
    assert place.verdict(place.render("broadcom_roce")) == ("fail", text, REMEDY)


def test_no_device(place: Place) -> None:
    place.tree("n1", [])
    assert place.verdict(place.render("broadcom_roce")) == (
        "warn",
        "no RDMA device, the fabric of two_nodes is broadcom",
        "load the NIC's RDMA driver, or set the site's network.rdma to off",
    )


@pytest.mark.parametrize(
    ("fabric", "nodes", "network", "text"),
    [
        ("broadcom_roce", 1, "{}", "one node: nothing between nodes"),
        ("broadcom_roce", 2, "{rdma: off}", "RDMA is off, or the fabric of two_nodes has none"),
        ("none", 2, "{}", "RDMA is off, or the fabric of two_nodes has none"),
    ],
)
def test_nothing_to_check(place: Place, fabric: str, nodes: int, network: str, text: str) -> None:
    place.tree("n1", [down(port) for port in renamed_broadcom()])
    assert place.verdict(place.render(fabric, nodes=nodes, network=network)) == ("skip", text, "")


def test_without_rdma_all_interfaces_with_a_link_are_offered(place: Place) -> None:
    place.tree("n1", [down(port) for port in renamed_broadcom()])
    net = place.folder / "n1/sys/class/net"
    for name, state, is_real in (
        ("ens1", "up", True),
        ("ens2", "up", True),
        ("ens3", "down", True),
        ("docker0", "up", False),
    ):
        (net / name).mkdir(parents=True, exist_ok=True)
        (net / name / "operstate").write_text(f"{state}\n")
        if is_real:
            (net / name / "device").mkdir()
    verdict, text, _ = place.verdict(place.render("broadcom_roce", network="{rdma: off}"))
    offer = "; TCP sockets can use ens1,ens2 (network.socket_ifname)"
    assert verdict == "skip" and text.endswith(offer)

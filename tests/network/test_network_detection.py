"""What a node makes of its network: detection, precedence, troubles. Made-up trees."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from fake_sys import (
    Port,
    broadcom,
    down,
    eight,
    infiniband,
    link,
    mellanox_with_front_end,
    pollara,
    renamed_broadcom,
    roce_gids,
)
from network_parts import Place

from orchestrator.errors import DescriptorError, UsageError

BOND = (("bond0", "0.0.0.0", "0.0.0.0"),)
OWN = """{title: ours, kind: broadcom, drivers: ["bnxt_*"], names: ["rdma[0-9]*"], link_layer: Ethernet, gbps: 400,
 nics_per_gpu: 1, env: {NCCL_IB_GID_INDEX: "3", NCCL_PXN_DISABLE: "0"}}""".replace("\n", "")


def names(pattern: str, numbers: range | list[int] = range(8)) -> str:
    return ",".join(pattern.format(number) for number in numbers)


@pytest.mark.parametrize(
    ("fabric", "ports", "hca", "gid"),
    [
        ("broadcom_roce", broadcom(), names("bnxt_re{}"), "3"),
        ("broadcom_roce", renamed_broadcom(1), names("rdma{}"), "1"),
        (
            "mellanox_roce",
            mellanox_with_front_end(),
            names("mlx5_{}", [0, 2, 3, 4, 5, 7, 8, 9]),
            "3",
        ),
        ("pollara", pollara(), names("ionic_{}"), "1"),
        ("pollara", eight("gpu{}_rdma", "ionic", row=1), names("gpu{}_rdma"), "1"),
        ("gpuboost", eight("rocep{}s0f0", "unheard_of"), names("rocep{}s0f0"), "3"),
    ],
)
def test_each_kind_of_fabric(
    place: Place, fabric: str, ports: list[Port], hca: str, gid: str
) -> None:
    bundle = place.render(fabric)
    place.tree("n1", ports, BOND, ("lo", "bond0"))
    seen = place.look(bundle)
    assert seen.said("trouble") == seen.said("note") == []
    assert {
        name: seen.variables[name]
        for name in seen.variables
        if seen.variables[name][1] == "detected"
    } == {
        "NCCL_IB_HCA": (hca, "detected"),
        "NCCL_IB_GID_INDEX": (gid, "detected"),
        "NCCL_SOCKET_IFNAME": ("bond0", "detected"),
        "GLOO_SOCKET_IFNAME": ("bond0", "detected"),
    }
    assert seen.exports["NCCL_IB_HCA"] == hca
    assert [word.split(",")[0] for word in seen.summary.split()] == hca.split(",")


def test_infiniband_has_its_address_in_row_0(place: Place) -> None:
    place.tree("n1", infiniband())
    seen = place.look(place.render("mellanox_infiniband"))
    assert seen.said("trouble") == []
    assert "NCCL_IB_GID_INDEX" not in seen.variables
    seen = place.look(place.render("mellanox_roce"))
    assert seen.variables["NCCL_IB_GID_INDEX"] == ("0", "detected")
    assert (
        seen.said("trouble")[0]
        == "mlx5_0: the link layer is InfiniBand, the fabric of two_nodes has Ethernet"
    )


def test_no_rdma_at_all(place: Place) -> None:
    place.tree("n1", [])
    seen = place.look(place.render("broadcom_roce"))
    assert (seen.summary, seen.said("trouble")) == ("none", [])
    assert "NCCL_IB_HCA" not in seen.variables
    assert seen.variables["NCCL_IB_GID_INDEX"] == ("3", "descriptor")
    assert seen.variables["NCCL_SOCKET_IFNAME"] == ("eno0", "detected")


def test_mixed_states_name_device_and_state(place: Place) -> None:
    ports = renamed_broadcom()
    ports[2] = down(ports[2])
    ports[5] = replace(ports[5], rate="100 Gb/sec (4X EDR)")
    place.tree("n1", ports)
    seen = place.look(place.render("broadcom_roce"))
    assert seen.said("trouble") == [
        "rdma2: the port is DOWN (physical state Disabled)",
        "rdma5: 100 Gb/s, others 400",
    ]
    assert seen.record["troubles"] == seen.said("trouble")


def test_a_front_end_port_that_is_down_is_no_trouble_and_hides_none(place: Place) -> None:
    ports = mellanox_with_front_end()
    ports[6] = down(ports[6])
    place.tree("n1", ports, BOND, ("lo", "bond0"))
    bundle = place.render("mellanox_roce")
    seen = place.look(bundle)
    assert seen.said("trouble") == []
    assert seen.use()["mlx5_6"] == "front end"
    ports[4] = down(ports[4])
    place.tree("n1", ports, BOND, ("lo", "bond0"))
    assert place.look(bundle).said("trouble") == [
        "mlx5_4: the port is DOWN (physical state Disabled)"
    ]


def test_slower_ports_are_the_front_end_where_the_route_does_not_tell(place: Place) -> None:
    place.tree("n1", mellanox_with_front_end())
    seen = place.look(place.render("mellanox_roce"))
    assert [name for name, use in seen.use().items() if use == "slower"] == ["mlx5_1", "mlx5_6"]
    assert seen.said("trouble") == []


def test_without_facts_the_fastest_that_are_up_are_taken(place: Place) -> None:
    ports = eight("rocep{}s0f0", "unheard_of", rate="100 Gb/sec (4X EDR)")
    place.tree("n1", [down(ports[0]), replace(ports[1], rate="25 Gb/sec (1X EDR)"), *ports[2:]])
    seen = place.look(place.render("gpuboost"))
    assert seen.said("trouble") == []
    assert [seen.use()[f"rocep{n}s0f0"] for n in range(3)] == ["down", "slower", "used"]
    place.tree("n2", [down(port) for port in ports])
    assert len(place.look(place.folder / "bundle", "n2").said("trouble")) == 8


def test_nics_that_serve_both_networks_are_kept(place: Place) -> None:
    place.tree("n1", broadcom(), (("gpu0", "0.0.0.0", "0.0.0.0"),))
    seen = place.look(place.render("broadcom_roce"))
    assert set(seen.use().values()) == {"used"}
    assert seen.variables["NCCL_SOCKET_IFNAME"] == ("gpu0", "detected")


def test_a_prefix_that_would_take_too_much_is_made_exact(place: Place) -> None:
    ports = [
        Port(
            f"mlx5_{n}",
            "mlx5_core",
            f"ens{n}",
            rate="100 Gb/sec" if n >= 8 else "400 Gb/sec (4X NDR)",
        ).at(3)
        for n in range(11)
    ]
    place.tree("n1", ports)
    seen = place.look(place.render("mellanox_roce"))
    assert seen.variables["NCCL_IB_HCA"] == (f"={names('mlx5_{}')}", "detected")


def test_a_drifted_gid_inside_a_node(place: Place) -> None:
    ports = renamed_broadcom(3)
    ports[6] = ports[6].at(5)
    place.tree("n1", ports)
    seen = place.look(place.render("broadcom_roce"))
    assert seen.said("trouble") == [
        "rdma6: its RoCE v2 GID over IPv4 is at index 5, that of other devices at 3"
    ]
    assert seen.variables["NCCL_IB_GID_INDEX"] == ("3", "detected")
    assert seen.summary.split()[6] == "rdma6,400,Ethernet,5"


def test_the_index_that_all_devices_share_is_taken(place: Place) -> None:
    ports = renamed_broadcom(3)
    ports[0] = replace(ports[0], gids={**ports[0].gids, 1: ("10.1.0.8", "RoCE v2")})
    place.tree("n1", ports)
    seen = place.look(place.render("broadcom_roce"))
    assert seen.said("trouble") == []
    assert seen.variables["NCCL_IB_GID_INDEX"] == ("3", "detected")


def test_missing_netdev_and_missing_address(place: Place) -> None:
    ports = renamed_broadcom()
    ports[1] = replace(ports[1], netdev="")
    ports[3] = replace(ports[3], gids={row: gid for row, gid in roce_gids(3).items() if row < 2})
    place.tree("n1", ports)
    assert place.look(place.render("broadcom_roce")).said("trouble") == [
        "rdma1: no network interface belongs to it",
        "rdma3 (gpu3): it has no RoCE v2 GID over IPv4; give the interface an address, or set the site's network.gid_index",
    ]


def test_too_few_devices_unless_the_site_names_them(place: Place) -> None:
    place.tree("n1", renamed_broadcom()[:4])
    [trouble] = place.look(place.render("broadcom_roce")).said("trouble")
    assert trouble.startswith("4 RDMA devices for 8 GPUs, the fabric of two_nodes has 8")
    seen = place.look(
        place.render("broadcom_roce", network="{ib_hca: [rdma0, rdma1, rdma2, rdma3]}")
    )
    assert seen.said("trouble") == []


def test_devices_of_another_kind(place: Place) -> None:
    place.tree("n1", eight("rdma{}", "mlx5_core"))
    bundle = place.render("broadcom_roce")
    seen = place.look(bundle)
    [trouble] = seen.said("trouble")
    assert "the driver is mlx5_core, the fabric of two_nodes is broadcom" in trouble
    # Without a driver the name decides.
    (place.folder / "n2").mkdir()
    place.tree("n2", eight("rdma{}", ""))
    assert place.look(bundle, "n2").said("trouble") == []


def test_slow_for_the_fabric_is_a_note(place: Place) -> None:
    place.tree("n1", eight("rdma{}", "bnxt_en", rate="200 Gb/sec (4X HDR)"))
    seen = place.look(place.render("broadcom_roce"))
    assert seen.said("trouble") == []
    assert seen.said("note") == ["RDMA devices run at 200 Gb/s, the fabric of two_nodes has 400"]


# ---- who wins ------------------------------------------------------------------------------------------------------


def test_precedence_user_site_detected_descriptor(place: Place) -> None:
    place.tree("n1", renamed_broadcom(1))
    network = "{socket_ifname: eno0, ib_hca: [rdma0, rdma1], gid_index: 2}"
    seen = place.look(place.render(OWN, network=network, given={"NCCL_IB_HCA": "rdma2,rdma3"}))
    assert seen.said("trouble") == []
    assert seen.variables == {
        "NCCL_IB_HCA": ("rdma2,rdma3", "user"),
        "NCCL_IB_GID_INDEX": ("2", "site"),
        "NCCL_SOCKET_IFNAME": ("eno0", "site"),
        "GLOO_SOCKET_IFNAME": ("eno0", "site"),
        "NCCL_PXN_DISABLE": ("0", "descriptor"),
    }
    assert seen.exports == {}
    assert seen.use()["rdma0"] == "not named"


def test_what_the_site_removes_is_not_detected(place: Place) -> None:
    place.tree("n1", renamed_broadcom(1))
    seen = place.look(place.render(OWN, site={"env": {"NCCL_IB_GID_INDEX": None}}))
    assert "NCCL_IB_GID_INDEX" not in seen.variables
    assert "NCCL_IB_GID_INDEX" not in seen.exports


def test_an_edited_bundle_is_the_users_word(place: Place) -> None:
    place.tree("n1", renamed_broadcom(1))
    bundle = place.render(OWN)
    file = bundle / "rccl_env.sh"
    text = file.read_text()
    assert "export NCCL_IB_GID_INDEX=3\n" in text
    file.write_text(
        text.replace("NCCL_IB_GID_INDEX=3", "NCCL_IB_GID_INDEX=2") + "export NCCL_IB_HCA=rdma4\n"
    )
    seen = place.look(bundle)
    assert seen.variables["NCCL_IB_GID_INDEX"] == ("2", "user")
    assert seen.variables["NCCL_IB_HCA"] == ("rdma4", "user")


def test_a_passed_variable_is_the_users_word(place: Place) -> None:
    place.tree("n1", renamed_broadcom())
    bundle = place.render(OWN, site={"pass_env": ["NCCL_IB_HCA"]})
    assert place.look(bundle, NCCL_IB_HCA="rdma7").variables["NCCL_IB_HCA"] == ("rdma7", "user")
    # A variable of the surrounding shell that nobody passes on says nothing.
    assert place.look(place.render(OWN), NCCL_IB_HCA="rdma7").variables["NCCL_IB_HCA"] == (
        names("rdma{}"),
        "detected",
    )


def test_an_empty_value_never_reaches_the_run(place: Place) -> None:
    place.tree("n1", [])
    bundle = place.render(OWN)
    file = bundle / "rccl_env.sh"
    file.write_text(file.read_text() + "export NCCL_IB_HCA=\n")
    seen = place.look(bundle)
    assert seen.variables["NCCL_IB_HCA"] == ("-", "unset")
    assert seen.exports["NCCL_IB_HCA"] is None
    place.tree("n1", renamed_broadcom())
    assert place.look(bundle).variables["NCCL_IB_HCA"] == (names("rdma{}"), "detected")


def test_an_empty_value_is_refused_where_it_is_written(place: Place) -> None:
    with pytest.raises(UsageError, match="--env NCCL_IB_HCA: .* is empty"):
        place.render(OWN, given={"NCCL_IB_HCA": ""})
    with pytest.raises(
        DescriptorError, match=r"site\.yaml:\d+: network\.env\.NCCL_IB_HCA: .* is empty"
    ):
        place.render(OWN, network='{env: {NCCL_IB_HCA: ""}}')


def test_names_of_the_site_that_a_node_lacks(place: Place) -> None:
    place.tree("n1", renamed_broadcom()[:7])
    network = f"{{socket_ifname: [eth1, eth0], ib_hca: [{names('rdma{}')}]}}"
    assert place.look(place.render(OWN, network=network)).said("trouble") == [
        "NCCL_SOCKET_IFNAME=eth1,eth0 (site): this node has no such interface; it has eno0,gpu0,gpu1,gpu2,gpu3,gpu4,gpu5,gpu6,lo",
        "rdma7: in NCCL_IB_HCA (site), but not on this node, which has rdma0,rdma1,rdma2,rdma3,rdma4,rdma5,rdma6",
    ]


def test_gloo_gets_one_name_of_a_list(place: Place) -> None:
    place.tree("n1", [], interfaces=("lo", "eth0"))
    seen = place.look(place.render(OWN, network="{socket_ifname: [eth1, eth0]}"))
    assert seen.variables["NCCL_SOCKET_IFNAME"] == ("eth1,eth0", "site")
    assert seen.variables["GLOO_SOCKET_IFNAME"] == ("eth0", "detected")
    seen = place.look(place.render(OWN, network="{socket_ifname: ^docker}"))
    assert seen.variables["GLOO_SOCKET_IFNAME"] == ("eth0", "detected")


def test_an_excluding_list_of_devices(place: Place) -> None:
    ports = [*pollara(), Port("rocep5", "mlx5_core", "enp5").at(3)]
    place.tree("n1", ports)
    seen = place.look(place.render("pollara", network="{ib_hca: ^rocep5, gid_index: 1}"))
    assert seen.said("trouble") == []
    assert seen.use() == {**{port.name: "used" for port in ports[:8]}, "rocep5": "not named"}


def test_an_empty_row_that_the_site_names(place: Place) -> None:
    place.tree("n1", renamed_broadcom(1))
    troubles = place.look(place.render(OWN, network="{gid_index: 7}")).said("trouble")
    assert troubles[0] == "rdma0: the GID at index 7 (site) is empty"
    assert len(troubles) == 8


def test_a_difference_that_the_site_has_decided_is_none(place: Place) -> None:
    bundle = place.render(OWN, network="{gid_index: 1}")
    for node, gid in (("n1", 3), ("n2", 1)):
        place.tree(node, renamed_broadcom(gid))
    assert place.look(bundle, "n1").summary == place.look(bundle, "n2").summary != ""


@pytest.mark.parametrize("how", [{"network": "{rdma: off}"}, {"given": {"NCCL_IB_DISABLE": "1"}}])
def test_rdma_off_asks_nothing(place: Place, how: dict[str, dict[str, str]]) -> None:
    place.tree("n1", [down(port) for port in renamed_broadcom()])
    seen = place.look(place.render(OWN, **how))  # type: ignore[arg-type]
    assert (seen.summary, seen.said("trouble")) == ("off", [])
    assert seen.variables["NCCL_IB_DISABLE"][0] == "1"
    assert "NCCL_IB_HCA" not in seen.variables


@pytest.mark.parametrize(("fabric", "nodes"), [("none", 2), ("broadcom_roce", 1)])
def test_nothing_is_asked_of_one_node_or_without_a_fabric(
    place: Place, fabric: str, nodes: int
) -> None:
    place.tree("n1", [down(port) for port in renamed_broadcom()])
    seen = place.look(place.render(fabric, nodes=nodes))
    assert (seen.summary, seen.said("trouble"), seen.exports) == ("off", [], {})
    assert len(seen.use()) == 8


# ---- the way to the other nodes ------------------------------------------------------------------------------------


def test_the_longest_prefix_wins(place: Place) -> None:
    place.tree(
        "n1",
        [],
        (
            ("eno0", "0.0.0.0", "0.0.0.0"),
            ("eth1", "10.0.0.0", "255.0.0.0"),
            ("eth2", "10.0.0.0", "255.255.255.0"),
            ("eth3", "10.0.1.0", "255.255.255.0"),
        ),
    )
    assert place.look(place.render(OWN)).record["route"] == {"to": "10.0.0.1", "interface": "eth2"}


def test_ip_is_asked_where_there_is_one(place: Place, tmp_path: Path) -> None:
    tool = tmp_path / "bin/ip"
    tool.parent.mkdir()
    tool.write_text(
        '#!/bin/sh\n[ "$*" = "-o route get 10.0.0.2" ] && '
        'echo "10.0.0.2 via 10.9.0.1 dev bond7 src 10.9.0.2 uid 0 \\    cache"\n'
    )
    tool.chmod(0o755)
    place.tree("n1", [])
    # Rank 0 looks towards another node: the way to itself is `lo`.
    seen = place.look(
        place.render(OWN),
        PATH=f"{tool.parent}:{os.environ['PATH']}",
        ORCH_PROC_ROOT="",
        MASTER_ADDR="n1",
    )
    assert seen.record["route"] == {"to": "10.0.0.2", "interface": "bond7"}


def test_a_table_without_a_way_gives_no_name(place: Place) -> None:
    place.tree("n1", [], ())
    seen = place.look(place.render(OWN))
    assert "NCCL_SOCKET_IFNAME" not in seen.variables
    assert not [name for name in seen.exports if "IFNAME" in name]


def test_a_bond_carries_its_parts(place: Place) -> None:
    """The GIDs name the part, the route the bond."""
    ports = mellanox_with_front_end()
    ports[1] = replace(ports[1], upper="", rate="400 Gb/sec (4X NDR)")
    place.tree("n1", ports, BOND, ("lo", "bond0"))
    home = place.folder / "n1/sys/class/net/ens1np0"
    link(home.resolve() / "upper_bond0", place.folder / "n1/sys/devices/virtual/net/bond0")
    assert place.look(place.render("mellanox_roce")).use()["mlx5_1"] == "front end"

"""Whatever stands in /sys and /proc, and whatever a container says: no exception, and records that are bounded and can be read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_sys import mellanox_with_front_end
from hypothesis import given, settings
from hypothesis import strategies as st
from network_parts import Place

from orchestrator.onnode.agent.facts import collect, write_hardware
from orchestrator.onnode.agent.network import look, rdma_verdict
from orchestrator.onnode.agent.node import Node

PORT = "sys/class/infiniband/mlx5_{}/ports/1/"
GPU = "sys/bus/pci/drivers/amdgpu/0000:c1:00.0/"
CPU = "sys/devices/system/cpu/cpu0/"
FILES = [
    *(
        PORT.format(number) + file
        for number in (0, 3)
        for file in (
            "state",
            "phys_state",
            "link_layer",
            "rate",
            "gids/0",
            "gids/3",
            "gid_attrs/types/3",
            "gid_attrs/ndevs/3",
        )
    ),
    "proc/net/route",
    *(f"proc/{file}" for file in ("cpuinfo", "meminfo", "cmdline", "sys/kernel/osrelease")),
    *(
        GPU + file
        for file in (
            "device",
            "pp_dpm_sclk",
            "mem_info_vram_total",
            "max_link_speed",
            "fw_version/vcn_fw_version",
        )
    ),
    *(
        CPU + file
        for file in ("cache/index0/level", "cache/index0/size", "cpufreq/cpuinfo_max_freq")
    ),
    *(
        f"sys/devices/system/{file}"
        for file in ("cpu/present", "memory/block_size_bytes", "memory/memory0/state")
    ),
    *(
        "sys/block/sda/size",
        "sys/class/net/eno0/speed",
        "sys/class/dmi/id/product_name",
        "etc/os-release",
    ),
]
WORDS = [
    b"",
    b"\n",
    b"9" * 5000,
    b"-1\n",
    b"\xff" * 300_000,
    b"0-\n",
    b"4: ACTIVE\n",
    b"4: ",
    b"[\n",
    b"InfiniBand\n",
    b"400 Gb/sec\n",
]
WORDS += [
    b"RoCE v2\n",
    b"../../..\n",
    b"0000:0000:0000:0000:0000:ffff:0a01:0007\n",
    b"18446744073709551616\n",
    b"1: 2100Mhz *\n",
    b"ffff\n",
]
WORDS += [
    b"Iface\nx\t00000000\t0\t0\t0\t0\t99999999999\t00000000\n",
    b"eno0\t0\t0\t0\t0\t0\t0\tFFFFFFFF\n",
]
JUNK = st.one_of(
    st.none(), st.sampled_from(WORDS), st.binary(max_size=100), st.text(max_size=40).map(str.encode)
)
LARGEST = 200_000
CONTROL = [chr(code) for code in (*range(32), 127)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with ten RDMA devices and one GPU; what looks at it is asked within."""
    place = Place(tmp_path_factory.mktemp("junk"))
    place.tree(
        "n1", mellanox_with_front_end(), (("bond0", "0.0.0.0", "0.0.0.0"),), ("lo", "bond0", "eno0")
    )
    bundle = place.render("mellanox_roce")
    with place.given(ORCH_TUNABLES_ROOT=f"{place.folder}/%n"):
        yield place.node(bundle)


def put(path: Path, content: bytes | None) -> None:
    """Write `content`; None makes a folder in the file's place."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)


@settings(max_examples=60)
@given(junk=st.dictionaries(st.sampled_from(FILES), JUNK, max_size=12))
def test_junk_of_the_host(node: Node, junk: dict[str, bytes | None]) -> None:
    root = Path(node.root)
    before = {name: (root / name).read_bytes() for name in junk if (root / name).is_file()}
    try:
        for name, content in junk.items():
            put(root / name, content)
        found = look(node)
        found.record()
        assert rdma_verdict(node)[0] in ("pass", "warn", "fail", "skip")
        assert all(
            len(one.encode()) <= 600 and not set(one) & set(CONTROL)
            for one in collect(node, "image", {"thp": "\n"})
        )
        write_hardware(node)
    finally:
        for name in junk:
            put(root / name, before.get(name, b""))
    assert len(found.summary) < LARGEST and all(
        len(word.split(",")) == 4 for word in found.summary.split(" ")
    )
    for name in ("network.json", "hardware.json"):
        written = (node.folder / name).read_bytes()
        assert len(written) < LARGEST and json.loads(written)["node"] == "n1"


LINES = st.lists(
    st.one_of(
        st.text(max_size=30),
        st.tuples(st.sampled_from(["device", "verbs", "ibv", "memlock"]), st.text(max_size=20)).map(
            " ".join
        ),
        st.sampled_from(
            [
                "ibv end",
                "ibv ",
                "device ",
                "memlock 64",
                "memlock",
                "ibv No IB devices found",
                "device " + "x" * 9999,
            ]
        ),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(lines=LINES)
def test_junk_of_the_container(node: Node, lines: list[str]) -> None:
    found = look(node)
    assert found.troubles == []
    assert found.check_inside(lines) == found.troubles != []
    written = (node.folder / "network.json").read_bytes()
    assert len(written) < LARGEST and json.loads(written)["troubles"] == found.troubles


def test_a_container_that_tells_too_much(place: Place) -> None:
    place.tree("n1", mellanox_with_front_end())
    found = place.look(place.render("mellanox_roce")).network
    told = found.check_inside([f"device {number} " + "x" * 9999 for number in range(10_000)])
    assert len(found.inside) == 500 and len(told) == 502


def test_little_locked_memory_is_said(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    place.tree("n1", mellanox_with_front_end())
    found = place.look(place.render("mellanox_roce")).network
    for told, said in (("64", True), ("unlimited", False), ("1048576", False), ("x" * 5, True)):
        found.check_inside([f"memlock {told}"])
        expected = f"note\tn1\tlocked memory in the container is limited to {told} KiB; RDMA may fail to register memory\n"
        assert capfd.readouterr().out == (expected if said else "")

"""The devices in the container against those of the node: what the container's shell tells, and what is made of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from fake_sys import Port, build_sys, renamed_broadcom
from network_parts import Place

from orchestrator.onnode.agent.network import CONTAINER_NETWORK, look

LIST = "    device                 node GUID\n    ------              ----------------\n"
REFUSAL = (
    "libibverbs: Warning: Driver bnxt_re does not support the kernel ABI of 6 (supports 1 to 1)"
)
ABI = REFUSAL + " for device /sys/class/infiniband/{}"
ALL = ",".join(f"rdma{number}" for number in range(8))
UNFIT = "the image's RDMA library does not fit the node's driver"
NONE = "install the NIC's RDMA library (/usr/lib*/libibverbs) on the node, and give it to the site's container.mounts"


@pytest.fixture
def inside(place: Place, tmp_path: Path) -> Path:
    """A container's root, with all that the node n1 has."""
    place.tree("n1", renamed_broadcom())
    place.look(place.render("broadcom_roce"))
    return container(tmp_path / "container", renamed_broadcom(), range(8))


def container(root: Path, ports: list[Port], verbs: range) -> Path:
    build_sys(root / "sys", ports)
    (root / "dev/infiniband").mkdir(parents=True, exist_ok=True)
    for number in verbs:
        (root / f"dev/infiniband/uverbs{number}").touch()
    return root


def tool(folder: Path, text: str) -> None:
    """An `ibv_devices` that prints `text`."""
    path = folder / "bin/ibv_devices"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    path.chmod(0o755)


def check(place: Place, root: Path) -> list[str]:
    path = f"{place.folder / 'bin'}:{os.environ['PATH']}"
    with place.given(PATH=path):
        found = look(place.node(place.folder / "bundle"))
        done = subprocess.run(
            ["bash", "-uc", CONTAINER_NETWORK, "container", " ".join(found.used), root],
            check=True,
            capture_output=True,
            text=True,
        )
        assert done.stderr == ""
        return found.check_inside([line.removeprefix("rdma ") for line in done.stdout.splitlines()])


def test_all_that_is_outside_is_inside(place: Place, inside: Path) -> None:
    assert check(place, inside) == []
    tool(
        place.folder,
        LIST + "\n".join(f"    rdma{n}            \te09d73fffe9b75{n:x}0" for n in range(8)),
    )
    assert check(place, inside) == []
    record = (place.folder / "set/nodes/n1/network.json").read_text()
    assert '"device rdma7", "verbs uverbs0"' in record


def test_a_container_without_the_devices(place: Place, inside: Path, tmp_path: Path) -> None:
    """As in a published 2-node entry: /sys shows them, /dev/infiniband was not passed."""
    empty = container(tmp_path / "empty", renamed_broadcom(), range(0))
    assert check(place, empty) == [
        f"{ALL}: cannot be opened in the container, /dev/infiniband has no uverbs device for it"
    ]
    some = container(tmp_path / "some", renamed_broadcom()[:6], range(8))
    assert check(place, some) == [
        "rdma6,rdma7: on the node, but not in the container (/sys/class/infiniband)"
    ]


def test_a_library_that_does_not_fit_the_driver(place: Place, inside: Path) -> None:
    tool(
        place.folder, "\n".join(ABI.format(f"rdma{n}") for n in range(8)) + "\nNo IB devices found"
    )
    assert check(place, inside) == [
        f"{ALL}: ibv_devices in the container does not list it ({REFUSAL}); {UNFIT}; {NONE}"
    ]
    tool(
        place.folder,
        LIST + "\n".join(f"    rdma{n}            \te09d73fffe9b75{n:x}0" for n in range(7)),
    )
    assert check(place, inside) == [
        f"rdma7: ibv_devices in the container does not list it; {UNFIT}; {NONE}"
    ]


@pytest.mark.parametrize(
    "libraries", ["usr/lib/x86_64-linux-gnu/libibverbs", "usr/lib64/libibverbs"]
)
def test_the_mounts_that_mend_it_are_named(place: Place, inside: Path, libraries: str) -> None:
    root = place.folder / "n1"
    for name in (
        f"{libraries}/libbnxt_re-rdmav34.so",
        f"{libraries}/libmlx5-rdmav34.so",
        "etc/libibverbs.d/bnxt_re.driver",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    tool(
        place.folder,
        LIST + "\n".join(f"    rdma{n}            \te09d73fffe9b75{n:x}0" for n in range(7)),
    )
    mounts = f"[{{host: /{libraries}/libbnxt_re-rdmav34.so}}, {{host: /etc/libibverbs.d/bnxt_re.driver}}]"
    assert check(place, inside) == [
        f"rdma7: ibv_devices in the container does not list it; {UNFIT}; give the site container.mounts: {mounts}"
    ]


def test_devices_that_only_the_container_has(place: Place, inside: Path, tmp_path: Path) -> None:
    more = container(tmp_path / "more", [*renamed_broadcom(), Port("rdma8")], range(9))
    assert check(place, more) == ["rdma8: in the container, but not on the node"]


def test_a_container_of_a_node_without_rdma_is_not_asked(place: Place, inside: Path) -> None:
    place.tree("n1", [])
    for path in (place.folder / "n1/sys/class/infiniband").iterdir():
        path.unlink()
    assert check(place, inside) == []

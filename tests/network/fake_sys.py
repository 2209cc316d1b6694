"""Trees that look like /sys and /proc of a node with RDMA devices: folders below devices/, links below class/, as the kernel
makes them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

EMPTY_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
ROWS = 16


@dataclass(frozen=True)
class Port:
    """One RDMA device with one port. `gids`: row -> (address, type); an address of four numbers becomes an IPv4 GID."""

    name: str
    driver: str = "bnxt_en"
    netdev: str = ""
    state: str = "4: ACTIVE"
    physical: str = "5: LinkUp"
    link_layer: str = "Ethernet"
    rate: str = "400 Gb/sec (4X NDR)"
    gids: dict[int, tuple[str, str]] = field(default_factory=dict)
    upper: str = ""
    """The bond that the interface is a part of."""

    def at(self, row: int) -> Port:
        """The same with its RoCE v2 address over IPv4 in `row`, behind the usual RoCE v1 and link-local rows."""
        return replace(self, gids=roce_gids(row))


def roce_gids(row: int) -> dict[int, tuple[str, str]]:
    local = "fe80:0000:0000:0000:0250:56ff:fe00:0001"
    gids = {0: (local, "IB/RoCE v1"), 1: (local, "RoCE v2"), 2: ("10.1.0.7", "IB/RoCE v1")}
    gids.pop(row, None)
    return {**gids, row: ("10.1.0.7", "RoCE v2")}


def down(port: Port) -> Port:
    return replace(port, state="1: DOWN", physical="3: Disabled")


def eight(
    pattern: str, driver: str, netdev: str = "gpu{}", row: int = 3, **other: str
) -> list[Port]:
    """One NIC per GPU: {} in `pattern` and `netdev` is its number."""
    return [Port(pattern.format(n), driver, netdev.format(n), **other).at(row) for n in range(8)]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.symlink_to(os.path.relpath(target, path.parent))


def build_sys(
    root: Path, ports: list[Port], interfaces: tuple[str, ...] = ("lo", "eno0"), rows: int = ROWS
) -> Path:
    """Make the tree of a node below `root` and return `root`."""
    for name in interfaces:
        write(root / "devices/virtual/net" / name / "ifindex", "1")
        link(root / "class/net" / name, root / "devices/virtual/net" / name)
    for number, port in enumerate(ports):
        pci = root / f"devices/pci0000:00/0000:{number + 16:02x}:00.0"
        _verbs(root, pci, port, number, rows)
        if port.netdev:
            _interface(root, pci, port)
    return root


def _verbs(root: Path, pci: Path, port: Port, number: int, rows: int) -> None:
    device = pci / "infiniband" / port.name
    link(root / "class/infiniband" / port.name, device)
    link(device / "device", pci)
    if port.driver:
        driver = root / "bus/pci/drivers" / port.driver
        driver.mkdir(parents=True, exist_ok=True)
        link(pci / "driver", driver)
    write(pci / f"infiniband_verbs/uverbs{number}/ibdev", port.name)
    home = device / "ports/1"
    for name, text in (
        ("state", port.state),
        ("phys_state", port.physical),
        ("link_layer", port.link_layer),
        ("rate", port.rate),
    ):
        write(home / name, text)
    for row in range(rows):
        address, kind = port.gids.get(row, (EMPTY_GID, ""))
        write(home / f"gids/{row}", _gid(address))
        # The kernel answers EINVAL for the type and the interface of an empty row; a missing file reads the same.
        if kind:
            write(home / f"gid_attrs/types/{row}", kind)
            if port.netdev:
                write(home / f"gid_attrs/ndevs/{row}", port.upper or port.netdev)


def _interface(root: Path, pci: Path, port: Port) -> None:
    home = pci / "net" / port.netdev
    write(home / "ifindex", "2")
    link(root / "class/net" / port.netdev, home)
    if port.upper:
        link(home / f"upper_{port.upper}", root / "devices/virtual/net" / port.upper)


def _gid(address: str) -> str:
    parts = address.split(".")
    if len(parts) != 4:
        return address
    one, two, three, four = (int(part) for part in parts)
    return f"0000:0000:0000:0000:0000:ffff:{one:02x}{two:02x}:{three:02x}{four:02x}"


def build_proc(
    root: Path, routes: tuple[tuple[str, str, str], ...] = (("eno0", "0.0.0.0", "0.0.0.0"),)
) -> Path:
    """Make net/route below `root`: (interface, destination, mask) in dotted form."""
    lines = ["Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"]
    lines += [
        f"{name}\t{_hex(to)}\t00000000\t0001\t0\t0\t0\t{_hex(mask)}\t0\t0\t0"
        for name, to, mask in routes
    ]
    write(root / "net/route", "\n".join(lines))
    return root


def _hex(address: str) -> str:
    return "".join(f"{int(part):02X}" for part in reversed(address.split(".")))


def broadcom(row: int = 3) -> list[Port]:
    return eight("bnxt_re{}", "bnxt_en", row=row)


def renamed_broadcom(row: int = 3) -> list[Port]:
    """Named as in the published MI325X entry."""
    return eight("rdma{}", "bnxt_en", row=row)


def mellanox_with_front_end() -> list[Port]:
    """Ten ports as on the published 64-node entry: numbers 1 and 6 belong to the front-end network."""
    front = {1: "bond0", 6: "bond0"}
    return [
        replace(
            Port(f"mlx5_{n}", "mlx5_core", f"ens{n}np0").at(3),
            upper=front.get(n, ""),
            rate="100 Gb/sec (4X EDR)" if n in front else "400 Gb/sec (4X NDR)",
        )
        for n in range(10)
    ]


def pollara(row: int = 1) -> list[Port]:
    return eight("ionic_{}", "ionic", "enp{}s0", row=row)


def infiniband() -> list[Port]:
    gid = {0: ("fe80:0000:0000:0000:b859:9f03:00a8:b3a4", "IB/RoCE v1")}
    return [
        Port(f"mlx5_{n}", "mlx5_core", f"ib{n}", link_layer="InfiniBand", gids=gid)
        for n in range(8)
    ]

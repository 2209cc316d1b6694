"""RDMA ports of this node and its route to the others, from the kernel and host tools."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from ..kernel.system import ask, first_line, lines, names
from .node import Node

NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
_IPV4_GID = "0000:0000:0000:0000:0000:ffff:"
_IPV4 = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_INTERFACE = re.compile(r"[!-.0-~]{1,64}")


@dataclass
class Port:
    """A port of an RDMA device, as in network.json. `home`: its folder in /sys; `port`: DEVICE or
    DEVICE:PORT, as in NCCL_IB_HCA; `gid_indexes`: rows with RoCE v2 addresses over IPv4."""

    home: str
    port: str
    driver: str
    state: str
    phys_state: str
    link_layer: str
    gbps: int
    netdev: str
    gid_indexes: list[int]
    use: str = ""

    def decide(self, use: str) -> None:
        self.use = use

    @property
    def device(self) -> str:
        return self.port.partition(":")[0]

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"


def devices(sys: str) -> tuple[dict[str, str], list[Port]]:
    """Return device -> driver ("" if unknown), and the ports."""
    drivers, ports = {}, []
    for device in names(f"{sys}/class/infiniband"):
        home = f"{sys}/class/infiniband/{device}"
        driver = f"{home}/device/driver"
        drivers[device] = (
            os.path.basename(os.path.realpath(driver)) if os.path.isdir(driver) else ""
        )
        numbers = names(f"{home}/ports")
        for number in numbers:
            if os.path.exists(f"{home}/ports/{number}/state"):
                name = device if len(numbers) == 1 else f"{device}:{number}"
                ports.append(_port(home, number, name, drivers[device]))
    return drivers, ports


def _port(device: str, number: str, name: str, driver: str) -> Port:
    home = f"{device}/ports/{number}"
    state, physical, layer, rate = (
        first_line(f"{home}/{file}")[:80].split(": ", 1)[-1]
        for file in ("state", "phys_state", "link_layer", "rate")
    )
    ipoib = layer == "InfiniBand"
    netdev, rows = (
        ("".join(names(f"{device}/device/net", 1)), list[int]()) if ipoib else _gids(home)
    )
    gbps = int("0" + re.split("[^0-9]", rate)[0][:6])
    return Port(home, name, driver, state, physical, layer, gbps, netdev, rows)


def _gids(home: str) -> tuple[str, list[int]]:
    """The interface and the rows. Sixteen empty rows count as the table's end."""
    netdev, rows, empty = "", [], 0
    for row in range(1024):
        gid = first_line(f"{home}/gids/{row}")
        empty = empty + 1 if gid == NO_GID else 0
        if not gid or empty == 16:
            break
        if not empty:
            netdev = netdev or _interface(first_line(f"{home}/gid_attrs/ndevs/{row}"))
            if (
                gid.startswith(_IPV4_GID)
                and first_line(f"{home}/gid_attrs/types/{row}") == "RoCE v2"
            ):
                rows.append(row)
    return netdev, rows


def _interface(name: str) -> str:
    return name if _INTERFACE.fullmatch(name) else ""


def route(node: Node) -> tuple[str, str]:
    """Return another node's address and the interface towards it, or "".

    The first node asks about the second: the way to its own name may be `lo`.
    """
    name = os.environ.get("MASTER_ADDR", "")
    if name == node.name:
        name = os.environ.get("ORCH_PEER") or name
    if not name:
        return "", ""
    to = name
    if not _IPV4.fullmatch(name) and ":" not in name:
        to = "".join((_said("getent", "ahostsv4", name) or _said("getent", "ahosts", name))[:1])
    fields = _said("ip", "-o", "route", "get", to) if to and node.proc == "/proc" else []
    interface = next(
        (_interface(word) for before, word in zip(fields, fields[1:]) if before == "dev"), ""
    )
    return to, interface or _by_table(f"{node.proc}/net/route", to)


def _said(*argv: str) -> list[str]:
    """The words of the first line; [] without an answer."""
    status, text = ask(argv, 5)
    return text[:4096].partition("\n")[0].split() if status == 0 else []


def _by_table(path: str, to: str) -> str:
    """The interface of the longest matching prefix and lowest metric in /proc/net/route; without an
    IPv4 address the default route's. Numbers are hexadecimal, lowest byte first."""
    if to.startswith("127."):
        return "lo"
    address = (
        sum(int(part) << 8 * at for at, part in enumerate(to.split(".")))
        if _IPV4.fullmatch(to)
        else 0
    )
    routes = []
    for cells in map(str.split, lines(path)):
        if len(cells) > 7 and re.fullmatch(
            "[0-9A-F]{8} [0-9A-F]{8} [0-9]{1,9}", f"{cells[1]} {cells[7]} {cells[6]}"
        ):
            mask = int(cells[7], 16)
            if address & mask == int(cells[1], 16):
                routes.append((bin(mask).count("1"), -int(cells[6]), _interface(cells[0])))
    return max(routes, key=lambda entry: entry[:2])[2] if routes else ""

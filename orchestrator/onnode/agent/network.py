"""The network of one node: what is there, which values its runs get, and what is wrong. Rules and files: docs/network.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .. import environment, records
from ..events import number
from .kernel import lines, names
from .node import Node, first_line, now_ms

NODE_VARIABLES = ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
"""What the library needs a node's own answer for. All other variables are the same on every node."""
NETWORK_VARIABLES = (*NODE_VARIABLES, "NCCL_IB_DISABLE")

# Printed by the container's shell before it says that it is up. A device can be missing there because it was not passed
# (/dev/infiniband), or because the image's user library does not fit the host's driver; RCCL then uses TCP sockets and says so
# only in its log.
CONTAINER_NETWORK = r"""
tell_rdma() {
  local one
  for one in "$1"/sys/class/infiniband/*; do [ ! -e "$one" ] || echo "rdma device ${one##*/}"; done
  for one in "$1"/dev/infiniband/uverbs*; do [ ! -e "$one" ] || echo "rdma verbs ${one##*/}"; done
  echo "rdma memlock $(ulimit -l)"
  ! command -v ibv_devices >/dev/null || {
    timeout 20 ibv_devices 2>&1 | while read -r one; do echo "rdma ibv $one"; done
    echo "rdma ibv end"
  }
}
[ -z "$1" ] || tell_rdma "$2" </dev/null
"""
"""Shell text; $1: names of the ports in use, nothing is asked when it is empty; $2: prefix of /sys and /dev in rehearsals."""

_NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
_IPV4_GID = "0000:0000:0000:0000:0000:ffff:"
_IPV4 = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_INTERFACE = re.compile(r"[!-.0-~]{1,64}")
_REFUSALS = ("does not support the kernel ABI", "no userspace device-specific driver", "No IB devices found")
_MEMLOCK_KIB = 1 << 20
"""A queue pair and its buffers take some megabytes for each GPU; 64 KiB is the kernel's default."""


@dataclass
class Port:
    """One port of an RDMA device. `name` is the device's where that has one port, else DEVICE:PORT, as NCCL_IB_HCA takes it."""

    name: str
    device: str
    folder: str
    state: str
    physical: str
    layer: str
    gbps: int
    netdev: str
    gids: list[int]
    """Rows of its RoCE v2 addresses over IPv4."""
    use: str = ""

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"


# ---- what is there


def _ports(device: str, folder: str) -> list[Port]:
    found, numbers = [], names(f"{folder}/ports")
    for one in numbers:
        home = f"{folder}/ports/{one}"
        if not os.path.exists(f"{home}/state"):
            continue
        state, physical, layer, rate = (
            first_line(f"{home}/{file}")[:80] for file in ("state", "phys_state", "link_layer", "rate")
        )
        if layer == "InfiniBand":
            netdev, gids = "".join(names(f"{folder}/device/net", 1)), list[int]()
        else:
            netdev, gids = _gids(home)
        gbps = int("0" + re.split("[^0-9]", rate)[0][:6])
        name = device if len(numbers) == 1 else f"{device}:{one}"
        state, physical = (text.split(": ", 1)[-1] for text in (state, physical))
        found.append(Port(name, device, home, state, physical, layer, gbps, netdev, gids))
    return found


def _gids(home: str) -> tuple[str, list[int]]:
    """Return the interface of a port and its rows. The table fills from its start; sixteen empty rows are taken for its end."""
    netdev, rows, empty = "", [], 0
    for row in range(1024):
        gid = first_line(f"{home}/gids/{row}")
        empty = empty + 1 if gid == _NO_GID else 0
        if not gid or empty == 16:
            break
        if empty:
            continue
        netdev = netdev or _interface(first_line(f"{home}/gid_attrs/ndevs/{row}"))
        if gid.startswith(_IPV4_GID) and first_line(f"{home}/gid_attrs/types/{row}") == "RoCE v2":
            rows.append(row)
    return netdev, rows


def _interface(name: str) -> str:
    return name if _INTERFACE.fullmatch(name) else ""


def _route(node: Node) -> tuple[str, str]:
    """Return the address of another node and the interface that leads there, "" for what is not known.

    The first node looks towards the second one: the way to its own name may be `lo`.
    """
    name = to = os.environ.get("MASTER_ADDR", "")
    if name == node.name:
        name = to = os.environ.get("ORCH_PEER") or name
    if not name:
        return "", ""
    if not _IPV4.fullmatch(name) and ":" not in name:
        answer = _said("getent", "ahostsv4", name) or _said("getent", "ahosts", name)
        to = answer[0] if answer else ""
    words = _said("ip", "-o", "route", "get", to) if to and node.proc == "/proc" else []
    interface = next((_interface(word) for before, word in zip(words, words[1:]) if before == "dev"), "")
    return to, interface or _by_table(f"{node.proc}/net/route", to)


def _said(*argv: str) -> list[str]:
    """Return the words of the first line that a tool of the host prints; [] when it is missing, slow or refuses."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=5
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout[:4096].decode("utf-8", "replace").partition("\n")[0].split()


def _by_table(path: str, to: str) -> str:
    """Return the interface of the longest prefix that holds an address, the lowest metric among equals, as /proc/net/route says.

    Its numbers are hexadecimal, lowest byte first. Without an IPv4 address that is the default route.
    """
    if to.startswith("127."):
        return "lo"
    address = sum(int(part) << 8 * at for at, part in enumerate(to.split("."))) if _IPV4.fullmatch(to) else 0
    found = []
    for cells in map(str.split, lines(path)):
        if len(cells) > 7 and re.fullmatch("[0-9A-F]{8} [0-9A-F]{8} [0-9]{1,9}", f"{cells[1]} {cells[7]} {cells[6]}"):
            mask = int(cells[7], 16)
            if address & mask == int(cells[1], 16):
                found.append((bin(mask).count("1"), -int(cells[6]), _interface(cells[0])))
    return max(found, key=lambda one: one[:2])[2] if found else ""


# ---- what the user, the site and the descriptor say


def _configured(node: Node) -> tuple[dict[str, str], dict[str, str]]:
    """Return (values, origins) by variable. What is not the rendered value was edited in the bundle by its user, and what is
    passed on by name is the user's, too."""
    given = [line.partition("\t") for line in node.settings.network_origins]
    try:
        text = records.read_bytes(node.layout.environment).decode("utf-8", "surrogateescape")
    except OSError:
        text = ""
    found = environment.parse(text)
    wanted = dict.fromkeys((*NETWORK_VARIABLES, *(name for name, _, _ in given)))
    values = {name: found[name] for name in wanted if name in found}
    origins = dict.fromkeys(values, "user")
    for name, _, rest in given:
        origin, _, rendered = rest.partition("\t")
        if values.get(name) == rendered:
            origins[name] = origin
    for name in node.settings.pass_env:
        if os.environ.get(name) and name in NETWORK_VARIABLES:
            values[name], origins[name] = os.environ[name], "user"
    return {name: environment.shown(value) for name, value in values.items()}, origins


def _listed(text: str) -> list[str]:
    return [one for one in text.split(",") if one]


def takes(listed: str, name: str) -> bool:
    """Return whether the library would take `name` for a list such as NCCL_IB_HCA: names between commas are prefixes, `=` in front
    makes them whole names, `^` in front excludes them; a device may be followed by :PORT."""
    exclude = listed.startswith("^")
    exact = listed[exclude:].startswith("=")
    hit = False
    for one in _listed(listed[exclude + exact :]):
        whole = name if ":" in one else name.partition(":")[0]
        if one.endswith(":1") and ":" not in whole:  # a device with a single port goes without the number here
            one = one[:-2]
        hit = hit or whole == one or (not exact and ":" not in one and whole.startswith(one))
    return hit != exclude


def _first_taken(listed: str, interfaces: list[str]) -> str:
    """Return the first interface that a list takes, in the order of the list where that names some; "" without any."""
    if listed.startswith("^"):
        return next((name for name in interfaces if name != "lo" and takes(listed, name)), "")
    exact = "=" if listed.startswith("=") else ""
    wanted = [exact + one for one in _listed(listed[len(exact) :])]
    return next((name for one in wanted for name in interfaces if takes(one, name)), "")


class Network:
    """What a node has, what its runs get, and what is wrong. Made by `look`."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.values, self.origins = _configured(node)
        self.drivers: dict[str, str] = {}
        """By device; "" where the kernel does not tell."""
        self.ports: list[Port] = []
        self.chosen: list[Port] = []
        self.route_to = self.route = ""
        self.gid: int | None = None
        self.troubles: list[str] = []
        self.notes: list[str] = []
        self.inside: list[str] = []
        for device in names(f"{node.sys}/class/infiniband"):
            folder = f"{node.sys}/class/infiniband/{device}"
            driver = f"{folder}/device/driver"
            self.drivers[device] = os.path.basename(os.path.realpath(driver)) if os.path.isdir(driver) else ""
            self.ports += _ports(device, folder)

    @property
    def used(self) -> list[str]:
        """Names of the ports that the run uses."""
        return [port.name for port in self.chosen]

    @property
    def is_off(self) -> bool:
        settings = self.node.settings
        disabled = self.values.get("NCCL_IB_DISABLE") == "1"
        return (
            settings.network_rdma == "off"
            or disabled
            or settings.fabric in ("none", "ethernet")
            or settings.nnodes == 1
        )

    @property
    def summary(self) -> str:
        """What the loop compares between nodes: `off`, `none`, `unused`, or PORT,GB/S,LINK,GID for each port in use.

        A GID index that the user or the site gave is not compared: the node's own table does not matter then.
        """
        if self.is_off or not self.ports:
            return "off" if self.is_off else "none"
        words = []
        for port in self.chosen:
            gid = self.gid if self.gid in port.gids else next(iter(port.gids), None)
            row = "-" if gid is None or self._explicit("NCCL_IB_GID_INDEX") else gid
            words.append(f"{port.name},{port.gbps},{re.sub('[ ,]', '_', port.layer) or '-'},{row}")
        return " ".join(words) or "unused"

    def _explicit(self, name: str) -> bool:
        """Return whether the user or the site gave a value, which nothing that is detected replaces."""
        return bool(self.values.get(name)) and self.origins.get(name) in ("user", "site")

    def _detected(self, name: str, value: str) -> None:
        if value and not self._explicit(name) and name not in self.node.settings.network_removed:
            self.values[name], self.origins[name] = value, "detected"

    # ---- which devices the run uses

    def choose_devices(self) -> None:
        """Decide on the use of each port."""
        settings, listed = self.node.settings, self.values.get("NCCL_IB_HCA", "")
        named = self._explicit("NCCL_IB_HCA")
        for port in self.ports:
            fits = takes(listed, port.name) if named else self._of_the_kind(port.device)
            port.use = "used" if fits else "not named" if named else "other kind"
        self.chosen = [port for port in self.ports if port.use == "used"]
        if named:
            self._find_missing(listed)
            return
        if self.ports and not self.chosen:
            self.troubles.append(
                f"{', '.join(self.drivers)}: the driver is {next(iter(self.drivers.values())) or 'unknown'}, the fabric of "
                f"{settings.system} is {settings.fabric}; name the devices in the site's network.ib_hca to use them"
            )
            self.chosen = list(self.ports)
        self._drop_surplus()
        for port in self.chosen:
            port.use = "used"

    def _of_the_kind(self, device: str) -> bool:
        """Devices get renamed, so the driver decides; the name only where the driver is not told."""
        drivers, driver = self.node.settings.fabric_drivers, self.drivers[device]
        word, patterns = (driver, drivers) if driver else (device, self.node.settings.fabric_names)
        return not drivers or any(fnmatchcase(word, pattern) for pattern in patterns)

    def _find_missing(self, listed: str) -> None:
        exact = "=" if listed.startswith("=") else ""
        wanted = [] if listed.startswith("^") or not self.ports else _listed(listed[len(exact) :])
        missing = [one for one in wanted if not any(takes(exact + one, port.name) for port in self.ports)]
        if missing:
            self.troubles.append(
                f"{','.join(missing)}: in NCCL_IB_HCA ({self.origins['NCCL_IB_HCA']}), but not on this node, which has "
                f"{','.join(self.drivers)}"
            )

    def _drop_surplus(self) -> None:
        """Leave out the devices of the front-end network where there are more than the GPUs need: first what carries the way to the
        other nodes, then what is slower than the rest, then what is not up. A node whose NICs serve both keeps them all.

        Where it is not known how many the GPUs need, the fastest that are up are taken, and the comparison of nodes has the
        last word.
        """
        needed, fastest = self.node.settings.fabric_devices, self._fastest()
        if not fastest:  # nothing is up: that is for check_devices to tell
            return
        for reason in ("front end", "slower", "down") if needed else ("slower", "down"):
            for port in list(self.chosen):
                if len(self.chosen) <= needed:
                    return
                slower = port.active and port.gbps < fastest
                if {"front end": self._carries(port.netdev), "slower": slower, "down": not port.active}[reason]:
                    port.use = reason
                    self.chosen.remove(port)

    def _fastest(self) -> int:
        return max((port.gbps for port in self.chosen if port.active), default=0)

    def _carries(self, netdev: str) -> bool:
        """Return whether an interface is that of the route, or a part of its bond or bridge, or has it as a VLAN on it."""
        net, route = f"{self.node.sys}/class/net", self.route
        if not netdev or not route or netdev == route:
            return bool(netdev) and netdev == route
        return os.path.exists(f"{net}/{netdev}/upper_{route}") or os.path.exists(f"{net}/{route}/lower_{netdev}")

    # ---- what is wrong with them

    def check_devices(self) -> None:
        """Add what is wrong with the ports in use to `troubles`, what is only slow to `notes`."""
        settings, fastest = self.node.settings, self._fastest()
        if self.ports and len(self.chosen) < settings.fabric_devices and not self._explicit("NCCL_IB_HCA"):
            self.troubles.append(
                f"{len(self.chosen)} RDMA devices for {settings.gpus_per_node} GPUs, the fabric of {settings.system} has "
                f"{settings.fabric_devices}; if that is right here, name them in the site's network.ib_hca"
            )
        for port in self.chosen:
            self.troubles += [f"{port.name}{text}" for text in self._wrong_with(port, fastest)]
        if 0 < fastest < settings.fabric_gbps:
            fabric = f"the fabric of {settings.system} has {settings.fabric_gbps}"
            self.notes.append(f"RDMA devices run at {fastest} Gb/s, {fabric}")

    def _wrong_with(self, port: Port, fastest: int) -> list[str]:
        if not port.active:
            return [f": the port is {port.state or 'in no known state'} (physical state {port.physical or 'unknown'})"]
        found = [] if port.gbps == fastest else [f": {port.gbps} Gb/s, others {fastest}"]
        layer, index = self.node.settings.fabric_link_layer, self.values.get("NCCL_IB_GID_INDEX", "")
        if layer and port.layer != layer and not self._explicit("NCCL_IB_HCA"):
            fabric = f"the fabric of {self.node.settings.system} has {layer}"
            found.append(f": the link layer is {port.layer or 'unknown'}, {fabric}")
        if port.layer == "InfiniBand":
            return found
        if not port.netdev:
            found.append(": no network interface belongs to it")
        elif self._explicit("NCCL_IB_GID_INDEX"):
            gid = first_line(f"{port.folder}/gids/{index}") if number(index, 4) is not None else ""
            if gid in ("", _NO_GID):
                found.append(f": the GID at index {index} ({self.origins['NCCL_IB_GID_INDEX']}) is empty")
        elif not port.gids:
            advice = "give the interface an address, or set the site's network.gid_index"
            found.append(f" ({port.netdev}): it has no RoCE v2 GID over IPv4; {advice}")
        return found

    def choose_gid(self) -> None:
        """The library takes one index for all devices of a node: the one that most of them have, the lowest of equals."""
        having = Counter(row for port in self.chosen for row in port.gids)
        self.gid = max(having, key=lambda row: (having[row], -row), default=None)
        # InfiniBand has its address in row 0; a value for RoCE would point at nothing.
        if {port.layer for port in self.chosen} == {"InfiniBand"} and self.values.get("NCCL_IB_GID_INDEX"):
            self.gid = 0
        if self._explicit("NCCL_IB_GID_INDEX"):
            return
        for port in self.chosen:
            if port.gids and self.gid not in port.gids:
                rows = " ".join(map(str, port.gids))
                self.troubles.append(
                    f"{port.name}: its RoCE v2 GID over IPv4 is at index {rows}, that of other devices at {self.gid}"
                )

    def check_interfaces(self) -> None:
        """Find the way to the other nodes and the interfaces for sockets."""
        self.find_route()
        interfaces = names(f"{self.node.sys}/class/net")
        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            if self._explicit(name) and not _first_taken(self.values[name], interfaces):
                self.troubles.append(
                    f"{name}={self.values[name]} ({self.origins[name]}): this node has no such interface; it has "
                    f"{','.join(interfaces)}"
                )
        self._detected("NCCL_SOCKET_IFNAME", self.route)
        # Gloo opens a connection for every name it is given, so it gets exactly one.
        one = _first_taken(self.values.get("NCCL_SOCKET_IFNAME", ""), interfaces)
        self._detected("GLOO_SOCKET_IFNAME", one or self.route)

    def find_route(self) -> None:
        self.route_to, self.route = _route(self.node)

    def set_devices(self) -> None:
        """Give the run its devices. Names are prefixes there, so mlx5_1 alone would take mlx5_10, too."""
        listed = ",".join(self.used)
        if listed and any(port.use != "used" and takes(listed, port.name) for port in self.ports):
            listed = f"={listed}"
        self._detected("NCCL_IB_HCA", listed)
        self._detected("NCCL_IB_GID_INDEX", "" if self.gid is None else str(self.gid))

    # ---- what the run gets, and what stays in the set folder

    def _table(self) -> list[tuple[str, str, str]]:
        """Return (variable, value, origin). A variable that somebody set to nothing is taken away for the run."""
        rows = []
        for name in dict.fromkeys((*NETWORK_VARIABLES, *self.values)):
            if self.values.get(name):
                rows.append((name, self.values[name], self.origins[name]))
            elif name in self.values and name in NETWORK_VARIABLES:
                rows.append((name, "-", "unset"))
        return rows

    def exports(self) -> list[tuple[str, str | None]]:
        """Return what puts this node's own values into a run's environment: (variable, value), None where it is unset."""
        own = [row for row in self._table() if row[2] in ("detected", "unset")]
        return [(name, value if origin == "detected" else None) for name, value, origin in own]

    def record(self) -> None:
        """Write network.tsv and network.json of the node. Raises OSError."""
        table = [("variable", "value", "origin"), *self._table()]
        text = "".join("\t".join(re.sub("[\t\n]", " ", cell) for cell in row) + "\n" for row in table)
        records.write_bytes(self.node.folder / "network.tsv", text.encode("utf-8", "replace"), sync=False)
        told = json.dumps(self._json(), ensure_ascii=False) + "\n"
        records.write_bytes(self.node.folder / "network.json", told.encode("utf-8", "replace"), sync=False)

    def _json(self) -> dict[str, object]:
        set_ = {name: value for name, value in self.values.items() if value}
        return {
            "schema": 1,
            "node": self.node.name,
            "time_ms": now_ms(),
            "fabric": self.node.settings.fabric,
            "rdma": self.node.settings.network_rdma,
            "devices": [
                {
                    "port": port.name,
                    "driver": self.drivers[port.device],
                    "state": port.state,
                    "phys_state": port.physical,
                    "link_layer": port.layer,
                    "gbps": port.gbps,
                    "netdev": port.netdev,
                    "gid_indexes": port.gids,
                    "use": port.use,
                }
                for port in self.ports
            ],
            "variables": {name: {"value": value, "origin": self.origins[name]} for name, value in set_.items()},
            "troubles": self.troubles,
            "notes": self.notes,
            "container": self.inside,
            "route": {"to": self.route_to, "interface": self.route},
        }

    # ---- inside the container

    def check_inside(self, told: list[str]) -> list[str]:
        """Compare what the container told (the lines of CONTAINER_NETWORK, without `rdma ` in front) with the node.

        Return the new troubles, which are recorded, too. Little locked memory is said as a note at once.
        """
        if not self.chosen:
            return []
        before, self.inside = len(self.troubles), [line[:400] for line in told[:2000]]
        words = [(line.partition(" ")[0], line.partition(" ")[2]) for line in self.inside]
        there, opened, ibv, memlock = (
            [rest for word, rest in words if word == kind] for kind in ("device", "verbs", "ibv", "memlock")
        )
        for one in memlock[:1]:
            if one != "unlimited" and (number(one) or 0) < _MEMLOCK_KIB:
                text = f"locked memory in the container is limited to {one} KiB; RDMA may fail to register memory"
                self.node.say("note", text)
        self._compare(
            [one for one in self.drivers if one not in there],
            "on the node, but not in the container (/sys/class/infiniband)",
        )
        devices = dict.fromkeys(port.device for port in self.chosen)
        verbs = {one: names(f"{self.node.sys}/class/infiniband/{one}/device/infiniband_verbs") for one in devices}
        closed = [one for one in devices if set(verbs[one]) - set(opened)]
        self._compare(closed, "cannot be opened in the container, /dev/infiniband has no uverbs device for it")
        if "end" in ibv:
            refused = next(
                (rest.partition(" for device")[0] for rest in ibv if any(one in rest for one in _REFUSALS)), ""
            )
            listed = {rest.split()[0] for rest in ibv if rest.split()}
            why = f"ibv_devices in the container does not list it{refused and f' ({refused})'}"
            unlisted = [one for one in devices if one not in listed]
            self._compare(unlisted, f"{why}; the image's RDMA library does not fit the node's driver")
        for one in there:
            if one not in self.drivers:
                self._compare([one], "in the container, but not on the node")
        try:
            self.record()
        except OSError as error:
            self.node.log(f"cannot write {self.node.folder}/network.json: {error.strerror or error}")
        return self.troubles[before:]

    def _compare(self, devices: list[str], text: str) -> None:
        if devices:
            self.troubles.append(f"{','.join(devices)}: {text}")


def look(node: Node) -> Network:
    """Detect and decide; nothing is written. Takes tens of milliseconds, at most 15 s where names are resolved slowly."""
    found = Network(node)
    if node.settings.fabric != "none" and node.settings.nnodes > 1:
        found.check_interfaces()
    if not found.is_off:
        found.choose_devices()
        found.check_devices()
        found.choose_gid()
        found.set_devices()
    return found


def rdma_verdict(node: Node) -> tuple[str, str, str]:
    """Return (verdict, text, remedy) of the check `rdma`: the same look and the same words as before the container starts."""
    settings = node.settings
    if settings.nnodes == 1:
        return "skip", "one node: nothing between nodes", ""
    found = Network(node)
    if found.is_off:
        return "skip", f"RDMA is off, or the fabric of {settings.system} has none", ""
    if not found.ports:
        text = f"no RDMA device, the fabric of {settings.system} is {settings.fabric}"
        return "warn", text, "load the NIC's RDMA driver, or set the site's network.rdma to off"
    # Only more devices than the GPUs need make a difference who carries the way to the other nodes.
    if len(found.ports) > settings.fabric_devices:
        found.find_route()
    found.choose_devices()
    found.check_devices()
    found.choose_gid()
    troubles = found.troubles or found.notes
    if troubles:
        return "fail", "; ".join(troubles), "look at the cable, the switch port and rdma link; docs/network.md"
    fastest = max((port.gbps for port in found.chosen), default=0)
    return "pass", f"{len(found.chosen)} ports up at {fastest} Gb/s", ""

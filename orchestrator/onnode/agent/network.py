"""A node's network: devices, values for its runs, problems (docs/network.md)."""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from fnmatch import fnmatchcase
from glob import glob

from ..kernel import records
from ..kernel.events import number
from ..kernel.plural import count
from ..kernel.settings_file import shown
from ..kernel.system import first_line, names
from ..kernel.world import now_ms
from .node import Node
from .ports import NO_GID, Port, devices, route

_VARIABLES = (
    "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX",
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "NCCL_IB_DISABLE",
)
"""Variables determined per node."""

# The container's shell prints this before it reports up. A device is missing if it was not passed
# (/dev/infiniband), or if the image's user library does not fit the host's driver; RCCL then uses
# TCP sockets and only its log has it.
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
"""Shell text; $1: names of the used ports, or empty; $2: prefix of /sys and /dev in rehearsals."""

_REFUSALS = (
    "does not support the kernel ABI",
    "no userspace device-specific driver",
    "No IB devices found",
)
_LIBRARIES = ("bnxt", "ionic", "mlx5")
"""Prefixes of the kernel's drivers and their user libraries."""
_MEMLOCK_KIB = 1 << 20
"""A queue pair and its buffers take some MB per GPU; the kernel's default is 64 KiB."""


def _configured(node: Node) -> dict[str, tuple[str, str]]:
    """Return variable -> (value, origin): user, site or descriptor. Edited and passed values are
    the user's."""
    try:
        variables = node.run_variables()
    except OSError:
        variables = {}
    values = {}
    rendered = {
        name: rest
        for name, _, rest in (line.partition("\t") for line in node.settings.network_origins)
    }
    for name in dict.fromkeys((*_VARIABLES, *rendered)):
        if name in variables:
            origin, _, value = rendered.get(name, "").partition("\t")
            as_rendered = bool(origin) and value == variables[name]
            values[name] = variables[name], origin if as_rendered else "user"
    passed = [
        name for name in node.settings.pass_env if name in _VARIABLES and os.environ.get(name)
    ]
    values.update({name: (os.environ[name], "user") for name in passed})
    return {name: (shown(value), origin) for name, (value, origin) in values.items()}


def takes(listed: str, name: str) -> bool:
    """`listed`, such as NCCL_IB_HCA: prefixes between commas; `=` in front: whole names; `^`:
    excluded names; a device may have :PORT."""
    if listed.startswith("^"):
        return not takes(listed[1:], name)
    return any(_is_meant(entry, name) for entry in _parts(listed))


def _parts(listed: str) -> list[str]:
    """A list per name; an excluding list stays whole."""
    exact = "=" if listed.startswith("=") else ""
    return (
        [listed]
        if listed.startswith("^")
        else [exact + entry for entry in listed[len(exact) :].split(",") if entry]
    )


def _is_meant(entry: str, name: str) -> bool:
    bare = entry[entry.startswith("=") :]
    whole = name if ":" in bare else name.partition(":")[0]
    if bare.endswith(":1") and ":" not in whole:  # a device with a single port has no number
        bare = bare[:-2]
    return whole == bare or (
        not entry.startswith("=") and ":" not in bare and whole.startswith(bare)
    )


def _first_taken(listed: str, interfaces: list[str]) -> str:
    pairs = ((entry, name) for entry in _parts(listed) for name in interfaces if takes(entry, name))
    return next((name for entry, name in pairs if name != "lo" or not entry.startswith("^")), "")


class Network:
    """A node's devices, the values for its runs (`values`: variable -> value, origin), and its
    problems."""

    def __init__(self, node: Node) -> None:
        self.node, self.settings = node, node.settings
        self.fabric = f"the fabric of {node.settings.system}"
        self.values = _configured(node)
        self.given = {
            name
            for name, (value, origin) in self.values.items()
            if value and origin in ("user", "site")
        }
        """Variables whose value detection does not replace."""
        self.drivers, self.ports = devices(node.hardware_sys)
        off = self.settings.network_rdma == "off" or self.settings.fabric in ("none", "ethernet")
        self.is_off = off or self.settings.nnodes == 1 or self._value("NCCL_IB_DISABLE") == "1"
        self.gid: int | None = None
        self.route_to = self.route = ""
        self.troubles: list[str] = []
        self.notes: list[str] = []
        self.inside: list[str] = []

    @property
    def chosen(self) -> list[Port]:
        return [port for port in self.ports if port.use == "used"]

    @property
    def used(self) -> list[str]:
        return [port.port for port in self.chosen]

    @property
    def fastest(self) -> int:
        """Gb/s of the fastest active port, or 0."""
        return max((port.gbps for port in self.chosen if port.active), default=0)

    @property
    def summary(self) -> str:
        """The text to compare: `off`, `none`, `unused`, or PORT,GB/S,LINK,GID per used port.

        Leave out a GID index from user or site: the node's own table does not matter then.
        """
        if self.is_off or not self.ports:
            return "off" if self.is_off else "none"
        parts = []
        for port in self.chosen:
            rows = [] if "NCCL_IB_GID_INDEX" in self.given else port.gid_indexes
            row = self.gid if self.gid in rows else next(iter(rows), "-")
            parts.append(
                f"{port.port},{port.gbps},{re.sub('[ ,]', '_', port.link_layer) or '-'},{row}"
            )
        return " ".join(parts) or "unused"

    def _value(self, name: str) -> str:
        return self.values.get(name, ("", ""))[0]

    def _detected(self, name: str, value: str) -> None:
        if value and name not in self.given and name not in self.settings.network_removed:
            self.values[name] = value, "detected"

    def _say_of(self, devices_: list[str], text: str) -> None:
        if devices_:
            self.troubles.append(f"{','.join(devices_)}: {text}")

    def find_route(self) -> None:
        self.route_to, self.route = route(self.node)

    def check_interfaces(self) -> None:
        self.find_route()
        interfaces = sorted(names(f"{self.node.sys}/class/net"))
        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            if name in self.given and not _first_taken(self._value(name), interfaces):
                given = f"{name}={self._value(name)} ({self.values[name][1]})"
                self.troubles.append(
                    f"{given}: this node has no such interface; it has {','.join(interfaces)}"
                )
        self._detected("NCCL_SOCKET_IFNAME", self.route)
        # Gloo connects to every name: give it a single name.
        self._detected(
            "GLOO_SOCKET_IFNAME",
            _first_taken(self._value("NCCL_SOCKET_IFNAME"), interfaces) or self.route,
        )

    # ---- which devices the run uses

    def decide(self) -> None:
        """Choose the run's devices and GID index; errors go to `troubles`, slowness to `notes`."""
        self._choose_devices()
        # The library takes a single index for all devices: the most frequent, the lowest of equals.
        having = Counter(row for port in self.chosen for row in port.gid_indexes)
        self.gid = max(having, key=lambda row: (having[row], -row), default=None)
        # InfiniBand has its address in row 0.
        if {port.link_layer for port in self.chosen} == {"InfiniBand"} and self._value(
            "NCCL_IB_GID_INDEX"
        ):
            self.gid = 0
        self._check_devices()
        listed = ",".join(self.used)
        # Names are prefixes: mlx5_1 alone would take mlx5_10, too.
        too_much = any(port.use != "used" and takes(listed, port.port) for port in self.ports)
        self._detected("NCCL_IB_HCA", "=" + listed if too_much else listed)
        self._detected("NCCL_IB_GID_INDEX", "" if self.gid is None else str(self.gid))

    def _choose_devices(self) -> None:
        listed, given = self._value("NCCL_IB_HCA"), "NCCL_IB_HCA" in self.given
        for port in self.ports:
            fits = takes(listed, port.port) if given else self._is_of_the_kind(port)
            port.decide("used" if fits else "not named" if given else "other kind")
        if given:
            wanted = _parts(listed) if self.ports and not listed.startswith("^") else []
            missing = [
                entry.lstrip("=")
                for entry in wanted
                if not any(takes(entry, port.port) for port in self.ports)
            ]
            origin = f"in NCCL_IB_HCA ({self.values['NCCL_IB_HCA'][1]})"
            self._say_of(
                missing, f"{origin}, but not on this node, which has {','.join(self.drivers)}"
            )
            return
        if self.ports and not self.chosen:
            driver = next(iter(self.drivers.values())) or "unknown"
            kind = f"the driver is {driver}, {self.fabric} is {self.settings.fabric}"
            advice = "name the devices in the site's network.ib_hca to use them"
            self.troubles.append(f"{', '.join(self.drivers)}: {kind}; {advice}")
            for port in self.ports:
                port.decide("used")
        self._drop_surplus()

    def _is_of_the_kind(self, port: Port) -> bool:
        """By its driver (devices get renamed), else its name."""
        drivers, names_ = self.settings.fabric_drivers, self.settings.fabric_names
        word, patterns = (port.driver, drivers) if port.driver else (port.device, names_)
        return not drivers or any(fnmatchcase(word, pattern) for pattern in patterns)

    def _drop_surplus(self) -> None:
        """Leave out devices beyond the GPUs' need: first the front end, on the route to the other
        nodes, then slower, then inactive devices. NICs that serve both are kept.

        If the need is unknown, keep the fastest active devices; the comparison of nodes decides.
        """
        needed, fastest = self.settings.fabric_devices, self.fastest
        for reason in ("front end", "slower", "down") if needed else ("slower", "down"):
            for port in self.chosen:
                slower = port.active and port.gbps < fastest
                surplus = {
                    "front end": self._carries(port.netdev),
                    "slower": slower,
                    "down": not port.active,
                }[reason]
                if fastest and surplus and len(self.chosen) > needed:
                    port.decide(reason)

    def _carries(self, netdev: str) -> bool:
        """The interface is the route's, part of its bond or bridge, or has it as a VLAN."""
        if not netdev or not self.route:
            return False
        net = f"{self.node.sys}/class/net"
        parts = (f"{net}/{netdev}/upper_{self.route}", f"{net}/{self.route}/lower_{netdev}")
        return netdev == self.route or any(map(os.path.exists, parts))

    # ---- their faults

    def _check_devices(self) -> None:
        settings, used, fastest = self.settings, len(self.chosen), self.fastest
        if self.ports and used < settings.fabric_devices and "NCCL_IB_HCA" not in self.given:
            gpus = count(settings.gpus_per_node, "GPU")
            has = f"for {gpus}, {self.fabric} has {settings.fabric_devices}"
            advice = "if that is right here, name them in the site's network.ib_hca"
            self.troubles.append(f"{count(used, 'RDMA device')} {has}; {advice}")
        for port in self.chosen:
            self.troubles += [f"{port.port}{text}" for text in self._wrong_with(port, fastest)]
        if 0 < fastest < settings.fabric_gbps:
            self.notes.append(
                f"RDMA devices run at {fastest} Gb/s, {self.fabric} has {settings.fabric_gbps}"
            )

    def _wrong_with(self, port: Port, fastest: int) -> list[str]:
        if not port.active:
            physical = port.phys_state or "unknown"
            return [
                f": the port is {port.state or 'in no known state'} (physical state {physical})"
            ]
        faults = [] if port.gbps == fastest else [f": {port.gbps} Gb/s, others {fastest}"]
        layer = self.settings.fabric_link_layer
        if layer and port.link_layer != layer and "NCCL_IB_HCA" not in self.given:
            faults.append(
                f": the link layer is {port.link_layer or 'unknown'}, {self.fabric} has {layer}"
            )
        if port.link_layer == "InfiniBand":
            return faults
        if not port.netdev:
            faults.append(": no network interface belongs to it")
        elif "NCCL_IB_GID_INDEX" in self.given:
            index, origin = self.values["NCCL_IB_GID_INDEX"]
            gid = "" if number(index, 4) is None else first_line(f"{port.home}/gids/{index}")
            faults += (
                [f": the GID at index {index} ({origin}) is empty"] if gid in ("", NO_GID) else []
            )
        elif not port.gid_indexes:
            advice = "give the interface an address, or set the site's network.gid_index"
            faults.append(f" ({port.netdev}): it has no RoCE v2 GID over IPv4; {advice}")
        elif self.gid not in port.gid_indexes:
            rows = " ".join(map(str, port.gid_indexes))
            faults.append(
                f": its RoCE v2 GID over IPv4 is at index {rows}, that of other devices at "
                f"{self.gid}"
            )
        return faults

    # ---- for the run, and for the set folder

    def exports(self) -> list[tuple[str, str | None]]:
        """For a run's environment; None: unset."""
        rows = [row for row in self._table() if row[2] in ("detected", "unset")]
        return [(name, value if origin == "detected" else None) for name, value, origin in rows]

    def _table(self) -> list[tuple[str, str, str]]:
        """(variable, value, origin); an empty value unsets."""
        order = dict.fromkeys((*_VARIABLES, *self.values))
        rows = [(name, *self.values[name]) for name in order if name in self.values]
        return [
            row if row[1] else (row[0], "-", "unset")
            for row in rows
            if row[1] or row[0] in _VARIABLES
        ]

    def record(self) -> None:
        """Write network.tsv and network.json. Raises OSError."""
        rows = [("variable", "value", "origin"), *self._table()]
        table = "".join(
            "\t".join(re.sub("[\t\n]", " ", cell) for cell in row) + "\n" for row in rows
        )
        document = {
            "schema": 1,
            "node": self.node.name,
            "time_ms": now_ms(),
            "fabric": self.settings.fabric,
            "rdma": self.settings.network_rdma,
            "devices": [
                {name: value for name, value in vars(port).items() if name != "home"}
                for port in self.ports
            ],
            "variables": {
                name: {"value": value, "origin": origin}
                for name, (value, origin) in self.values.items()
                if value
            },
            "troubles": self.troubles,
            "notes": self.notes,
            "container": self.inside,
            "route": {"to": self.route_to, "interface": self.route},
        }
        for name, text in (("network.tsv", table), ("network.json", json.dumps(document) + "\n")):
            records.write_bytes(
                self.node.folder / name, text.encode("utf-8", "replace"), sync=False
            )

    # ---- inside the container

    def check_inside(self, lines: list[str]) -> list[str]:
        """Compare the container's lines of CONTAINER_NETWORK (without `rdma `) with the node.
        Return the new troubles; little locked memory is only noted."""
        if not self.chosen:
            return []
        before, self.inside = len(self.troubles), [line[:400] for line in lines[:500]]
        reported = defaultdict[str, list[str]](list)
        for line in self.inside:
            word, _, rest = line.partition(" ")
            reported[word].append(rest)
        for kib in reported["memlock"][:1]:
            if kib != "unlimited" and (number(kib) or 0) < _MEMLOCK_KIB:
                text = (
                    f"locked memory in the container is limited to {kib} KiB; RDMA may fail to "
                    "register memory"
                )
                self.node.say("note", text)
        missing = [device for device in self.drivers if device not in reported["device"]]
        self._say_of(missing, "on the node, but not in the container (/sys/class/infiniband)")
        used = list(dict.fromkeys(port.device for port in self.chosen))
        verbs = f"{self.node.hardware_sys}/class/infiniband/%s/device/infiniband_verbs"
        closed = [device for device in used if set(names(verbs % device)) - set(reported["verbs"])]
        self._say_of(
            closed, "cannot be opened in the container, /dev/infiniband has no uverbs device for it"
        )
        if "end" in reported["ibv"]:
            self._compare_listed(used, reported["ibv"])
        for device in reported["device"]:
            self._say_of(
                [device] if device not in self.drivers else [],
                "in the container, but not on the node",
            )
        try:
            self.record()
        except OSError as error:
            self.node.log(
                f"cannot write {self.node.folder}/network.json: {error.strerror or error}"
            )
        return self.troubles[before:]

    def _compare_listed(self, used: list[str], lines: list[str]) -> None:
        refused = next(
            (
                line.partition(" for device")[0]
                for line in lines
                if any(refusal in line for refusal in _REFUSALS)
            ),
            "",
        )
        listed = {line.split()[0] for line in lines if line.split()}
        text = f"ibv_devices in the container does not list it{refused and f' ({refused})'}"
        missing = [device for device in used if device not in listed]
        remedy = _own_libraries(
            os.path.dirname(self.node.hardware_sys).rstrip("/"),
            {self.drivers.get(device) or device for device in missing},
        )
        self._say_of(
            missing, f"{text}; the image's RDMA library does not fit the node's driver; {remedy}"
        )


def _own_libraries(root: str, drivers: Iterable[str]) -> str:
    """The site key that gives the container the node's RDMA libraries."""
    files = []
    for name in _LIBRARIES:
        if any(driver.startswith(name) for driver in drivers):
            for place in ("usr/lib*/libibverbs", "usr/lib*/*/libibverbs"):
                files += sorted(glob(f"{root}/{place}/lib{name}*-rdmav*.so"))
            files += sorted(glob(f"{root}/etc/libibverbs.d/{name}*.driver"))
    if not any(path.endswith(".so") for path in files):
        return (
            "install the NIC's RDMA library (/usr/lib*/libibverbs) on the node, and give it to "
            "the site's container.mounts"
        )
    return (
        "give the site container.mounts: "
        f"[{', '.join(f'{{host: {path[len(root) :]}}}' for path in files)}]"
    )


def look(node: Node) -> Network:
    """Writes nothing. Takes up to 15 s with slow name resolution."""
    network = Network(node)
    if node.settings.fabric != "none" and node.settings.nnodes > 1:
        network.check_interfaces()
    if not network.is_off:
        network.decide()
    return network


def _interfaces_up(sys: str) -> list[str]:
    net = f"{sys}/class/net"
    return [
        name
        for name in sorted(names(net))
        if os.path.exists(f"{net}/{name}/device") and first_line(f"{net}/{name}/operstate") == "up"
    ]


def rdma_verdict(node: Node) -> tuple[str, str, str]:
    """(verdict, text, remedy) of the check `rdma`, by the same rules."""
    if node.settings.nnodes == 1:
        return "skip", "one node: nothing between nodes", ""
    network = Network(node)
    if network.is_off:
        up = ",".join(_interfaces_up(node.sys))
        offer = f"; TCP sockets can use {up} (network.socket_ifname)" if "," in up else ""
        return "skip", f"RDMA is off, or {network.fabric} has none{offer}", ""
    if not network.ports:
        text = f"no RDMA device, {network.fabric} is {node.settings.fabric}"
        return "warn", text, "load the NIC's RDMA driver, or set the site's network.rdma to off"
    # The route matters only with more devices than the GPUs need.
    if len(network.ports) > node.settings.fabric_devices:
        network.find_route()
    network.decide()
    if problems := "; ".join(network.troubles or network.notes):
        return "fail", problems, "check the cable, the switch port and rdma link; docs/network.md"
    return "pass", f"{count(len(network.chosen), 'port')} up at {network.fastest} Gb/s", ""

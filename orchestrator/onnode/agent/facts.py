"""A node's hardware and software, from its kernel. Two records, without values that differ between
equal nodes (addresses, serial numbers, momentary clocks):

- facts, field=value: anything that can change time or convergence (docs/tuning.md);
- nodes/<node>/hardware.json: members of a submission's system description, named as in MLCommons'
  checker (docs/package.md).
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ..kernel import records
from ..kernel.events import number
from ..kernel.system import NIC_FIRMWARE, VBIOS, Inventory, entries, first_line, lines, names
from .node import Node, shortened

Pairs = Iterator[tuple[str, str]]
"""Name and value; "" if the kernel has none."""

_WORDS = re.compile(
    r"(?:iommu|amd_iommu|intel_iommu|pci|mitigations|isolcpus|nohz_full|numa_balancing"
    r"|transparent_hugepage|idle|amd_pstate|"
    r"intel_pstate|hugepages|default_hugepagesz)=.*|(?:amdgpu|processor|intel_idle)\..*|nosmt.*"
)
"""Kernel parameters that affect computing."""
_GPU = {
    "model": "device",
    "board": "subsystem_device",
    "product": "product_name",
    "vbios": VBIOS,
    "link_speed": "current_link_speed",
    "link_width": "current_link_width",
    "compute_partition": "current_compute_partition",
    "memory_partition": "current_memory_partition",
    "performance_level": "power_dpm_force_performance_level",
}
_PIECE_BYTES = 700
_LONGEST = 600
"""Bytes of a fact: several share a line to the loop (node.py has its length)."""
_NO_DISKS = re.compile("(?:loop|ram|zram|dm-|md|sr|fd|nbd|drbd|rbd).*")
_LINK_SPEEDS = {"16": "PCIe 4.0", "32": "PCIe 5.0", "64": "PCIe 6.0"}


def collect(node: Node, image: str, knobs: Mapping[str, str]) -> list[str]:
    """Return all readable facts. `knobs`: values by host setting."""
    host = node.inventory()
    pairs = [("image", image), *_host(host), *_gpus(host.gpus), *_nics(host.nics)]
    facts = [f"{name}={value}" for name, value in pairs if value]
    return [
        shortened(fact, _LONGEST)
        for fact in facts + [f"knob.{name}={value}" for name, value in knobs.items()]
    ]


class FactReporter:
    """Reports facts to the loop, and then their changes."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._reported: list[str] = []
        self._contents: Mapping[str, str] = {}

    def take_contents(self, contents: Mapping[str, str]) -> None:
        """Keep part -> hash at the container's start, except caches, which the first run fills."""
        self._contents = {part: sha for part, sha in contents.items() if part != "caches"}

    def report(self, image: str, knobs: Mapping[str, str]) -> None:
        """Report in pieces that fit a line."""
        facts = collect(self._node, image, knobs)
        facts += [f"inside.{part}={sha}" for part, sha in self._contents.items()]
        if facts == self._reported:
            return
        known = len(self._reported)
        is_more = known > 0 and facts[:known] == self._reported
        is_more = is_more and all(fact.startswith("inside.") for fact in facts[known:])
        self._reported = facts
        pieces, room = [list[str]()], _PIECE_BYTES
        for fact in facts[known:] if is_more else facts:
            size = len(fact.encode("utf-8", "replace")) + 1
            if size > room:
                pieces.append([])
                room = _PIECE_BYTES
            pieces[-1].append(fact)
            room -= size
        for index, piece in enumerate(pieces):
            self._node.say("facts+" if index or is_more else "facts", *piece)


def write_hardware(node: Node) -> None:
    """Errors are only logged."""
    host = node.inventory()
    parts = (
        _processors(host.sys, host.proc),
        _memory(host.sys, host.proc),
        _storage(f"{host.sys}/block"),
        _network(f"{host.sys}/class"),
        _accelerators(host.gpus),
        _software(node, host),
        _machine(host),
    )
    members = {name: value for part in parts for name, value in part if value}
    text = json.dumps({"schema": 1, "node": node.name, **members}) + "\n"
    try:
        records.write_bytes(node.folder / "hardware.json", text.encode(), sync=False)
    except OSError as error:
        node.log(f"cannot write {node.folder}/hardware.json: {error.strerror or error}")


def _processor(proc: str) -> dict[str, str]:
    """The first processor's facts; there may be hundreds."""
    paragraph = "\n".join(lines(f"{proc}/cpuinfo", 8192)).partition("\n\n")[0]
    pairs = (line.partition(":")[::2] for line in paragraph.split("\n"))
    return {name.strip(): value.strip() for name, value in pairs}


def _top_clock(gpu: str, clock: str) -> str:
    """The table's last line. A star marks the present clock."""
    table = [line for line in lines(f"{gpu}/pp_dpm_{clock}", 1 << 16) if line]
    return re.split("[ *]", table[-1].split(": ", 1)[-1])[0] if table else ""


# ---- facts


def _once(values: Iterable[str]) -> str:
    return ",".join(filter(None, dict.fromkeys(values)))


def _each(folders: list[str], file: str) -> str:
    """Distinct values; of `always [madvise] never` the word in brackets."""
    return _once(
        re.sub(r".*?\[([^]]*)\].*", r"\1", first_line(f"{folder}/{file}")) for folder in folders
    )


def _host(host: Inventory) -> Pairs:
    yield "kernel", host.kernel
    if parameters := " ".join(lines(f"{host.proc}/cmdline", 1 << 16)).split():
        yield "kernel.words", " ".join(filter(_WORDS.fullmatch, parameters)) or "none"
    processor = _processor(host.proc)
    yield "cpu", processor.get("model name", "")
    yield "cpu.microcode", processor.get("microcode", "")
    yield "bios", host.bios
    yield "host.model", host.model
    yield "rocm", host.rocm
    yield "driver", host.driver
    yield "driver.source", first_line(f"{host.sys}/module/amdgpu/srcversion")


def _gpus(gpus: list[str]) -> Pairs:
    yield "gpu.count", str(len(gpus))
    yield from ((f"gpu.{name}", _each(gpus, file)) for name, file in _GPU.items())
    yield (
        "gpu.power_cap",
        _each(
            [f"{gpu}/hwmon/{monitor}" for gpu in gpus for monitor in names(f"{gpu}/hwmon")],
            "power1_cap",
        ),
    )
    for file in names(f"{gpus[0]}/fw_version", 64) if gpus else ():
        if file.endswith("_fw_version"):
            yield f"gpu.firmware.{file[: -len('_fw_version')]}", _each(gpus, f"fw_version/{file}")
    for clock in ("sclk", "mclk"):
        yield f"gpu.max_{clock}", _once(_top_clock(gpu, clock) for gpu in gpus)


def _nics(nics: list[str]) -> Pairs:
    yield "nic.count", str(len(nics))
    for name, file in (("type", "hca_type"), ("board", "board_id"), ("firmware", NIC_FIRMWARE)):
        yield f"nic.{name}", _each(nics, file)
    ports = [f"{nic}/ports/{port}" for nic in nics for port in names(f"{nic}/ports")]
    for name in ("rate", "link_layer"):
        yield f"nic.{name}", _each(ports, name)


# ---- members of the system description


def _number(path: str) -> int:
    return max(0, number(first_line(path), 18) or 0)


def _size(size: int, base: int) -> str:
    """Bytes as GB or TB of `base` (1024: as memory is sold)."""
    whole = size // base**3
    if whole < 1000:
        return f"{(size + base**3 // 2) // base**3} GB"
    hundredths = (whole * 100 + base // 2) // base
    return f"{hundredths / 100:.2f}".rstrip("0").rstrip(".") + " TB"


def _counted(texts: list[str]) -> str:
    return ", ".join(f"{count} x {word}" for word, count in Counter(texts).items())


def _processors(sys: str, proc: str) -> Pairs:
    processor, cpu = _processor(proc), f"{sys}/devices/system/cpu"
    yield "host_processor_model_name", processor.get("model name", "")
    yield "host_processor_core_count", processor.get("cpu cores", "")
    ranges = re.findall("([0-9]{1,9})(?:-([0-9]{1,9}))?", first_line(f"{cpu}/present"))
    threads = sum(int(last or first) - int(first) + 1 for first, last in ranges)
    siblings = number(processor.get("siblings", ""), 9) or 0
    if threads > 0:
        yield "host_processor_vcpu_count", str(threads)
        yield "host_processors_per_node", str(-(-threads // siblings)) if siblings > 0 else ""
    if frequency := _number(f"{cpu}/cpu0/cpufreq/cpuinfo_max_freq"):
        yield "host_processor_frequency", f"{frequency // 1000} MHz"
    yield "host_processor_caches", ", ".join(_caches(f"{cpu}/cpu0/cache"))


def _caches(folder: str) -> Iterator[str]:
    for index in names(folder, 64):
        level, size, kind = (
            first_line(f"{folder}/{index}/{file}") for file in ("level", "size", "type")
        )
        if level and size:
            yield (
                f"L{level}{ {'Data': 'd', 'Instruction': 'i'}.get(kind, '') }: "
                f"{re.sub('K$', ' kB', size)}"
            )


def _memory(sys: str, proc: str) -> Pairs:
    """Installed memory, from memory blocks; MemTotal is less, and differs between equal nodes."""
    folder = f"{sys}/devices/system/memory"
    block = first_line(f"{folder}/block_size_bytes")
    blocks = sum(1 for name in entries(folder) if re.match("memory[0-9]", name))
    size = int(block, 16) * blocks if re.fullmatch("[0-9a-fA-F]{1,16}", block) else 0
    kib = re.match("MemTotal: *([0-9]{1,15})", first_line(f"{proc}/meminfo"))
    if not size and kib:
        # In whole 8 GB: firmware and kernel keep differing shares.
        size = (int(kib[1]) // 1024 // 8192 + 1) * 8 * 1024**3
    if size:
        yield "host_memory_capacity", _size(size, 1024)


def _storage(folder: str) -> Pairs:
    disks = [
        disk
        for disk in names(folder)
        if not _NO_DISKS.fullmatch(disk) and _number(f"{folder}/{disk}/removable") != 1
    ]
    sizes = {disk: size for disk in disks if (size := _number(f"{folder}/{disk}/size"))}
    kinds = (_kind(disk, first_line(f"{folder}/{disk}/queue/rotational")) for disk in sizes)
    yield "host_storage_type", ", ".join(dict.fromkeys(kinds))
    yield "host_storage_capacity", _counted([_size(size * 512, 1000) for size in sizes.values()])


def _kind(disk: str, rotational: str) -> str:
    if disk.startswith(("nvme", "vd", "xvd")):
        return "NVMe SSD" if disk.startswith("nvme") else "virtual disk"
    return "SSD" if rotational == "0" else "hard disk"


def _network(folder: str) -> Pairs:
    adapters = []
    for device in names(f"{folder}/infiniband"):
        home = f"{folder}/infiniband/{device}"
        kind = first_line(f"{home}/hca_type")
        for port in names(f"{home}/ports"):
            if rate := first_line(f"{home}/ports/{port}/rate").split(" ")[0]:
                layer = first_line(f"{home}/ports/{port}/link_layer") or "RDMA"
                adapters.append(f"{rate} Gb/s {layer}" + (f" ({kind})" if kind else ""))
    for device in [] if adapters else names(f"{folder}/net"):
        speed = _number(f"{folder}/net/{device}/speed")
        if speed and os.path.exists(f"{folder}/net/{device}/device"):
            adapters.append(
                f"{speed} Mb/s Ethernet" if speed % 1000 else f"{speed // 1000} Gb/s Ethernet"
            )
    yield "host_networking", _counted(adapters)


def _accelerators(gpus: list[str]) -> Pairs:
    if not gpus:
        return
    yield "accelerators_per_node", str(len(gpus))
    if memory := _number(f"{gpus[0]}/mem_info_vram_total"):  # never TB, as accelerators are sold
        yield "accelerator_memory_capacity", f"{(memory + 512 * 1024**2) // 1024**3} GB"
    speed, width = (first_line(f"{gpus[0]}/max_link_{name}") for name in ("speed", "width"))
    if speed:
        yield (
            "accelerator_host_interconnect",
            _LINK_SPEEDS.get(speed[:2], speed) + (f" x{width}" if width else ""),
        )
    if clock := re.search("([0-9]+)[Mm][Hh]z", _top_clock(gpus[0], "sclk")):
        yield "accelerator_frequency", f"{clock[1]} MHz"


def _software(node: Node, host: Inventory) -> Pairs:
    release = re.findall("(?m)^PRETTY_NAME=(.*)", "\n".join(lines(f"{host.root}/etc/os-release")))
    system = re.sub("[\"']", "", release[-1]) if release else ""
    kernel = f", kernel {host.kernel}" if host.kernel else ""
    yield "operating_system", f"{system or 'Linux'}{kernel}"
    stack = (
        [f"container image {node.settings.cont}", node.settings.engine]
        if node.settings.engine != "none"
        else []
    )
    stack += [f"ROCm {host.rocm} on the host"] if host.rocm else []
    stack += [f"amdgpu driver {host.driver}"] if host.driver else []
    yield "other_software_stack", ", ".join(stack)


def _machine(host: Inventory) -> Pairs:
    vendor = first_line(f"{host.sys}/class/dmi/id/sys_vendor")
    model = host.model if host.model.startswith(vendor) else f"{vendor} {host.model}".strip()
    bios = f"BIOS {host.bios}" if host.bios else ""
    yield "hw_notes", ", ".join(filter(None, (model, bios)))

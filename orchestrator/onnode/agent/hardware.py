"""What a node is made of, for the system description of a submission (docs/package.md): nodes/<node>/hardware.json with the
members of MLCommons' checker as text. A member counts only when all nodes of a set give it alike, so what equal nodes say
differently (serial numbers, the momentary clock) is left out."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator

from .. import records
from .facts import top_clock
from .kernel import amd_gpus, entries, lines, names
from .node import Node, first_line

_NO_DISKS = re.compile("(?:loop|ram|zram|dm-|md|sr|fd|nbd|drbd|rbd).*")
_LINK_SPEEDS = {"16": "PCIe 4.0", "32": "PCIe 5.0", "64": "PCIe 6.0"}


def write(node: Node) -> None:
    """Write hardware.json of the node. Nothing depends on it: what goes wrong is only logged."""
    try:
        told = json.dumps({"schema": 1, "node": node.name, **describe(node)}) + "\n"
        records.write_bytes(node.folder / "hardware.json", told.encode(), sync=False)
    except OSError as error:
        node.log(f"cannot write {node.folder}/hardware.json: {error.strerror or error}")


def describe(node: Node) -> dict[str, str]:
    """Return the members of the system description that this host tells, as text."""
    sys = f"{node.root}/sys" if node.sys == "/sys" else node.sys
    proc = f"{node.root}/proc" if node.proc == "/proc" else node.proc
    parts = (
        _processors(sys, proc),
        _memory(sys, proc),
        _storage(f"{sys}/block"),
        _network(f"{sys}/class"),
        _accelerators(sys),
    )
    told = [pair for part in (*parts, _software(node, sys, proc), _machine(f"{sys}/class/dmi/id")) for pair in part]
    return {name: value for name, value in told if value}


def _number(path: str) -> int:
    """Return the number in a file; 0 when it holds none."""
    text = first_line(path)
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else 0


def _size(size: int, base: int) -> str:
    """Return bytes as GB or TB of that base (1000, or 1024 as memory is sold), TB with up to two decimals."""
    if size // base**3 < 1000:
        return f"{(size + base**3 // 2) // base**3} GB"
    hundredths = (size // base**3 * 100 + base // 2) // base
    text = f"{hundredths // 100}.{hundredths % 100:02}"
    return (text[:-3] if text.endswith(".00") else text[:-1] if text.endswith("0") else text) + " TB"


def _counted(words: list[str]) -> str:
    return ", ".join(f"{count} x {word}" for word, count in Counter(words).items())


def _processors(sys: str, proc: str) -> Iterator[tuple[str, str]]:
    # One processor's paragraph is enough, and a large machine has hundreds of them.
    paragraph = "\n".join(lines(f"{proc}/cpuinfo", 8192)).partition("\n\n")[0]
    told = {
        name.strip(): value.strip()
        for name, value in (line.split(":", 1) for line in paragraph.split("\n") if ":" in line)
    }
    yield "host_processor_model_name", told.get("model name", "")
    yield "host_processor_core_count", told.get("cpu cores", "")
    cpu = f"{sys}/devices/system/cpu"
    ranges = re.findall("([0-9]{1,9})(?:-([0-9]{1,9}))?", first_line(f"{cpu}/present"))
    threads, siblings = sum(int(last or first) - int(first) + 1 for first, last in ranges), told.get("siblings", "")
    if threads > 0:
        yield "host_processor_vcpu_count", str(threads)
        if re.fullmatch("[1-9][0-9]{0,8}", siblings):
            yield "host_processors_per_node", str(-(-threads // int(siblings)))
    if frequency := _number(f"{cpu}/cpu0/cpufreq/cpuinfo_max_freq"):
        yield "host_processor_frequency", f"{frequency // 1000} MHz"
    yield "host_processor_caches", ", ".join(_caches(f"{cpu}/cpu0/cache"))


def _caches(folder: str) -> Iterator[str]:
    for index in names(folder, 64):
        level, size, kind = (first_line(f"{folder}/{index}/{file}") for file in ("level", "size", "type"))
        if level and size:
            yield f"L{level}{ {'Data': 'd', 'Instruction': 'i'}.get(kind, '') }: {re.sub('K$', ' kB', size)}"


def _memory(sys: str, proc: str) -> Iterator[tuple[str, str]]:
    """Blocks of memory, where the kernel tells them, are what is installed; MemTotal is less, and differs between equal nodes."""
    folder = f"{sys}/devices/system/memory"
    block = first_line(f"{folder}/block_size_bytes")
    blocks = sum(1 for one in entries(folder) if re.match("memory[0-9]", one))
    size = int(block, 16) * blocks if re.fullmatch("[0-9a-fA-F]{1,16}", block) else 0
    kib = re.match("MemTotal: *([0-9]{1,15})", first_line(f"{proc}/meminfo"))
    if not size and kib:
        # To whole 8 GB: what firmware and kernel keep for themselves differs.
        size = (int(kib[1]) // 1024 // 8192 + 1) * 8 * 1024**3
    if size:
        yield "host_memory_capacity", _size(size, 1024)


def _storage(folder: str) -> Iterator[tuple[str, str]]:
    disks = [
        one for one in names(folder) if not _NO_DISKS.fullmatch(one) and first_line(f"{folder}/{one}/removable") != "1"
    ]
    sizes = {one: _number(f"{folder}/{one}/size") for one in disks}
    found = {one: size for one, size in sizes.items() if size}
    yield (
        "host_storage_type",
        ", ".join(dict.fromkeys(_kind(one, first_line(f"{folder}/{one}/queue/rotational")) for one in found)),
    )
    yield "host_storage_capacity", _counted([_size(size * 512, 1000) for size in found.values()])


def _kind(disk: str, rotational: str) -> str:
    if disk.startswith(("nvme", "vd", "xvd")):
        return "NVMe SSD" if disk.startswith("nvme") else "virtual disk"
    return "SSD" if rotational == "0" else "hard disk"


def _network(folder: str) -> Iterator[tuple[str, str]]:
    found = []
    for device in names(f"{folder}/infiniband"):
        home = f"{folder}/infiniband/{device}"
        kind = first_line(f"{home}/hca_type")
        for port in names(f"{home}/ports"):
            if rate := first_line(f"{home}/ports/{port}/rate").split(" ")[0]:
                layer = first_line(f"{home}/ports/{port}/link_layer") or "RDMA"
                found.append(f"{rate} Gb/s {layer}" + (f" ({kind})" if kind else ""))
    for device in [] if found else names(f"{folder}/net"):
        speed = _number(f"{folder}/net/{device}/speed")
        if speed and os.path.exists(f"{folder}/net/{device}/device"):
            found.append(f"{speed} Mb/s Ethernet" if speed % 1000 else f"{speed // 1000} Gb/s Ethernet")
    yield "host_networking", _counted(found)


def _accelerators(sys: str) -> Iterator[tuple[str, str]]:
    gpus = amd_gpus(sys)
    if not gpus:
        return
    yield "accelerators_per_node", str(len(gpus))
    if memory := _number(f"{gpus[0]}/mem_info_vram_total"):  # never TB, as accelerators are sold
        yield "accelerator_memory_capacity", f"{(memory + 512 * 1024**2) // 1024**3} GB"
    speed, width = first_line(f"{gpus[0]}/max_link_speed"), first_line(f"{gpus[0]}/max_link_width")
    if speed:
        yield "accelerator_host_interconnect", _LINK_SPEEDS.get(speed[:2], speed) + (f" x{width}" if width else "")
    if clock := re.search("([0-9]+)[Mm][Hh]z", top_clock(f"{gpus[0]}/pp_dpm_sclk")):
        yield "accelerator_frequency", f"{clock[1]} MHz"


def _software(node: Node, sys: str, proc: str) -> Iterator[tuple[str, str]]:
    release = [
        line[len("PRETTY_NAME=") :] for line in lines(f"{node.root}/etc/os-release") if line.startswith("PRETTY_NAME=")
    ]
    system = re.sub("[\"']", "", release[-1]) if release else ""
    kernel = first_line(f"{proc}/sys/kernel/osrelease")
    yield "operating_system", (system or "Linux") + (f", kernel {kernel}" if kernel else "")
    rocm, driver = first_line(f"{node.root}/opt/rocm/.info/version"), first_line(f"{sys}/module/amdgpu/version")
    stack = [f"container image {node.settings.cont}", node.settings.engine] if node.settings.engine != "none" else []
    stack += [f"ROCm {rocm} on the host"] if rocm else []
    yield "other_software_stack", ", ".join(stack + ([f"amdgpu driver {driver}"] if driver else []))


def _machine(folder: str) -> Iterator[tuple[str, str]]:
    vendor, product, bios = (first_line(f"{folder}/{file}") for file in ("sys_vendor", "product_name", "bios_version"))
    model = product if product.startswith(vendor) else f"{vendor} {product}".strip()
    yield "hw_notes", ", ".join(filter(None, (model, f"BIOS {bios}" if bios else "")))

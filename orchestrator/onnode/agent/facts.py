"""What can move time or convergence on a node, as field=value (docs/tuning.md). What differs between equal nodes (addresses, serial
numbers, the momentary clock) is no fact here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from .kernel import amd_gpus, entries, lines, names
from .node import Node, first_line, shortened

_WORDS = re.compile(
    r"(?:iommu|amd_iommu|intel_iommu|pci|mitigations|isolcpus|nohz_full|numa_balancing|transparent_hugepage|idle|amd_pstate|"
    r"intel_pstate|hugepages|default_hugepagesz)=.*|(?:amdgpu|processor|intel_idle)\..*|nosmt.*"
)
"""Words of the kernel's command line that change how the machine computes; others name disks and consoles."""
_GPU = {
    "model": "device",
    "board": "subsystem_device",
    "product": "product_name",
    "vbios": "vbios_version",
    "link_speed": "current_link_speed",
    "link_width": "current_link_width",
    "compute_partition": "current_compute_partition",
    "memory_partition": "current_memory_partition",
    "performance_level": "power_dpm_force_performance_level",
}
_LONGEST = 600
"""Bytes of one fact: several go into a line that srun keeps whole."""


def collect(node: Node, image: str, knobs: Mapping[str, str]) -> list[str]:
    """Return the facts of a node. `knobs`: what was found, by the name of the knob. What cannot be read is left out."""
    told = [
        ("image", image),
        *_host(node.root),
        *_gpus(f"{node.root}/sys"),
        *_nics(f"{node.root}/sys/class/infiniband"),
    ]
    facts = [f"{name}={value}" for name, value in told if value]
    return [shortened(one, _LONGEST) for one in facts + [f"knob.{name}={value}" for name, value in knobs.items()]]


def _each(paths: list[str]) -> str:
    """Return the values of files, each once, with commas between them; of `always [madvise] never` the word in brackets."""
    values = (re.sub(r".*?\[([^]]*)\].*", r"\1", first_line(path)) for path in paths)
    return ",".join(value for value in dict.fromkeys(values) if value)


def _host(root: str) -> Iterator[tuple[str, str]]:
    yield "kernel", first_line(f"{root}/proc/sys/kernel/osrelease")
    if words := " ".join(lines(f"{root}/proc/cmdline", 1 << 16)).split():
        yield "kernel.words", " ".join(filter(_WORDS.fullmatch, words)) or "none"
    processor = dict(line.partition(":")[::2] for line in reversed(lines(f"{root}/proc/cpuinfo", 1024)[:12]))
    told = {name.strip(): value.strip() for name, value in processor.items()}
    yield "cpu", told.get("model name", "")
    yield "cpu.microcode", told.get("microcode", "")
    yield "bios", first_line(f"{root}/sys/class/dmi/id/bios_version")
    yield "host.model", first_line(f"{root}/sys/class/dmi/id/product_name")
    yield "rocm", first_line(f"{root}/opt/rocm/.info/version")
    yield "driver", first_line(f"{root}/sys/module/amdgpu/version")
    yield "driver.source", first_line(f"{root}/sys/module/amdgpu/srcversion")


def _gpus(sys: str) -> Iterator[tuple[str, str]]:
    gpus = amd_gpus(sys)
    yield "gpu.count", str(len(gpus))
    for name, file in _GPU.items():
        yield f"gpu.{name}", _each([f"{gpu}/{file}" for gpu in gpus])
    caps = [f"{gpu}/hwmon/{one}/power1_cap" for gpu in gpus for one in sorted(entries(f"{gpu}/hwmon"))]
    yield "gpu.power_cap", _each(caps)
    for file in names(f"{gpus[0]}/fw_version", 64) if gpus else ():
        if file.endswith("_fw_version"):
            yield f"gpu.firmware.{file[: -len('_fw_version')]}", _each([f"{gpu}/fw_version/{file}" for gpu in gpus])
    for clock in ("sclk", "mclk"):
        yield (
            f"gpu.max_{clock}",
            ",".join(dict.fromkeys(filter(None, (top_clock(f"{gpu}/pp_dpm_{clock}") for gpu in gpus)))),
        )


def top_clock(path: str) -> str:
    """Return the highest clock of a GPU's table: the last line's. A star marks the momentary one."""
    table = [line for line in lines(path, 1 << 16) if line]
    return re.split("[ *]", table[-1].split(": ", 1)[-1])[0] if table else ""


def _nics(folder: str) -> Iterator[tuple[str, str]]:
    nics = [f"{folder}/{one}" for one in names(folder)]
    yield "nic.count", str(len(nics))
    for name, file in (("type", "hca_type"), ("board", "board_id"), ("firmware", "fw_ver")):
        yield f"nic.{name}", _each([f"{nic}/{file}" for nic in nics])
    ports = [f"{nic}/ports/{port}" for nic in nics for port in names(f"{nic}/ports")]
    for name in ("rate", "link_layer"):
        yield f"nic.{name}", _each([f"{port}/{name}" for port in ports])

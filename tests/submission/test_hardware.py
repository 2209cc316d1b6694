"""What a node writes about itself, and that the system description is made of it."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

from orchestrator.evidence.hardware import captured
from orchestrator.evidence.sets import SetEvidence
from orchestrator.onnode.agent.facts import write_hardware
from orchestrator.onnode.agent.node import Node
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.settings import Settings
from orchestrator.submission.description import MEMBERS, describe


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def a_machine(root: Path) -> Path:
    """A server with two processors, 8 accelerators, 8 NICs and 9 disks, as the kernel shows it."""
    processor = "processor\t: {}\nmodel name\t: AMD EPYC 9575F 64-Core Processor\nsiblings\t: 128\ncpu cores\t: 64\n\n"
    pci = "sys/bus/pci/drivers/amdgpu/0000:{:02x}:00.0"
    files = {
        "proc/cpuinfo": "".join(processor.format(index) for index in range(256)),
        "proc/meminfo": "MemTotal:       3170524160 kB\n",
        "proc/sys/kernel/osrelease": "5.15.0-157-generic\n",
        "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.4 LTS"\n',
        "opt/rocm/.info/version": "7.2.2\n",
        "sys/devices/system/cpu/present": "0-255\n",
        "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "5008984\n",
        "sys/devices/system/memory/block_size_bytes": "80000000\n",
        "sys/class/dmi/id/sys_vendor": "Supermicro\n",
        "sys/class/dmi/id/product_name": 'AS -8126GS-TNMR "A"\n',
        "sys/block/loop0/size": "8\n",
        "sys/module/amdgpu/version": "6.16.6\n",
    }
    for index, (level, kind, size) in enumerate(
        (("1", "Data", "48K"), ("2", "Unified", "1024K"), ("3", "Unified", "32768K"))
    ):
        cache = f"sys/devices/system/cpu/cpu0/cache/index{index}"
        files |= {f"{cache}/level": level, f"{cache}/type": kind, f"{cache}/size": size}
    for index in range(1536):
        files[f"sys/devices/system/memory/memory{index}/state"] = "online\n"
    for index in range(8):
        files |= {
            f"{pci.format(index)}/mem_info_vram_total": str(256 << 30),
            f"{pci.format(index)}/max_link_speed": "32.0 GT/s PCIe\n",
            f"{pci.format(index)}/max_link_width": "16\n",
            f"{pci.format(index)}/pp_dpm_sclk": "0: 500Mhz *\n1: 2100Mhz\n",
            f"sys/class/infiniband/rdma{index}/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            f"sys/class/infiniband/rdma{index}/ports/1/link_layer": "Ethernet\n",
            f"sys/class/infiniband/rdma{index}/hca_type": "MT4129\n",
            f"sys/block/nvme{index}n1/size": str(3_840_755_982_336 // 512),
            f"sys/block/nvme{index}n1/queue/rotational": "0\n",
        }
    files |= {
        "sys/block/sda/size": str(960_197_124_096 // 512),
        "sys/block/sda/queue/rotational": "0\n",
    }
    write(root, files)
    return root


def settings() -> Settings:
    """Settings that are empty but for the container's."""
    empty = {
        item.name: {"int": 0, "str": ""}.get(str(item.type), ())
        for item in fields(Settings)
        if item.name != "data"
    }
    return Settings(**{**empty, "engine": "docker", "cont": "rocm/amd-mlperf:flux1_training_6.0"})  # type: ignore[arg-type]


def a_node(root: Path, set_dir: Path, name: str = "n1") -> Node:
    layout = Layout(set_dir)
    layout.node(name).mkdir(parents=True)
    return Node(
        name, settings(), set_dir, layout, "1", str(root), "/sys", "/proc", "/dev", "/run", "/tmp"
    )


def hardware(root: Path, set_dir: Path, name: str = "n1") -> Path:
    node = a_node(root, set_dir, name)
    write_hardware(node)
    return node.folder / "hardware.json"


def test_a_node_says_what_it_is_made_of(tmp_path: Path) -> None:
    path = hardware(a_machine(tmp_path / "root"), tmp_path / "set")
    told = json.loads(path.read_text())
    assert (told.pop("schema"), told.pop("node")) == (1, "n1")
    assert set(told) <= set(MEMBERS)
    assert told == {
        "host_processor_model_name": "AMD EPYC 9575F 64-Core Processor",
        "host_processor_core_count": "64",
        "host_processor_vcpu_count": "256",
        "host_processors_per_node": "2",
        "host_processor_frequency": "5008 MHz",
        "host_processor_caches": "L1d: 48 kB, L2: 1024 kB, L3: 32768 kB",
        "host_memory_capacity": "3 TB",
        "host_storage_type": "NVMe SSD, SSD",
        "host_storage_capacity": "8 x 3.84 TB, 1 x 960 GB",
        "host_networking": "8 x 400 Gb/s Ethernet (MT4129)",
        "accelerators_per_node": "8",
        "accelerator_memory_capacity": "256 GB",
        "accelerator_host_interconnect": "PCIe 5.0 x16",
        "accelerator_frequency": "2100 MHz",
        "operating_system": "Ubuntu 24.04.4 LTS, kernel 5.15.0-157-generic",
        "other_software_stack": "container image rocm/amd-mlperf:flux1_training_6.0, docker, ROCm 7.2.2 on the host, "
        "amdgpu driver 6.16.6",
        "hw_notes": 'Supermicro AS -8126GS-TNMR "A"',
    }


def test_the_description_takes_what_all_nodes_say(tmp_path: Path) -> None:
    root = a_machine(tmp_path / "root")
    hardware(root, tmp_path / "set", "n1")
    (root / "sys/block/sda/size").write_text("100\n")
    hardware(root, tmp_path / "set", "n2")
    assert "host_storage_capacity" not in captured(SetEvidence(tmp_path / "set"), MEMBERS)
    described = {"system": "MI325X_08x08x32", "nodes": 2, "gpus_per_node": 8}
    made, catalogued = describe(described, tmp_path / "set", {"submitter": "AMD"}, {})
    assert (
        made["host_processor_vcpu_count"] == "256" and made["host_storage_type"] == "NVMe SSD, SSD"
    )
    assert (
        made["host_memory_capacity"] == "3 TB"
        and made["accelerator_model_name"] == "AMD Instinct MI325X"
    )
    assert "accelerator_model_name" in catalogued
    assert not {"host_memory_capacity", "number_of_nodes", "cooling"} & {*catalogued}


def test_a_node_that_tells_nothing_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    told = json.loads(hardware(tmp_path / "root", tmp_path / "set").read_text())
    assert set(told) == {"schema", "node", "operating_system", "other_software_stack"}

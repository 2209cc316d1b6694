"""The facts of a node, from trees that look like its /proc and /sys."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest

from orchestrator.onnode.agent import gpu
from orchestrator.onnode.agent.facts import collect
from orchestrator.onnode.agent.network import Network
from orchestrator.onnode.agent.node import Node, own_name
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.settings import Settings

GPUS = "sys/bus/pci/drivers/amdgpu"


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


def a_node(root: Path) -> Node:
    empty = {
        item.name: {"int": 0, "str": ""}.get(str(item.type), ())
        for item in fields(Settings)
        if item.name != "data"
    }
    return Node(
        "n1",
        Settings(**empty),
        root,
        Layout(root),
        "1",
        str(root),
        "/sys",
        "/proc",
        "/dev",
        "/run",
        "/tmp",
    )  # type: ignore[arg-type]


def facts(root: Path, files: dict[str, str], **knobs: str) -> dict[str, str]:
    put(root, files)
    return dict(one.split("=", 1) for one in collect(a_node(root), "sha256:1", knobs))


def test_a_host_without_anything_has_no_devices(tmp_path: Path) -> None:
    assert facts(tmp_path, {}) == {"image": "sha256:1", "gpu.count": "0", "nic.count": "0"}


def test_only_words_that_change_how_the_machine_computes(tmp_path: Path) -> None:
    words = "BOOT_IMAGE=/v root=/dev/sda1 iommu=pt quiet nosmt=force amdgpu.noretry=0 xiommu=1 mitigations=off console=tty0"
    found = facts(tmp_path, {"proc/cmdline": words, "proc/sys/kernel/osrelease": "6.8.0"})
    assert found["kernel.words"] == "iommu=pt nosmt=force amdgpu.noretry=0 mitigations=off"
    assert found["kernel"] == "6.8.0"
    assert facts(tmp_path, {"proc/cmdline": "root=/dev/sda1"})["kernel.words"] == "none"


def test_the_processor_is_that_of_the_first_paragraph(tmp_path: Path) -> None:
    found = facts(
        tmp_path,
        {
            "proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC: 9575F\nmicrocode\t: 0xb0\nflags\t\t: a b"
        },
    )
    assert (found["cpu"], found["cpu.microcode"]) == ("AMD EPYC: 9575F", "0xb0")


def test_values_of_several_devices_once_each_in_their_order(tmp_path: Path) -> None:
    files = {}
    for number, address in enumerate(("05", "0a", "26")):
        gpu = f"{GPUS}/0000:{address}:00.0"
        files |= {
            f"{gpu}/device": "0x74a5",
            f"{gpu}/vbios_version": f"113-{2 - number // 2}",
            f"{gpu}/power_dpm_force_performance_level": "auto [high] low",
            f"{gpu}/fw_version/smc_fw_version": "0x1",
            f"{gpu}/hwmon/hwmon{number}/power1_cap": "750",
            f"{gpu}/pp_dpm_sclk": f"0: 132Mhz *\n1: 2{number // 2}00Mhz",
        }
    for number in (9, 10):
        nic = f"sys/class/infiniband/mlx5_{number}"
        files |= {f"{nic}/fw_ver": f"28.{number}", f"{nic}/ports/1/rate": "400 Gb/sec (4X NDR)"}
    assert facts(tmp_path, {**files, f"{GPUS}/new_id": ""}, thp="always", gone="") == {
        "image": "sha256:1",
        "gpu.count": "3",
        "gpu.model": "0x74a5",
        "gpu.vbios": "113-2,113-1",
        "gpu.performance_level": "high",
        "gpu.power_cap": "750",
        "gpu.firmware.smc": "0x1",
        "gpu.max_sclk": "2000Mhz,2100Mhz",
        "nic.count": "2",
        "nic.firmware": "28.9,28.10",
        "nic.rate": "400 Gb/sec (4X NDR)",
        "knob.thp": "always",
        "knob.gone": "",
    }


def test_a_fact_is_one_short_line(tmp_path: Path) -> None:
    found = facts(tmp_path, {"opt/rocm/.info/version": "7\t2 " + "x" * 9999})
    assert found["rocm"].startswith("7 2 x") and len(found["rocm"]) == 600 - len("rocm=")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"ORCH_NODE": "local1", "SLURMD_NODENAME": "n7"}, "local1"),
        ({"SLURMD_NODENAME": "n7"}, "n7"),
        ({}, os.uname().nodename.split(".")[0]),
    ],
)
def test_the_name_of_a_node_is_that_of_its_step(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], name: str
) -> None:
    for variable in ("ORCH_NODE", "SLURMD_NODENAME"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    assert own_name() == name


def test_a_folder_that_replaces_sys_or_proc_wins_over_the_root(tmp_path: Path) -> None:
    """For facts, hardware and checks alike."""
    put(tmp_path, {"sys/module/amdgpu/version": "6.1", "proc/sys/kernel/osrelease": "6.8.0"})
    put(tmp_path / "other", {"module/amdgpu/version": "6.2", "sys/kernel/osrelease": "6.9.0"})
    node, other = a_node(tmp_path), str(tmp_path / "other")
    assert (node.inventory().driver, node.inventory().kernel) == ("6.1", "6.8.0")
    node = node._replace(sys=other, proc=other)
    assert (node.inventory().driver, node.inventory().kernel) == ("6.2", "6.9.0")
    assert {"driver=6.2", "kernel=6.9.0"} <= set(collect(node, "sha256:1", {}))


def test_of_other_hardware_the_processes_and_interfaces_are_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPUs and RDMA devices are those of the root that stands for the hardware; processes on GPUs
    go with the pids of /proc."""
    port = "sys/class/infiniband/mlx5_0/ports/1"
    put(tmp_path, {f"{port}/state": "4: ACTIVE", f"{port}/rate": "400 Gb/sec (4X NDR)"})
    put(tmp_path, {"sys/class/kfd/kfd/proc/77/vram_1": "1"})
    node, asked = a_node(tmp_path), list[str]()
    assert Network(node).drivers == {"mlx5_0": ""}
    monkeypatch.setattr(gpu, "names", lambda folder: asked.append(folder) or [])
    monkeypatch.setattr(gpu.os.path, "isdir", lambda path: asked.append(path) or True)
    rows = list(gpu.processes(node, gpu.Smi(node)))
    assert asked == ["/sys/class/kfd/kfd/proc"] * 2
    assert [row[:2] for row in rows] == [("gpu_processes", "pass")]


def test_an_inventory_reads_a_value_once_and_the_next_reads_anew(tmp_path: Path) -> None:
    node, version = a_node(tmp_path), "sys/module/amdgpu/version"
    put(tmp_path, {version: "6.1"})
    before = node.inventory()
    assert before.driver == "6.1"
    put(tmp_path, {version: "6.2"})
    assert (before.driver, node.inventory().driver) == ("6.1", "6.2")

"""Facts of the system: kernel files, programs within a time limit, live processes.
Bounded, decoded with replacement, never an exception."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from .files import PathLike

MAX_BYTES = 4 << 20
"""Most output of a program."""


def entries(folder: str) -> list[str]:
    """[] if unreadable."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def names(folder: str, most: int = 1024) -> list[str]:
    """Return printable names, mlx5_10 after mlx5_9."""
    return sorted(
        (name for name in entries(folder) if name.isprintable() and " " not in name), key=_natural
    )[:most]


def _natural(name: str) -> list[str]:
    return [
        part.zfill(20) if index % 2 else part
        for index, part in enumerate(re.split("([0-9]+)", name))
    ]


def lines(path: str, limit: int = 1 << 18) -> list[str]:
    """Return the lines of the first `limit` bytes; [] if unreadable."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace").split("\n")
    except OSError:
        return []


def first_line(path: PathLike) -> str:
    """Return the stripped first line; "" if unreadable."""
    try:
        with open(path, "rb") as file:
            return file.readline(4096).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def amd_gpus(sys: str) -> list[str]:
    """Return amdgpu's device folders, by PCI address."""
    driver = f"{sys}/bus/pci/drivers/amdgpu"
    addresses = filter(
        re.compile("[0-9a-f]+:[0-9a-f]+:[0-9a-f]+[.][0-9a-f]+").fullmatch, entries(driver)
    )
    return [
        f"{driver}/{address}"
        for address in sorted(
            addresses, key=lambda address: [int(n, 16) for n in re.split("[:.]", address)]
        )
    ]


class Inventory:
    """Versions and devices of the host with these file systems; unknown: ""."""

    def __init__(self, root: str, sys: str, proc: str) -> None:
        self.kernel = first_line(f"{proc}/sys/kernel/osrelease")
        self.driver = first_line(f"{sys}/module/amdgpu/version")
        self.rocm = first_line(f"{root}/opt/rocm/.info/version")
        self.bios = first_line(f"{sys}/class/dmi/id/bios_version")
        self.model = first_line(f"{sys}/class/dmi/id/product_name")
        self.gpus = amd_gpus(sys)
        self.nics = [f"{sys}/class/infiniband/{nic}" for nic in names(f"{sys}/class/infiniband")]

    def gpu_versions(self) -> list[str]:
        return [first_line(f"{gpu}/vbios_version") for gpu in self.gpus]

    def nic_versions(self) -> list[str]:
        return [first_line(f"{nic}/fw_ver") for nic in self.nics]


def ask(argv: Sequence[str], seconds: float, *, errors: bool = False) -> tuple[int, str]:
    """Run a program without input; return exit status and output, with standard error if `errors`.

    The status is negative after `seconds`, 127 if it cannot start. Output goes to memory: a pipe
    would wait for orphaned children.
    """
    import signal
    import subprocess  # `status` and `score` import this module and start nothing

    with os.fdopen(os.memfd_create("answer"), "rb") as answer:
        streams: dict[str, Any] = {
            "stdout": answer,
            "stderr": answer if errors else subprocess.DEVNULL,
        }
        try:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, **streams)
        except (OSError, ValueError) as error:
            return 127, str(error)
        for limit in (seconds, 0.2):  # a process stuck in the kernel is not awaited
            try:
                process.wait(limit)
                break
            except subprocess.TimeoutExpired:
                process.kill()
        status = -signal.SIGKILL if process.returncode is None else process.returncode
        return status, os.pread(answer.fileno(), MAX_BYTES, 0).decode("utf-8", "replace")


def process_start(pid: int) -> str:
    """Return clock ticks since boot, against recycled pids; "" if dead or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().decode("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]

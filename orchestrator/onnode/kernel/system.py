"""Facts of the system: kernel files, programs within a time limit, live processes.
Bounded, decoded with replacement, never an exception."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .files import PathLike

MAX_BYTES = 4 << 20
"""Most output of a program."""
VBIOS, NIC_FIRMWARE = "vbios_version", "fw_ver"
"""Files of a GPU, of a NIC."""


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


def _first_line_of(path: str) -> cached_property[str]:
    return cached_property(lambda host: first_line(path.format_map(vars(host))))


class Inventory:
    """Versions and devices of the host with these file systems, each read once. Unknown: ""."""

    kernel = _first_line_of("{proc}/sys/kernel/osrelease")
    driver = _first_line_of("{sys}/module/amdgpu/version")
    rocm = _first_line_of("{root}/opt/rocm/.info/version")
    bios = _first_line_of("{sys}/class/dmi/id/bios_version")
    model = _first_line_of("{sys}/class/dmi/id/product_name")

    def __init__(self, root: str, sys: str, proc: str) -> None:
        self.root, self.sys, self.proc = root, sys, proc

    @cached_property
    def gpus(self) -> list[str]:
        return amd_gpus(self.sys)

    @cached_property
    def nics(self) -> list[str]:
        folder = f"{self.sys}/class/infiniband"
        return [f"{folder}/{nic}" for nic in names(folder)]

    def gpu_versions(self) -> list[str]:
        return [first_line(f"{gpu}/{VBIOS}") for gpu in self.gpus]

    def nic_versions(self) -> list[str]:
        return [first_line(f"{nic}/{NIC_FIRMWARE}") for nic in self.nics]


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
        for limit in (seconds, 0.2):  # root's (sudo), or stuck in the kernel, is left
            try:
                process.wait(limit)
                break
            except subprocess.TimeoutExpired:
                with contextlib.suppress(PermissionError):
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

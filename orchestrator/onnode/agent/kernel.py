"""What the kernel shows in /sys and /proc. It is data of the host: bounded, decoded with replacement, never an exception."""

from __future__ import annotations

import os
import re


def entries(folder: str) -> list[str]:
    """Return the names in a folder as they come; [] when it cannot be listed."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def names(folder: str, most: int = 1024) -> list[str]:
    """Return at most so many names in a folder, mlx5_10 behind mlx5_9; without those that are no printable word."""
    return sorted((one for one in entries(folder) if one.isprintable() and " " not in one), key=_natural)[:most]


def _natural(name: str) -> list[str]:
    return [part.zfill(20) if index % 2 else part for index, part in enumerate(re.split("([0-9]+)", name))]


def lines(path: str, limit: int = 1 << 18) -> list[str]:
    """Return the lines of the first `limit` bytes of a file; [] when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace").split("\n")
    except OSError:
        return []


def amd_gpus(sys: str) -> list[str]:
    """Return the folders of the devices of the amdgpu driver, by PCI address (0000:0a:00.0 behind 0000:05:00.0)."""
    driver = f"{sys}/bus/pci/drivers/amdgpu"
    addresses = filter(re.compile("[0-9a-f]+:[0-9a-f]+:[0-9a-f]+[.][0-9a-f]+").fullmatch, entries(driver))
    return [f"{driver}/{one}" for one in sorted(addresses, key=lambda one: [int(n, 16) for n in re.split("[:.]", one)])]

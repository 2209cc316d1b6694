"""Versions of an image's software, from file names and package metadata."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from orchestrator.inspection.tree import ImageTree

_METADATA = re.compile(r"/([A-Za-z0-9_.+-]+?)-([0-9][^/-]*)(?:-[^/]*)?\.(?:dist|egg)-info(?:/|$)")
_PYTHON = re.compile(r"/(?:bin|lib)/python(3\.\d+)(?:/|$)")
_ROCM = re.compile(r"/opt/rocm-(\d+\.\d+\.\d+)(?:/|$)")
_RCCL = re.compile(r"/librccl\.so\.(\d+(?:\.\d+)+)$")
_PROVIDER = re.compile(r"/libibverbs/lib([a-z0-9_]+)-rdmav(\d+)\.so$")
_VERBS = re.compile(r"/libibverbs\.so\.(\d+\.\d+\.[\d.]+)$")
_OS = re.compile(r'^PRETTY_NAME="?([^"\n]*)', re.MULTILINE)


@dataclass(frozen=True)
class Software:
    """Versions; "" if missing or unknown."""

    os: str = ""
    python: str = ""
    torch: str = ""
    rocm: str = ""
    rccl: str = ""
    verbs: str = ""
    """Of libibverbs."""
    providers: dict[str, str] = field(default_factory=dict)
    """RDMA provider -> the ABI number of its file name."""
    packages: dict[str, str] = field(default_factory=dict)
    """Python package -> version."""


def software(tree: ImageTree) -> Software:
    packages: dict[str, str] = {}
    providers: dict[str, str] = {}
    pythons: set[str] = set()
    libraries = {"rocm": "", "rccl": "", "verbs": ""}
    for file in tree:
        path = file.path
        if match := _METADATA.search(path):
            packages[match[1].lower().replace("_", "-")] = match[2]
        elif match := _PROVIDER.search(path):
            providers[match[1]] = match[2]
        for name, pattern in (("rocm", _ROCM), ("rccl", _RCCL), ("verbs", _VERBS)):
            if match := pattern.search(path):
                libraries[name] = max(libraries[name], match[1], key=_order)
        if match := _PYTHON.search(path):
            pythons.add(match[1])
    rocm = libraries["rocm"] or _first_line(tree.text("/opt/rocm/.info/version"))
    return Software(
        os=_pretty(tree.text("/etc/os-release")),
        python=max(pythons, key=_order, default=""),
        torch=packages.get("torch", ""),
        rocm=rocm,
        rccl=libraries["rccl"],
        verbs=libraries["verbs"],
        providers=dict(sorted(providers.items())),
        packages=dict(sorted(packages.items())),
    )


def _order(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _pretty(text: str | None) -> str:
    match = _OS.search(text or "")
    return match[1] if match else ""

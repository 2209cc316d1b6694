"""The stand-ins of the published images as folders, as lab/standins/image makes them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
STANDINS = TOP / "lab" / "standins"
PROGRAMS = (
    *("bash", "sh", "python3", "torchrun", "grep", "tee", "date", "hostname", "mkdir", "rm", "cat"),
    *("head", "seq", "ls", "dirname", "sed", "tr", "sort", "sleep", "touch", "rmdir", "basename"),
)


@dataclass(frozen=True)
class StandIn:
    """A stand-in, and an entry that runs in the real image."""

    name: str
    folders: tuple[str, ...]
    system: str
    workload: str
    round: str


STAND_INS = {
    one.name: one
    for one in (
        StandIn("flux1-amd", ("flux1-amd",), "MI325X_08x08x32", "flux1", "6.0"),
        StandIn("flux1-oracle", ("flux1-oracle",), "MI300X_64x08x16", "flux1", "6.0"),
        StandIn("llama2-nemo-5.0", ("llama2-nemo",), "MI300X_1x8x1", "llama2_70b_lora", "5.0"),
        StandIn("llama2-nemo-5.1", ("llama2-nemo",), "MI300X_1x8x1", "llama2_70b_lora", "5.1"),
        StandIn("llama2-cisco", ("llama2-cisco",), "MI350X_2x8x1", "llama2_70b_lora", "6.0"),
        StandIn("llama2-primus", ("llama2-primus",), "MI355X_1x8x1", "llama2_70b_lora", "6.0"),
        StandIn("llama31-nemo", ("llama31-nemo",), "MI355X_1x8x1", "llama31_8b", "5.1"),
        StandIn("llama31-primus", ("llama31-primus",), "MI355X_1x8x1", "llama31_8b", "6.0"),
        StandIn(
            "llama31-primus-early", ("llama31-primus-early",), "MI350X_1x8x1", "llama31_8b", "6.0"
        ),
        StandIn(
            "llmboost-5.0", ("llmboost", "llmboost-5.0"), "MI300X_2x8x1", "llama2_70b_lora", "5.0"
        ),
        StandIn(
            "llmboost-5.1", ("llmboost", "llmboost-5.1"), "MI300X_2x8x1", "llama2_70b_lora", "5.1"
        ),
    )
}


def make_root(stand_in: StandIn, folder: Path) -> Path:
    """Make the file system of a stand-in's image below `folder`."""
    for name in stand_in.folders:
        shutil.copytree(STANDINS / "images" / name, folder, dirs_exist_ok=True)
    shutil.copytree(STANDINS / "program", folder / "opt/standin", dirs_exist_ok=True)
    shutil.copytree(TOP / "workloads/builtin/training", folder / "opt/standin/training")
    shutil.copy(STANDINS / "quick/llama2/hooks.sh", folder / "opt/standin/hooks.sh")
    programs = folder / "usr/bin"
    programs.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        path = programs / name
        path.write_bytes(b"\x7fELF")
        path.chmod(0o755)
    return folder

"""A fake node for the checks of the agent: its /sys, its tools, its settings."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import select
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from until import LIMIT_S

from orchestrator.onnode.agent import reach
from orchestrator.onnode.agent.checks import Checks
from orchestrator.onnode.agent.node import Node as RealNode
from orchestrator.onnode.agent.node import this_node
from orchestrator.onnode.kernel.program import Program
from orchestrator.onnode.kernel.settings import Settings
from orchestrator.onnode.policy.check_names import CHECKS

FIXTURES = Path(__file__).resolve().parent / "fixtures"
NAMES = tuple(name for name in CHECKS if name != "deep")
"""The checks of a single node."""
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max open files            {nofile:<20} 1048576              files
Max locked memory         {memlock:<20} unlimited            bytes
"""


@dataclass(frozen=True)
class Row:
    verdict: str
    ms: int
    text: str
    remedy: str

    @property
    def line(self) -> str:
        return f"{self.verdict}: {self.text}"


@dataclass
class Answer:
    rows: dict[str, Row]
    same: list[str]
    lines: list[str]
    errors: str


@dataclass
class Node:
    """A node of a job with all its folders in `top`; only programs are those of the machine."""

    top: Path
    settings: dict[str, Any] = field(default_factory=dict)
    alone: bool = True
    """No container follows."""
    hung: tuple[str, ...] = ()
    """Checks that never end: only they reach the limit."""

    def __post_init__(self) -> None:
        for name in ("sys", "dev/shm", "bin", "run", "logs", "tmp", "data/train", "nodes/n1"):
            (self.top / name).mkdir(parents=True)
        (self.top / "data/train/part-0.tar").write_text("samples")
        self.limits(nofile="1048576", memlock="unlimited")
        self.settings = {
            "ORCH_NODE": "n1",
            "ORCH_CHANNELS": self.top / "tmp",
            "ORCH_SET_DIR": self.top,
            "ORCH_JOB_ID": "7",
            "ENGINE": "docker",
            "ENGINE_COMMAND": ["docker"],
            "ENGINE_STATE": "up",
            "IMAGE_ID": "sha256:0123456789abcdef",
            "CONT": "rocm/training:6.0",
            "PULL": "never",
            "CODE_SOURCE": "",
            "DATADIR": self.top / "data",
            "MOUNTS": ["DATADIR\t.\t/data\tro"],
            "CONTAINER_OPTIONS": [],
            "GPUS_PER_NODE": 8,
            "GPU_MODEL": "MI300X",
            "GPU_GFX": "gfx942",
            "SYSTEM": "MI300X_2x8x1",
            "WORKLOAD": "flux1",
            "FABRIC": "none",
            "FABRIC_DRIVERS": ["mlx5_core"],
            "FABRIC_NAMES": [],
            "FABRIC_GBPS": 400,
            "FABRIC_DEVICES": 2,
            "FABRIC_LINK_LAYER": "InfiniBand",
            "NETWORK_RDMA": "required",
            "NETWORK_ORIGINS": [],
            "NETWORK_REMOVED": [],
            "PASS_ENV": [],
            "NNODES": 2,
            "SUDO": [],
            "LOGDIR": self.top / "logs",
            "PREFLIGHT_SKIP": [],
            "PREFLIGHT_WARN": [],
            "PREFLIGHT_CHECK_S": LIMIT_S,
            "PREFLIGHT_FREE_GB": 0,
            "ORCH_MARKER": self.top / "logs/.marker",
            "ORCH_MARKER_TEXT": "job 7",
            "ORCH_SYS_ROOT": self.top / "sys",
            "ORCH_PROC_ROOT": self.top / "proc",
            "ORCH_DEV_ROOT": self.top / "dev",
            "ORCH_RUN_ROOT": self.top / "run",
            "ORCH_TUNABLES_ROOT": self.top,
            "ORCH_SMI_PATH": self.top / "bin",
            "ORCH_ENGINE_STORAGE": self.top / "docker",
        } | self.settings
        self.write("logs/.marker", "job 7\n")
        self.tool("docker", "exit 0")

    def write(self, name: str, text: str) -> Path:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def channel(self, job: str) -> Path:
        return self.top / f"tmp/orch-{os.getuid()}-{job}-n1"

    def limits(self, nofile: str, memlock: str) -> None:
        self.write("proc/self/limits", LIMITS.format(nofile=nofile, memlock=memlock))

    def tool(self, name: str, script: str) -> None:
        self.write(f"bin/{name}", f"#!/bin/bash\n{script}\n").chmod(0o755)

    def amd_smi(self, **outputs: Any) -> None:
        """An amd-smi with the outputs of its commands (static, metric, ...)."""
        cases = []
        for command, output in outputs.items():
            text = output if isinstance(output, str) else json.dumps(output, indent=4)
            cases.append(
                f"{command}) cat {shlex.quote(str(self.write(f'bin/{command}.json', text)))} ;;"
            )
        self.tool(
            "amd-smi",
            "case $1 in "
            + " ".join(cases)
            + ' *) echo "amd-smi: error: invalid choice: $1"; exit 2 ;; esac',
        )

    def rocm_smi(self, version: str, *, processes: str = "", before: str = "") -> None:
        """A rocm-smi of this version; with --showpids it runs `processes`."""
        script = f"echo '{before}'\n" if before else ""
        script += f"[[ $* != *showpids* ]] || {{ {processes}; exit; }}\n" if processes else ""
        self.tool("rocm-smi", f"{script}cat {FIXTURES}/rocm-smi-{version}.json")

    def driver(self, gpus: int = 8, device: int = 0x74A1, links: int = 7) -> None:
        """The files of amdgpu and amdkfd for idle MI300X GPUs and two processors."""
        kfd = "sys/class/kfd/kfd/topology/nodes"
        for number in range(2):
            self.write(f"{kfd}/{number}/gpu_id", "0\n")
        for number in range(gpus):
            folder = f"{kfd}/{number + 2}"
            self.write(f"{folder}/gpu_id", f"{28851 + number}\n")
            self.write(
                f"{folder}/properties",
                "cpu_cores_count 0\nvendor_id 4098\n"
                f"device_id {device}\ngfx_target_version 90402\n",
            )
            for link in range(links):
                self.write(f"{folder}/io_links/{link}/properties", "type 11\nversion_major 0\n")
            pci = f"sys/bus/pci/drivers/amdgpu/0000:{number + 5:02x}:00.0"
            self.write(f"{pci}/device", f"0x{device:04x}\n")
            self.write(f"{pci}/mem_info_vram_total", f"{196592 << 20}\n")
            self.write(f"{pci}/mem_info_vram_used", f"{297 << 20}\n")
            for block in ("umc", "gfx", "xgmi_wafl"):
                self.write(f"{pci}/ras/{block}_err_count", "ue: 0\nce: 0\nde: 0\n")
        (self.top / "sys/class/kfd/kfd/proc").mkdir(parents=True, exist_ok=True)

    def kfd_process(self, pid: int, name: str, bytes_used: int) -> None:
        self.write(f"sys/class/kfd/kfd/proc/{pid}/vram_28851", f"{bytes_used}\n")
        self.write(f"proc/{pid}/comm", f"{name}\n")

    def port(self, name: str, state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)") -> None:
        folder = f"sys/class/infiniband/{name}/ports/1"
        for file, text in {
            "state": state,
            "phys_state": "5: LinkUp",
            "link_layer": "InfiniBand",
            "rate": rate,
        }.items():
            self.write(f"{folder}/{file}", text + "\n")
        driver = self.top / "sys/bus/pci/drivers/mlx5_core"
        driver.mkdir(parents=True, exist_ok=True)
        device = self.top / f"sys/class/infiniband/{name}/device"
        device.mkdir(exist_ok=True)
        if not (device / "driver").exists():
            (device / "driver").symlink_to(driver)

    @property
    def env(self) -> dict[str, str]:
        """The environment of the agent."""
        own = {
            name: str(value) for name, value in self.settings.items() if name.startswith("ORCH_")
        }
        return {**os.environ, **own, "PATH": f"{self.top / 'bin'}:{os.environ['PATH']}"}

    def real(self) -> RealNode:
        """The node as the agent has it, inside `with node.environment()`."""
        values: dict[str, Any] = {
            item.name: {"int": 0, "str": "", "tuple[str, ...]": ()}.get(str(item.type))
            for item in fields(Settings)
        }
        for name in values.keys() & {name.lower() for name in self.settings}:
            value = self.settings[name.upper()]
            values[name] = (
                tuple(map(str, value)) if isinstance(value, list) else type(values[name])(value)
            )
        values["data"] = {"DATADIR": str(self.settings["DATADIR"])}
        return this_node(Program({}), Settings(**values))

    @property
    def engine(self) -> Any:
        return SimpleNamespace(
            state=self.settings["ENGINE_STATE"], image_id=self.settings["IMAGE_ID"], problem=""
        )

    @contextmanager
    def environment(self) -> Iterator[None]:
        before = dict(os.environ)
        os.environ.update(self.env)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def output_of_checks(self) -> list[str]:
        """In a process of its own."""
        reach.LIMIT_S = LIMIT_S  # PREFLIGHT_CHECK_S alone limits it
        with self.environment(), captured() as lines:
            end = time.monotonic() + LIMIT_S
            checks = Checks(self.real(), self.engine, alone=self.alone)
            while not checks.done:
                said = {line.split("\t")[2].split("\x1f")[0] for line in lines()}
                late = said.issuperset(set(NAMES) - set(self.hung))
                rest_s = checks.rest_s()
                if (left := rest_s if late else end - time.monotonic()) <= 0:
                    break
                if select.select([checks], [], [], min(left, 1))[0]:
                    checks.read()
            checks.finish()
            return lines()

    def check(self, **settings: Any) -> Answer:
        """Run all checks with changed settings."""
        self.settings |= settings
        lines = small_process().submit(Node.output_of_checks, self).result()
        rows, same = {}, []
        assert lines[-1].startswith("checked\tn1\t")
        for line in lines[:-1]:
            word, node, detail = line.split("\t")
            assert node == "n1"
            if word == "same":
                same.append(detail)
            else:
                name, verdict, ms, text, remedy = detail.split("\x1f")
                assert word == "check" and name not in rows
                rows[name] = Row(verdict, int(ms), text, remedy)
        assert set(rows) == set(NAMES)
        log = self.top / "nodes/n1/hold.log"
        return Answer(rows, same, lines, log.read_text() if log.exists() else "")


@cache
def small_process() -> ProcessPoolExecutor:
    """The process of the checks, which fork sixteen times: forks of a test process are slow."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("forkserver"))


@contextmanager
def captured() -> Iterator[Callable[[], list[str]]]:
    """Capture standard output; calling the value returns its lines so far."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(1)
        os.dup2(file.fileno(), 1)

        def lines() -> list[str]:
            return os.pread(file.fileno(), 1 << 20, 0).decode().splitlines()

        try:
            yield lines
        finally:
            os.dup2(before, 1)
            os.close(before)


def recorded(name: str) -> Any:
    """A recorded output, without the text before the JSON."""
    match = re.search(r"^[\[{]", (FIXTURES / name).read_text(), re.MULTILINE)
    assert match is not None
    return json.loads(match.string[match.start() :])


def repeated(
    entry: dict[str, Any], count: int = 8, **changes: dict[int, Any]
) -> list[dict[str, Any]]:
    """`count` GPUs like a recorded one; `changes` has members of single GPUs."""
    entries = [{**json.loads(json.dumps(entry)), "gpu": number} for number in range(count)]
    for member, values in changes.items():
        for number, value in values.items():
            entries[number][member] = {**entries[number][member], **value}
    return entries

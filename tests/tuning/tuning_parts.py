"""A host in a folder: its /proc and /sys, its tools, and the script of a profile on it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from orchestrator.tuning.profile import TuningProfile, load_profile, profile_script
from orchestrator.tuning.rows import HostState, SettingRow, parse_rows, parse_status

TOP = Path(__file__).resolve().parents[2]
# A file of the kernel that nobody can write: a value written to it does not hold.
STUBBORN = Path("/proc/sys/kernel/ngroups_max")


def fill(root: Path, *, cpus: int = 4, gpus: int = 2, files: Mapping[str, str] = {}) -> Path:
    """Make the files of a host below `root`. `files` adds to or replaces them."""
    made = {
        "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 iommu=pt amd_iommu=on quiet\n",
        "proc/meminfo": "MemTotal: 1000 kB\nBuffers: 10 kB\nCached: 500 kB\n"
        "Shmem: 100 kB\nSReclaimable: 40 kB\n",
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 9575F 64-Core Processor\n"
        "microcode\t: 0xb002116\n",
        "proc/sys/kernel/osrelease": "6.8.0-60-generic\n",
        "proc/sys/kernel/nmi_watchdog": "1\n",
        "proc/sys/kernel/numa_balancing": "1\n",
        "proc/sys/kernel/randomize_va_space": "2\n",
        "proc/sys/vm/drop_caches": "0\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "madvise\n",
        "sys/kernel/mm/transparent_hugepage/defrag": "madvise\n",
        "sys/module/amdgpu/version": "6.12.12\n",
        "sys/class/dmi/id/bios_version": "1.4\n",
        **{f"sys/devices/system/node/node{k}/cpulist": f"{k}\n" for k in range(2)},
    }
    for k in range(cpus):
        cpu = f"sys/devices/system/cpu/cpu{k}"
        made |= {
            f"{cpu}/cpuidle/state2/disable": "0\n",
            f"{cpu}/topology/physical_package_id": f"{k % 2}\n",
            f"{cpu}/cpufreq/scaling_governor": "schedutil\n" if k % 2 else "powersave\n",
        }
    for k in range(gpus):
        gpu = f"sys/bus/pci/drivers/amdgpu/0000:{k + 5:02x}:00.0"
        made |= {
            f"{gpu}/current_link_speed": "32.0 GT/s PCIe\n",
            f"{gpu}/current_link_width": "16\n",
            f"{gpu}/device": "0x74a5\n",
            f"{gpu}/current_compute_partition": "SPX\n",
            f"{gpu}/current_memory_partition": "NPS1\n",
            f"{gpu}/power_dpm_force_performance_level": "auto\n",
            f"{gpu}/vbios_version": "113-M3250102-100\n",
            f"{gpu}/fw_version/smc_fw_version": "0x00557101\n",
            f"{gpu}/pp_dpm_sclk": "0: 132Mhz *\n1: 2100Mhz\n",
        }
    for name, text in {**made, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def snapshot(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


class Host:
    """A fake host and the script on it. The default owner is the test's own process."""

    def __init__(
        self, folder: Path, profile: str | TuningProfile = "recommended", **shape: object
    ) -> None:
        self.root, self.state, self.bin = folder / "root", folder / "state", folder / "bin"
        self.bin.mkdir(parents=True)
        fill(self.root, **shape)  # type: ignore[arg-type]
        self.script = folder / "runtime_tunables.sh"
        loaded = load_profile(profile) if isinstance(profile, str) else profile
        self.script.write_bytes(profile_script(loaded))
        self.tool("modprobe", "exit 1")
        self.before = snapshot(self.root)

    def tool(self, name: str, text: str) -> None:
        """Add a program; $ROOT is the host's file system, and bin/calls lists its calls."""
        path = self.bin / f".{name}.new"
        path.write_text(
            f'#!/bin/bash\nROOT={self.root}\necho "{name} $*" >>{self.bin}/calls\n{text}\n'
        )
        path.chmod(0o755)
        path.replace(self.bin / name)  # a watchdog may be starting the old one

    def calls(self) -> list[str]:
        path = self.bin / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def env(self, **more: str) -> dict[str, str]:
        return {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "ORCH_TUNABLES_ROOT": str(self.root),
            "ORCH_TUNABLES_STATE": str(self.state),
            "ORCH_OWNER_PID": str(os.getpid()),
            "ORCH_LEASE_S": "1",
            **more,
        }

    def run(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", self.script, *arguments],
            env=self.env(**more),
            text=True,
            capture_output=True,
            timeout=300,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def rows(self, *arguments: str, status: int = 0, **more: str) -> dict[str, SettingRow]:
        """Run an action; return its rows by setting, for reverted files the last."""
        answer = self.run(*arguments, **more)
        assert answer.returncode == status, answer.stdout + answer.stderr
        return {row.knob: row for row in parse_rows(answer.stdout.splitlines())}

    def status(self) -> HostState:
        return parse_status(self.run("status").stdout.splitlines())

    def read(self, name: str) -> str:
        return (self.root / name).read_text().strip()

    def revert(self, owner: str = "job") -> None:
        """Revert as the last owner: everything is as before."""
        self.rows("revert", owner)
        assert self.is_as_before

    @property
    def is_as_before(self) -> bool:
        return snapshot(self.root) == self.before and not self.state.exists()


def journal_names(host: Host) -> list[str]:
    """The settings in the journal of remembered values, without its first and last line."""
    lines = (host.state / "journal").read_text().splitlines()
    return [line.split("\t")[1] for line in lines[1:-1]]


def processes(*arguments: str, **environment: str) -> list[int]:
    """Processes with these words in their command line and these variables in their environment."""
    result = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        wanted = {f"{name}={text}".encode() for name, text in environment.items()}
        if all(word.encode() in line for word in arguments) and wanted <= set(variables):
            result.append(int(folder.name))
    return result


def watchdogs(state: Path) -> list[int]:
    """Watchdogs of this state folder. Each leads a session; its children do not."""
    pids = processes("orchestrator_tunables_watchdog", str(state))
    return [pid for pid in pids if leads_a_session(pid)]


def leads_a_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:  # it ended meanwhile
        return False


def loops(bundle: Path, job: str, slurm_conf: str) -> list[int]:
    """The loops of a job. Other clusters have the same job numbers."""
    return processes(f"{bundle}/lib", "loop", SLURM_JOB_ID=job, SLURM_CONF=slurm_conf)


def channels_of(agents: Collection[int], channels: Path = Path("/tmp")) -> list[Path]:
    """The folders that these agents share with their containers."""
    result = []
    for path in channels.glob("orch-*/hold_pid"):
        with suppress(OSError):  # another job's, which ends
            if path.read_text().split()[:1] in [[str(pid)] for pid in agents]:
                result.append(path.parent)
    return result

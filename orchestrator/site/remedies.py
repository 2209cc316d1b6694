"""The command for a failed check: it fixes the problem, or shows it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from shlex import join, quote
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.errors import Fix
from orchestrator.model.prerequisites import DATA, find_data, name_folders, unnamed_folders
from orchestrator.nodes.names import fold
from orchestrator.onnode.policy.verdict import Row
from orchestrator.scheduler import advice
from orchestrator.scheduler.kinds import kind_of
from orchestrator.site.site_file import yaml_value

if TYPE_CHECKING:
    from orchestrator.model import Entry
    from orchestrator.model.prerequisites import UnmetNeed
    from orchestrator.nodes.names import NamedNode

    RunOn = Callable[[Sequence[str], str], str]
    """(nodes, a shell's command) -> the command to type here."""

ON_NODE = {
    "deep": "rdma link; ibv_devinfo -l",
    "engine": "{engine} info",
    "free_space": "df -h; {engine} system df",
    "gpu_count": "sudo dmesg | grep -i amdgpu | tail -n 20",
    "gpu_errors": "amd-smi metric --ecc-blocks",
    "gpu_links": "amd-smi xgmi --link-status",
    "gpu_memory": "sudo fuser -v /dev/kfd; amd-smi metric --mem-usage",
    "gpu_model": "amd-smi static --asic || rocm-smi --showproductname",
    "gpu_processes": "sudo fuser -v /dev/kfd",
    "leftovers": (
        "ls -ld /tmp/orch-* /dev/shm/orch-*; {engine} ps --all --filter label=orchestrator.job"
    ),
    "limits": 'grep -E "locked memory|open files" /proc/self/limits',
    "log_dir": "ls -ld {log_dir}; df -h {log_dir}",
    "rdma": "rdma link; ibv_devinfo -l",
    "root": "sudo -n -l",
    "versions": (
        "grep -s . /sys/module/amdgpu/version /opt/rocm/.info/version "
        "/sys/class/infiniband/*/fw_ver; uname -r"
    ),
}
"""Check -> a shell's command that shows the problem on its node."""
FIX_ON_NODE = {"clock": "sudo chronyc makestep || sudo systemctl restart systemd-timesyncd"}
"""Check -> a shell's command that fixes it there."""
DRIVER = "lspci -d 1002:; sudo modprobe amdgpu"
"""Without a driver no GPU can be checked: are there any, and why is it not loaded?"""
DRAINED = {"gpu_errors": "GPU errors", "gpu_links": "GPU links"}
"""Check -> why Slurm gives its node no jobs until a repair."""
ULIMITS = {
    "locked memory": "--ulimit=memlock=-1",
    "open files": "--ulimit=nofile=1048576",
}
"""Words of the check `limits` -> option of the container."""
_MISSING_FOLDER = re.compile(r"(\w+): (/\S+) does not exist")
"""In the text of `data`: a variable and its folder."""
_HOST = re.compile(r"([\w.-]+(?::\d+)?) \(")
"""In the text of `reach`: a host and its use."""


def through_slurm(partition: str | None) -> RunOn:
    return lambda nodes, command: advice.run_on(nodes, command, partition)


def on_this_host(nodes: Sequence[str], command: str) -> str:
    return command


def over_ssh(hosts: Sequence[NamedNode], config: str | None = None) -> RunOn:
    """Return a way to the first of several nodes: the others have the same problem."""
    addresses = {host.name: host.address for host in hosts}
    options = ["-F", config] if config else []
    return lambda nodes, command: join(
        ["ssh", *options, addresses.get(nodes[0]) or nodes[0], command]
    )


class Remedies(NamedTuple):
    """Commands for an entry's checks. `names`: SYSTEM, WORKLOAD and the options of both, as typed
    after `doctor`."""

    entry: Entry
    names: Sequence[str]
    run_on: RunOn

    def of_need(self, need: UnmetNeed) -> tuple[str, str]:
        """Return text and command, or "". A command that names the data needs no advice."""
        is_plain = need.check == DATA and need.fix and not need.fix.other
        text = need.text if is_plain or not need.remedy else f"{need.text}; {need.remedy}"
        return text, self._line(need.fix) if need.fix else ""

    def with_command(self, row: Row, nodes: Sequence[str] = ()) -> Row:
        """Replace the row's advice by a command for its node, or for all `nodes`; the advice joins
        the text."""
        if row.verdict not in ("warn", "fail"):
            return row
        unnamed = unnamed_folders(self.entry, os.environ)
        if row.check == "data" and row.text.endswith(" is not set") and unnamed:
            text, fix = self.of_need(name_folders(self.entry.workload, unnamed))
            return replace(row, text=text, remedy=fix)
        nodes = nodes or [row.node]
        command, shows = self._here(row, nodes), False
        if not command and (there := self._fix_there(row)):
            command = self.run_on(nodes, there)
        if not command and row.check == "data" and not row.unchecked:
            command, shows = join(["orchestrator", "prepare", *self.names[1:], "--check"]), True
        if not command and (there := self._look_there(row)):
            command, shows = self.run_on(nodes, there), True
        pulled_by_hand = row.check == "image" and self.entry.container.pull == "never"
        advised = "" if pulled_by_hand or row.remedy in command else row.remedy
        text = "; ".join(filter(None, (row.text, advised)))
        return replace(row, text=text, remedy=command, shows=shows)

    def _line(self, fix: Fix) -> str:
        """Return a command: values that `submit` would override go into the site file, which is
        checked here; a fix starts no job."""
        values = [word for value in fix.options[1::2] for word in ("--set", value)]
        steps = [Fix(other=fix.first).line(self.names)] if fix.first and values else []
        if values:
            fix = Fix(first=("config", *values))
        return " && ".join([*steps, fix.line(["doctor", *self.names])])

    def _here(self, row: Row, nodes: Sequence[str]) -> str:
        entry = self.entry
        if row.unchecked:
            return ""
        allocates = kind_of(entry.site.scheduler).allocates
        if allocates and row.check in DRAINED and row.verdict == "fail":
            return advice.drain_node(fold(nodes), DRAINED[row.check])
        if row.check == "image":
            steps = (*(["build"] if entry.build else []), "pull", "distribute")
            return " && ".join(
                join(["orchestrator", "images", step, *self.names]) for step in steps
            )
        if row.check == "data" and (missing := _MISSING_FOLDER.search(row.text)):
            return self._line(find_data(entry.site, entry.workload, *missing.groups()))
        if row.check == "engine" and "private to jobs" in row.text:
            return self.set_key("container.channel_dir", "/var/tmp")
        options = [option for text, option in ULIMITS.items() if text in row.text]
        if row.check == "limits" and entry.container.engine != "none":
            return self.set_key("container.options", [*entry.site.container.options, *options])
        if row.check == "engine" and "userns-remap" in row.text:
            options = [*entry.site.container.options, "--userns=host"]
            return self.set_key("container.options", options)
        return ""

    def set_key(self, key: str, value: object) -> str:
        return self._line(Fix(other=("config", "--set", f"{key}={yaml_value(value)}")))

    def _fix_there(self, row: Row) -> str:
        """Return a command that fixes the problem on the row's node, or ""."""
        if row.unchecked:
            return DRIVER if row.check.startswith("gpu_") else ""
        if row.check == "gpu_count" and "split into partitions" in row.text:
            return "sudo amd-smi set --compute-partition SPX"
        if row.check == "engine" and self.entry.container.engine == "docker":
            return f"{self._engine} info || sudo systemctl start docker"
        return FIX_ON_NODE.get(row.check, "")

    def _look_there(self, row: Row) -> str:
        """Return a command that shows the problem on the row's node, or ""."""
        if row.unchecked:
            return ""
        if row.check == "reach":
            host = _HOST.search(row.text)
            return f"curl --head --max-time 5 https://{host[1]}" if host else ""
        parts = ON_NODE.get(row.check, "").split("; ")
        has_engine = self.entry.container.engine != "none"
        kept = [part for part in parts if has_engine or "{engine}" not in part]
        log_dir = quote(self.entry.site.log_dir or "/")
        return "; ".join(kept).format(engine=self._engine, log_dir=log_dir)

    @property
    def _engine(self) -> str:
        container = self.entry.container
        return join(container.command or (container.engine,))

"""A site file's content: from Slurm, from one node, and from the user."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.errors import (
    DescriptorError,
    SchedulerError,
    SchedulerUnknown,
    SetError,
    UsageError,
    did_you_mean,
)
from orchestrator.model.sites import site_of
from orchestrator.model.source import Document, Problem
from orchestrator.resources import user_path
from orchestrator.scheduler import advice, slurm_site
from orchestrator.scheduler.kinds import kind_of
from orchestrator.scheduler.slurm_nodes import node_states
from orchestrator.scheduler.slurm_site import Partition
from orchestrator.site.data_folders import Folders, asked_folders, given_folders
from orchestrator.site.look import NodeLook, look
from orchestrator.words import count, quoted

Ask = Callable[[str, str], str]
"""(question, default) -> answer; --yes returns the default."""
MOST_NAMED = 8


@dataclass
class SiteDraft:
    """Values of a site file, and remarks for its user."""

    values: dict[str, Any] = field(default_factory=dict)
    remarks: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    node: str = ""

    def put(self, key: str, value: object, *remarks: str) -> None:
        """Set `section.key` or `key`."""
        section, _, name = key.rpartition(".")
        (self.values.setdefault(section, {}) if section else self.values)[name] = value
        self.remark(key, *remarks)

    def remark(self, key: str, *remarks: str) -> None:
        self.remarks.setdefault(key, []).extend(text for text in remarks if text)


@dataclass(frozen=True, slots=True)
class Wishes:
    """Values of the command line; "" or None if missing."""

    scheduler: str = ""
    partition: str = ""
    account: str = ""
    log_dir: str = ""
    name: str = ""
    data: tuple[tuple[str, str], ...] = ()
    """(WORKLOAD or WORKLOAD.VARIABLE, folder)."""


def find(wishes: Wishes, ask: Ask, progress: Callable[[str], None]) -> SiteDraft:
    """Raises SchedulerUnknown if Slurm does not answer, UsageError for impossible wishes, SetError
    if no folder for the sets is writable."""
    draft = SiteDraft()
    draft.put("kind", "site")
    data = given_folders(wishes.data)  # bad names first
    name = wishes.name or "my-cluster"
    check_values({"name": name, "data": data})
    partitions = _slurm(wishes)
    draft.put("name", name)
    draft.put("scheduler", "local" if partitions is None else "slurm")
    options = None if partitions is None else _partition(draft, partitions, wishes, ask)
    seen = _log_dir(draft, wishes, ask, progress, options)
    _data(draft, data or asked_folders(ask))
    if seen.report:
        draft.node = seen.node
        _engine(draft, seen)
        _network(draft, seen)
        _gpus(draft, seen)
    else:
        draft.notes.append(
            f"no node was checked: {seen.problem}; its engine, GPUs and network are not known"
        )
    return draft


def check_values(values: Mapping[str, Any]) -> None:
    """Raise UsageError, with the options of wrong values."""
    document = Document(Path("site"), {"log_dir": "/", **values})
    try:
        site_of(document, [])
    except DescriptorError as error:
        raise UsageError("\n".join(map(_with_option, document.problems))) from error


def _with_option(problem: Problem) -> str:
    key, _, below = problem.key.partition(".")
    if key not in Wishes.__slots__:
        return f"{problem.key}: {problem.text}"
    return " ".join(filter(None, (f"--{key.replace('_', '-')}", below))) + f": {problem.text}"


def _slurm(wishes: Wishes) -> list[Partition] | None:
    if kind_of(wishes.scheduler).runs_here:
        return None
    try:
        return slurm_site.partitions()
    except SchedulerUnknown as error:
        error.advise("without Slurm: --scheduler local")
        raise
    except SchedulerError as error:
        is_here = error.returncode is not None  # it refuses
        if not is_here and not kind_of(wishes.scheduler).allocates:
            return None
        error.advise("without Slurm: --scheduler local")
        raise


# ---- Slurm ----


def _partition(
    draft: SiteDraft, partitions: list[Partition], wishes: Wishes, ask: Ask
) -> list[str]:
    """Set the values for jobs; return them as Slurm options."""
    partition = _chosen(partitions, wishes, ask)
    others = [
        f"{other.name}: {other.description}" for other in partitions if other.name != partition.name
    ]
    draft.put(
        "partition",
        partition.name,
        f"{partition.name}: {partition.description}.",
        *_some("There are also", others),
    )
    if partition.longest:
        draft.remark("time_limit", f"Partition {partition.name} allows {partition.limit} at most.")
    if not partition.gpus:
        draft.put(
            "gpu_request", "none", f"Slurm shows no GPUs (GRES) in partition {partition.name}."
        )
    options = [f"--partition={partition.name}"]
    accounts = slurm_site.accounts(getpass.getuser())
    account = wishes.account or (_asked(ask, "account", accounts) if len(accounts) > 1 else "")
    if account:
        draft.put("account", account, *_some("Yours are", accounts))
        options.append(f"--account={account}")
    elif accounts:
        draft.remark(
            "account", f"Yours: {', '.join(accounts[:MOST_NAMED])}; the first is the default."
        )
    if held := slurm_site.reservations(getpass.getuser(), accounts):
        draft.remark("reservation", f"Active for you: {', '.join(held[:MOST_NAMED])}.")
    return options


def _chosen(partitions: list[Partition], wishes: Wishes, ask: Ask) -> Partition:
    by_name = {partition.name: partition for partition in partitions}
    if not by_name:
        raise UsageError(
            "Slurm shows no partition",
            hint=f"{advice.ALL_PARTITIONS}; or go without it: --scheduler local",
        )
    # Prefer GPUs, which a set needs, then the default.
    best = max(
        partitions,
        key=lambda partition: (
            partition.is_up,
            partition.gpus > 0,
            partition.is_default,
            partition.nodes,
        ),
    )
    name = wishes.partition or (
        _asked(ask, "partition", [best.name, *by_name]) if len(by_name) > 1 else best.name
    )
    if name not in by_name:
        raise UsageError(
            f"there is no partition {name}{did_you_mean(name, by_name)}; there are: "
            f"{', '.join(by_name)}",
            hint=f"{advice.LIST_PARTITIONS} shows them",
        )
    return by_name[name]


def _asked(ask: Ask, key: str, names: Sequence[str]) -> str:
    return ask(f"{key} ({', '.join(dict.fromkeys(names))})", names[0])


def _some(title: str, names: Sequence[str]) -> list[str]:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return [f"{title} {'; '.join(names[:MOST_NAMED])}{more}."] if names else []


def _two(partition: str) -> str:
    """Return a second idle node, for the route between both."""
    try:
        names = [name for name, state in node_states(partition).items() if state.idle]
    except SchedulerError:
        return ""
    return names[1] if len(names) > 1 else ""


# ---- the folder for the sets, tried from a node ----


def _log_dir(
    draft: SiteDraft,
    wishes: Wishes,
    ask: Ask,
    progress: Callable[[str], None],
    options: list[str] | None,
) -> NodeLook:
    """Set the first folder that a node can write to; return its report."""
    places = [Path.cwd() / "results", Path.home() / "mlperf-results"]
    if not wishes.log_dir:
        places.insert(
            0, user_path(ask("folder for the sets, on storage that all nodes see", str(places[0])))
        )
    tries = [user_path(wishes.log_dir)] if wishes.log_dir else list(dict.fromkeys(places))
    peer, problems = _two(draft.values["partition"]) if options is not None else "", []
    for folder in tries:
        check_values({"log_dir": str(folder)})
        made = not folder.exists()
        place = "this host" if options is None else "a node"
        progress(f"checking whether {place} sees {folder}, and its hardware")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            seen = look(folder, options=options, peer=peer)
        except OSError as error:
            problems.append(f"{folder}: {error.strerror}")
            continue
        except SetError as error:
            problems.append(f"{folder}: {error.message}")
            continue
        if seen.sees_log_dir is not False:
            tried = f"{seen.node} wrote to it." if seen.report else "No node has tried it yet."
            draft.put("log_dir", str(folder), tried)
            return seen
        problems.append(seen.problem)
        if made:
            folder.rmdir()
    raise SetError(
        "no folder for the sets: " + "; ".join(problems),
        hint="name a folder that all nodes see: --log-dir /shared/results",
    )


def _data(draft: SiteDraft, folders: Folders) -> None:
    if not folders:
        return
    draft.put("data", folders)
    for workload, by_variable in folders.items():
        missing = [folder for folder in by_variable.values() if not Path(folder).is_dir()]
        if missing:
            draft.notes.append(
                f"{', '.join(missing)} is missing here; orchestrator prepare {quoted(workload)} "
                "makes it"
            )


# ---- the report of the node ----


def _engine(draft: SiteDraft, seen: NodeLook) -> None:
    engines = [engine for engine in seen.report["engines"] if engine["command"]]
    if engines:
        name = engines[0]["name"]
        command = engines[0]["command"]
        draft.put("container.engine", name, f"`{' '.join(command)}` answers on {seen.node}.")
        if command != [name]:
            draft.put("container.command", command)
    else:
        replies = "; ".join(
            f"{engine['name']}: {engine['said'] or 'no answer'}"
            for engine in seen.report["engines"]
        )
        draft.put("container.engine", "none", f"No engine answers on {seen.node} ({replies}).")
        draft.notes.append(f"no container engine answers on {seen.node}: {replies}")
    if not seen.report["root"]:
        if seen.report["sudo"]:
            draft.put("sudo", ["sudo", "-n"], f"It works on {seen.node}.")
        else:
            installed = seen.report.get("sudo_installed", True)
            sudo = "asks for a password" if installed else "is not installed"
            why = f"{seen.node}: this user is not root, and sudo {sudo}."
            draft.put("tunables", "off", why)
            draft.put("clear_caches", False, why)
            draft.notes.append(
                f"{why[:-1]}; nothing is tuned, and caches are not dropped (sudo, tunables, "
                "clear_caches). Runs of MLPerf benchmarks then lack `cache_clear`, which the rules "
                "require: a set has no valid score for a submission, unless its program writes it"
            )
    else:
        draft.remark("sudo", f"Jobs run as root on {seen.node}.")


def _network(draft: SiteDraft, seen: NodeLook) -> None:
    network = seen.report["network"]
    if network["used"]:
        rates = sorted({device["gbps"] for device in network["devices"] if device["use"] == "used"})
        draft.put(
            "network.ib_hca",
            network["used"],
            f"Up at {' and '.join(map(str, rates))} Gb/s on {seen.node}.",
        )
        if network["gid_index"] is not None:
            draft.put("network.gid_index", network["gid_index"])
        draft.notes += [f"network of {seen.node}: {text}" for text in network["troubles"]]
    else:
        draft.remark("network.ib_hca", f"{seen.node} has no RDMA device.")
    if network["interface"] and network["interface"] != "lo":
        draft.put(
            "network.socket_ifname", network["interface"], f"The way to other nodes on {seen.node}."
        )


def _gpus(draft: SiteDraft, seen: NodeLook) -> None:
    number = seen.report["gpus"]
    models = seen.report["gpu_models"]
    of_models = f" of {' and '.join(models)}" if models else ""
    gpus = f"{count(number, 'GPU')}{of_models}" if number else "no AMD GPU"
    draft.remark("gpu_request", f"{seen.node} has {gpus}.")
    if not number:
        draft.notes.append(f"{seen.node} has no AMD GPU")

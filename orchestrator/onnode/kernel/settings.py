"""The settings of a bundle, a row each: name, kind, source of the value, limit and description.

settings.sh, its readers (settings_file.py), its limits and docs/reference/settings.md come from
these rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any


def row(
    source: str,
    text: str = "",
    *,
    title: str = "",
    overridable: bool = False,
    most: int = 0,
    one_a_line: bool = False,
    default: Any = MISSING,
) -> Any:
    """Return the row of a setting.

    `source`: the expression of its value in a template, of `entry`, `site` and the values of
    render/bundle.py. `text` describes it, `title` starts a section. `overridable`: the caller's
    environment wins. `most`: it is from 1 to this; without it, from 0. `default`: the value in
    event files without the setting.
    """
    about = {
        "source": source,
        "text": text,
        "title": title,
        "overridable": overridable,
        "most": most,
        "one_a_line": one_a_line,
    }
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class Settings:
    """Values of settings.sh, names in lower case; arrays are tuples."""

    python: str = row(
        "site.python",
        "The system's own interpreter, standard library only; the same on every node.",
        overridable=True,
    )
    system: str = row("entry.system")
    workload: str = row("entry.workload")
    benchmark: str = row("entry.benchmark")
    round: str = row("entry.round")
    ruleset: str = row("entry.ruleset")
    nnodes: int = row("entry.nodes")
    gpus_per_node: int = row("entry.gpus_per_node")
    nexp: int = row("nexp", "Runs of a set.", overridable=True, most=9999)
    target: str = row('"" if entry.target is none else entry.target')
    metric: str = row("entry.metric")
    target_is_upper_bound: str = row('"true" if entry.target_is_upper_bound else "false"')
    logdir: str = row(
        "site.log_dir",
        "Folder on shared storage; every set gets a folder of its own below it.",
        overridable=True,
    )
    max_attempts: int = row(
        "site.limits.attempts",
        "Attempts per run (of one job) after a failure of the infrastructure. A run that "
        "misses the target is not repeated.",
        title="limits",
        overridable=True,
        most=999,
    )
    run_timeout_s: int = row(
        "entry.run_timeout_s",
        "A run without run_stop after this many seconds is ended as hung.",
        overridable=True,
        most=9999999,
    )
    container_start_s: int = row(
        "site.limits.container_start_seconds",
        "The longest start of a container.",
        overridable=True,
        most=99999,
    )
    end_grace_s: int = row(
        "site.limits.end_grace_seconds",
        "After a node has ended its run: how long the others may take to end theirs.",
        overridable=True,
        most=99999,
    )
    node_silence_s: int = row(
        "site.limits.node_silence_seconds",
        "A node that is silent for so long during a run counts as lost.",
        overridable=True,
        most=99999,
    )
    hang_multiple: int = row(
        "site.limits.hang_multiple",
        "A run that prints nothing on any node for this many times its evaluation "
        "interval is ended as hung (0: never).",
        overridable=True,
    )
    hang_s: int = row(
        "site.limits.hang_seconds",
        "The assumed interval while its log shows none.",
        overridable=True,
        most=999999,
    )
    hang_start_s: int = row(
        "site.limits.hang_start_seconds",
        "The longest silence before run_start.",
        overridable=True,
        most=999999,
    )
    storage_wait_s: int = row(
        "60 * site.limits.storage_wait_minutes",
        "How long a job waits for storage that is full, read-only or away.",
        overridable=True,
    )
    sudo: tuple[str, ...] = row(
        "site.sudo",
        "Prefix for commands that need root on a node (host settings, dropping caches); "
        "empty if the job runs as root.",
        title="host",
    )
    runtime_tunables: int = row(
        '(site.tunables == "apply") | int',
        "1: apply the host settings.",
        overridable=True,
    )
    orch_lease_s: int = row(
        "site.tuning.lease_seconds",
        "How long host settings may outlive a job that was killed with all its processes.",
        overridable=True,
    )
    tuning_differences: str = row(
        '"allow" if site.tuning.allow_differences else "stop"',
        "stop: nodes with differences that can change time or convergence do not start a "
        "set. allow: they do.",
        overridable=True,
    )
    clear_caches: int = row(
        "site.clear_caches | int",
        "1: drop the page cache before every run.",
        overridable=True,
    )
    changes: str = row(
        "site.changes",
        "refuse: no run starts if image or content of the containers are not those of the runs "
        "that count. stop: a change found after a run ends the job, too. flag: it continues.",
        overridable=True,
    )
    gpu_model: str = row(
        'entry.accelerator if entry.gfx else ""',
        "The accelerator's name on the nodes, and its ISA; empty without GPUs.",
        title="checks of the nodes (lib/policy/judge.py)",
    )
    gpu_gfx: str = row("entry.gfx")
    requires: tuple[str, ...] = row(
        "requires",
        "Minimal versions on a host: driver (amdgpu), rocm, nic_firmware; gfx: the ISAs "
        "for which the image was built.",
    )
    preflight_run: int = row(
        "site.preflight.run | int",
        "1: every set checks its nodes before their use.",
        overridable=True,
    )
    preflight_check_s: int = row(
        "site.preflight.check_seconds",
        "The longest duration of one check; a check without an answer by then has failed.",
        overridable=True,
        most=999,
    )
    preflight_skip: tuple[str, ...] = row(
        "site.preflight.skip",
        "Checks that do not run, and checks whose failure is only a warning.",
    )
    preflight_warn: tuple[str, ...] = row("site.preflight.warn")
    preflight_free_gb: str = row(
        "site.preflight.free_gb",
        "Free space required in LOGDIR and the container's storage.",
        overridable=True,
    )
    preflight_clock_s: str = row(
        "site.preflight.clock_seconds",
        "The largest difference between the nodes' clocks, in seconds.",
        overridable=True,
    )
    preflight_deep: int = row(
        "site.preflight.deep | int",
        "1: measure the bandwidth between the nodes before the first run.",
        overridable=True,
    )
    preflight_deep_gbps: str = row(
        "deep_gbps",
        'The expected bus bandwidth in GB/s ("": derived from the fabric).',
        overridable=True,
    )
    spares: int = row(
        "site.spares",
        "Nodes of the job beyond NNODES, which replace failing ones.",
        overridable=True,
    )
    fabric: str = row("entry.fabric_kind", title="network (docs/network.md, lib/agent/network.py)")
    fabric_drivers: tuple[str, ...] = row("fabric.drivers")
    fabric_names: tuple[str, ...] = row("fabric.names")
    fabric_link_layer: str = row("fabric.link_layer")
    fabric_gbps: int = row("fabric.gbps")
    fabric_devices: int = row(
        "fabric.nics_per_gpu * entry.gpus_per_node",
        "RDMA devices that a node must have at least; 0: unknown.",
    )
    network_rdma: str = row(
        "site.network.rdma",
        "required, preferred (without RDMA on any node: a warning, and TCP sockets), or off.",
    )
    network_differences: str = row(
        '"allow" if site.network.allow_differences else "refuse"',
        "Nodes with different networks: refuse, or allow with a warning.",
    )
    network_origins: tuple[str, ...] = row(
        "network_origins",
        "The source of the network's variables: variable, origin, value; separated by "
        "tabs. A node replaces only values of the descriptor by detected ones.",
        one_a_line=True,
    )
    network_removed: tuple[str, ...] = row(
        "network_removed",
        "Variables removed by the user or the site; they are not detected either.",
    )
    engine: str = row("entry.container.engine", title="container")
    engine_command: tuple[str, ...] = row("engine_command")
    cont: str = row("entry.image", overridable=True)
    pull: str = row(
        "entry.container.pull",
        "never: the image must be on every node. missing: pull a missing image.",
    )
    pull_minutes: int = row(
        "site.container.pull_minutes",
        "The longest pull, and how many nodes pull at the same time. The limits of the "
        "container start after it.",
        overridable=True,
        most=9999,
    )
    pull_at_once: int = row("site.container.pull_at_once", overridable=True, most=9999)
    container_options: tuple[str, ...] = row("container_options", one_a_line=True)
    mounts: tuple[str, ...] = row(
        "mounts",
        "Variable, folder below it, folder in the container, mode (written: the program needs "
        "to write there); separated by tabs.",
        one_a_line=True,
    )
    site_mounts: tuple[str, ...] = row(
        "site_mounts",
        "Of the site: folder or file of the nodes, place in the container, mode; "
        "separated by tabs.",
        one_a_line=True,
    )
    scratch_dir: str = row(
        'site.container.scratch or ""',
        "Local folder of the nodes for temporary files and compile caches, one per image "
        'and GPU ("": in the container, removed with it).',
        overridable=True,
    )
    keep_caches: int = row(
        "site.container.keep_caches | int",
        "1: keep the compile caches there for the next job of this user.",
        overridable=True,
    )
    results: str = row(
        "site.container.results",
        "Place of /results of a running container: shared (in the set's folder), or local"
        " (on the node until the run is over).",
    )
    orch_channels: str = row(
        "site.container.channel_dir",
        "Local folder in which a node and its container meet, visible to the engine, too.",
        overridable=True,
    )
    config_file: str = row("entry.config_file", title="the command")
    code_dir: str = row("entry.code_dir")
    code_source: str = row(
        'entry.code_path or ""',
        "Folder of this host in place of the image's code (\"\": the image's own).",
    )
    command: tuple[str, ...] = row("entry.command")
    launch_ranks: str = row(
        'entry.launch.ranks or "node"',
        "How COMMAND is started: one launcher per node, or one process per gpu with the "
        "variables of Slurm's tasks. {node_rank}, {nodes}, {gpus_per_node}, {world_size},"
        " {master}, {port} in it and in LAUNCH_ENV are those of the run.",
    )
    launch_master: str = row(
        'site.network.master or entry.launch.master or "name"',
        "MASTER_ADDR is the first node's name or its address. 1: all nodes are in "
        "/etc/hosts of the containers.",
    )
    launch_hosts: int = row(
        "(entry.launch.hosts if site.network.hosts is none else site.network.hosts) | int"
    )
    launch_shared: tuple[str, ...] = row(
        "entry.launch.shared",
        "Folders of the containers shared by all nodes of a run, in the set's folder "
        "until the container ends.",
    )
    launch_env: tuple[str, ...] = row(
        "launch_env",
        "Further variables of every run (name, value; separated by a tab), and removed ones.",
        one_a_line=True,
    )
    launch_unset: tuple[str, ...] = row("entry.launch.unset")
    pass_env: tuple[str, ...] = row(
        "entry.pass_env",
        "Variables of the job's environment passed to the runs by name; their values are "
        "never written.",
    )
    launch_verbose: tuple[str, ...] = row(
        "launch_verbose",
        "Variables with which the program shows all its output (name, value; separated by a "
        "tab), for an attempt after one without any record.",
        one_a_line=True,
        default=(),
    )
    image_gb: int = row(
        "image_gb",
        "Compressed size of the image in GB, at least (0: unknown): a node that pulls it needs "
        "four times as much room.",
        default=0,
    )
    reaches: tuple[str, ...] = row(
        "reaches",
        "Hosts outside that runs reach while they start (host, use; separated by a tab).",
        title="hosts outside (lib/agent/reach.py)",
        one_a_line=True,
        default=(),
    )
    proxy: tuple[str, ...] = row(
        "proxy",
        "Variables of the site's proxy: podman pulls and the check `reach` use them; runs have "
        "them in the config.",
        one_a_line=True,
        default=(),
    )
    unmet: tuple[str, ...] = row(
        "unmet",
        "What is missing of the published configuration, with which the set is not compared then.",
        default=(),
    )
    built: str = row(
        "build_advice",
        "How to get the image, if no registry has it.",
        default="",
    )
    notify_events: tuple[str, ...] = row(
        "site.notify.events",
        "Events of a set to report: to a command, to mail addresses, and to the address "
        "in the variable NOTIFY_WEBHOOK of the job's environment; how long each may take.",
        title="notifications, runs side by side, sharing",
        default=(),
    )
    notify_command: tuple[str, ...] = row("site.notify.command", default=())
    notify_mail: tuple[str, ...] = row("site.notify.mail", default=())
    notify_webhook: str = row('site.notify.webhook or ""', default="")
    notify_seconds: int = row("site.notify.seconds", default=10)
    side_by_side: int = row(
        "site.side_by_side",
        "Runs at the same time, each on NNODES nodes of its own.",
        overridable=True,
        most=999,
        default=1,
    )
    run_minutes: int = row(
        "0 if site.time_limit else job_time.each",
        "Minutes of a run in the job's time limit, which is (runs + 1) times as long; 0: the limit "
        "is the site's `time_limit`.",
        default=0,
    )
    shared_group: str = row(
        'site.shared_group or ""',
        'The group whose members may continue the set ("": only its owner may write there).',
        default="",
    )
    data: dict[str, str] = field(default_factory=dict)
    """Folders of MOUNTS by variable."""

    @property
    def notifies(self) -> bool:
        return bool(self.notify_command or self.notify_mail or self.notify_webhook)


def rows() -> Iterator[Field[Any]]:
    """In the order of settings.sh."""
    return (setting for setting in fields(Settings) if setting.metadata)

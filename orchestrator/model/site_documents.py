"""The site document: where things are on one cluster. The text below a key is its description in the schema, in
docs/descriptors.md and in what `orchestrator init` writes; `examples` are values for keys without a default.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from orchestrator.model.fields import (
    AbsolutePath,
    DataFolders,
    Env,
    Joined,
    Line,
    Lines,
    LogDir,
    Name,
    PassedName,
    RunOption,
    SbatchLine,
    TimeLimit,
)
from orchestrator.model.part import DocumentPart


class SiteNetwork(DocumentPart):
    """Names of interfaces and devices on the site's nodes. Without them each node detects its own (docs/network.md).

    They apply to systems with a fabric; a single node without one exports none.
    """

    socket_ifname: Joined | None = Field(default=None, examples=["eno0"])
    """NCCL_SOCKET_IFNAME, and GLOO_SOCKET_IFNAME unless `gloo_socket_ifname` is given."""
    gloo_socket_ifname: Joined | None = Field(default=None, examples=["eno0"])
    """GLOO_SOCKET_IFNAME."""
    ib_hca: Joined | None = Field(default=None, examples=[["rdma0", "rdma1"]])
    """NCCL_IB_HCA: the RDMA devices of the GPUs, as a list."""
    gid_index: int | None = Field(default=None, ge=0, le=255, examples=[3])
    """NCCL_IB_GID_INDEX: the row of the devices' RoCE v2 address over IPv4."""
    rdma: Literal["required", "preferred", "off"] = "preferred"
    """When no node has RDMA devices: `required` stops the set, `preferred` warns, `off` wants TCP sockets."""
    allow_differences: bool = False
    """Start a set on nodes whose networks differ; what differs becomes a warning."""
    env: Env = {}
    """Further variables that go with the fabric."""


class SiteMount(DocumentPart):
    """A file or folder of the nodes that every container of the site sees, such as the host's RDMA libraries."""

    host: AbsolutePath
    """Where it is on the nodes."""
    container: AbsolutePath | None = None
    """Where it is in the container; null: at the same path."""
    read_only: bool = True
    """false: runs may write there."""


class SiteContainer(DocumentPart):
    """How containers are started on the site."""

    engine: Literal["docker", "podman", "none"] = "docker"
    """Who starts containers (docs/images-and-data.md); `none`: runs start on the host, without one."""
    command: Lines | None = Field(default=None, min_length=1, examples=[["sudo", "-n", "docker"]])
    """How to call the engine, where its name is not enough; nothing is tried."""
    privileged: bool = False
    """Start containers with --privileged."""
    devices: list[AbsolutePath] = []
    """Further devices of the nodes for every container."""
    mounts: list[SiteMount] = Field(default=[], examples=[[{"host": "/usr/lib/libibverbs"}]])
    """Files and folders of the nodes in every container: `{host: ..., container: ..., read_only: true}`."""
    options: list[RunOption] = Field(default=[], examples=[["--ulimit=core=0"]])
    """Further options of the engine's `run`, each in one word; not those that tie a container to its job."""
    env_files: list[AbsolutePath] = []
    """Files of the nodes with NAME=VALUE lines that the engine reads; the values of the config win."""
    scratch: AbsolutePath | None = Field(default=None, examples=["/mnt/localdisk"])
    """An existing local folder of the nodes for TMPDIR and the compile caches of the runs (docs/set-folder.md)."""
    keep_caches: bool = False
    """The compile caches there stay for the next job of the same user, with the same image and GPU."""
    results: Literal["shared", "local"] = "shared"
    """`local`: /results of a running container is on the node until the run is over, for storage on which root is nobody."""
    channel_dir: AbsolutePath = "/tmp"
    """A local folder in which a node and its container meet; another one where /tmp is private to jobs."""
    pull: Literal["never", "missing"] = "missing"
    """`never`: an image that a node lacks is an error, and nothing is pulled."""
    pull_minutes: Annotated[int, Field(ge=1, le=10_000)] = 120
    """How long one pull may take."""
    pull_at_once: Annotated[int, Field(ge=1, le=10_000)] = 1
    """So many nodes pull at the same time: they share one registry, and the way to it."""


class SiteLimits(DocumentPart):
    """Limits per run."""

    attempts: Annotated[int, Field(ge=1, le=20)] = 3
    """Attempts per run after failures of the infrastructure."""
    run_timeout_minutes: Annotated[float, Field(ge=0.05, le=100_000)] | None = Field(
        default=None, examples=[240]
    )
    """A run that takes longer is ended as hung; null: the descriptor's `minutes_per_run`."""
    container_start_seconds: Annotated[int, Field(ge=1, le=86_400)] = 300
    """How long a container may take to start."""
    end_grace_seconds: Annotated[int, Field(ge=1, le=86_400)] = 60
    """When a node has ended its run, how long the others may take to end theirs."""
    node_silence_seconds: Annotated[int, Field(ge=1, le=86_400)] = 120
    """A node without any word for so long during a run counts as lost."""
    hang_multiple: Annotated[int, Field(ge=0, le=1000)] = 3
    """A run without output for so many times its own evaluation interval is ended as hung (docs/set-folder.md); 0: never."""
    hang_seconds: Annotated[int, Field(ge=1, le=86_400)] = 1200
    """What counts as that interval as long as the log of the run shows none."""
    hang_start_seconds: Annotated[int, Field(ge=1, le=86_400)] = 5400
    """How long nothing may be printed before `run_start` (compilation)."""
    storage_wait_minutes: Annotated[int, Field(ge=0, le=100_000)] = 60
    """How long a job waits for storage that is full, read-only or away; 0: it pauses at once."""


class SiteTuning(DocumentPart):
    """How nodes are tuned (docs/tuning.md)."""

    profile: Name | AbsolutePath | None = Field(default=None, examples=["mi325x"])
    """A tuning profile: a name, or the absolute path of your own; null: what goes with the workload and round."""
    lease_seconds: Annotated[int, Field(ge=1, le=3600)] = 15
    """How long host settings may outlive a job that was killed."""
    allow_differences: bool = False
    """Start on nodes that differ in what can move time or convergence."""


NodeCheck = Literal[
    "engine",
    "image",
    "gpu_count",
    "gpu_model",
    "gpu_memory",
    "gpu_processes",
    "gpu_errors",
    "gpu_links",
    "rdma",
    "data",
    "log_dir",
    "free_space",
    "clock",
    "limits",
    "leftovers",
    "versions",
    "deep",
]
"""What is checked on every node before a set uses it, in the order of the tables (docs/preflight.md)."""


class SitePreflight(DocumentPart):
    """How nodes are checked before they are used (docs/preflight.md)."""

    run: bool = True
    """Every set checks its nodes before it uses them."""
    check_seconds: Annotated[int, Field(ge=1, le=600)] = 10
    """The longest that one check may take; one without an answer by then has failed."""
    skip: list[NodeCheck] = []
    """Checks that do not run."""
    warn: list[NodeCheck] = []
    """Checks whose failure is only told."""
    free_gb: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    """Room in GB that the folders of the set must have."""
    clock_seconds: Annotated[int, Field(ge=1, le=3600)] = 2
    """Seconds that the nodes' clocks may differ by."""
    deep: bool = False
    """Measure the bandwidth between the nodes before the first run (docs/deep.md)."""
    deep_gbps: Annotated[float, Field(ge=0.01, le=100_000)] | None = Field(
        default=None, examples=[300]
    )
    """Bus bandwidth in GB/s that the nodes should reach; null: what the fabric's rate lets expect."""


NotifyEvent = Literal["complete", "paused", "failed", "score"]


class SiteNotify(DocumentPart):
    """Who is told how a set goes. The job tells it: nothing of ours needs to run elsewhere (docs/notify.md)."""

    events: list[NotifyEvent] = ["complete", "paused", "failed", "score"]
    """What is told; `score`: for the first time enough runs are there for a score."""
    command: Lines = Field(default=[], examples=[["/shared/bin/tell-me"]])
    """A program of the batch host and its words; it gets the message as JSON on its standard input."""
    mail: Lines = Field(default=[], examples=[["me@example.com"]])
    """Addresses that get a mail, through the batch host's sendmail."""
    webhook: PassedName | None = Field(default=None, examples=["ORCHESTRATOR_WEBHOOK"])
    """Name of the variable, in the environment of whoever submits, that holds the address which gets the message as JSON."""
    seconds: Annotated[int, Field(ge=1, le=60)] = 10
    """How long each of them may take; what takes longer is given up, and the set goes on."""


EntryWarning = Literal[
    "label", "launch", "fabric", "network.socket_ifname", "network.ib_hca", "data"
]
"""What composing an entry warns of, by the names that stand behind the warnings."""


class Site(DocumentPart):
    """Where things are on one cluster."""

    kind: Literal["site"] = "site"
    """May be left out in a site file."""
    name: Name = "site"
    """For people."""
    scheduler: Literal["slurm", "local"] = "slurm"
    """`local`: no Slurm, this machine is the node."""
    partition: Line | None = Field(default=None, examples=["gpu"])
    """As for sbatch; without it Slurm's default partition."""
    account: Line | None = Field(default=None, examples=["mlperf"])
    """As for sbatch."""
    qos: Line | None = Field(default=None, examples=["normal"])
    """As for sbatch."""
    reservation: Line | None = Field(default=None, examples=["mlperf"])
    """As for sbatch."""
    constraint: Line | None = Field(default=None, examples=["mi325x"])
    """As for sbatch."""
    exclude: Lines = Field(default=[], examples=[["node[7-8]"]])
    """Nodes not to use."""
    nodelist: Lines = Field(default=[], examples=[["node[1-8]"]])
    """Nodes to use."""
    time_limit: TimeLimit | None = Field(default=None, examples=["2-00:00:00"])
    """The job's limit: minutes, or Slurm's HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS; without it what the runs need. Where the
    partition allows less: as long as it allows, and `resume` for the runs that are left."""
    exclusive: bool = True
    """Ask for whole nodes with all their memory (--exclusive --mem=0): a set tunes its nodes and drops their caches."""
    gpu_request: Literal["gres", "gpus-per-node", "none"] = "gres"
    """How sbatch is asked for GPUs; `none`: where the partition gives whole nodes and knows no GPUs."""
    log_dir: LogDir | None = Field(default=None, examples=["/shared/results"])
    """Required: the folder for the sets, on storage that all nodes see."""
    shared_group: Name | None = Field(default=None, examples=["mlperf"])
    """A Unix group whose members may go on with the sets of one another (docs/howto/several-people.md); null: only their owner."""
    systems_dirs: list[AbsolutePath] = []
    """Folders with descriptors of your own."""
    data: dict[Name, DataFolders] = Field(
        default={}, examples=[{"flux1": {"DATADIR": "/shared/flux1/data"}}]
    )
    """Per workload: the folders of its data, by the variables of its mounts."""
    code: dict[Name, AbsolutePath] = Field(default={}, examples=[{"flux1": "/shared/code/flux1"}])
    """Per workload: a folder of the nodes that is mounted over the code in the image."""
    network: SiteNetwork = SiteNetwork.model_construct()
    """Names of interfaces and devices on the nodes; without them each node detects its own (docs/network.md)."""
    container: SiteContainer = SiteContainer.model_construct()
    """How containers are started."""
    sudo: Lines = Field(default=[], examples=[["sudo", "-n"]])
    """Prefix for what needs root on a node: tuning, dropping caches. None where jobs run as root."""
    python: Line = "python3"
    """The interpreter on the nodes and the batch host: Python 3.9 or newer, a name or an absolute path."""
    sbatch: list[SbatchLine] = Field(default=[], examples=[["--comment=mlperf"]])
    """Further options for sbatch; not those that make a set what it is (--nodes, --job-name, --output, --signal, ...)."""
    env: Env = {}
    """Further variables of the runs."""
    pass_env: list[PassedName] = Field(default=[], examples=[["HF_TOKEN"]])
    """Names of variables that runs get from the environment of whoever submits; their values are written nowhere."""
    notify: SiteNotify = SiteNotify.model_construct()
    """Who is told when a set is complete, paused, failed, or has a score (docs/notify.md)."""
    limits: SiteLimits = SiteLimits.model_construct()
    """Limits per run."""
    tunables: Literal["apply", "off"] = "apply"
    """`off`: nothing of the hosts is changed."""
    tuning: SiteTuning = SiteTuning.model_construct()
    """How nodes are tuned."""
    clear_caches: bool = True
    """Drop the page cache before every run."""
    preflight: SitePreflight = SitePreflight.model_construct()
    """How nodes are checked before they are used."""
    spares: Annotated[int, Field(ge=0, le=1000)] = 0
    """Nodes that a job asks for beyond those of the system: one takes the place of a node that fails; `--spares K` wins."""
    side_by_side: Annotated[int, Field(ge=1, le=999)] = 1
    """Runs of a set that go on at once, each on nodes of its own (docs/preflight.md); `--side-by-side K` wins."""
    acknowledged: list[EntryWarning] = []
    """Warnings that are known here and not told again."""

"""A cluster's facts. The text below a key describes it in the schema, docs/descriptors.md and the
file of `orchestrator init`; `examples` are values for keys without a default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from orchestrator.model.fields import (
    AbsolutePath,
    DataFolders,
    DirectHosts,
    Env,
    Joined,
    Line,
    Lines,
    LogDir,
    Name,
    PassedName,
    ProfileName,
    ProxyAddress,
    RunOption,
    SbatchLine,
    SlurmValue,
    SlurmValues,
    TimeLimit,
)
from orchestrator.model.part import DocumentPart
from orchestrator.onnode.policy.check_names import CHECKS

ALWAYS_DIRECT = ("localhost", "127.0.0.1", "::1")
"""Processes of a run reach each other there; gRPC would ask the proxy."""


class SiteNetwork(DocumentPart):
    """Names of interfaces and devices on the site's nodes. Without them each node detects its own
    (docs/network.md).

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
    """If no node has RDMA devices: `required` stops the set, `preferred` warns, `off` wants TCP
    sockets."""
    master: Literal["name", "address"] | None = None
    """MASTER_ADDR of several nodes: the first node's name, or its IPv4 address; null: as in
    `launch` of the round."""
    hosts: bool | None = None
    """List all nodes of a run in /etc/hosts of the containers, whose user must be root; null: as
    in `launch` of the round."""
    allow_differences: bool = False
    """Start a set on nodes with different networks; each difference becomes a warning."""
    env: Env = {}
    """Further variables for the fabric."""


class SiteMount(DocumentPart):
    """A file or folder of the nodes in every container of the site, such as the host's RDMA
    libraries."""

    host: AbsolutePath
    """Its path on the nodes."""
    container: AbsolutePath | None = None
    """Its path in the container; null: the same path."""
    read_only: bool = True
    """false: runs may write there."""


class SiteProxy(DocumentPart):
    """The way from the nodes to hosts outside."""

    http: ProxyAddress | None = Field(default=None, examples=["http://proxy.example:3128"])
    """Address of the proxy for http://; a user name or password in it is refused."""
    https: ProxyAddress | None = Field(default=None, examples=["http://proxy.example:3128"])
    """Address of the proxy for https://; null: that of `http`."""
    no_proxy: DirectHosts = Field(default=[], examples=[[".cluster", "10.0.0.0/8"]])
    """Hosts, domains and networks reached without it; localhost always is."""

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables, in both spellings that programs read; {} without a proxy."""
        if not (self.http or self.https):
            return {}
        direct = ",".join(dict.fromkeys([*ALWAYS_DIRECT, *self.no_proxy]))
        given = {
            "http_proxy": self.http,
            "https_proxy": self.https or self.http,
            "no_proxy": direct,
        }
        return {
            spelled: value
            for name, value in given.items()
            if value
            for spelled in (name, name.upper())
        }


class SiteContainer(DocumentPart):
    """The site's containers."""

    engine: Literal["docker", "podman", "none"] = "docker"
    """The container engine (docs/images-and-data.md); `none`: runs start on the host, without a
    container."""
    command: Lines | None = Field(default=None, min_length=1, examples=[["sudo", "-n", "docker"]])
    """How to call the engine, if its name is not enough; no other way is tried."""
    privileged: bool = False
    """Start containers with --privileged."""
    devices: list[AbsolutePath] = []
    """Further devices of the nodes for every container."""
    mounts: list[SiteMount] = Field(default=[], examples=[[{"host": "/usr/lib/libibverbs"}]])
    """Files and folders of the nodes in every container: `{host: ..., container: ..., read_only:
    true}`."""
    options: list[RunOption] = Field(default=[], examples=[["--ulimit=core=0"]])
    """Further options of the engine's `run`, each in one word; not those that tie a container to
    its job."""
    env_files: list[AbsolutePath] = []
    """Files of the nodes with NAME=VALUE lines for the engine; the values of the config win."""
    scratch: AbsolutePath | None = Field(default=None, examples=["/mnt/localdisk"])
    """An existing local folder of the nodes for TMPDIR and the compile caches of the runs
    (docs/set-folder.md)."""
    keep_caches: bool = False
    """Keep the compile caches there for the next job of the same user, with the same image and
    GPU."""
    results: Literal["shared", "local"] = "shared"
    """`local`: /results of a running container is on the node until the run is over, for storage
    that maps root to nobody."""
    channel_dir: AbsolutePath = "/tmp"
    """A local folder in which a node and its container meet; choose another if /tmp is private
    to jobs."""
    pull: Literal["never", "missing"] = "missing"
    """`never`: a missing image is an error, and nothing is pulled."""
    pull_minutes: Annotated[int, Field(ge=1, le=9_999)] = 120
    """The longest duration of a pull."""
    pull_at_once: Annotated[int, Field(ge=1, le=9_999)] = 1
    """How many nodes pull at the same time: they share one registry, and the network to it."""
    proxy: SiteProxy = SiteProxy.model_construct()
    """The proxy of runs, of `prepare`, and of podman's pulls (docs/images-and-data.md)."""


MOST_TRIES = 20
"""Machines that break a run 20 times need repair: more attempts, each of up to a run's length, only
take nodes. (MAX_ATTEMPTS of a bundle's own start is limited by its seeds alone: onnode/set/new.py.)
"""


class SiteLimits(DocumentPart):
    """Limits per run."""

    attempts: Annotated[int, Field(ge=1, le=MOST_TRIES)] = 3
    """Attempts per run after failures of the infrastructure."""
    run_timeout_minutes: Annotated[float, Field(ge=0.05, le=100_000)] | None = Field(
        default=None, examples=[240]
    )
    """A longer run is ended as hung; null: the descriptor's `minutes_per_run`."""
    container_start_seconds: Annotated[int, Field(ge=1, le=86_400)] = 300
    """The longest start of a container."""
    end_grace_seconds: Annotated[int, Field(ge=1, le=86_400)] = 60
    """After a node has ended its run: how long the others may take to end theirs."""
    node_silence_seconds: Annotated[int, Field(ge=1, le=86_400)] = 120
    """A node silent for so long during a run counts as lost."""
    hang_multiple: Annotated[int, Field(ge=0, le=1000)] = 3
    """A run without output for this many times its own evaluation interval is ended as hung
    (docs/set-folder.md); 0: never."""
    hang_seconds: Annotated[int, Field(ge=1, le=86_400)] = 1200
    """The assumed interval while the log of the run shows none."""
    hang_start_seconds: Annotated[int, Field(ge=1, le=86_400)] = 5400
    """The longest silence before `run_start` (compilation)."""
    storage_wait_minutes: Annotated[int, Field(ge=0, le=100_000)] = 60
    """How long a job waits for full, read-only or absent storage; 0: it pauses at once."""


class SiteTuning(DocumentPart):
    """Host settings of the nodes (docs/tuning.md)."""

    profile: ProfileName | None = Field(default=None, examples=["published"])
    """A profile of host settings: a name, or the absolute path of your own; null: that of the
    workload and round."""
    lease_seconds: Annotated[int, Field(ge=1, le=3600)] = 15
    """How long host settings may outlive a killed job."""
    allow_differences: bool = False
    """Start on nodes with differences that can change time or convergence."""


if TYPE_CHECKING:
    NodeCheck = str
else:
    NodeCheck = Literal[CHECKS]
"""Checks of every node before its use, in table order (docs/preflight.md)."""


class SitePreflight(DocumentPart):
    """Checks of nodes before their use (docs/preflight.md)."""

    run: bool = True
    """Every set checks its nodes before their use."""
    check_seconds: Annotated[int, Field(ge=1, le=600)] = 30
    """The longest duration of one check; a check without an answer by then has failed."""
    skip: list[NodeCheck] = []
    """Checks that do not run."""
    warn: list[NodeCheck] = []
    """Checks whose failure is only a warning."""
    free_gb: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    """Free space in GB required in the folders of the set."""
    clock_seconds: Annotated[int, Field(ge=1, le=3600)] = 2
    """The largest difference between the nodes' clocks, in seconds."""
    deep: bool = False
    """Measure the bandwidth between the nodes before the first run (docs/deep.md)."""
    deep_gbps: Annotated[float, Field(ge=0.01, le=100_000)] | None = Field(
        default=None, examples=[300]
    )
    """The expected bus bandwidth of the nodes in GB/s; null: derived from the fabric's rate."""


NotifyEvent = Literal["complete", "paused", "failed", "score"]


class SiteNotify(DocumentPart):
    """Notifications about a set, sent by its job: nothing of ours needs to run elsewhere
    (docs/notify.md)."""

    events: list[NotifyEvent] = ["complete", "paused", "failed", "score"]
    """The events; `score`: the first time that enough runs for a score are done."""
    command: Lines = Field(default=[], examples=[["/shared/bin/tell-me"]])
    """A program of the batch host and its arguments; it gets the message as JSON on its standard
    input."""
    mail: Lines = Field(default=[], examples=[["me@example.com"]])
    """Addresses for a mail, sent through the batch host's sendmail."""
    webhook: PassedName | None = Field(default=None, examples=["ORCHESTRATOR_WEBHOOK"])
    """Name of a variable in the submitter's environment, with the address that gets the message
    as JSON."""
    seconds: Annotated[int, Field(ge=1, le=60)] = 10
    """The longest duration of each notification; a longer one is given up, and the set
    continues."""


EntryWarning = Literal[
    "label", "launch", "fabric", "network.socket_ifname", "network.ib_hca", "data", "prerequisites"
]
"""Names of a composed entry's warnings; `prerequisites`: sets start without them."""


class Site(DocumentPart):
    """The facts of one cluster."""

    kind: Literal["site"] = "site"
    """May be left out in a site file."""
    name: Name = "site"
    """For people."""
    scheduler: Literal["slurm", "local"] = "slurm"
    """`local`: no Slurm, this machine is the node."""
    partition: SlurmValue | None = Field(default=None, examples=["gpu"])
    """Without it Slurm's default partition (sbatch --partition)."""
    account: SlurmValue | None = Field(default=None, examples=["mlperf"])
    """The account that is charged (sbatch --account)."""
    qos: SlurmValue | None = Field(default=None, examples=["normal"])
    """Quality of service (sbatch --qos)."""
    reservation: SlurmValue | None = Field(default=None, examples=["mlperf"])
    """A reservation of nodes (sbatch --reservation)."""
    constraint: SlurmValue | None = Field(default=None, examples=["mi325x"])
    """Features that the nodes must have (sbatch --constraint)."""
    exclude: SlurmValues = Field(default=[], examples=[["node[7-8]"]])
    """Nodes to avoid."""
    nodelist: SlurmValues = Field(default=[], examples=[["node[1-8]"]])
    """Nodes to use."""
    time_limit: TimeLimit | None = Field(default=None, examples=["2-00:00:00"])
    """The job's limit: minutes, or Slurm's HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS; by default the
    time that the runs need. If the partition allows less, name its limit here: one job does the
    runs that fit, and `resume` the others. `"12:00"` would be twelve minutes."""
    exclusive: bool = True
    """Ask for whole nodes with all their memory (--exclusive --mem=0): a set changes host
    settings and drops caches."""
    gpu_request: Literal["gres", "gpus-per-node", "none"] = "gres"
    """How to ask sbatch for GPUs; `none`: for a partition of whole nodes without GPUs in Slurm."""
    log_dir: LogDir | None = Field(default=None, examples=["/shared/results"])
    """Required: the folder for the sets, on storage visible to all nodes."""
    shared_group: Name | None = Field(default=None, examples=["mlperf"])
    """A Unix group whose members may continue each other's sets (docs/howto/several-people.md);
    null: only their owner."""
    systems_dirs: list[AbsolutePath] = []
    """Folders with descriptors of your own."""
    data: dict[Name, DataFolders] = Field(
        default={}, examples=[{"flux1": {"DATADIR": "/shared/flux1/data"}}]
    )
    """Per workload: the folders of its data, by the variables of its mounts."""
    code: dict[Name, AbsolutePath] = Field(default={}, examples=[{"flux1": "/shared/code/flux1"}])
    """Per workload: a folder of the nodes, mounted over the code in the image."""
    network: SiteNetwork = SiteNetwork.model_construct()
    """Names of interfaces and devices on the nodes; without them each node detects its own
    (docs/network.md)."""
    container: SiteContainer = SiteContainer.model_construct()
    """How to start containers."""
    sudo: Lines = Field(default=[], examples=[["sudo", "-n"]])
    """Prefix for commands that need root on a node: host settings, dropping caches. Empty if
    jobs run as root."""
    python: Line = "python3"
    """The interpreter on the nodes and the batch host: Python 3.9 or newer, a name or an
    absolute path."""
    sbatch: list[SbatchLine] = Field(default=[], examples=[["--comment=mlperf"]])
    """Further options for sbatch; not those that define a set (--nodes, --job-name, --output,
    --signal, ...)."""
    env: Env = {}
    """Further variables of the runs."""
    offline: bool = True
    """Use the caches that `prepare` has filled instead of the network, for workloads that can.
    `false`: their programs ask the network, and may need a token (`needs_env` of the round)."""
    pass_env: list[PassedName] = Field(default=[], examples=[["HF_TOKEN"]])
    """Names of variables that runs get from the submitter's environment; their values are never
    written."""
    notify: SiteNotify = SiteNotify.model_construct()
    """Notifications when a set is complete, paused, failed, or has a score (docs/notify.md)."""
    limits: SiteLimits = SiteLimits.model_construct()
    """Limits per run."""
    tunables: Literal["apply", "off"] = "apply"
    """`off`: the hosts stay unchanged."""
    tuning: SiteTuning = SiteTuning.model_construct()
    """Host settings of the nodes."""
    clear_caches: bool = True
    """Drop the page cache before every run. `false`: no record `cache_clear`, which the rules of
    every MLPerf round require, unless the program writes it."""
    changes: Literal["refuse", "stop", "flag"] = "refuse"
    """If a set is no longer one experiment (docs/inside.md). `refuse`: no run starts when the
    image, or the content of the containers, is not that of the runs that count; a change found
    after a run is a warning. `stop`: it ends the job, too. `flag`: warnings alone."""
    preflight: SitePreflight = SitePreflight.model_construct()
    """Checks of nodes before their use."""
    spares: Annotated[int, Field(ge=0, le=1000)] = 0
    """Extra nodes of a job that replace failing ones; `--spares K` wins."""
    side_by_side: Annotated[int, Field(ge=1, le=999)] = 1
    """Runs of a set at the same time, each on nodes of its own (docs/preflight.md);
    `--side-by-side K` wins."""
    acknowledged: list[EntryWarning] = []
    """Warnings known here and not shown again."""

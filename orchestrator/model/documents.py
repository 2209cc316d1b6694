"""System and workload (shared_documents.py: facts that systems share; site_documents.py: sites).

Unknown keys are errors, types are exact (a number is not text), every default is here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from orchestrator.errors import did_you_mean
from orchestrator.model.fields import (
    AbsolutePath,
    Batch,
    Count,
    Env,
    Form,
    Image,
    Line,
    Lines,
    Name,
    PassedName,
    ReachedHost,
    RelativePath,
    Round,
    Ruleset,
    Size,
    TrueFalseUnknown,
    Variable,
    refuse,
)
from orchestrator.model.part import DocumentPart
from orchestrator.model.shared_documents import AcceleratorFact, FabricFact, FabricKind, HostFact
from orchestrator.model.values import (
    OWNED_BY_THE_LOOP,
    REFS,
    RUN_REFS,
    name_problem,
    secret_problem,
)

if TYPE_CHECKING:
    from typing_extensions import Self


class ContainerPart(DocumentPart):
    """Container options of a workload round; a system's round may replace single options."""

    devices: list[AbsolutePath] | None = None
    """Devices of the host in the container."""
    groups: list[Name] | None = None
    """Further groups of its processes."""
    caps: list[Name] | None = None
    """Added capabilities, such as IPC_LOCK."""
    security_opt: list[Line] | None = None
    """As for `docker run --security-opt`."""
    ulimits: dict[Name, Line] | None = None
    """As for `docker run --ulimit`, by name."""
    shm_size: Line | None = None
    """Size of /dev/shm, such as 64g."""
    network: Literal["host", "bridge"] | None = None
    """The host's network, or a private one; default: host."""
    ipc: Literal["host", "private"] | None = None
    """The host's shared memory, or a private one; default: host."""
    uts: Literal["host", "private"] | None = None
    """The host's name, or a private one; default: host."""


def _run_text(text: str) -> str:
    for name in re.findall(r"\{(\w+)\}", text):
        if name not in RUN_REFS:
            raise refuse(
                f"{{{name}}} is nothing of a run; accepted: "
                f"{', '.join(RUN_REFS)}{did_you_mean(name, RUN_REFS)}"
            )
    return text


def _no_secret(name: str) -> str:
    if problem := secret_problem(name):
        raise refuse(problem)
    return name


def _without_dot(name: str) -> str:
    if "." in name:
        raise refuse(
            f"{name!r} holds a dot, which ends a part of a key such as data.WORKLOAD.VARIABLE; "
            f"write it without, such as {name.replace('.', '')}"
        )
    return name


RunText = Annotated[Line, AfterValidator(_run_text)]


class LaunchPart(DocumentPart):
    """The start of runs in a workload round; a system's round may replace single keys."""

    command: Annotated[list[RunText], Field(min_length=1)] | None = None
    """The command; default: that of the workload."""
    code_dir: AbsolutePath | None = None
    """Its working folder; default: that of the workload."""
    ranks: Literal["node", "gpu"] | None = None
    """The command is a launcher, or has all ranks of its node, and is started once per node; or it
    is the program itself, started once per GPU as Slurm's tasks are."""
    most_nodes: Count | None = None
    """The most nodes that the command can start."""
    master: Literal["name", "address"] | None = None
    """MASTER_ADDR of several nodes: the first node's name, or its IPv4 address; the site's
    `network.master` wins."""
    hosts: bool | None = None
    """List all nodes in /etc/hosts of the containers; the site's `network.hosts` wins."""
    shared: list[AbsolutePath] = []
    """Folders of the containers shared by all nodes of a run."""
    env: dict[Annotated[Variable, AfterValidator(_no_secret)], RunText] = {}
    """Further variables of every run, over all others."""
    unset: list[Variable] = []
    """Variables removed from the program's environment."""
    verbose: dict[Annotated[Variable, AfterValidator(_no_secret)], Line] = {}
    """Variables with which the program shows all its output: for an attempt after one without any
    record."""


def _logged_variable(text: str) -> str:
    if text not in OWNED_BY_THE_LOOP and (problem := name_problem(text)):
        raise refuse(problem)
    return text


def _fact(text: str) -> str:
    if text not in REFS:
        raise refuse(f"{text!r} is no fact; accepted: {', '.join(REFS)}{did_you_mean(text, REFS)}")
    return text


class LoggedPart(DocumentPart):
    """The source of a value in the log: a variable of the runs' environment, a fact of the
    descriptor, or both."""

    env: Annotated[str, AfterValidator(_logged_variable)] | None = None
    """`SEED` is the seed of the run."""
    ref: Annotated[str, AfterValidator(_fact)] | None = None
    """A fact of the descriptor, such as nodes."""
    form: Form = "{}"
    """The log's form of the value, which replaces {}: "{nodes}x{}"."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.env is None and self.ref is None:
            raise refuse("needs `env` (a variable), `ref` (a fact), or both")
        return self


class PrerequisitePart(DocumentPart):
    """Something that the published runs had in their container, and that the image lacks."""

    what: Line
    """For people: its use, and the effect of its absence."""
    mounted: AbsolutePath
    """Its place in the container: the site mounts something there or above it, with `code` or
    `container.mounts`."""
    remedy: Line
    """How to get it; {system} and {workload} stand for the names."""
    image_config: bool = False
    """It is a config over that of the image, which `orchestrator render --image-config` writes."""


class BuildPart(DocumentPart):
    """The submitters' build of an image that no registry has."""

    source: Line
    """The published tree with its Dockerfile."""
    dockerfile: RelativePath = "Dockerfile"
    """The Dockerfile in that tree."""


class SystemRound(DocumentPart):
    """A system's own values for one workload in one round."""

    micro_batch: Size | None = None
    """Samples per GPU and step."""
    global_batch: Size | None = None
    """Samples per step of the optimizer: micro x nodes x GPUs x accumulation / (TP x PP x CP),
    checked."""
    accumulation: Size | None = None
    """Steps of gradient accumulation; computed if both batches are given."""
    tensor_parallel: Count = 1
    """GPUs that share one layer."""
    pipeline_parallel: Count = 1
    """Stages of the pipeline."""
    context_parallel: Count = 1
    """GPUs that share one sequence."""
    minutes_per_run: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Expected minutes of a run; default: those of the workload's round."""
    stack: Round | None = None
    """An earlier round whose image, environment and container run under this round's rules."""
    published_as: Name | None = None
    """The published config's name, if it is not this system's; the value of {ref: system}."""
    image: Image | None = None
    """Replaces the image of the workload's round."""
    container: ContainerPart = ContainerPart.model_construct()
    """Replaces single options of the workload's round."""
    launch: LaunchPart = LaunchPart.model_construct()
    """How to start runs, if not as in the workload's round."""
    logged: dict[Name, LoggedPart | None] = {}
    """Over the workload's own, key by key; null removes a key."""
    env: Env = {}
    """Variables that differ from those of the workload's round."""
    prerequisites: list[PrerequisitePart] = []
    """Parts of the published runs' container besides the image: `doctor` and `submit` ask
    for it."""
    whole_env: bool = False
    """`env` is complete here: it takes no variable from the workload's round."""
    env_from: Literal["config", "logs", "assumed"] = "config"
    """The source of `env`: the published config; the published logs, with the round's values for
    the rest; or assumptions."""
    submitter: Line | None = None
    """Who published it."""
    submitted: TrueFalseUnknown = False
    """Whether results were published with it."""
    source: str = ""
    """The source of the facts."""
    note: str = ""
    """Assumptions and remarks."""

    def computed_accumulation(self, ranks: int) -> int:
        """Return the steps that the batches need on so many ranks; 0 if a batch is missing, or no
        whole number fits."""
        parallel = self.tensor_parallel * self.pipeline_parallel * self.context_parallel
        if self.micro_batch is None or self.global_batch is None:
            return 0
        steps, rest = divmod(self.global_batch * parallel, self.micro_batch * ranks)
        return 0 if rest else steps

    def launch_over(self, stack: WorkloadRound) -> LaunchPart:
        """Return the round's launch with the system's own keys."""
        mine = self.launch.model_dump(exclude_none=True, exclude_unset=True)
        if "command" in mine:  # the limit belongs to the round's command
            mine.setdefault("most_nodes", None)
        return stack.launch.model_copy(update=mine)


class System(DocumentPart):
    """One system: a machine, and its workloads."""

    kind: Literal["system"]
    """The kind of the document."""
    name: Name
    """Name of its file; a name like MI325X_08x08x32 must agree with accelerator, nodes and GPUs."""
    title: str = ""
    """For people."""
    accelerator: AcceleratorFact
    nodes: Count
    """Number of nodes."""
    gpus_per_node: Annotated[int, Field(ge=1, le=1024)]
    """GPUs of each node."""
    host: HostFact = None
    fabric: FabricFact = "none"
    workloads: dict[Name, Annotated[dict[Round, SystemRound], Field(min_length=1)]] = Field(
        min_length=1
    )
    """Its workloads, and their rounds in quotes."""


class MountPart(DocumentPart):
    """A host folder in the container: `$variable/subpath` at `container`."""

    variable: Variable
    """The variable of the folder on the host."""
    subpath: RelativePath | None = None
    """Folder below it."""
    container: AbsolutePath
    """Its place in the container."""
    read_only: bool = False
    """The container cannot write there."""
    written: bool = False
    """The program needs to write there: a container whose root cannot is refused."""


class DataPart(DocumentPart):
    """A file or folder that must exist below `$variable`."""

    variable: Variable
    """The variable of the folder on the host."""
    path: RelativePath
    """File or folder below it that must exist."""
    bytes: int = Field(default=0, ge=0)
    """Its published size; 0: unknown."""
    what: str = ""
    """For people."""
    offline_only: bool = False
    """Runs that ask the network do without it."""


class ReachPart(DocumentPart):
    """A host that runs reach while they start."""

    host: ReachedHost
    """HOST or HOST:PORT, 443 by default."""
    what: Line
    """Its use by the runs."""
    offline: bool = False
    """Runs with prepared caches need it, too."""


class RequiresPart(DocumentPart):
    """The image's requirements of a host; versions are minimums."""

    driver: Line | dict[Name, Line] | None = None
    """amdgpu, as in /sys/module/amdgpu/version; one version, or versions by ISA (gfx950)."""
    rocm: Line | None = None
    """On the host, if installed there. An older one warns: containers bring their own."""
    nic_firmware: dict[FabricKind, Line] = {}
    """By kind of the fabric, of systems with several nodes."""
    gfx: Lines = []
    """The ISAs for which the image was built; empty: unknown."""
    reaches: list[ReachPart] = []
    """Hosts outside that runs reach while they start."""


class WorkloadRound(DocumentPart):
    """A workload in one round of MLPerf Training, or in a version of its own."""

    extends: Round | None = None
    """Another round of the workload: everything missing here is as there, but `source`
    and `note`."""
    ruleset: Ruleset
    """The round of the applicable rules, or `own`: no MLPerf benchmark."""
    image: Image | None = None
    """None: it was run without a container; the site gives the code, and the container engine is
    `none`."""
    image_gb: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Its compressed size in GB, at least; 0: unknown. A node that pulls it needs four times as
    much room. The registry's answer wins."""
    scripts: dict[RelativePath, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] = {}
    """SHA-256 of published files of the code: `images inspect` says which of them an image has."""
    minutes_per_run: Annotated[int, Field(ge=1, le=100_000)]
    """Expected minutes of a run, for the time limit of the job."""
    env: Env = {}
    """Variables shared by all systems of the round."""
    reference: dict[Batch, Env] = {}
    """Variables by global batch, in quotes, with the values of the reference convergence points."""
    container: ContainerPart = ContainerPart.model_construct()
    """Options of the container."""
    launch: LaunchPart = LaunchPart.model_construct()
    """How to start runs."""
    build: BuildPart | None = None
    """How to build the image, if no registry has it."""
    requires: RequiresPart = RequiresPart.model_construct()
    """The image's requirements of a host."""
    needs_env: dict[PassedName, Line] = {}
    """Variables of the submitter that the program needs unless it runs offline, with their use;
    passed on by name, never written."""
    offline: Env = {}
    """Variables with which a run does without the network, once its data is prepared; unless the
    site says `offline: false`."""
    command: list[str] | None = Field(default=None, min_length=1)
    """Replaces that of the workload."""
    mounts: list[MountPart] | None = None
    """Replace those of the workload."""
    data_tree: list[DataPart] | None = None
    """Replaces that of the workload."""
    logged: dict[Name, LoggedPart | None] = {}
    """Over the workload's own, key by key; null removes a key."""
    source: str = ""
    """The source of the facts."""
    note: str = ""
    """Assumptions and remarks."""


class Workload(DocumentPart):
    """A benchmark: its code, data, target, and the environment shared by all systems of a round."""

    kind: Literal["workload"]
    """The kind of the document."""
    name: Annotated[Name, AfterValidator(_without_dot)]
    """Name of its file."""
    extends: Line | None = None
    """A workload by name or file: everything missing here is as there, and null removes
    a key. Its own name is the next one of that name, such as the shipped one."""
    title: str = ""
    """For people."""
    benchmark: Name
    """Its name in the logs."""
    metric: Line
    """The evaluated metric."""
    target: float | None = None
    """The value that ends a run; null: no target."""
    target_is_upper_bound: bool = True
    """Smaller is better."""
    runs_required: Annotated[int, Field(ge=1, le=100)]
    """Runs of a valid set, and of a new set."""
    code_dir: AbsolutePath
    """The benchmark's code in the container: the command's working folder."""
    command: list[str] = Field(min_length=1)
    """The command, as a list of arguments."""
    mounts: list[MountPart] = []
    """Folders of the host in the container."""
    data_tree: list[DataPart] = []
    """Files that must exist in the folders of its data."""
    logged: dict[Name, LoggedPart] = {}
    """Key in the log -> source of its value: compared with the logs."""
    rounds: dict[Round, WorkloadRound] = Field(min_length=1)
    """By round, in quotes: image, environment, time and rules."""

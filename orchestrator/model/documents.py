"""The documents as typed models: system, workload, site, and the facts that systems share.

Unknown keys are errors, types are exact (a number is not text), and every default is written here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

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
    RelativePath,
    Round,
    Ruleset,
    Size,
    TrueFalseUnknown,
    Variable,
    refuse,
)
from orchestrator.model.part import DocumentPart, NameOr
from orchestrator.model.values import OWNED_BY_THE_LOOP, REFS, RUN_REFS, name_problem, secret_problem


class Accelerator(DocumentPart):
    """A GPU model. `gfx` is the ISA name; "" where there is no GPU."""

    title: Line
    gfx: str = ""
    memory_gb: int | None = Field(default=None, ge=1, le=100_000)
    devices: list[AbsolutePath] = []
    note: str = ""


class Host(DocumentPart):
    """A server model, as far as runs and submissions care."""

    title: Line
    cpu: str = ""
    sockets: int | None = Field(default=None, ge=1, le=64)
    cores_per_socket: int | None = Field(default=None, ge=1, le=4096)
    memory: str = ""
    os: str = ""
    network: str = ""
    source: str = ""
    note: str = ""


FabricKind = Literal["none", "ethernet", "broadcom", "mellanox", "pollara", "gpuboost"]


class Fabric(DocumentPart):
    """A kind of network between the nodes, with the RCCL settings that go with the kind.

    Names of interfaces and devices are facts of a site and do not stand here. By which driver or name a node knows the
    RDMA devices of the kind is a fact of the kind.
    """

    title: Line
    kind: FabricKind
    devices: list[AbsolutePath] = []
    drivers: Lines = []
    """Patterns of the kernel driver's name; empty: any device is of the kind."""
    names: Lines = []
    """Patterns of device names, for nodes that do not tell the driver."""
    link_layer: Literal["", "Ethernet", "InfiniBand"] = ""
    gbps: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Rate of one device in Gb/s; 0: not known."""
    nics_per_gpu: Annotated[int, Field(ge=0, le=64)] = 0
    """RDMA devices that a node has for each GPU; 0: not known, so none is asked for."""
    env: Env = {}
    source: str = ""
    note: str = ""


def _name_or(model: type[DocumentPart]) -> Callable[[object], object]:
    def parse(raw: object) -> object:
        if isinstance(raw, dict):
            return model.model_validate(raw)
        if isinstance(raw, str):
            return raw
        raise refuse(f"must be a name from systems/shared/ or a mapping, not {raw!r}")

    return parse


_NAME_OR_SCHEMA = WithJsonSchema(
    {
        "anyOf": [{"type": "string"}, {"type": "object"}],
        "description": "a name from systems/shared/, or the facts in place",
    }
)
AcceleratorFact = Annotated[Any, BeforeValidator(_name_or(Accelerator)), NameOr(Accelerator), _NAME_OR_SCHEMA]
HostFact = Annotated[Any, BeforeValidator(_name_or(Host)), NameOr(Host), _NAME_OR_SCHEMA]
FabricFact = Annotated[Any, BeforeValidator(_name_or(Fabric)), NameOr(Fabric), _NAME_OR_SCHEMA]


class ContainerPart(DocumentPart):
    """Container options of a workload round; a system's round may replace single ones."""

    devices: list[AbsolutePath] | None = None
    """Devices of the host that the container gets."""
    groups: list[Name] | None = None
    """Groups of the host, by name, that its user is in."""
    caps: list[Name] | None = None
    """Capabilities, such as SYS_PTRACE."""
    security_opt: list[Line] | None = None
    """Options for --security-opt."""
    ulimits: dict[Name, Line] | None = None
    """Limits by name, such as memlock."""
    shm_size: Line | None = None
    """Size of /dev/shm, such as 64G."""
    network: Literal["host", "bridge"] | None = None
    """The host's network, or one of its own."""
    ipc: Literal["host", "private"] | None = None
    """The host's shared memory, or one of its own."""
    uts: Literal["host", "private"] | None = None
    """The host's name, or one of its own."""


def _run_text(text: str) -> str:
    for name in re.findall(r"\{(\w+)\}", text):
        if name not in RUN_REFS:
            raise refuse(
                f"{{{name}}} is nothing of a run; accepted: {', '.join(RUN_REFS)}{did_you_mean(name, RUN_REFS)}"
            )
    return text


def _no_secret(name: str) -> str:
    if problem := secret_problem(name):
        raise refuse(problem)
    return name


RunText = Annotated[Line, AfterValidator(_run_text)]


class LaunchPart(DocumentPart):
    """How runs are started, of a workload round; a system's round may replace single keys."""

    command: Annotated[list[RunText], Field(min_length=1)] | None = None
    """What is started, as words."""
    code_dir: AbsolutePath | None = None
    """The folder in the image in which it starts."""
    ranks: Literal["node", "gpu"] | None = None
    """The command is a launcher, started once per node, or the program itself, started once per GPU as Slurm's tasks are."""
    most_nodes: Count | None = None
    """The command can start no more nodes than these."""
    master: Literal["name", "address"] | None = None
    """What MASTER_ADDR is of the first node of several: its name, or its IPv4 address."""
    hosts: bool | None = None
    """Have all nodes in /etc/hosts of the containers."""
    shared: list[AbsolutePath] = []
    """Folders of the containers that are the same one on all nodes of a run."""
    env: dict[Annotated[Variable, AfterValidator(_no_secret)], RunText] = {}
    """Further variables of every run, over all others."""
    unset: list[Variable] = []
    """Variables that the program must not have."""


def _logged_variable(text: str) -> str:
    if text not in OWNED_BY_THE_LOOP and (problem := name_problem(text)):
        raise refuse(problem)
    return text


def _fact(text: str) -> str:
    if text not in REFS:
        raise refuse(f"{text!r} is no fact; accepted: {', '.join(REFS)}{did_you_mean(text, REFS)}")
    return text


class LoggedPart(DocumentPart):
    """Where a value in the log comes from: a variable of the runs' environment, a fact of the descriptor, or both."""

    env: Annotated[str, AfterValidator(_logged_variable)] | None = None
    """`SEED` is the seed of the run."""
    ref: Annotated[str, AfterValidator(_fact)] | None = None
    """The system's value that the logs must have."""
    form: Form = "{}"
    """How the log writes the value, which stands at {}: "{nodes}x{}"."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.env is None and self.ref is None:
            raise refuse("needs `env` (a variable), `ref` (a fact), or both")
        return self


class SystemRound(DocumentPart):
    """What a system does differently for one workload in one round."""

    micro_batch: Size | None = None
    """Samples per GPU and step."""
    global_batch: Size | None = None
    """Samples per optimizer step, over all GPUs."""
    accumulation: Size | None = None
    """Steps whose gradients are added up."""
    tensor_parallel: Count = 1
    """GPUs that share a layer."""
    pipeline_parallel: Count = 1
    """Stages, each with some of the layers."""
    context_parallel: Count = 1
    """GPUs that share a sequence."""
    minutes_per_run: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Minutes that a run may take, in place of the workload's."""
    stack: Round | None = None
    """An earlier round whose image, environment and container is run under this round's rules."""
    published_as: Name | None = None
    """The name that the published config had, where it is not this system's; what {ref: system} gives."""
    image: Image | None = None
    """The image, in place of the workload's."""
    container: ContainerPart = ContainerPart.model_construct()
    launch: LaunchPart = LaunchPart.model_construct()
    logged: dict[Name, LoggedPart | None] = {}
    """Over the workload's own, key by key; null takes one away."""
    env: Env = {}
    """Variables of the runs, in place of the workload's or beside them."""
    whole_env: bool = False
    """`env` stands here in full: nothing is taken from the workload's round."""
    env_from: Literal["config", "logs", "assumed"] = "config"
    """What `env` was taken from: the config that was published; what the published logs show, with the round's values for
    the rest; nothing of this entry."""
    submitter: Line | None = None
    """Who published it."""
    submitted: TrueFalseUnknown = False
    """Whether results were published with it."""
    source: str = ""
    """Where the values are from."""
    note: str = ""
    """What else is known of it."""

    def launch_over(self, stack: WorkloadRound) -> LaunchPart:
        """Return how runs are started: the round's way with what the system replaces of it."""
        mine = self.launch.model_dump(exclude_none=True, exclude_unset=True)
        if "command" in mine:  # the limit is of the round's own command
            mine.setdefault("most_nodes", None)
        return stack.launch.model_copy(update=mine)


class System(DocumentPart):
    """One system: a machine, and what it runs."""

    kind: Literal["system"]
    """What the document is."""
    name: Name
    """The name, which is that of the file."""
    title: str = ""
    """One line for people."""
    accelerator: AcceleratorFact
    nodes: Count
    """Nodes of a run."""
    gpus_per_node: Annotated[int, Field(ge=1, le=1024)]
    """GPUs that a run uses on each node."""
    host: HostFact = None
    fabric: FabricFact = "none"
    workloads: dict[Name, Annotated[dict[Round, SystemRound], Field(min_length=1)]] = Field(min_length=1)
    """What it can run: workload, then round."""


class MountPart(DocumentPart):
    """A host folder in the container: `$variable/subpath` at `container`."""

    variable: Variable
    """Name of the variable with the host's folder."""
    subpath: RelativePath | None = None
    """Folder below that one."""
    container: AbsolutePath
    """Where the container sees it."""
    read_only: bool = False
    """Whether it is only read."""


class DataPart(DocumentPart):
    """A file or folder that must exist below `$variable`."""

    variable: Variable
    """Name of the folder's variable."""
    path: RelativePath
    """File or folder, from there on."""
    bytes: int = Field(default=0, ge=0)
    """How large it is, as published; what is much smaller or larger is told. 0: not known."""
    what: str = ""
    """What it is, in words."""


class RequiresPart(DocumentPart):
    """What the round's image needs of a host; versions are the lowest that will do."""

    driver: Line | None = None
    """amdgpu, as /sys/module/amdgpu/version has it."""
    rocm: Line | None = None
    """On the host, where it is installed there."""
    nic_firmware: dict[FabricKind, Line] = {}
    """By kind of the fabric, of systems with several nodes."""
    gfx: Lines = []
    """The ISAs that the image was built for; empty: not known."""


class WorkloadRound(DocumentPart):
    """A workload in one round of MLPerf Training, or in a version of its own."""

    ruleset: Ruleset
    """The round whose rules count, or `own`: no MLPerf benchmark."""
    image: Image | None = None
    """None: it was run without a container; the site gives the code, and the container engine is `none`."""
    minutes_per_run: Annotated[int, Field(ge=1, le=100_000)]
    """Minutes that a run may take; the job's time limit is 5 + NEXP x (these + 5)."""
    env: Env = {}
    """Variables of the runs."""
    reference: dict[Batch, Env] = {}
    """By global batch, in quotes: the variables that go with it, with the values of the reference convergence points."""
    container: ContainerPart = ContainerPart.model_construct()
    launch: LaunchPart = LaunchPart.model_construct()
    requires: RequiresPart = RequiresPart.model_construct()
    command: list[str] | None = Field(default=None, min_length=1)
    """In place of the workload's."""
    mounts: list[MountPart] | None = None
    """In place of the workload's."""
    data_tree: list[DataPart] | None = None
    """In place of the workload's."""
    logged: dict[Name, LoggedPart | None] = {}
    """Over the workload's own, key by key; null takes one away."""
    source: str = ""
    """Where the values are from."""
    note: str = ""
    """What else is known of it."""


class Workload(DocumentPart):
    """A benchmark: its code, data, target, and the environment that all systems of a round share."""

    kind: Literal["workload"]
    """What the document is."""
    name: Name
    """The name, which is that of the file."""
    title: str = ""
    """One line for people."""
    benchmark: Name
    """MLPerf's name of the benchmark; of one's own any name."""
    metric: Line
    """What is evaluated, in words."""
    target: float | None = None
    """The quality that ends a run."""
    target_is_upper_bound: bool = True
    """Whether the value has to be at the target or below it."""
    runs_required: Annotated[int, Field(ge=1, le=100)]
    """Runs that a score needs."""
    code_dir: AbsolutePath
    """The folder in the image in which the command starts."""
    command: list[str] = Field(min_length=1)
    """What is started on each node, as words."""
    mounts: list[MountPart] = []
    """Folders of data that the container gets."""
    data_tree: list[DataPart] = []
    """What has to be in these folders."""
    logged: dict[Name, LoggedPart] = {}
    """Key in the log -> what its value was given by: what is compared with what ran."""
    rounds: dict[Round, WorkloadRound] = Field(min_length=1)
    """What differs by round: image, variables, container."""


class Accelerators(DocumentPart):
    """systems/shared/accelerators.yaml"""

    kind: Literal["accelerators"]
    accelerators: dict[Name, Accelerator]


class Hosts(DocumentPart):
    """systems/shared/hosts.yaml"""

    kind: Literal["hosts"]
    hosts: dict[Name, Host]


class Fabrics(DocumentPart):
    """systems/shared/fabrics.yaml"""

    kind: Literal["fabrics"]
    fabrics: dict[Name, Fabric]

"""What composition gives: everything the renderer needs to know about one system, workload, round and site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.model.values import EnvValue

if TYPE_CHECKING:
    from orchestrator.model.documents import Site


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from. `line` is 0 for the command line; `source` is the published source of the fact."""

    layer: str
    """`workload`, `system`, `fabric`, `site` or `command line`."""
    file: str
    line: int
    source: str = ""

    def __str__(self) -> str:
        return f"{self.layer} {self.file}:{self.line}" if self.line else self.layer


@dataclass(frozen=True, slots=True)
class FabricFacts:
    """How a node knows the RDMA devices of the fabric, see `documents.Fabric`."""

    drivers: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    link_layer: str = ""
    gbps: int = 0
    nics_per_gpu: int = 0


@dataclass(frozen=True, slots=True)
class Mount:
    """A host folder in the container.

    `host` is the complete host path, None when no site gives it: then it is `$variable/subpath` of whoever starts
    the bundle (no slash when `subpath` is "").
    """

    variable: str
    subpath: str
    host: str | None
    container: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class DataPath:
    """A file or folder that must exist below the folder in `variable`; `bytes` is its published size, 0 if unknown."""

    variable: str
    path: str
    bytes: int
    what: str


@dataclass(frozen=True, slots=True)
class Container:
    """Options of the container; `privileged` only where the site asks for it."""

    engine: str
    command: tuple[str, ...]
    """How to call the engine, such as ("sudo", "-n", "docker"); empty when it is to be found out on the node."""
    privileged: bool
    devices: tuple[str, ...]
    groups: tuple[str, ...]
    caps: tuple[str, ...]
    security_opt: tuple[str, ...]
    ulimits: tuple[tuple[str, str], ...]
    """Pairs such as ("memlock", "-1:-1")."""
    shm_size: str | None
    network: str
    ipc: str
    uts: str
    pull: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One system with one workload of one round on one site, ready to be rendered.

    `env` and `rccl_env` are disjoint and together the whole environment; `rccl_env` holds what belongs to the fabric
    and to the site's network. Times are minutes. Batch and parallelism are 0 where the descriptor does not give them.
    """

    system: str
    title: str
    workload: str
    benchmark: str
    round: str
    ruleset: str
    published_as: str
    """The name the published config had; the value of {ref: system}."""
    submitter: str
    submitted: bool
    source: str
    note: str
    nodes: int
    gpus_per_node: int
    accelerator: str
    gfx: str
    host: str
    fabric: str
    fabric_kind: str
    fabric_facts: FabricFacts
    micro_batch: int
    global_batch: int
    accumulation: int
    tensor_parallel: int
    pipeline_parallel: int
    context_parallel: int
    minutes_per_run: int
    runs_required: int
    metric: str
    target: float | None
    target_is_upper_bound: bool
    image: str
    code_dir: str
    code_path: str | None
    """Host folder to mount over `code_dir`, where the site gives one."""
    command: tuple[str, ...]
    env: Mapping[str, EnvValue]
    rccl_env: Mapping[str, EnvValue]
    origins: Mapping[str, Origin]
    removed: Mapping[str, Origin]
    """Variables that an earlier layer set and a later one took away with null."""
    pass_env: tuple[str, ...]
    """Names whose values come from the environment of whoever starts the set (secrets); never written anywhere."""
    mounts: tuple[Mount, ...]
    data_tree: tuple[DataPath, ...]
    container: Container
    site: Site
    warnings: tuple[str, ...] = field(default=())
    files: tuple[str, ...] = field(default=())
    """Every document that was read, for the manifest."""

    @property
    def whole_env(self) -> dict[str, EnvValue]:
        """`env` and `rccl_env` together."""
        return {**self.env, **self.rccl_env}

    @property
    def ranks(self) -> int:
        """GPUs of all nodes together."""
        return self.nodes * self.gpus_per_node

    @property
    def config_file(self) -> str:
        """Name of the config file in the bundle; the value of {ref: config_file}."""
        return f"config_{self.published_as}.sh"

    def job_minutes(self, nexp: int) -> int:
        """Return the job's time limit for `nexp` runs, as published: 5 + NEXP x (minutes_per_run + 5)."""
        return 5 + nexp * (self.minutes_per_run + 5)

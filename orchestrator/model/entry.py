"""A composed system, workload, round and site, ready for rendering."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

from orchestrator.model.values import EnvValue, Text

if TYPE_CHECKING:
    from typing_extensions import Self

    from orchestrator.model.documents import (
        BuildPart,
        DataPart,
        LaunchPart,
        LoggedPart,
        ReachPart,
        System,
        SystemRound,
        Workload,
        WorkloadRound,
    )
    from orchestrator.model.shared_documents import Accelerator, Fabric, Host
    from orchestrator.model.site_documents import Site
    from orchestrator.model.source import Document, Key

T = TypeVar("T")


class NamedWarning(str):
    """A warning, hidden if the site lists its `name` in `acknowledged`."""

    name: str

    def __new__(cls, name: str, text: str) -> NamedWarning:
        member = super().__new__(cls, text)
        member.name = name
        return member


class Origin(NamedTuple):
    """`line` is 0 for the command line; `source` is the published source."""

    layer: str
    """`workload`, `system`, `fabric`, `transport`, `site` or `command line`."""
    file: str
    line: int
    source: str = ""

    def __str__(self) -> str:
        return f"{self.layer} {self.file}:{self.line}" if self.line else self.layer


@dataclass(frozen=True, slots=True)
class Logged:
    """The expected log value of `key`, from a variable, a fact, or both.

    `form` has {} for the variable's value; `value` is the fact in that form, "" if missing.
    """

    key: str
    env: str
    fact: str
    value: str
    form: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A host folder in the container. `host` is the complete path; None if the site gives no
    folder: then it is `$variable/subpath` (no slash if `subpath` is "") where the bundle starts."""

    variable: str
    subpath: str
    host: str | None
    container: str
    read_only: bool
    written: bool = False
    """The program needs to write there."""


@dataclass(frozen=True, slots=True)
class Container:
    """`privileged` only on the site's request."""

    engine: str
    command: tuple[str, ...]
    """Such as ("sudo", "-n", "docker"); empty: the engine's name."""
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
    options: tuple[str, ...] = ()
    """Further options of the engine's `run`, from the site."""


@dataclass(frozen=True, slots=True)
class EntryDocuments:
    """An entry's checked documents, and their parts for it."""

    system: System
    workload: Workload
    round: str
    mine: SystemRound
    """The system's part of the round."""
    rules: WorkloadRound
    """The workload's part of the round."""
    stack: WorkloadRound
    """The round with image and environment; mostly `rules`."""
    stack_key: Key
    accelerator: Accelerator
    host: Host | None
    fabric: Fabric
    fabric_home: tuple[Document, Key]
    system_document: Document
    workload_document: Document
    shared_documents: tuple[Document, ...]

    @property
    def launch(self) -> LaunchPart:
        return self.mine.launch_over(self.stack)

    @property
    def accelerator_name(self) -> str:
        """Return the name in systems/shared/, or the title of an inline accelerator."""
        given = self.system.accelerator
        return given if isinstance(given, str) else self.accelerator.title


class Fact(Generic[T]):
    """A fact of the documents, for `systems show` (`shown`) and `systems diff` (`compared`)."""

    def __init__(
        self, read: Callable[[EntryDocuments], T], *, shown: bool = True, compared: bool = False
    ) -> None:
        self.read = read
        self.shown = shown
        self.compared = compared

    @overload
    def __get__(self, entry: None, owner: type) -> Self: ...

    @overload
    def __get__(self, entry: Facts, owner: type) -> T: ...

    def __get__(self, entry: Facts | None, owner: type) -> Self | T:
        return self if entry is None else self.read(entry.documents)


@dataclass(frozen=True)
class Facts:
    """Facts in display order; `values.REFS` lists those for an `env`. Times are minutes; a missing
    batch is 0."""

    documents: EntryDocuments

    system = Fact(lambda of: of.system.name)
    title = Fact(lambda of: of.system.title)
    workload = Fact(lambda of: of.workload.name)
    benchmark = Fact(lambda of: of.workload.benchmark, shown=False)
    round = Fact(lambda of: of.round)
    ruleset = Fact(lambda of: of.rules.ruleset, compared=True)
    published_as = Fact(lambda of: of.mine.published_as or of.system.name, shown=False)
    """The published config's name; the value of {ref: system}."""
    config_file = Fact(
        lambda of: f"config_{of.mine.published_as or of.system.name}.sh", shown=False
    )
    """In the bundle."""
    submitter = Fact(lambda of: of.mine.submitter or "", compared=True)
    submitted = Fact(lambda of: of.mine.submitted, shown=False, compared=True)
    env_from = Fact(lambda of: of.mine.env_from)
    source = Fact(lambda of: of.mine.source)
    note = Fact(lambda of: of.mine.note)
    nodes = Fact(lambda of: of.system.nodes, compared=True)
    gpus_per_node = Fact(lambda of: of.system.gpus_per_node, compared=True)
    accelerator = Fact(lambda of: of.accelerator_name, compared=True)
    gfx = Fact(lambda of: of.accelerator.gfx, compared=True)
    host = Fact(lambda of: of.host.title if of.host else "", compared=True)
    fabric = Fact(lambda of: of.fabric.title, compared=True)
    fabric_kind = Fact(lambda of: of.fabric.kind, shown=False)
    micro_batch = Fact(lambda of: of.mine.micro_batch or 0, compared=True)
    global_batch = Fact(lambda of: of.mine.global_batch or 0, compared=True)
    accumulation = Fact(
        lambda of: (
            of.mine.accumulation
            or of.mine.computed_accumulation(of.system.nodes * of.system.gpus_per_node)
            or (1 if of.mine.global_batch else 0)
        ),
        compared=True,
    )
    tensor_parallel = Fact(lambda of: of.mine.tensor_parallel, compared=True)
    pipeline_parallel = Fact(lambda of: of.mine.pipeline_parallel, compared=True)
    context_parallel = Fact(lambda of: of.mine.context_parallel, compared=True)
    minutes_per_run = Fact(
        lambda of: of.mine.minutes_per_run or of.stack.minutes_per_run, compared=True
    )
    runs_required = Fact(lambda of: of.workload.runs_required)
    metric = Fact(lambda of: of.workload.metric)
    target = Fact(lambda of: of.workload.target)
    target_is_upper_bound = Fact(lambda of: of.workload.target_is_upper_bound, shown=False)
    image = Fact(lambda of: of.mine.image or of.stack.image or "", compared=True)
    code_dir = Fact(lambda of: of.launch.code_dir or of.workload.code_dir)
    command = Fact(
        lambda of: tuple(of.launch.command or of.stack.command or of.workload.command), shown=False
    )
    launch = Fact(lambda of: of.launch, shown=False)
    started = Fact(
        lambda of: f"{' '.join(Facts(of).command)}, once per {of.launch.ranks or 'node'}",
        compared=True,
    )


_FACT_OF_REF = {"system": "published_as"}
_BRACED = re.compile(r"\{(\w+)\}")


def fact_of(facts: Facts, name: str) -> str:
    """Return a fact by its name in `values.REFS`, or ""."""
    return str(getattr(facts, _FACT_OF_REF.get(name, name)) or "")


@dataclass(frozen=True)
class Entry(Facts):
    """`env` and `rccl_env` (of the fabric and the site's network) are disjoint."""

    env: Mapping[str, EnvValue]
    rccl_env: Mapping[str, EnvValue]
    origins: Mapping[str, Origin]
    removed: Mapping[str, Origin]
    """Variables of an earlier layer that a later layer removed with null."""
    mounts: tuple[Mount, ...]
    container: Container
    site: Site
    warnings: tuple[NamedWarning, ...] = field(default=())
    files: tuple[str, ...] = field(default=())
    """All documents, for the manifest."""

    @property
    def whole_env(self) -> dict[str, EnvValue]:
        return {**self.env, **self.rccl_env}

    @property
    def requires(self) -> dict[str, str]:
        """Return minimal driver, rocm and nic_firmware, and gfx; {} for another image."""
        needs = self.documents.stack.requires
        firmware = needs.nic_firmware.get(self.documents.fabric.kind) if self.nodes > 1 else None
        driver = needs.driver
        declared = {
            "driver": driver.get(self.gfx) if isinstance(driver, dict) else driver,
            "rocm": needs.rocm,
            "nic_firmware": firmware,
            "gfx": " ".join(needs.gfx),
        }
        return (
            {}
            if self.documents.mine.image
            else {name: value for name, value in declared.items() if value}
        )

    @property
    def image_gb(self) -> int:
        """Return the image's least compressed GB; 0 if unknown."""
        return 0 if self.documents.mine.image else self.documents.stack.image_gb

    @property
    def published_scripts(self) -> dict[str, str]:
        """Return path -> SHA-256 of the published code; {} for another image."""
        known = {} if self.documents.mine.image else self.documents.stack.scripts
        return {posixpath.join(self.code_dir, path): digits for path, digits in known.items()}

    @property
    def reaches(self) -> tuple[ReachPart, ...]:
        """Return hosts that starting runs reach."""
        if self.documents.mine.image:
            return ()
        hosts = self.documents.stack.requires.reaches
        return tuple(part for part in hosts if part.offline or not self.is_offline)

    @property
    def build(self) -> BuildPart | None:
        """Return how to build an image that no registry has."""
        return None if self.documents.mine.image else self.documents.stack.build

    @property
    def run_timeout_s(self) -> int:
        return round(60 * (self.site.limits.run_timeout_minutes or self.minutes_per_run))

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def gpu_options(self) -> list[str]:
        """Return Slurm's option for the GPUs of a node; [] without GPUs, or if the site asks for
        no number."""
        if not self.gfx or self.site.gpu_request == "none":
            return []
        request = "--gres=gpu:" if self.site.gpu_request == "gres" else "--gpus-per-node="
        return [f"{request}{self.gpus_per_node}"]

    @property
    def code_path(self) -> str | None:
        """Return the host folder to mount over `code_dir`."""
        return self.site.code.get(self.workload)

    @property
    def pass_env(self) -> tuple[str, ...]:
        """Return names of the submitter's variables (secrets): values are never written."""
        return tuple(dict.fromkeys([*self.site.pass_env, *self.needs_env]))

    @property
    def needs_env(self) -> dict[str, str]:
        """Return the program's variables from the submitter, with their use."""
        return {} if self.is_offline else dict(self.documents.stack.needs_env)

    @property
    def is_offline(self) -> bool:
        """Return whether runs use prepared caches instead of the network."""
        return self.site.offline and bool(self.documents.stack.offline)

    @property
    def data_tree(self) -> tuple[DataPart, ...]:
        of_round = self.documents.stack.data_tree
        parts = self.documents.workload.data_tree if of_round is None else of_round
        return tuple(part for part in parts if self.is_offline or not part.offline_only)

    @property
    def logged(self) -> tuple[Logged, ...]:
        parts = {
            **self.documents.workload.logged,
            **self.documents.stack.logged,
            **self.documents.mine.logged,
        }
        return tuple(self._logged(key, part) for key, part in parts.items() if part is not None)

    @property
    def logged_submitter(self) -> tuple[str, str]:
        """Return the logs' organisation and its variable; "" if unknown here."""
        variable = next((part.env for part in self.logged if part.key == "submission_org"), "")
        value = self.whole_env.get(variable)
        return value.text if isinstance(value, Text) else "", variable

    def _logged(self, key: str, part: LoggedPart) -> Logged:
        form = _BRACED.sub(lambda match: fact_of(self, match[1]), part.form)
        value = fact_of(self, part.ref) if part.ref else ""
        return Logged(
            key, part.env or "", part.ref or "", form.replace("{}", value) if value else "", form
        )

    def facts(self, want: Callable[[Fact[Any]], bool]) -> dict[str, Any]:
        """Return accepted facts, in display order."""
        return {
            name: getattr(self, name)
            for name, fact in vars(Facts).items()
            if isinstance(fact, Fact) and want(fact)
        }

    def with_document(self, name: str, **values: Any) -> Entry:
        """Replace values, unchecked, in the document called `name`."""
        changed = getattr(self.documents, name).model_copy(update=values)
        return replace(self, documents=replace(self.documents, **{name: changed}))

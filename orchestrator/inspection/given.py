"""A bundle's side of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from orchestrator.inspection.run_container import Mounted, NodeStart, RunContainer
from orchestrator.inspection.trace import UNKNOWN

if TYPE_CHECKING:
    from orchestrator.model import Entry
    from orchestrator.onnode.kernel.settings import Settings

RESULTS = "/results"


@dataclass(frozen=True)
class Given:
    """Needs of findings; the defaults are for an image alone. `sources`: file and line of
    values."""

    around: RunContainer = field(default_factory=RunContainer)
    command: tuple[str, ...] = ()
    nodes: int = 1
    gpus: int = 8
    ranks: str = ""
    """`node`: the command is a launcher; `gpu`: started once per GPU; "": the round names neither,
    and it is started once per node."""
    sources: Mapping[str, str] = field(default_factory=dict)
    writable: frozenset[str] = frozenset()
    """Places that the program writes."""
    verbose: Mapping[str, str] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    """Variables taken from the submitter."""
    unset: frozenset[str] = frozenset()
    logged: frozenset[str] = frozenset()
    """Variables whose values the log must show."""
    is_offline: bool = False
    offline: Mapping[str, str] = field(default_factory=dict)
    second: NodeStart | None = None
    """On the second node, if any."""
    is_run: bool = True
    """False for another command of the image, such as a preparation."""

    @property
    def configured(self) -> frozenset[str]:
        return frozenset(self.sources)


def given_by(entry: Entry) -> Given:
    first = _start_on(entry, 0)
    return Given(
        first.around,
        first.command,
        entry.nodes,
        entry.gpus_per_node,
        entry.launch.ranks or "",
        {name: str(origin) for name, origin in entry.origins.items() if name in entry.whole_env},
        frozenset(mount.container for mount in entry.mounts if mount.written) | {RESULTS, "/orch"},
        entry.launch.verbose,
        frozenset(entry.pass_env),
        frozenset(entry.launch.unset),
        frozenset(logged.env for logged in entry.logged if logged.env),
        entry.is_offline,
        {name: str(value) for name, value in entry.documents.stack.offline.items()},
        _start_on(entry, 1) if entry.nodes > 1 else None,
    )


def _start_on(entry: Entry, rank: int) -> NodeStart:
    from orchestrator.onnode.agent import launch
    from orchestrator.onnode.kernel.jobs import LOCALID, PROCID

    nodes = [f"node{number}" for number in range(1, entry.nodes + 1)]
    master = "127.0.0.1" if entry.nodes == 1 else "node1"
    request = launch.RunRequest("1", nodes, 1, 1, 1, 29500, master)
    settings = cast(
        "Settings",
        SimpleNamespace(
            gpus_per_node=entry.gpus_per_node,
            launch_env=tuple(f"{name}\t{value}" for name, value in entry.launch.env.items()),
            launch_verbose=(),
            launch_ranks=entry.launch.ranks or "node",
            launch_unset=tuple(entry.launch.unset),
        ),
    )
    environment = {name: str(value) for name, value in entry.whole_env.items()}
    for name, value in launch.environment(request, rank, settings, "1").items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    if entry.launch.ranks == "gpu":
        task = str(rank * entry.gpus_per_node)
        environment.update({"LOCAL_RANK": "0", LOCALID: "0", "RANK": task, PROCID: task})
    environment.update((name, UNKNOWN) for name in entry.pass_env)
    return NodeStart(
        tuple(launch.filled(word, request, rank, entry.gpus_per_node) for word in entry.command),
        RunContainer(environment, tuple(_mounts(entry)), entry.code_dir),
    )


def _mounts(entry: Entry) -> list[Mounted]:
    mounts = [Mounted(RESULTS, holds=()), Mounted("/orch", holds=())]
    for mount in entry.mounts:
        subpath = f"{mount.subpath}/" if mount.subpath else ""
        holds = [
            f"{mount.container.rstrip('/')}/{part.path[len(subpath) :]}".rstrip("/")
            for part in entry.data_tree
            if part.variable == mount.variable and f"{part.path}/".startswith(subpath)
        ]
        mounts.append(Mounted(mount.container, mount.read_only, tuple(holds)))
    for site_mount in entry.site.container.mounts:
        place = site_mount.container or site_mount.host
        mounts.append(Mounted(place, site_mount.read_only, None))
    mounts += [Mounted(place, holds=()) for place in entry.launch.shared]
    return mounts

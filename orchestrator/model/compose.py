"""Composition: system x workload x round x site -> Entry.

Environment, later wins: workload round < system's workload round < fabric < site < command line. A value null takes a
variable away that an earlier layer set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.errors import DescriptorError, UsageError
from orchestrator.model import values
from orchestrator.model.catalogue import Catalogue
from orchestrator.model.checks import label_warning
from orchestrator.model.documents import (
    Accelerator,
    ContainerPart,
    Fabric,
    Site,
    System,
    SystemRound,
    Workload,
    WorkloadRound,
)
from orchestrator.model.entry import Container, DataPath, Entry, FabricFacts, Mount, Origin
from orchestrator.model.fields import NAME
from orchestrator.model.sites import check_data_variables, folders_in, site_of
from orchestrator.model.source import Document, Key, read, shown

_NETWORK_LAYERS = ("fabric", "site network")


def load_entry(
    system: str,
    workload: str,
    *,
    round: str | None = None,
    site: Path | Site | str | None = None,
    env: Mapping[str, str] | None = None,
    systems_dirs: Sequence[Path] = (),
) -> Entry:
    """Compose the entry of `system` and `workload`, both names in the catalogue or paths to YAML files.

    `round` None takes the newest round that the system has for the workload. `env` are the user's last words.
    `systems_dirs` are searched before the site's `systems_dirs`, and these before the package.
    Raises UsageError for names that do not exist, DescriptorError with every problem of a wrong document.
    """
    site_document, folders = None, [*systems_dirs]
    if isinstance(site, (str, Path)):
        site_document = read(Path(site))
        folders += folders_in(site_document)
    catalogue = Catalogue(folders)
    chosen = _choose(catalogue, system, workload, round)
    if site_document is not None:
        known = sorted({*catalogue.workload_names(), chosen.workload.name})
        return _Composition(chosen, site_of(site_document, known), site_document, env or {}).entry()
    given = site if isinstance(site, Site) else Site()
    return _Composition(chosen, given, None, env or {}).entry()


@dataclass(frozen=True)
class _Chosen:
    """The documents of one entry, found and checked."""

    system_document: Document
    system: System
    workload_document: Document
    workload: Workload
    round: str
    mine: SystemRound
    """The system's part of the round."""
    stack: str
    """The round whose image and environment is used; nearly always `round`."""
    accelerator: Accelerator
    fabric: Fabric
    fabric_home: tuple[Document, Key]
    host_title: str
    shared_documents: tuple[Document, ...]


def _choose(catalogue: Catalogue, system_name: str, workload_name: str, round_name: str | None) -> _Chosen:
    document, system = catalogue.system(system_name)
    workload_document, workload = catalogue.workload(workload_name)
    if workload.name not in system.workloads:
        has = ", ".join(sorted(system.workloads))
        raise UsageError(
            f"{system.name} has no workload {workload.name}; it has: {has}",
            hint=f"orchestrator systems show {system.name}",
        )
    rounds = system.workloads[workload.name]
    chosen = newest(rounds) if round_name is None else round_name
    if chosen not in rounds:
        raise UsageError(
            f"{system.name} has no round {chosen} for {workload.name}; "
            f"it has: {', '.join(sorted(rounds, key=round_order))}",
            hint=f"orchestrator systems show {system.name}",
        )
    stack = rounds[chosen].stack or chosen
    _check_rounds(document, workload, {chosen, stack}, (workload.name, chosen))
    host = catalogue.fact("hosts", system.host)
    return _Chosen(
        document,
        system,
        workload_document,
        workload,
        chosen,
        rounds[chosen],
        stack,
        catalogue.fact("accelerators", system.accelerator),
        catalogue.fact("fabrics", system.fabric),
        _fabric_home(catalogue, document, system),
        host.title if host else "",
        _shared_documents(catalogue, system),
    )


def _check_rounds(document: Document, workload: Workload, wanted: set[str], key: Key) -> None:
    for one in sorted(wanted - set(workload.rounds)):
        # Only a workload given as a file can lack it: those of the catalogue were checked with the system.
        raise DescriptorError(
            [
                f"{shown(document.path)}:{document.line(('workloads', *key))}: "
                f"workloads.{key[0]}.{key[1]}: {workload.name} has no round {one}; "
                f"it has: {', '.join(sorted(workload.rounds))}"
            ]
        )


def _fabric_home(catalogue: Catalogue, document: Document, system: System) -> tuple[Document, Key]:
    if isinstance(system.fabric, str):
        return catalogue.shared("fabrics")[1][system.fabric]
    return document, ("fabric",)


def _shared_documents(catalogue: Catalogue, system: System) -> tuple[Document, ...]:
    named = {"accelerators": system.accelerator, "hosts": system.host, "fabrics": system.fabric}
    return tuple(catalogue.shared(kind)[1][name][0] for kind, name in named.items() if isinstance(name, str))


def round_order(name: str) -> tuple[int, ...]:
    """Return the sort key of a round: "10.0" comes after "6.0"."""
    return tuple(int(part) for part in name.split("."))


def newest(rounds: Mapping[str, object]) -> str:
    """Return the newest of `rounds`."""
    return max(rounds, key=round_order)


@dataclass
class _Composition:
    """Puts the layers of one entry together."""

    chosen: _Chosen
    site: Site
    site_document: Document | None
    given: Mapping[str, str]
    env: dict[str, values.EnvValue] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    removed: dict[str, Origin] = field(default_factory=dict)
    network: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)

    def entry(self) -> Entry:
        """Return the composed entry."""
        chosen, mine, shared = self.chosen, self.chosen.mine, self._stack()
        self._compose_env(shared)
        if warning := label_warning(chosen.system, mine, chosen.workload.name, chosen.round):
            self.warnings.append(warning)
        self._check_network()
        return Entry(
            system=chosen.system.name,
            title=chosen.system.title,
            workload=chosen.workload.name,
            benchmark=chosen.workload.benchmark,
            round=chosen.round,
            ruleset=chosen.workload.rounds[chosen.round].ruleset,
            published_as=self._published_as(),
            submitter=mine.submitter or "",
            submitted=mine.submitted,
            source=mine.source,
            note=mine.note,
            nodes=chosen.system.nodes,
            gpus_per_node=chosen.system.gpus_per_node,
            accelerator=self._accelerator_name(),
            gfx=chosen.accelerator.gfx,
            host=chosen.host_title,
            fabric=chosen.fabric.title,
            fabric_kind=chosen.fabric.kind,
            fabric_facts=self._fabric_facts(),
            micro_batch=mine.micro_batch or 0,
            global_batch=mine.global_batch or 0,
            accumulation=mine.accumulation or (1 if mine.global_batch else 0),
            tensor_parallel=mine.tensor_parallel,
            pipeline_parallel=mine.pipeline_parallel,
            context_parallel=mine.context_parallel,
            minutes_per_run=self._minutes_per_run(),
            runs_required=chosen.workload.runs_required,
            metric=chosen.workload.metric,
            target=chosen.workload.target,
            target_is_upper_bound=chosen.workload.target_is_upper_bound,
            image=mine.image or shared.image or "",
            code_dir=chosen.workload.code_dir,
            code_path=self.site.code.get(chosen.workload.name),
            command=tuple(shared.command or chosen.workload.command),
            env={name: value for name, value in self.env.items() if name not in self.network},
            rccl_env={name: value for name, value in self.env.items() if name in self.network},
            origins=self.origins,
            removed=self.removed,
            pass_env=tuple(self.site.pass_env),
            mounts=self._mounts(shared),
            data_tree=self._data_tree(shared),
            container=self._container(shared),
            site=self.site,
            warnings=tuple(self.warnings),
            files=self._files(),
        )

    def _stack(self) -> WorkloadRound:
        return self.chosen.workload.rounds[self.chosen.stack]

    def _compose_env(self, shared: WorkloadRound) -> None:
        chosen = self.chosen
        here = ("workloads", chosen.workload.name, chosen.round, "env")
        if not chosen.mine.whole_env:
            self._layer(
                "workload", shared.env, chosen.workload_document, ("rounds", chosen.stack, "env"), shared.source
            )
        self._layer("system", chosen.mine.env, chosen.system_document, here, chosen.mine.source)
        home, key = chosen.fabric_home
        self._layer("fabric", chosen.fabric.env, home, (*key, "env"), chosen.fabric.source)
        self._site_layers()
        self._command_line()

    def _site_layers(self) -> None:
        document = self.site_document or Document(Path(f"site {self.site.name}"))
        if self.chosen.fabric.kind != "none":
            for name, (value, key) in self._site_network().items():
                self._set(name, values.Text(value), "site network", document, ("network", key), "")
        self._layer("site network", self.site.network.env, document, ("network", "env"), "")
        self._layer("site", self.site.env, document, ("env",), "")

    def _site_network(self) -> dict[str, tuple[str, str]]:
        network = self.site.network
        one_name = network.socket_ifname if NAME.fullmatch(network.socket_ifname or "") else None
        # Gloo takes one name; from a list each node takes the first interface that it has.
        gloo = (
            ("gloo_socket_ifname", network.gloo_socket_ifname)
            if network.gloo_socket_ifname
            else ("socket_ifname", one_name)
        )
        given = {
            "NCCL_SOCKET_IFNAME": ("socket_ifname", network.socket_ifname),
            "GLOO_SOCKET_IFNAME": gloo,
            "NCCL_IB_HCA": ("ib_hca", network.ib_hca),
            "NCCL_IB_GID_INDEX": ("gid_index", network.gid_index),
            "NCCL_IB_DISABLE": ("rdma", "1" if network.rdma == "off" else None),
        }
        return {name: (str(value), key) for name, (key, value) in given.items() if value is not None}

    def _layer(self, layer: str, env: Mapping[str, Any], document: Document, key: Key, source: str) -> None:
        for name, value in env.items():
            self._set(name, value, layer, document, (*key, name), source)

    def _set(
        self, name: str, value: values.DocumentValue, layer: str, document: Document, key: Key, source: str
    ) -> None:
        line = document.line(key) if document.lines else 0
        origin = Origin(layer, shown(document.path), line, source)
        if value is None:
            if self.env.pop(name, None) is not None:
                self.removed[name] = origin
                self.origins.pop(name)
            return
        self.env[name] = self._resolve(value)
        self.origins[name] = origin
        self.removed.pop(name, None)
        if layer in _NETWORK_LAYERS:
            # It stays there when the site's `env` or the command line has another value for it.
            self.network.add(name)

    def _command_line(self) -> None:
        for name, text in self.given.items():
            problem = (
                values.name_problem(name)
                or values.secret_problem(name)
                or values.value_problem(text)
                or values.empty_problem(name, text)
            )
            if problem:
                raise UsageError(f"--env {name}: {problem}")
            self.env[name] = values.Text(text)
            self.origins[name] = Origin("command line", "", 0)
            self.removed.pop(name, None)

    def _resolve(self, value: values.EnvValue | values.Ref) -> values.EnvValue:
        if not isinstance(value, values.Ref):
            return value
        chosen, mine = self.chosen, self.chosen.mine
        facts: dict[str, object] = {
            "system": self._published_as(),
            "config_file": f"config_{self._published_as()}.sh",
            "accelerator": self._accelerator_name(),
            "nodes": chosen.system.nodes,
            "gpus_per_node": chosen.system.gpus_per_node,
            "micro_batch": mine.micro_batch,
            "global_batch": mine.global_batch,
            "tensor_parallel": mine.tensor_parallel,
            "pipeline_parallel": mine.pipeline_parallel,
            "context_parallel": mine.context_parallel,
            "minutes_per_run": self._minutes_per_run(),
        }
        if facts[value.name] is None:
            where = ("workloads", chosen.workload.name, chosen.round)
            raise DescriptorError(
                [
                    f"{shown(chosen.system_document.path)}:{chosen.system_document.line(where)}: "
                    f"{'.'.join(where[:2])}.{where[2]}.{value.name}: this key is required, because "
                    f"the environment of {chosen.workload.name} refers to it"
                ]
            )
        return values.Text(str(facts[value.name]))

    def _fabric_facts(self) -> FabricFacts:
        one = self.chosen.fabric
        return FabricFacts(tuple(one.drivers), tuple(one.names), one.link_layer, one.gbps, one.nics_per_gpu)

    def _published_as(self) -> str:
        return self.chosen.mine.published_as or self.chosen.system.name

    def _accelerator_name(self) -> str:
        given = self.chosen.system.accelerator
        return given if isinstance(given, str) else given.title

    def _minutes_per_run(self) -> int:
        return self.chosen.mine.minutes_per_run or self._stack().minutes_per_run

    def _check_network(self) -> None:
        kind, nodes = self.chosen.fabric.kind, self.chosen.system.nodes
        if kind == "none" and nodes > 1 and self.chosen.accelerator.gfx:
            self.warnings.append(f"{self.chosen.system.name} has {nodes} nodes but its fabric is none")
        if self.site_document is None or kind == "none" or nodes == 1:
            return
        missing = [
            key
            for key, name in (("socket_ifname", "NCCL_SOCKET_IFNAME"), ("ib_hca", "NCCL_IB_HCA"))
            if name not in self.env and not (key == "ib_hca" and kind == "ethernet")
        ]
        for key in missing:
            self.warnings.append(f"the site gives no network.{key}; each of the {nodes} nodes will detect its own")

    def _mounts(self, shared: WorkloadRound) -> tuple[Mount, ...]:
        mounts = shared.mounts if shared.mounts is not None else self.chosen.workload.mounts
        folders = self._data_folders([mount.variable for mount in mounts])
        return tuple(
            Mount(
                one.variable,
                one.subpath or "",
                _below(folders.get(one.variable), one.subpath),
                one.container,
                one.read_only,
            )
            for one in mounts
        )

    def _data_folders(self, variables: list[str]) -> dict[str, str]:
        name = self.chosen.workload.name
        given = self.site.data.get(name, {})
        document = self.site_document or Document(Path(f"site {self.site.name}"))
        check_data_variables(document, self.site, self.chosen.workload)
        document.check()
        missing = sorted(set(variables) - set(given))
        if missing and self.site_document is not None:
            self.warnings.append(
                f"the site gives no data.{name}.{missing[0]}; it must be in the environment when the bundle starts"
            )
        return given

    def _data_tree(self, shared: WorkloadRound) -> tuple[DataPath, ...]:
        tree = shared.data_tree if shared.data_tree is not None else self.chosen.workload.data_tree
        return tuple(DataPath(one.variable, one.path, one.bytes, one.what) for one in tree)

    def _container(self, shared: WorkloadRound) -> Container:
        merged = {
            **shared.container.model_dump(exclude_none=True),
            **self.chosen.mine.container.model_dump(exclude_none=True),
        }
        part, site = ContainerPart.model_validate(merged), self.site.container
        rdma = self.chosen.fabric.devices if self.chosen.system.nodes > 1 else []
        devices = dict.fromkeys([*self.chosen.accelerator.devices, *rdma, *(part.devices or []), *site.devices])
        caps, ulimits = dict.fromkeys(part.caps or []), dict(part.ulimits or {})
        if rdma:
            # Memory that a NIC reads and writes must be locked; without this registration fails or RCCL uses TCP.
            caps["IPC_LOCK"] = None
            ulimits.setdefault("memlock", "-1:-1")
        return Container(
            engine=site.engine,
            command=tuple(site.command or ()),
            privileged=site.privileged,
            devices=tuple(devices),
            groups=tuple(part.groups or ()),
            caps=tuple(caps),
            security_opt=tuple(part.security_opt or ()),
            ulimits=tuple(ulimits.items()),
            shm_size=part.shm_size,
            network=part.network or "host",
            ipc=part.ipc or "host",
            uts=part.uts or "host",
            pull=site.pull,
        )

    def _files(self) -> tuple[str, ...]:
        documents = [self.chosen.system_document, self.chosen.workload_document, *self.chosen.shared_documents]
        if self.site_document is not None:
            documents.append(self.site_document)
        return tuple(dict.fromkeys(str(one.path) for one in documents))


def _below(folder: str | None, subpath: str | None) -> str | None:
    if folder is None:
        return None
    return f"{folder.rstrip('/')}/{subpath}" if subpath else folder

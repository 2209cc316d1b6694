"""Composition: system x workload x round x site -> Entry.

Later environments win: workload round < system's round < fabric < site < command line. null removes
an earlier layer's variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.model import values
from orchestrator.model.catalogue import Catalogue
from orchestrator.model.checks import label_warning, launch_problem
from orchestrator.model.documents import ContainerPart, System, Workload
from orchestrator.model.entry import (
    Container,
    Entry,
    EntryDocuments,
    Facts,
    Mount,
    NamedWarning,
    Origin,
    fact_of,
)
from orchestrator.model.site_documents import Site
from orchestrator.model.sites import check_data_variables, site_of
from orchestrator.model.source import Document, Key, folders_in, override, read
from orchestrator.model.transport import site_variables, transport_settings
from orchestrator.resources import data_dir
from orchestrator.words import quoted

_NETWORK_LAYERS = ("fabric", "site network")
_GIVEN_LAYERS = ("site network", "site", "command line")


def load_entry(
    system: str,
    workload: str,
    *,
    round: str | None = None,
    site: Path | Site | str | None = None,
    env: Mapping[str, str] | None = None,
    systems_dirs: Sequence[Path] = (),
    overrides: Iterable[tuple[str, str]] = (),
) -> Entry:
    """Compose `system` and `workload`, names in the catalogue or paths to YAML files.

    `round` None: the system's newest. `env` wins over all documents. `overrides`: keys of the site
    (`container.pull`) with YAML values. `systems_dirs` come before the site's, then the package.
    Raises UsageError for unknown names, DescriptorError with every problem of a document.
    """
    site_document = None
    folders = [*systems_dirs]
    if isinstance(site, (str, Path)):
        site_document = read(Path(site))
        override(site_document, overrides)
        folders += folders_in(site_document)
    catalogue = Catalogue(folders)
    chosen = _choose(catalogue, system, workload, round)
    if site_document is not None:
        known = sorted({*catalogue.workload_names(), chosen.workload.name})
        return _Composition(chosen, site_of(site_document, known), site_document, env or {}).entry()
    given = site if isinstance(site, Site) else Site()
    return _Composition(chosen, given, None, env or {}).entry()


def _choose(
    catalogue: Catalogue, system_name: str, workload_name: str, round_name: str | None
) -> EntryDocuments:
    document, system = catalogue.system(system_name)
    workload_document, workload = catalogue.workload(workload_name)
    if workload.name not in system.workloads:
        has = ", ".join(sorted(system.workloads))
        raise UsageError(
            f"{system.name} has no workload {workload.name}; it has: {has}",
            hint=f"orchestrator systems show {quoted(system.name)}",
        )
    rounds = system.workloads[workload.name]
    chosen = newest(rounds) if round_name is None else round_name
    if chosen not in rounds:
        raise UsageError(
            f"{system.name} has no round {chosen} for {workload.name}; "
            f"it has: {', '.join(sorted(rounds, key=round_order))}",
            hint=f"orchestrator systems show {quoted(system.name)}",
        )
    stack = rounds[chosen].stack or chosen
    _check_rounds(document, workload, {chosen, stack}, (workload.name, chosen))
    return EntryDocuments(
        system=system,
        workload=workload,
        round=chosen,
        mine=rounds[chosen],
        rules=workload.rounds[chosen],
        stack=workload.rounds[stack],
        stack_key=("rounds", stack),
        accelerator=catalogue.fact("accelerators", system.accelerator),
        host=catalogue.fact("hosts", system.host),
        fabric=catalogue.fact("fabrics", system.fabric),
        fabric_home=_fabric_home(catalogue, document, system),
        system_document=document,
        workload_document=workload_document,
        shared_documents=_shared_documents(catalogue, system),
    )


def _check_rounds(document: Document, workload: Workload, wanted: set[str], key: Key) -> None:
    # Only workload files can lack a round; the catalogue's are checked.
    for missing in sorted(wanted - set(workload.rounds)):
        has = ", ".join(sorted(workload.rounds))
        document.add(("workloads", *key), f"{workload.name} has no round {missing}; it has: {has}")
    document.check()


def _fabric_home(catalogue: Catalogue, document: Document, system: System) -> tuple[Document, Key]:
    if isinstance(system.fabric, str):
        return catalogue.shared("fabrics")[1][system.fabric]
    return document, ("fabric",)


def _shared_documents(catalogue: Catalogue, system: System) -> tuple[Document, ...]:
    named = {"accelerators": system.accelerator, "hosts": system.host, "fabrics": system.fabric}
    return tuple(
        catalogue.shared(kind)[1][name][0] for kind, name in named.items() if isinstance(name, str)
    )


def round_order(name: str) -> tuple[int, ...]:
    """Sort "10.0" after "6.0"."""
    return tuple(int(part) for part in name.split("."))


def newest(rounds: Mapping[str, object]) -> str:
    return max(rounds, key=round_order)


@dataclass
class _Composition:
    chosen: EntryDocuments
    site: Site
    site_document: Document | None
    given: Mapping[str, str]
    env: dict[str, values.EnvValue] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    removed: dict[str, Origin] = field(default_factory=dict)
    network: set[str] = field(default_factory=set)
    warnings: list[NamedWarning] = field(default_factory=list)

    def _warn(self, name: str, text: str) -> None:
        if name not in self.site.acknowledged:
            self.warnings.append(NamedWarning(name, text))

    def entry(self) -> Entry:
        chosen = self.chosen
        self._compose_env()
        shipped = data_dir("systems") in chosen.system_document.path.parents
        if not shipped and (
            warning := label_warning(chosen.system, chosen.mine, chosen.workload.name, chosen.round)
        ):
            self._warn("label", warning)
        if problem := launch_problem(
            chosen.system, chosen.mine, chosen.workload, chosen.round, self.site.code
        ):
            self._warn("launch", problem)
        self._check_network()
        return Entry(
            chosen,
            env={name: value for name, value in self.env.items() if name not in self.network},
            rccl_env={name: value for name, value in self.env.items() if name in self.network},
            origins=self.origins,
            removed=self.removed,
            mounts=self._mounts(),
            container=self._container(),
            site=self.site,
            warnings=tuple(self.warnings),
            files=self._files(),
        )

    def _compose_env(self) -> None:
        chosen = self.chosen
        shared = self.chosen.stack
        here = ("workloads", chosen.workload.name, chosen.round, "env")
        if not chosen.mine.whole_env:
            self._layer(
                "workload",
                shared.env,
                chosen.workload_document,
                (*chosen.stack_key, "env"),
                shared.source,
            )
        self._layer("system", chosen.mine.env, chosen.system_document, here, chosen.mine.source)
        if self.site.offline:
            key = (*chosen.stack_key, "offline")
            self._layer("offline", shared.offline, chosen.workload_document, key, shared.source)
        home, place = chosen.fabric_home
        self._layer("fabric", chosen.fabric.env, home, (*place, "env"), chosen.fabric.source)
        self._site_layers()
        self._command_line()
        self._show_network()

    def _show_network(self) -> None:
        layers = {**self.removed, **self.origins}
        given = [name for name, origin in layers.items() if origin.layer in _GIVEN_LAYERS]
        system, fabric = self.chosen.system, self.chosen.fabric
        wanted = transport_settings(self.env, given, system.nodes, fabric, self.site)
        for name, value in wanted.items():
            self.env[name] = values.Text(value)
            self.origins[name] = Origin("transport", "", 0, "docs/network.md")
            self.removed.pop(name, None)

    def _site_layers(self) -> None:
        document = self.site_document or Document(Path(f"site {self.site.name}"))
        if self.chosen.fabric.kind != "none":
            for name, (value, key) in site_variables(self.site.network).items():
                self._set(name, values.Text(value), "site network", document, ("network", key), "")
        self._layer("site network", self.site.network.env, document, ("network", "env"), "")
        for name, value in self.site.container.proxy.variables.items():
            text = values.Text(value)
            self._set(name, text, "site proxy", document, ("container", "proxy"), "")
        self._layer("site", self.site.env, document, ("env",), "")

    def _layer(
        self, layer: str, env: Mapping[str, Any], document: Document, key: Key, source: str
    ) -> None:
        for name, value in env.items():
            self._set(name, value, layer, document, (*key, name), source)

    def _set(
        self,
        name: str,
        value: values.DocumentValue,
        layer: str,
        document: Document,
        key: Key,
        source: str,
    ) -> None:
        home, there = document.origin(key)
        line = document.line(key) if document.lines else 0
        origin = Origin(layer, home.shown_path, line, _source(home, there, source))
        if value is None:
            # Also without an earlier value: the nodes must not detect it.
            self.removed[name] = origin
            self.env.pop(name, None)
            self.origins.pop(name, None)
            return
        self.env[name] = self._resolve(value)
        self.origins[name] = origin
        self.removed.pop(name, None)
        if layer in _NETWORK_LAYERS:
            # Also if the site's `env` or the command line gives another value.
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
        fact = fact_of(Facts(self.chosen), value.name)
        if not fact:
            chosen = self.chosen
            document = chosen.system_document
            where = ("workloads", chosen.workload.name, chosen.round, value.name)
            document.add(
                where,
                f"this key is required, because the environment of {chosen.workload.name} refers "
                "to it",
            )
            document.check()
        return values.Text(fact)

    def _check_network(self) -> None:
        kind = self.chosen.fabric.kind
        nodes = self.chosen.system.nodes
        if kind == "none" and nodes > 1 and self.chosen.accelerator.gfx:
            self._warn(
                "fabric", f"{self.chosen.system.name} has {nodes} nodes but its fabric is none"
            )
        if self.site_document is None or kind == "none" or nodes == 1:
            return
        missing = [
            key
            for key, name in (("socket_ifname", "NCCL_SOCKET_IFNAME"), ("ib_hca", "NCCL_IB_HCA"))
            if name not in self.env
            and not (name in self.removed and self.removed[name].layer in _GIVEN_LAYERS)
            and not (key == "ib_hca" and kind == "ethernet")
        ]
        for key in missing:
            self._warn(
                f"network.{key}",
                f"network.{key} is not set: every node will detect its devices",
            )

    def _mounts(self) -> tuple[Mount, ...]:
        shared = self.chosen.stack
        mounts = shared.mounts if shared.mounts is not None else self.chosen.workload.mounts
        folders = self._data_folders([mount.variable for mount in mounts])
        return tuple(
            Mount(
                mount.variable,
                mount.subpath or "",
                _below(folders.get(mount.variable), mount.subpath),
                mount.container,
                mount.read_only,
                mount.written,
            )
            for mount in mounts
        )

    def _data_folders(self, variables: list[str]) -> dict[str, str]:
        name = self.chosen.workload.name
        given = self.site.data.get(name, {})
        document = self.site_document or Document(Path(f"site {self.site.name}"))
        check_data_variables(document, given, self.chosen.workload)
        document.check()
        missing = sorted(set(variables) - set(given))
        if missing and self.site_document is not None:
            self._warn(
                "data",
                f"the site has no data.{name}.{missing[0]}; job.sh needs it in its environment",
            )
        return given

    def _container(self) -> Container:
        merged = {
            **self.chosen.stack.container.model_dump(exclude_none=True),
            **self.chosen.mine.container.model_dump(exclude_none=True),
        }
        part = ContainerPart.model_validate(merged)
        site = self.site.container
        wanted = self.chosen.system.nodes > 1 and self.site.network.rdma != "off"
        rdma = self.chosen.fabric.devices if wanted else []
        devices = dict.fromkeys(
            [*self.chosen.accelerator.devices, *rdma, *(part.devices or []), *site.devices]
        )
        caps = dict.fromkeys(part.caps or [])
        ulimits = dict(part.ulimits or {})
        if rdma:
            # A NIC needs locked memory, else registration fails, or RCCL uses TCP.
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
            options=(*(f"--env-file={path}" for path in site.env_files), *site.options),
        )

    def _files(self) -> tuple[str, ...]:
        documents = [
            self.chosen.system_document,
            self.chosen.workload_document,
            *self.chosen.shared_documents,
        ]
        if self.site_document is not None:
            documents.append(self.site_document)
        return tuple(dict.fromkeys(str(path) for document in documents for path in document.paths))


def _source(home: Document, key: Key, source: str) -> str:
    """Return a variable's source: if inherited, that of its original round."""
    if key[:1] != ("rounds",):
        return source
    return str(home.data["rounds"][key[1]].get("source") or "")


def _below(folder: str | None, subpath: str | None) -> str | None:
    if folder is None:
        return None
    return f"{folder.rstrip('/')}/{subpath}" if subpath else folder

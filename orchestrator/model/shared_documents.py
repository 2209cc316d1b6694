"""Facts in systems/shared/*.yaml, which systems name or include."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from orchestrator.model.fields import AbsolutePath, Env, Line, Lines, Name, refuse
from orchestrator.model.part import DocumentPart, NameOr


class Accelerator(DocumentPart):
    """A GPU model. `gfx` is the ISA name; "" without a GPU."""

    title: Line
    gfx: str = ""
    memory_gb: int | None = Field(default=None, ge=1, le=100_000)
    devices: list[AbsolutePath] = []
    note: str = ""


class Host(DocumentPart):
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
    """A kind of network between nodes, with its RCCL settings.

    Names of interfaces and devices belong to the site; the drivers and names by which a node
    recognises its RDMA devices belong here.
    """

    title: Line
    kind: FabricKind
    devices: list[AbsolutePath] = []
    drivers: Lines = []
    """Patterns of the kernel driver's name; empty: any device is of the kind."""
    names: Lines = []
    """Patterns of device names, for nodes without a known driver."""
    link_layer: Literal["", "Ethernet", "InfiniBand"] = ""
    gbps: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Rate of one device in Gb/s; 0: unknown."""
    nics_per_gpu: Annotated[int, Field(ge=0, le=64)] = 0
    """RDMA devices per GPU; 0: unknown, and not required."""
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
AcceleratorFact = Annotated[
    Any, BeforeValidator(_name_or(Accelerator)), NameOr(Accelerator), _NAME_OR_SCHEMA
]
HostFact = Annotated[Any, BeforeValidator(_name_or(Host)), NameOr(Host), _NAME_OR_SCHEMA]
FabricFact = Annotated[Any, BeforeValidator(_name_or(Fabric)), NameOr(Fabric), _NAME_OR_SCHEMA]


class Accelerators(DocumentPart):
    kind: Literal["accelerators"]
    accelerators: dict[Name, Accelerator]


class Hosts(DocumentPart):
    kind: Literal["hosts"]
    hosts: dict[Name, Host]


class Fabrics(DocumentPart):
    kind: Literal["fabrics"]
    fabrics: dict[Name, Fabric]


SHARED: dict[str, type[DocumentPart]] = {
    "accelerators": Accelerators,
    "hosts": Hosts,
    "fabrics": Fabrics,
}
"""Documents of facts that systems share, by kind."""

"""The system description, systems/<system>.json.

Later wins: descriptor < set.json < facts of the nodes (nodes/<node>/hardware.json) < --system-json
< options. Members and rules: MLCommons' system_desc_checker. Numbers are text, as in published
files and for the checker's joins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.errors import InputError
from orchestrator.evidence.hardware import captured
from orchestrator.evidence.sets import SetEvidence
from orchestrator.onnode.kernel.regular import parse, read_bytes
from orchestrator.submission.refusal import Undescribed

if TYPE_CHECKING:
    from orchestrator.model import System

_NEEDED, _OPTIONAL = True, False
MEMBERS = {
    "submitter": _NEEDED,
    "division": _NEEDED,
    "status": _NEEDED,
    "system_name": _NEEDED,
    "number_of_nodes": _NEEDED,
    "host_processors_per_node": _NEEDED,
    "host_processor_model_name": _NEEDED,
    "host_processor_core_count": _NEEDED,
    "host_processor_vcpu_count": _OPTIONAL,
    "host_processor_frequency": _OPTIONAL,
    "host_processor_caches": _OPTIONAL,
    "host_processor_interconnect": _OPTIONAL,
    "host_memory_capacity": _NEEDED,
    "host_storage_type": _OPTIONAL,
    "host_storage_capacity": _OPTIONAL,
    "host_networking": _OPTIONAL,
    "host_networking_topology": _OPTIONAL,
    "host_memory_configuration": _OPTIONAL,
    "accelerators_per_node": _NEEDED,
    "accelerator_model_name": _NEEDED,
    "accelerator_host_interconnect": _OPTIONAL,
    "accelerator_frequency": _OPTIONAL,
    "accelerator_on-chip_memories": _OPTIONAL,
    "accelerator_memory_configuration": _OPTIONAL,
    "accelerator_memory_capacity": _OPTIONAL,
    "accelerator_interconnect": _OPTIONAL,
    "accelerator_interconnect_topology": _OPTIONAL,
    "cooling": _OPTIONAL,
    "hw_notes": _OPTIONAL,
    "framework": _NEEDED,
    "other_software_stack": _OPTIONAL,
    "operating_system": _NEEDED,
    "sw_notes": _OPTIONAL,
}
"""Every member, and whether the result tables, and so a package, need it."""
STACK = "other_software_stack"
WHOLE = ("number_of_nodes", "host_processors_per_node", "accelerators_per_node")
"""The summarizer takes these through int()."""
STATUSES = {
    "onprem": "Available on-premise",
    "cloud": "Available cloud",
    "rdi": "Research, Development, or Internal (RDI)",
    "preview": "Preview",
}


class Description(NamedTuple):
    """All 33 members, "" for unknown, and the names of those from the catalogue alone."""

    members: dict[str, Any]
    catalogued: list[str]


def describe(
    described: Mapping[str, Any],
    root: Path,
    options: Mapping[str, str],
    given: Mapping[str, Any],
    systems_dirs: Sequence[Path] = (),
    named: str = "",
) -> Description:
    """`described` is set.json ({} for logs of a `named` system), `options` come from the command
    line, `given` from the user's file."""
    known = from_catalogue(str(described.get("system") or named), systems_dirs)
    seen = {
        **_from_set(described),
        **captured(SetEvidence(root), MEMBERS),
        **given,
        **options,
    }
    members = dict.fromkeys(MEMBERS, "") | known | seen
    return Description(
        {name: _text(value) for name, value in members.items()},
        [name for name in MEMBERS if known.get(name) and name not in seen],
    )


def _text(value: Any) -> Any:
    """Return numbers as text; objects keep their shape."""
    if isinstance(value, dict):
        return {str(name): _text(item) for name, item in value.items()}
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def from_catalogue(name: str, systems_dirs: Sequence[Path] = ()) -> dict[str, str]:
    """Return the members of the system's descriptor; {} for an unknown name."""
    from orchestrator.errors import OrchestratorError
    from orchestrator.model import Catalogue

    if not name or "/" in name:
        return {}
    try:
        catalogue = Catalogue(systems_dirs)
        _, system = catalogue.system(name)
    except OrchestratorError:
        return {}
    return _facts(catalogue, system)


def _facts(catalogue: Any, system: System) -> dict[str, str]:
    members: dict[str, Any] = {
        "number_of_nodes": system.nodes,
        "accelerators_per_node": system.gpus_per_node,
    }
    if accelerator := catalogue.fact("accelerators", system.accelerator):
        memory = f"{accelerator.memory_gb} GB" if accelerator.memory_gb else ""
        members |= {
            "accelerator_model_name": accelerator.title,
            "accelerator_memory_capacity": memory,
        }
    if host := catalogue.fact("hosts", system.host):
        members |= {
            "host_processor_model_name": host.cpu,
            "host_processors_per_node": host.sockets or "",
            "host_processor_core_count": host.cores_per_socket or "",
            "host_memory_capacity": host.memory,
            "operating_system": host.os,
            "host_networking": host.network,
            "hw_notes": host.title,
        }
    fabric = catalogue.fact("fabrics", system.fabric)
    if fabric and fabric.kind != "none":
        members["host_networking_topology"] = fabric.title
    return {name: str(value) for name, value in members.items()}


def _from_set(described: Mapping[str, Any]) -> dict[str, str]:
    members = {
        "number_of_nodes": described.get("nodes"),
        "accelerators_per_node": described.get("gpus_per_node"),
        "system_name": described.get("system"),
        STACK: f"container image {described['image']}" if described.get("image") else None,
    }
    return {name: str(value) for name, value in members.items() if value}


def joined(earlier: Any, stack: Any) -> Any:
    """Return the software of sets with images of their own; an object is the user's, for all."""
    if isinstance(earlier, dict):
        return earlier
    return "; ".join(filter(None, dict.fromkeys([*earlier.split("; "), stack])))


def read_given(path: Path) -> dict[str, Any]:
    """Read --system-json. Raises InputError."""
    members = _object(path)
    for name, value in members.items():
        if not isinstance(value, (str, int, float)) and not (
            name == STACK and isinstance(value, dict)
        ):
            raise InputError(
                f"{path}: `{name}` is {type(value).__name__}, and must be text",
                hint=f'write "{name}": "..."',
            )
    return members


def _object(path: Path) -> dict[str, Any]:
    try:
        value = parse(read_bytes(path))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else f"is no JSON: {error}"
        raise InputError(f"{path}: {why}", hint="orchestrator docs package") from error
    if not isinstance(value, dict):
        raise InputError(
            f"{path}: is not a JSON object",
            hint="orchestrator docs package",
        )
    return value


def description_problems(members: Mapping[str, Any], name: str) -> list[Undescribed]:
    missing = [
        name
        for name, is_needed in MEMBERS.items()
        if is_needed and not str(members.get(name, "")).strip()
    ]
    problems = []
    if missing:
        problems.append(
            f"systems/{name}.json: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} "
            "required: pass --system-json FILE"
            + (" or --framework TEXT" if "framework" in missing else "")
        )
    for member in WHOLE:
        text = str(members.get(member, ""))
        if text and not text.isdecimal():
            problems.append(
                f"systems/{name}.json: {member} is {text!r}, and must be a whole number"
            )
    if members.get("status") and members["status"] not in STATUSES.values():
        problems.append(
            f"systems/{name}.json: status is {members['status']!r}; it must be one of "
            f"{', '.join(STATUSES.values())}"
        )
    if members.get("division") not in ("closed", "open"):
        problems.append(
            f"systems/{name}.json: division is {members.get('division')!r}; it must be closed or "
            "open"
        )
    return [Undescribed(problem) for problem in problems]


def empty_members(members: Mapping[str, Any]) -> list[str]:
    """Return empty members: accepted, but reviewers ask."""
    return [name for name in MEMBERS if not members.get(name)]

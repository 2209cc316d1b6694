"""The lines of `orchestrator systems`, prepared for the shipped catalogue.

Reading all documents takes ten times as long as printing. generated/systems.json (`make reference`)
has the lines and a digest of their documents; if it differs, they are read.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from orchestrator.resources import data_dir, generated_file

if TYPE_CHECKING:
    from orchestrator.model.documents import System

INDEX = "systems.json"
"""In generated/: {"documents": digest, "systems": [line, ...]}."""


def line(system: System) -> dict[str, Any]:
    """Return the system's facts, rounds and submitters, for JSON."""
    from orchestrator.model.compose import round_order

    def name(fact: Any) -> str | None:
        return fact if isinstance(fact, str) or fact is None else fact.title

    return {
        "name": system.name,
        "title": system.title,
        "accelerator": name(system.accelerator),
        "nodes": system.nodes,
        "gpus_per_node": system.gpus_per_node,
        "host": name(system.host),
        "fabric": name(system.fabric),
        "workloads": {
            workload: sorted(rounds, key=round_order)
            for workload, rounds in system.workloads.items()
        },
        "submitters": {
            workload: {name: part.submitter or "" for name, part in rounds.items()}
            for workload, rounds in system.workloads.items()
        },
    }


def shipped() -> list[dict[str, Any]] | None:
    """Return the shipped lines; None if the documents differ from the index."""
    try:
        with open(generated_file(INDEX), encoding="utf-8") as file:
            index = json.load(file)
        return list(index["systems"]) if index["documents"] == digest() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def digest() -> str:
    """Hash names and contents of shipped documents that affect a system."""
    whole = hashlib.sha256()
    systems = str(data_dir("systems"))
    for folder in (systems, os.path.join(systems, "shared"), str(data_dir("workloads"))):
        for name in sorted(os.listdir(folder)):
            if name.endswith(".yaml"):
                with open(os.path.join(folder, name), "rb") as file:
                    content = file.read()
                whole.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
                whole.update(content)
    return whole.hexdigest()


def index_text() -> str:
    """Raises DescriptorError for a wrong document."""
    from orchestrator.model.catalogue import Catalogue

    lines = [json.dumps(line(system), ensure_ascii=False) for system in Catalogue().systems()]
    return f'{{"documents": "{digest()}", "systems": [\n' + ",\n".join(lines) + "\n]}\n"

"""The bundle of a set: its files, where it sets each variable, and what it was made from."""

from __future__ import annotations

import os
import re

from orchestrator.evidence.environment import LARGEST
from orchestrator.evidence.sets import SetEvidence
from orchestrator.onnode.records import read_bytes

_EXPORT = re.compile(r"^\s*export ([A-Za-z_]\w*)=")


def files(evidence: SetEvidence) -> dict[str, bytes]:
    """Return path in the bundle -> content, in order. Links, byte code and what is no file are no part of it."""
    found, bundle = {}, evidence.layout.bundle
    for folder, _, names in os.walk(bundle):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path) and "__pycache__" not in path.split("/"):
                try:
                    found[os.path.relpath(path, bundle)] = read_bytes(path)
                except OSError as error:
                    evidence.findings.add(path, f"cannot be read: {error.strerror or error}")
    return dict(sorted(found.items()))


def places(evidence: SetEvidence) -> dict[str, str]:
    """Return name -> `file:line` in the bundle that sets it last."""
    found, bundle = {}, evidence.layout.bundle
    configs = [name for name in evidence.findings.names(bundle) if name.startswith("config_") and name.endswith(".sh")]
    for name in [*configs, "rccl_env.sh"]:
        for number, line in enumerate(evidence.findings.text(bundle / name, LARGEST).splitlines(), 1):
            if match := _EXPORT.match(line):
                found[match.group(1)] = f"{name}:{number}"
    return found


def inputs(evidence: SetEvidence) -> set[str]:
    """Return the hashes of the documents and templates that the bundle was made from."""
    named = evidence.findings.json(evidence.layout.bundle / "manifest.json").get("inputs")
    return {str(value) for value in named.values()} if isinstance(named, dict) else set()

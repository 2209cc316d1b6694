"""A node's facts for a site file, printed as JSON for `orchestrator init`. Nothing changes."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import replace
from shutil import which
from typing import Any

from ..kernel.records import write_bytes
from ..kernel.system import ask
from .gpu import MODEL_OF_ID, detect_gpus
from .network import Network
from .node import Node, shortened
from .tools import Smi

ANSWER_S = 10
"""Limit for an engine's answer."""
ENGINES = ("docker", "podman")
FILE = "look.json"


def look(node: Node) -> int:
    gpus = list(detect_gpus(node, Smi(node))[1].values())
    models = {MODEL_OF_ID.get(gpu.get("id", ""), gpu.get("name", "")) for gpu in gpus} - {""}
    sudo = _works(["sudo", "-n", "true"])[0]
    facts = {
        "schema": 1,
        "node": node.name,
        "python": sys.version.split()[0],
        "root": os.geteuid() == 0,
        "sudo": sudo,
        "sudo_installed": which("sudo") is not None,
        "gpus": len(gpus),
        "gpu_models": sorted(models),
        "engines": [_engine(name, sudo) for name in ENGINES],
        "network": _network(node, len(gpus)),
    }
    facts["log_dir"] = _leave(node, facts)
    os.write(1, (json.dumps(facts) + "\n").encode())
    return 0


def _works(command: list[str]) -> tuple[bool, str]:
    status, text = ask(command, ANSWER_S, errors=True)
    said = [line for line in text.splitlines() if line.strip()]
    return status == 0, shortened(said[-1] if said else "", 200)


def _engine(name: str, sudo: bool) -> dict[str, Any]:
    """`command`: [] if the engine cannot be called on this node."""
    last = ""
    for prefix in ([], ["sudo", "-n"]) if sudo and os.geteuid() != 0 else ([],):
        fits, last = _works([*prefix, name, "info"])
        if fits:
            return {"name": name, "command": [*prefix, name], "said": ""}
    return {"name": name, "command": [], "said": last}


def _network(node: Node, gpus: int) -> dict[str, Any]:
    """As a job over several nodes would detect it, with a device per GPU."""
    settings = replace(
        node.settings, nnodes=2, network_rdma="preferred", fabric="any", fabric_devices=gpus
    )
    settings = replace(settings, fabric_drivers=(), fabric_link_layer="", fabric_gbps=0)
    network = Network(node._replace(settings=settings))
    network.check_interfaces()
    network.decide()
    return {
        "interface": network.route,
        "devices": [
            {"port": port.port, "driver": port.driver, "gbps": port.gbps, "use": port.use}
            for port in network.ports
        ],
        "used": network.used,
        "gid_index": network.gid,
        "troubles": network.troubles,
    }


def _leave(node: Node, facts: dict[str, Any]) -> bool:
    with suppress(OSError):
        write_bytes(node.layout.root / FILE, json.dumps(facts).encode(), sync=False)
        return True
    return False

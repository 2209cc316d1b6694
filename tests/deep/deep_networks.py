"""Nodes with networks of their own on this host: network namespaces on a bridge, with limits on their links."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping

import pytest


def require_namespaces() -> None:
    """Skip where namespaces cannot be made; with CI=true that is a failure."""
    problem, probe = "", f"od{os.getpid()}-probe"
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        problem = "network namespaces need root and iproute2"
    elif subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode:
        problem = "this machine does not allow network namespaces"
    else:
        subprocess.run(["ip", "netns", "delete", probe], check=True)
    if problem and os.environ.get("CI") == "true":
        pytest.fail(problem, pytrace=False)
    if problem:
        pytest.skip(problem)


@contextlib.contextmanager
def networks(names: list[str], limits: Mapping[str, str], usual: str) -> Iterator[str]:
    """Make a namespace per name, all on one bridge; give their prefix. What a node sends is limited by `limits`, else `usual`."""
    prefix = f"od{os.getpid()}-"
    hub = f"{prefix}hub"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

    try:
        ip("netns", "add", hub)
        ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", hub, "link", "set", "bridge", "up")
        for number, name in enumerate(names):
            space = prefix + name
            ip("netns", "add", space)
            ip(
                "-n",
                space,
                "link",
                "add",
                "eth0",
                "type",
                "veth",
                "peer",
                "name",
                f"port{number}",
                "netns",
                hub,
            )
            ip("-n", hub, "link", "set", f"port{number}", "master", "bridge", "up")
            ip("-n", space, "address", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
            limit(prefix + name, limits.get(name, usual))
        yield prefix
    finally:
        for space in [hub, *(prefix + name for name in names)]:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)


def limit(space: str, rate: str) -> None:
    subprocess.run(
        [
            "tc",
            "-n",
            space,
            "qdisc",
            "replace",
            "dev",
            "eth0",
            "root",
            "tbf",
            "rate",
            rate,
            "burst",
            "256kb",
            "latency",
            "50ms",
        ],
        check=True,
        capture_output=True,
    )

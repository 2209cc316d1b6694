"""What is said to podman in other words than to docker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.onnode.agent.container import pulled_name
from orchestrator.onnode.agent.node import removal


def node(engine: str, image: str = "") -> Any:
    return SimpleNamespace(
        settings=SimpleNamespace(engine=engine, engine_command=("sudo", engine), cont=image)
    )


@pytest.mark.parametrize(
    ("image", "pulled"),
    [
        ("rocm/amd-mlperf:x_6.0", "docker.io/rocm/amd-mlperf:x_6.0"),
        ("debian", "docker.io/library/debian"),
        ("debian:12.1", "docker.io/library/debian:12.1"),
        ("rocm/x@sha256:12", "docker.io/rocm/x@sha256:12"),
        ("quay.io/rocm/x:1", "quay.io/rocm/x:1"),
        ("registry:5000/x:1", "registry:5000/x:1"),
        ("localhost/x:1", "localhost/x:1"),
    ],
)
def test_a_name_without_a_registry_means_to_podman_what_it_means_to_docker(
    image: str, pulled: str
) -> None:
    assert pulled_name(node("podman", image).settings) == pulled
    assert pulled_name(node("docker", image).settings) == image


def test_podman_ends_a_container_before_it_removes_it() -> None:
    assert removal(node("docker"), "c") == [["sudo", "docker", "rm", "--force", "c"]]
    assert removal(node("podman"), "c") == [
        ["sudo", "podman", "stop", "--time", "0", "c"],
        ["sudo", "podman", "rm", "--force", "c"],
    ]

"""The site's proxy in a step's command, and in what the engine is asked for."""

from __future__ import annotations

import json
import shlex
import socketserver
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import docker
import pytest
from servers import on_a_thread

from orchestrator.model import load_site
from orchestrator.prepare.plan import Plan, make_plan
from orchestrator.prepare.step import StepRunner, command_line

SITE = """\
log_dir: {top}
data: {{llama31_8b: {{DATADIR: {top}/d, MODEL: {top}/m}}}}
container: {{proxy: {{https: "http://proxy.example:3128", no_proxy: .cluster}}}}
"""
DIRECT = "localhost,127.0.0.1,::1,.cluster"
PROXY = {
    "https_proxy=http://proxy.example:3128",
    "HTTPS_PROXY=http://proxy.example:3128",
    f"no_proxy={DIRECT}",
    f"NO_PROXY={DIRECT}",
}


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    path = tmp_path / "site.yaml"
    path.write_text(SITE.format(top=tmp_path))
    return make_plan("llama31_8b", load_site(path))


def test_the_command_of_a_step_has_the_proxy(plan: Plan) -> None:
    words = shlex.split(command_line(plan, plan.steps[0]))
    assert {word.removeprefix("--env=") for word in words if word.startswith("--env=")} == PROXY


class Engine(BaseHTTPRequestHandler):
    """An engine without containers, which keeps what it is asked to make."""

    made: ClassVar[list[dict[str, Any]]] = []

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(404, {"message": "No such container"})

    def do_POST(self) -> None:
        self.made.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer(201, {"Id": "c1"})

    def _answer(self, status: int, answer: dict[str, str]) -> None:
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def test_the_container_of_a_step_has_the_proxy(plan: Plan, tmp_path: Path) -> None:
    address = tmp_path / "sock"
    Engine.made.clear()
    with (
        on_a_thread(socketserver.UnixStreamServer(str(address), Engine)),
        closing(docker.DockerClient(base_url=f"unix://{address}", version="1.43")) as client,
    ):
        runner = StepRunner(client, "sha256:0", plan, lambda piece: None)
        assert runner._create(plan.steps[0], "true") == "c1"
    assert set(Engine.made[0]["Env"]) == PROXY

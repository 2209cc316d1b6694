"""The room that a preparation needs in the engine's storage."""

from __future__ import annotations

import json
import os
import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from prepare_parts import TOKEN, Data
from servers import on_a_thread

from orchestrator.errors import ExitCode
from orchestrator.model import load_site
from orchestrator.prepare.plan import make_plan
from orchestrator.prepare.sizes import spaces

FULL = Path("/proc")
"""A file system without free space."""
CONTAINERD = [["driver-type", "io.containerd.snapshotter.v1"]]


@contextmanager
def an_engine(socket: Path, root: str, status: list[list[str]]) -> Iterator[str]:
    """Serve the answers of an engine without images, whose storage is `root`."""
    info = {"DockerRootDir": root, "DriverStatus": status}

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            about = {"ApiVersion": "1.44"} if self.path.endswith("/version") else info
            missing = "/images/" in self.path
            body = json.dumps({"message": "No such image"} if missing else about).encode()
            self.send_response(404 if missing else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "test"

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with on_a_thread(socketserver.ThreadingUnixStreamServer(str(socket), Answers)):
        yield f"unix://{socket}"


def test_the_engine_storage_counts_with_the_data_on_its_file_system(folders: Data) -> None:
    plan = make_plan("llama2_70b_lora", load_site(folders.site), round="5.1")
    assert [space.need for space in spaces(plan)] == [270 * 10**9]
    (together,) = spaces(plan, folders.top / "docker")
    assert together.need == (270 + 138) * 10**9
    data, storage = spaces(plan, FULL)
    assert (data.need, storage.need) == (270 * 10**9, 138 * 10**9)
    assert not storage.enough and str(storage).startswith("/proc: 0 bytes can be used there")
    newest = make_plan("llama2_70b_lora", load_site(folders.site), round="6.0")
    assert len(spaces(newest, FULL)) == 1


def test_a_full_engine_storage_is_refused_before_any_step(folders: Data) -> None:
    folders.env["HF_TOKEN"] = TOKEN
    with an_engine(folders.top / "sock", str(FULL), []) as folders.engine:
        done = folders.prepare("llama2_70b_lora", "--round", "5.1")
        assert done.returncode == ExitCode.BAD_INPUT, done.stderr
        assert "/proc: 0 bytes can be used there, and 138 GB are needed" in done.stderr
        assert "larger storage" in done.stderr
        done = folders.prepare("llama2_70b_lora", "--round", "5.1", "--force-space")
        assert "warning: /proc" in done.stderr and "does not have" in done.stderr
    assert not folders.folder("llama2").exists()
    shown = folders.prepare("llama2_70b_lora", "--round", "5.1", "--dry-run")
    assert "# the engine's storage: 138 GB are needed there, too" in shown.stdout


@pytest.mark.parametrize("status", [[], CONTAINERD])
def test_a_storage_that_is_not_here_is_not_checked(folders: Data, status: list[list[str]]) -> None:
    """The engine is another machine's, or its folder is hidden from this user."""
    folders.env["HF_TOKEN"] = TOKEN
    root = "/no/such/folder" if not status else "/proc"
    if status and os.path.isdir("/var/lib/containerd"):
        pytest.skip("this machine has containerd's store")
    with an_engine(folders.top / "sock", root, status) as folders.engine:
        done = folders.prepare("llama2_70b_lora", "--round", "5.1", "--force-space")
    assert "138 GB" not in done.stderr and "does not have" in done.stderr

"""`systems import IMAGE`: the config is copied out of an image that is never started."""

from __future__ import annotations

import json
import socketserver
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar

import pytest
from servers import on_a_thread
from tars import tar_of
from test_import_round import CONFIG

from orchestrator.cli import main

FILES = {"config_MI355X_2x8x1.sh": CONFIG, "config_other.sh": "export A=1\n", "train.py": ""}


def archive() -> bytes:
    return tar_of({f"code/{name}": text for name, text in FILES.items()}, 0o644)


class EngineHandler(BaseHTTPRequestHandler):
    """The engine's interface, as far as copying out of an image needs it."""

    asked: ClassVar[list[str]] = []

    def answer(self, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Api-Version", "1.41")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def handle_any(self) -> None:
        if length := int(self.headers.get("Content-Length") or 0):
            self.rfile.read(length)
        self.asked.append(f"{self.command} {self.path.split('?')[0]}")
        if "/archive" in self.path:
            self.answer(archive(), "application/x-tar", X_Docker_Container_Path_Stat="e30=")
        elif "/images/" in self.path:
            image = {"Id": "sha256:1", "RepoTags": ["own/image:7.0"], "RepoDigests": [], "Size": 9,
                     "Created": "2026-01-01T00:00:00Z", "Architecture": "amd64", "Os": "linux"}  # fmt: skip
            self.answer(json.dumps(image).encode())
        elif "/version" in self.path:
            self.answer(json.dumps({"ApiVersion": "1.41", "Version": "28"}).encode())
        else:
            self.answer(json.dumps({"Id": "c1", "Warnings": []}).encode())

    do_GET = do_POST = do_DELETE = do_HEAD = handle_any

    def address_string(self) -> str:
        return "engine"

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "engine.sock"
    EngineHandler.asked.clear()
    with on_a_thread(socketserver.ThreadingUnixStreamServer(str(path), EngineHandler)):
        yield f"unix://{path}"


def test_a_config_comes_out_of_an_image_that_is_not_started(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    words = ["systems", "import", "own/image:7.0", "--round", "7.0", "--engine", engine, "--json"]
    assert main(words) == 2
    assert "config_MI355X_2x8x1.sh, config_other.sh" in capsys.readouterr().err
    assert main([*words, "--config", "config_MI355X_2x8x1.sh"]) == 0
    result = json.loads(capsys.readouterr().out)
    round_text = (tmp_path / "mine/workloads/llama31_8b.yaml").read_text()
    assert result["system"] == "MI355X_2x8x1" and "image: own/image:7.0" in round_text
    assert not [asked for asked in EngineHandler.asked if "start" in asked]
    made = [asked for asked in EngineHandler.asked if asked.endswith("/containers/create")]
    removed = [asked for asked in EngineHandler.asked if asked.startswith("DELETE")]
    assert len(made) == len(removed) == 2


def test_the_engine_is_the_sites(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    podman = tmp_path / "podman"
    link = f"""for address; do :; done; ln -s {engine[7:]} "${{address#unix://}}"; exec tail -f /dev/null"""
    podman.write_text(f"#!/bin/sh\n{link}\n")
    podman.chmod(0o755)
    site = tmp_path / "site.yaml"
    site.write_text(
        f"kind: site\nlog_dir: {tmp_path}\ncontainer: {{engine: podman, command: [{podman}]}}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nowhere.sock")
    words = ["systems", "import", "own/image:7.0", "--round", "7.0", "--site", str(site)]
    assert main([*words, "--config", "config_MI355X_2x8x1.sh", "--dry-run"]) == 0, (
        capsys.readouterr().err
    )

"""Stand-ins for nodes: engines with image stores of their own, SSH servers, a registry."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which

import docker
from ports import free_port
from programs import need
from servers import on_a_thread
from tars import tar_of
from until import LIMIT_S


def tiny_tar(text: str) -> bytes:
    """The root of an image: one file."""
    return tar_of({"content": text})


@dataclass(frozen=True)
class EngineNode:
    """An engine with an image store of its own."""

    name: str
    socket: Path

    @property
    def address(self) -> str:
        return f"unix://{self.socket}"

    def client(self) -> AbstractContextManager[docker.DockerClient]:
        return closing(docker.DockerClient(base_url=self.address, timeout=300))

    def add_image(self, reference: str, text: str) -> str:
        """Put an image of one file into the store; returns its id."""
        repository, _, tag = reference.rpartition(":")
        with self.client() as client:
            client.api.import_image_from_data(tiny_tar(text), repository=repository, tag=tag)
            return str(client.api.inspect_image(reference)["Id"])

    def image_id(self, reference: str) -> str:
        with self.client() as client:
            return str(client.api.inspect_image(reference)["Id"])

    def clear(self) -> None:
        with self.client() as client:
            for image in client.api.images(quiet=True, all=True):
                client.api.remove_image(image, force=True)


@dataclass(frozen=True)
class SshHosts:
    """SSH servers on this machine: `config` names them as a user's ~/.ssh/config does."""

    folder: Path
    config: Path
    names: tuple[str, ...]

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"


def sshd_of(folder: Path, name: str, address: str, port: int, setenv: str) -> subprocess.Popen[str]:
    """Start an SSH server with a host key of its own; returns when it listens."""
    config = folder / f"{name}.conf"
    config.write_text(
        "\n".join(
            [
                f"ListenAddress {address}:{port}",
                f"HostKey {folder}/{name}.key",
                f"AuthorizedKeysFile {folder}/user.key.pub",
                "StrictModes no",
                "UsePAM no",
                "PasswordAuthentication no",
                "KbdInteractiveAuthentication no",
                "PermitRootLogin prohibit-password",
                "PidFile none",
                "MaxStartups 100",
                # The shell of a login reads ~/.bashrc: root's of this machine may print.
                f"SetEnv HOME={folder} {setenv}",
            ]
        )
        + "\n"
    )
    server = subprocess.Popen(
        [which("sshd", path="/usr/sbin:/usr/bin") or "sshd", "-D", "-e", "-f", config],
        text=True,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert server.stderr is not None
    for line in server.stderr:
        if "Server listening" in line:
            return server
    raise AssertionError(f"sshd ended with {server.wait()}")


def keygen(path: Path) -> str:
    subprocess.run(
        [need("ssh-keygen", package="openssh-client"), "-q", "-t", "ed25519", "-N", "", "-f", path],
        check=True,
    )
    return path.with_name(path.name + ".pub").read_text()


def start_hosts(stack: ExitStack, hosts: dict[str, str]) -> SshHosts:
    """Start an SSH server per name, with the environment that it gives; `stack` ends them."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="orch-ssh.")))
    user = keygen(folder / "user.key")
    assert user
    blocks = []
    for number, (name, setenv) in enumerate(hosts.items(), start=2):
        address = f"127.0.0.{number}"
        port = free_port(address)
        key = keygen(folder / f"{name}.key")
        with (folder / "known_hosts").open("a") as file:
            file.write(f"[{address}]:{port} {key}")
        server = sshd_of(folder, name, address, port, setenv)
        stack.callback(_stop, server)
        blocks.append(
            f"Host {name}\n  HostName {address}\n  Port {port}\n  User root\n"
            f"  IdentityFile {folder}/user.key\n  UserKnownHostsFile {folder}/known_hosts\n"
            "  StrictHostKeyChecking no\n"
        )
    (folder / "config").write_text("".join(blocks))
    return SshHosts(folder, folder / "config", tuple(hosts))


def _stop(server: subprocess.Popen[str]) -> None:
    server.terminate()
    server.wait(LIMIT_S)
    assert server.stderr is not None
    server.stderr.close()


@contextmanager
def lab_image(lab: object, reference: str, text: str) -> Iterator[str]:
    """An image of one file in the lab's engine; gives its id."""
    repository, _, tag = reference.rpartition(":")
    with closing(
        docker.DockerClient(base_url=f"unix://{lab.docker_socket}", timeout=300)
    ) as client:
        client.api.import_image_from_data(tiny_tar(text), repository=repository, tag=tag)
        try:
            yield str(client.api.inspect_image(reference)["Id"])
        finally:
            with suppress(docker.errors.ImageNotFound):
                client.api.remove_image(reference, force=True)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def tiny_contents() -> tuple[dict[str, bytes], bytes]:
    """Blobs by digest, and the manifest, of an image of one file."""
    layer = tiny_tar("from a registry")
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    return _contents(json.dumps(config).encode(), [layer])


def contents_of(engine: docker.DockerClient, reference: str) -> tuple[dict[str, bytes], bytes]:
    """Blobs by digest, and the manifest, of an engine's image with a new layer."""
    saved = io.BytesIO(b"".join(engine.api.get_image(reference)))
    with tarfile.open(fileobj=saved) as tar:

        def read(name: str) -> bytes:
            file = tar.extractfile(name)
            assert file is not None
            return file.read()

        [about] = json.loads(read("manifest.json"))
        config, top = json.loads(read(about["Config"])), tiny_tar(os.urandom(8).hex())
        config["rootfs"]["diff_ids"].append(_digest(top))
        config["history"].append({"created_by": "a test"})
        return _contents(json.dumps(config).encode(), [*map(read, about["Layers"]), top])


def _contents(config: bytes, layers: list[bytes]) -> tuple[dict[str, bytes], bytes]:
    packed = [gzip.compress(layer, compresslevel=1, mtime=0) for layer in layers]
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": kind,
            "config": {
                "mediaType": "application/vnd.docker.container.image.v1+json",
                "size": len(config),
                "digest": _digest(config),
            },
            "layers": [
                {
                    "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
                    "size": len(layer),
                    "digest": _digest(layer),
                }
                for layer in packed
            ],
        }
    ).encode()
    return {_digest(blob): blob for blob in (config, *packed)}, manifest


@dataclass
class Registry:
    """Serves one image by the registry protocol; to `login` only, where there is one.

    The first `busy` requests for the image are answered 429, each layer takes at least `slow_s`.
    Without `manifest` there is no image.
    """

    blobs: dict[str, bytes]
    manifest: bytes
    login: str = ""
    busy: int = 0
    slow_s: float = 0
    requests: int = 0
    """How often the image was requested."""
    address: str = ""


@contextmanager
def registry(user: str, password: str) -> Iterator[str]:
    """Serve one image by the registry protocol, to `user` only; gives host:port."""
    blobs, manifest = tiny_contents()
    login = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    with serving(Registry(blobs, manifest, login)) as server:
        yield server.address


@contextmanager
def serving(it: Registry) -> Iterator[Registry]:
    """Have it serve; gives it with its address, host:port."""
    stopped = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if it.login and self.headers.get("Authorization") != it.login:
                header = {"WWW-Authenticate": 'Basic realm="test"'}
                self.refuse(401, "UNAUTHORIZED", "authentication required", header)
            elif "/manifests/" in self.path:
                it.requests += self.command == "HEAD"
                if it.requests <= it.busy:
                    self.refuse(429, "TOOMANYREQUESTS", "pull rate limit")
                    return
                if not it.manifest:
                    self.refuse(404, "MANIFEST_UNKNOWN", "manifest unknown")
                    return
                kind = json.loads(it.manifest)["mediaType"]
                self.answer(
                    200,
                    it.manifest,
                    {"Content-Type": kind, "Docker-Content-Digest": _digest(it.manifest)},
                )
            else:
                blob = it.blobs.get(self.path.rpartition("/")[2], b"{}")
                if blob[:2] == b"\x1f\x8b":
                    stopped.wait(it.slow_s)
                self.answer(200, blob, {})

        do_HEAD = do_GET

        def refuse(
            self, status: int, code: str, message: str, headers: Mapping[str, str] = {}
        ) -> None:
            body = {"errors": [{"code": code, "message": message}]}
            self.answer(status, json.dumps(body).encode(), headers)

        def answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {
                "Content-Length": str(len(body)),
                "Docker-Distribution-Api-Version": "registry/2.0",
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    it.address = f"127.0.0.1:{server.server_port}"
    with on_a_thread(server):
        try:
            yield it
        finally:
            stopped.set()

"""Registries: Debian's docker-registry, open or with a token server, and one that misbehaves."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from ports import free_port
from programs import need
from servers import on_a_thread
from until import until

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"

Answer = Callable[[BaseHTTPRequestHandler], None]


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def descriptor(content: bytes, kind: str = "application/octet-stream") -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest_of(content), "size": len(content)}


def manifest_of(config: bytes, layers: list[bytes]) -> bytes:
    described = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor(config, "application/vnd.oci.image.config.v1+json"),
        "layers": [descriptor(layer, "application/vnd.oci.image.layer.v1.tar") for layer in layers],
    }
    return json.dumps(described).encode()


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Answer each request on this host as told; gives host:port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        do_CONNECT = do_GET

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with on_a_thread(server):
        yield f"127.0.0.1:{server.server_port}"


def send(to: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    to.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        to.send_header(name.replace("_", "-"), value)
    to.end_headers()
    to.wfile.write(body)


# ---- Debian's registry ----


@contextmanager
def real_registry(folder: Path, auth: dict[str, str] | None = None) -> Iterator[str]:
    """Run docker-registry on the storage `folder`; gives host:port."""
    program = need("docker-registry")
    address = f"127.0.0.1:{free_port()}"
    config: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder)}},
        "http": {"addr": address},
    }
    if auth:
        config["auth"] = {"token": auth}
    path = folder.parent / f"{address.partition(':')[2]}.yml"
    path.write_text(json.dumps(config))  # JSON is YAML
    process = subprocess.Popen(
        [program, "serve", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: _listens(address), process.poll)
        yield address
    finally:
        process.terminate()
        process.wait()


def _listens(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def push(address: str, repository: str, blobs: list[bytes]) -> None:
    for blob in blobs:
        start = Request(f"http://{address}/v2/{repository}/blobs/uploads/", b"", method="POST")
        with urlopen(start) as answer:
            place = answer.headers["Location"]
        kind = {"Content-Type": "application/octet-stream"}
        urlopen(Request(f"{place}&digest={digest_of(blob)}", blob, kind, method="PUT")).close()


def push_manifest(address: str, repository: str, tag: str, content: bytes, kind: str) -> None:
    url = f"http://{address}/v2/{repository}/manifests/{tag}"
    urlopen(Request(url, content, {"Content-Type": kind}, method="PUT")).close()


# ---- a token server ----


@contextmanager
def token_server(folder: Path, login: str) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Issue tokens that docker-registry verifies, to `login` only.

    Gives the registry's settings, and the list of Authorization headers that came.
    """
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test")])
    start, end = datetime.datetime(2020, 1, 1), datetime.datetime(2100, 1, 1)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, start, end)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    bundle = folder / "ca.pem"
    bundle.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    chain = base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode()
    seen: list[str] = []

    def answer(to: BaseHTTPRequestHandler) -> None:
        seen.append(to.headers.get("Authorization", ""))
        if seen[-1] != "Basic " + base64.b64encode(login.encode()).decode():
            send(to, 401, b'{"errors": [{"message": "wrong login"}]}')
            return
        asked = parse_qs(urlsplit(to.path).query)
        kind, repository, actions = asked["scope"][0].split(":")
        claims = {
            "iss": "test",
            "aud": asked["service"][0],
            "sub": "",
            "exp": int(end.timestamp()),
            "nbf": 0,
            "iat": 0,
            "jti": "1",
            "access": [{"type": kind, "name": repository, "actions": actions.split(",")}],
        }
        head = {"typ": "JWT", "alg": "RS256", "x5c": [chain]}
        text = ".".join(_packed(json.dumps(one).encode()) for one in (head, claims))
        signature = key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        token = f"{text}.{_packed(signature)}"
        send(to, 200, json.dumps({"token": token}).encode())

    with answering(answer) as address:
        settings = {
            "realm": f"http://{address}/token",
            "service": "a registry",
            "issuer": "test",
            "rootcertbundle": str(bundle),
        }
        yield settings, seen


def _packed(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
